"""Decides records by facts, and makes the records to write, without Spark or Kafka's client."""
