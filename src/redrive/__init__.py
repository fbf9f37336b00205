"""Redrive: a continuous dead-letter handler and message router on Kafka topics."""

__version__ = "0.1.0"
