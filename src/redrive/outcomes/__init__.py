"""Outcome records: the ledger made from them, and its queries."""
