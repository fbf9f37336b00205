"""Turns records and facts into the records to write, without Spark or Kafka's client."""
