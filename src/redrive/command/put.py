"""``redrive put``: a message by MQ names, written to the intake of a queue manager."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import click
from confluent_kafka import KafkaError, Message, Producer

from redrive.command.network import Network, network_options, read_network, unknown
from redrive.command.preflight import check_broker
from redrive.errors import EnvironmentFault, UsageError
from redrive.kafka.cluster import Cluster
from redrive.messages import MQMD, FieldType, Headers, constant_value
from redrive.messages import own_headers as own
from redrive.messages.fields import MQMD_PREFIX
from redrive.topology.mq.resolver import QUEUE_HEADER, QUEUE_MANAGER_HEADER
from redrive.topology.names import put_topic

__all__ = ["put"]

_ANSWER_TIMEOUT: Final = 30.0
"""Seconds to wait for the cluster's topics, and for the acknowledgement of all messages."""
_AS_QUEUE_IS_DEFINED: Final = 2
"""MQPER_PERSISTENCE_AS_Q_DEF, what MQMD has unless an application says more."""
_LARGEST_RECORD: Final = 1_000_000_000
"""Bytes: the topic decides what is too large, not the client."""


@click.command()
@click.argument("queue_manager", metavar="QM")
@click.argument("queue", metavar="QUEUE[@OBJECTQMGR]")
@network_options
@click.option("--data", metavar="TEXT", help="The body; by default it is read from --file.")
@click.option(
    "--file",
    "body_file",
    type=click.Path(exists=True, dir_okay=False, allow_dash=True, path_type=Path),
    default="-",
    metavar="FILE",
    help="File that holds the body, byte by byte; by default, and as -, standard input.",
)
@click.option("--key", metavar="TEXT", help="Key of the record; equal keys keep their order.")
@click.option(
    "--property",
    "properties",
    multiple=True,
    metavar="NAME=VALUE",
    help="A message property, or a field as JMS_IBM_MQMD_ReplyToQ=ANSWERS. May be repeated.",
)
@click.option("--persistent/--not-persistent", default=None, help="Default: as the queue says.")
@click.option(
    "--expiry",
    type=click.IntRange(1, 2**31 - 1),
    metavar="TENTHS",
    help="Tenths of a second after which the message is dropped. Default: never.",
)
@click.option(
    "--count",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    metavar="N",
    help="How often the message is put.",
)
def put(  # noqa: PLR0917 - click passes the arguments by name
    queue_manager: str,
    queue: str,
    config: Path | None,
    bootstrap_server: str,
    files: Sequence[str],
    data: str | None,
    body_file: Path,
    key: str | None,
    properties: Sequence[str],
    persistent: bool | None,  # noqa: FBT001 - click passes it by name
    expiry: int | None,
    count: int,
) -> None:
    """Put a message to QUEUE, as an application does that is connected to QM.

    \b
    redrive put QM1 ORDERS --data 'two chairs' --property colour=blue
    redrive put QM1 PAYROLL@QM2 --file salaries.bin --persistent

    OBJECTQMGR is the queue manager that the application names beside the queue; without it the
    field is blank. The running job takes the message to where the names lead; redrive resolve
    shows where that is.

    Prints topic:partition:offset of each message once the cluster has it: the ID for redrive
    history.

    Exit codes: 0 put, 1 error, 2 usage.
    """  # noqa: D301 - \b keeps click from wrapping the examples
    headers: Headers = [*_names(queue), *_fields(persistent, expiry), *map(_property, properties)]
    network = read_network(config, bootstrap_server, files)
    topic = put_topic(network.checked_manager(queue_manager))
    _check_topic(network, topic)
    body = _body(data, body_file)
    for position in _put(network, topic, (key, body, headers), count):
        click.echo(position)


def _names(queue: str) -> Iterator[tuple[str, bytes]]:
    """The headers with the names that the application gives."""
    name, at, manager = queue.partition("@")
    if not name or (at and not manager):
        raise UsageError(f"{queue!r} is no QUEUE or QUEUE@OBJECTQMGR", hint="such as PAYROLL@QM2")
    if manager:
        yield QUEUE_MANAGER_HEADER, manager.encode()
    yield QUEUE_HEADER, name.encode()


