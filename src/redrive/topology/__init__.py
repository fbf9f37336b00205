"""Queue managers, their objects, and the resolution of a put's names to a queue.

A pure library without Spark or a Kafka client. ``redrive.topology.mq`` and ``redrive.topology.mqe``
are imported when their queue managers are.
"""

__all__ = [
    "bindings", "document", "files", "kafka", "layout", "mq", "mqe", "names", "overview", "put",
    "receiving"
]  # fmt: skip
