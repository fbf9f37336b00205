"""The ledger: what became of every dead letter, kept as a Delta table and read without Spark."""
