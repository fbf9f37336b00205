"""Outcome records: the ledger made from them, and its queries.

Functions raise ``EnvironmentFault`` if there is a ledger that cannot be read, and
``TransientFault`` if they ask the broker and it does not answer in time; docstrings name only
further errors.
"""

__all__ = [
    "acknowledgements", "bodies", "causes", "conditions", "history", "inventory", "ledger",
    "open_letters", "row_messages", "rows", "selection", "status", "storage", "table"
]  # fmt: skip
