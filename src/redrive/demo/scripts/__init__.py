"""The scripts of the demos: dead letters, those of Kafka, and networks of IBM MQ and MQe."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from redrive.demo.scripts.kafka import KafkaTeams
from redrive.demo.scripts.network import NetworkScript
from redrive.demo.scripts.orders import Orders
from redrive.demo.scripts.puts import Example

__all__ = ["NETWORKS", "KafkaTeams", "NetworkScript", "Orders"]

NETWORKS: Final[Mapping[str, Example]] = MappingProxyType(
    {name: Example.read(name) for name in ("mq", "mqe")}
)
