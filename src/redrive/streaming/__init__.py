"""The Structured Streaming job: sources, decisions, emitters and the ledger."""

__all__ = [
    "frames", "job", "ledger_query", "lifecycle", "projection", "session", "start", "topics"
]  # fmt: skip
