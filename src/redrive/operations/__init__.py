"""What an operator does with a job and its queues, without a command line.

Functions that ask a cluster raise ``TransientFault`` if it does not answer in time, and
``EnvironmentFault`` if it cannot be reached, or if there is a ledger that cannot be read; those
that change something raise ``ProtocolError`` if others kept writing meanwhile. Docstrings name only
further errors.
"""

__all__ = [
    "browse", "channel", "depths", "durations", "dynamic_queues", "handlers", "identify",
    "network", "process", "put", "put_trace", "record_view", "replay", "restart", "retention",
    "rights", "rule_targets", "schema_registry", "states", "supervision", "tables", "topics",
    "undelivered",
]  # fmt: skip
