"""The scripts of the demos: dead letters, those of Kafka, and networks of IBM MQ and MQe."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from redrive.demo.scripts.kafka import KafkaTeams
from redrive.demo.scripts.mq import MQ
from redrive.demo.scripts.mqe import MQE
from redrive.demo.scripts.network import Example, NetworkScript
from redrive.demo.scripts.orders import Orders

__all__ = ["NETWORKS", "KafkaTeams", "NetworkScript", "Orders"]

NETWORKS: Final[Mapping[str, Example]] = MappingProxyType({one.name: one for one in (MQ, MQE)})
"""The networks that have a demo, by name."""
