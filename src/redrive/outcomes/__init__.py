"""Outcome records: the ledger made from them, and its queries."""

__all__ = [
    "acknowledgements", "bodies", "causes", "conditions", "history", "inventory", "ledger",
    "open_letters", "row_messages", "rows", "selection", "status", "storage", "table"
]  # fmt: skip
