"""Progress and recovery of the job: the exactly-once protocol and held messages."""

__all__ = [
    "clock", "control", "epoch", "held", "instances", "machine", "other_applications", "own_topics",
    "protocol", "registry", "states", "tables"
]  # fmt: skip
