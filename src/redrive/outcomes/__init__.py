"""Outcome records: the ledger that is made of them, and queries on it."""
