"""The files that a broker starts from."""

from __future__ import annotations

import base64
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Self

HOST = "127.0.0.1"
"""The broker listens on this machine only; an address, because a name may mean IPv6 first."""

_REPLICAS: Final = 3
"""Replicas of every topic where there are as many brokers."""
LOGGING: Final = """\
rootLogger.level = info
rootLogger.appenderRef.console.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d %p %m (%c)%n
"""
"""Log4j's configuration: everything to standard output, which is the broker's log file."""


@dataclass(frozen=True, slots=True)
class Quorum:
    """A broker's place among the brokers of its cluster; each is a controller too (KRaft)."""

    node: int
    """The broker's number: 1 and up."""
    controller_ports: Mapping[int, int]
    """Where each broker's controller listens, by number."""
    cluster_id: str
    """What the data folders of one cluster have in common; 22 characters."""

    @classmethod
    def of_one(cls, controller_port: int) -> Self:
        """A broker that is a cluster by itself."""
        return cls(1, {1: controller_port}, new_cluster_id())


def new_cluster_id() -> str:
    """An id that no other cluster has, as Kafka writes them."""
    return base64.urlsafe_b64encode(uuid.uuid4().bytes).rstrip(b"=").decode()


def server_properties(data: str, port: int, quorum: Quorum, *, extra: Mapping[str, str]) -> str:
    """A broker that is a controller too: one alone keeps one replica of everything, three three.

    Args:
        data: Folder for the logs of the topics, as the broker's working folder sees it.
        port: Where clients connect.
        quorum: Its place among the brokers of the cluster.
        extra: Further broker properties, which win over the ones here.
    """
    controller_port = quorum.controller_ports[quorum.node]
    voters = (f"{node}@{HOST}:{at}" for node, at in quorum.controller_ports.items())
    replicas = min(_REPLICAS, len(quorum.controller_ports))
    in_sync = max(1, replicas - 1)  # one of three may be away
    properties = {
        "process.roles": "broker,controller",
        "node.id": str(quorum.node),
        "controller.quorum.voters": ",".join(voters),
        "controller.listener.names": "CONTROLLER",
        "listeners": f"PLAINTEXT://{HOST}:{port},CONTROLLER://{HOST}:{controller_port}",
        "advertised.listeners": f"PLAINTEXT://{HOST}:{port}",
        "inter.broker.listener.name": "PLAINTEXT",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "log.dirs": data,
        # A wrong topic name has to be an error and not a new topic.
        "auto.create.topics.enable": "false",
        "group.initial.rebalance.delay.ms": "0",
        # Few partitions of the internal topics, so that the first transaction is quick.
        "offsets.topic.num.partitions": "4",
        "offsets.topic.replication.factor": str(replicas),
        "transaction.state.log.num.partitions": "4",
        "transaction.state.log.replication.factor": str(replicas),
        "transaction.state.log.min.isr": str(in_sync),
        "share.coordinator.state.topic.num.partitions": "4",
        "share.coordinator.state.topic.replication.factor": str(replicas),
        "share.coordinator.state.topic.min.isr": str(in_sync),
        "default.replication.factor": str(replicas),
        "min.insync.replicas": str(in_sync),
        # A broker that was killed is let in again when its old session has run out.
        "broker.session.timeout.ms": "6000",
        "broker.heartbeat.interval.ms": "1000",
        # A quarter of the heap by default, for topics much larger than anyone keeps here.
        "log.cleaner.dedupe.buffer.size": str(16 * 1024 * 1024),
        **extra,
    }
    return "".join(f"{name}={value}\n" for name, value in properties.items())
