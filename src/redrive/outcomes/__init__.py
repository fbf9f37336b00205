"""Outcome records: how they are written, the ledger made of them, and what it can answer."""
