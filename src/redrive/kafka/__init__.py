"""The only importer of Kafka's clients: connections, questions, consumers, producers."""

__all__ = [
    "access", "admin", "administration", "cluster", "compacted", "connection", "copies",
    "deadline", "errors", "facts", "heartbeat", "producer", "properties", "reader", "records",
    "reports", "rights", "tokens", "waiting_keys", "watch", "writer"
]  # fmt: skip
