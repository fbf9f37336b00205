"""The Structured Streaming job: sources, decisions, emitters and the ledger."""

__all__ = [
    "class_archive", "emission", "job", "ledger_query", "lifecycle", "losses", "projection",
    "session", "topics"
]  # fmt: skip
