"""An embedded Kafka broker: a real one, on this machine only, for trials and tests."""

from redrive.broker.embedded import BrokerState, BrokerStatus, EmbeddedBroker

__all__ = [
    "BrokerState", "BrokerStatus", "EmbeddedBroker", "configuration", "kafka_programs", "process"
]  # fmt: skip
