"""Queue managers of kind ``kafka``: every topic of the cluster is a local queue."""

from redrive.topology.kafka.resolver import KafkaResolver

__all__ = ["KafkaResolver"]
