"""Queue managers, their objects, and the resolution of a put's names to a queue.

A pure library: it knows neither Spark nor a Kafka client. What every put needs is here;
``redrive.topology.mq`` and ``redrive.topology.mqe`` are imported when their queue managers are.
"""

from redrive.topology.kafka import KafkaResolver
from redrive.topology.names import (
    Names,
    control_topic,
    escape,
    is_reserved,
    outcomes_topic,
    put_topic,
    remaining_topic,
    retry_topic,
    topic_name,
)
from redrive.topology.put import (
    UNLIMITED,
    Destination,
    QueueLimits,
    Refusal,
    Resolver,
    check_limits,
)
from redrive.topology.reasons import ADVICE, Reason

__all__ = [
    "ADVICE",
    "UNLIMITED",
    "Destination",
    "KafkaResolver",
    "Names",
    "QueueLimits",
    "Reason",
    "Refusal",
    "Resolver",
    "check_limits",
    "control_topic",
    "escape",
    "is_reserved",
    "outcomes_topic",
    "put_topic",
    "remaining_topic",
    "retry_topic",
    "topic_name",
]
