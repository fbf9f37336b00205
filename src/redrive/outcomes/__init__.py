"""Outcome records: the ledger that is made of them, and queries on it."""

__all__ = [
    "acknowledgements", "bodies", "causes", "criteria", "followed", "history", "inventory",
    "last_outcomes", "ledger", "open_letters", "progress", "row_messages", "rows", "selection",
    "status", "storage", "table"
]  # fmt: skip
