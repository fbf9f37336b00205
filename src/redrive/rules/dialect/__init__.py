"""DIALECT(KAFKA): what the rules-table language has for Kafka beside IBM's words.

A table whose first clause is DIALECT(KAFKA) has them; every other table is IBM's, and nothing here
takes part in reading it.
"""
