"""The Structured Streaming job: sources, decisions, emitters and the ledger."""

__all__ = [
    "job", "ledger_query", "lifecycle", "projection", "session", "start", "topics"
]  # fmt: skip
