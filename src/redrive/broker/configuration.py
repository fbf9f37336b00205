"""The files that a single-node Kafka starts from."""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["HOST", "logging_properties", "server_properties"]

HOST = "127.0.0.1"
"""The broker listens on this machine only; an address, because a name may mean IPv6 first."""

_LOGGING = """\
rootLogger.level = info
rootLogger.appenderRef.console.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d %p %m (%c)%n
"""


def server_properties(
    data: str, *, port: int, controller_port: int, extra: Mapping[str, str]
) -> str:
    """A broker that is its own controller (KRaft), with one replica of everything.

    Args:
        data: Folder for the logs of the topics, as the broker's working folder sees it.
        port: Where clients connect.
        controller_port: Where the broker connects to itself.
        extra: Further broker properties, which win over the ones here.
    """
    properties = {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.voters": f"1@{HOST}:{controller_port}",
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
        "offsets.topic.replication.factor": "1",
        "transaction.state.log.num.partitions": "4",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "share.coordinator.state.topic.num.partitions": "4",
        "share.coordinator.state.topic.replication.factor": "1",
        "share.coordinator.state.topic.min.isr": "1",
        # A broker that was killed is let in again when its old session has run out.
        "broker.session.timeout.ms": "6000",
        "broker.heartbeat.interval.ms": "1000",
        # A quarter of the heap by default, for topics much larger than anyone keeps here.
        "log.cleaner.dedupe.buffer.size": str(16 * 1024 * 1024),
        **extra,
    }
    return "".join(f"{name}={value}\n" for name, value in properties.items())


def logging_properties() -> str:
    """Log4j's configuration: everything to standard output, which is the broker's log file."""
    return _LOGGING
