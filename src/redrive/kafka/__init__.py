"""The only importer of Kafka's clients: connections, questions, consumers, producers."""

__all__ = [
    "access", "administration", "cluster", "compacted", "connection", "deadline", "errors", "facts",
    "heartbeat", "producer", "records", "reports", "waiting_keys"
]  # fmt: skip
