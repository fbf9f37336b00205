"""Outcome records: the ledger made from them, and its queries."""

__all__ = [
    "acknowledgements", "bodies", "causes", "criteria", "followed", "history", "inventory",
    "last_outcomes", "ledger", "open_letters", "progress", "row_messages", "rows", "selection",
    "status", "storage", "table"
]  # fmt: skip