def _fields(
    persistent: bool | None,  # noqa: FBT001 - None is a third answer
    expiry: int | None,
) -> Iterator[tuple[str, bytes]]:
    """The fields of the message descriptor that options stand for."""
    persistence = _AS_QUEUE_IS_DEFINED if persistent is None else int(persistent)
    yield MQMD["Persistence"].header, own.number(persistence)
    if expiry is not None:
        yield MQMD["Expiry"].header, own.number(expiry)


def _property(text: str) -> tuple[str, bytes]:
    name, equals, value = text.partition("=")
    if not (name and equals):
        raise UsageError(f"--property {text} has no value", hint="write --property NAME=VALUE")
    if name.startswith(own.PREFIX):
        raise UsageError(
            f"--property {text}: names that begin with {own.PREFIX} are Redrive's own",
            hint="choose another name",
        )
    if name.startswith(MQMD_PREFIX):
        return name, _field_value(text, name.removeprefix(MQMD_PREFIX), value)
    return name, value.encode()


def _field_value(text: str, field: str, value: str) -> bytes:
    """The value of a field of the message descriptor, numbers also by their symbolic names."""
    if field not in MQMD:
        raise unknown(f"--property {text}: MQMD has no field {field}", field, MQMD)
    if MQMD[field].type is not FieldType.LONG:
        return value.encode()
    number = int(value) if value.lstrip("-").isdecimal() else constant_value(value)
    if number is None:
        raise UsageError(
            f"--property {text}: {value} is neither a number nor a symbolic name",
            hint=f"such as {MQMD_PREFIX}MsgType=MQMT_REQUEST",
        )
    return own.number(number)


def _check_topic(network: Network, topic: str) -> None:
    check_broker(network.connection)
    with Cluster.open(network.connection, timeout=_ANSWER_TIMEOUT) as cluster:
        if not cluster.partitions([topic]):
            raise EnvironmentFault(
                f"there is no intake topic {topic}",
                hint="redrive topology apply creates the topics of the queue managers",
            )


def _body(data: str | None, file: Path) -> bytes:
    if data is not None:
        return data.encode()
    if str(file) != "-":
        return file.read_bytes()
    if sys.stdin.isatty():
        click.echo("Type the body and end it with Ctrl+D.", err=True)
    return sys.stdin.buffer.read()


def _put(
    network: Network, topic: str, record: tuple[str | None, bytes, Headers], count: int
) -> Iterator[str]:
    """Write a record ``count`` times and give the positions, once the cluster has all of them."""
    positions: list[str] = []
    errors: list[KafkaError] = []

    def report(error: KafkaError | None, message: Message) -> None:
        if error is not None:
            errors.append(error)
        else:
            where: Any = message.topic(), message.partition(), message.offset()
            positions.append(own.identity(*where))

    producer = _producer(network)
    key, body, headers = record
    for _ in range(count):
        while True:
            try:
                producer.produce(topic, body, key, on_delivery=report, headers=list(headers))
            except BufferError:
                producer.poll(0.1)  # until there is room again
                continue
            break
        producer.poll(0)
    producer.flush()
    yield from positions
    if errors:
        raise _refused(topic, errors[0], len(positions), count)


def _producer(network: Network) -> Producer:
    return Producer(
        {
            **network.connection.librdkafka(),
            "enable.idempotence": True,
            "message.timeout.ms": int(_ANSWER_TIMEOUT * 1000),
            "message.max.bytes": _LARGEST_RECORD,
            "partitioner": "murmur2_random",  # Java's choice: a key has one partition for everybody
            "log_level": 2,
        }
    )


def _refused(topic: str, error: KafkaError, put: int, count: int) -> EnvironmentFault:
    hint = "redrive put again what is missing"
    if error.code() == KafkaError.MSG_SIZE_TOO_LARGE:
        hint = "the body is longer than MAXMSGL of the queue manager and max.message.bytes allow"
    return EnvironmentFault(f"{put} of {count} messages are on {topic}: {error.str()}", hint=hint)
