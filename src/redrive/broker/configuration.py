"""The configuration files of a broker, and free ports for it."""

from __future__ import annotations

import base64
import socket
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from random import randrange
from typing import Final, Self

HOST = "127.0.0.1"
"""The broker listens on this machine only; an address, because a name may mean IPv6 first."""

_REPLICAS: Final = 3
"""Replicas of every topic, with at least this many brokers."""
LOGGING: Final = """\
rootLogger.level = info
rootLogger.appenderRef.console.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d %p %m (%c)%n
"""
"""Log4j's configuration: everything to standard output, which is the broker's log file."""
_claims: Final[list[socket.socket]] = []
"""Sockets on the ports given to this process, which keep other processes from choosing them."""


@dataclass(frozen=True, slots=True)
class Quorum:
    """A broker's place in its cluster; each broker is also a controller (KRaft)."""

    node: int
    """The broker's number: 1 and up."""
    controller_ports: Mapping[int, int]
    """The address of each broker's controller, by number."""
    cluster_id: str
    """The cluster's id, in all its data folders; 22 characters."""

    @classmethod
    def of_one(cls, controller_port: int) -> Self:
        """A cluster of a single broker."""
        return cls(1, {1: controller_port}, new_cluster_id())


def new_cluster_id() -> str:
    """A unique cluster id in Kafka's form."""
    return base64.urlsafe_b64encode(uuid.uuid4().bytes).rstrip(b"=").decode()


def server_properties(data: str, port: int, quorum: Quorum, *, extra: Mapping[str, str]) -> str:
    """Properties of a broker that is also a controller: one replica alone, three with three.

    Args:
        data: Folder for the logs of the topics, as the broker's working folder sees it.
        port: Where clients connect.
        quorum: Its place among the brokers of the cluster.
        extra: Further broker properties, which override these.
    """
    controller_port = quorum.controller_ports[quorum.node]
    voters = (f"{node}@{HOST}:{at}" for node, at in quorum.controller_ports.items())
    replicas = min(_REPLICAS, len(quorum.controller_ports))
    in_sync = max(1, replicas - 1)  # one of three may be down
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
        # A wrong topic name must be an error, not a new topic.
        "auto.create.topics.enable": "false",
        "group.initial.rebalance.delay.ms": "0",
        # Few partitions of the internal topics, so that the first transaction is fast.
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
        # A killed broker can rejoin when its old session has expired.
        "broker.session.timeout.ms": "6000",
        "broker.heartbeat.interval.ms": "1000",
        # A quarter of the heap by default, for topics much larger than anyone keeps here.
        "log.cleaner.dedupe.buffer.size": str(16 * 1024 * 1024),
        **extra,
    }
    return "".join(f"{name}={value}\n" for name, value in properties.items())


def is_free(port: int) -> bool:
    """Whether a port is free."""
    with socket.socket() as probe:
        # A port whose last connections are still closing can be bound.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True


def free_port() -> int:
    """A free port that no other process is given until this one ends."""
    # Below the ports of outgoing connections, one of which could otherwise
    # occupy the broker's port while the broker is down.
    port = randrange(20_000, 32_000)  # noqa: S311 - a port is no secret
    claim = socket.socket()
    try:
        claim.bind((HOST, port))
    except OSError:
        claim.close()
        return free_port()
    # A server can listen on the port beside a bound socket that does not listen.
    claim.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    _claims.append(claim)
    return port
