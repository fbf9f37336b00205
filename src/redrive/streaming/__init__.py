"""The Structured Streaming job: sources, decisions, emitters and the ledger."""
