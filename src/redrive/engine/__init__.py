"""Decides records by facts, and makes the records to write, without Spark or Kafka's client."""

__all__ = [
    "attempts", "breaker", "cache", "commands", "context", "decision", "edits", "facts",
    "message", "names", "ordering", "outcome", "put_decider", "put_record",
    "rules_decider", "slice", "sources", "statistics", "walk"
]  # fmt: skip
