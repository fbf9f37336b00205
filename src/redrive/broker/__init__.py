"""An embedded Kafka broker: a real one, on this machine only, for trials and tests."""

from redrive.broker.embedded import BrokerState, EmbeddedBroker

__all__ = ["BrokerState", "EmbeddedBroker", "configuration", "kafka_programs", "process"]
