"""Whether a cluster can be used: it answers, lets us in, and lets us see what is to be read.

One message says what is missing. It is a hint for people and no guarantee: what changes later is
the business of whoever works on the cluster.
"""

from __future__ import annotations

import re
import socket
import time
from collections.abc import Iterable, Sequence
from typing import Final

from confluent_kafka import Consumer, KafkaError, KafkaException

from redrive.errors import EnvironmentFault
from redrive.kafka.connection import Connection

__all__ = ["check_access"]

_CONNECT_TIMEOUT: Final = 3.0
"""Seconds for one address to answer at all."""
_SIGN_IN_TIMEOUT: Final = 10.0
"""Seconds for the cluster to tell its topics, signing in included."""
_LOOK: Final = 0.5
"""Seconds between two looks whether signing in has failed for good."""

_SIGN_IN_ERRORS: Final = frozenset(
    {
        KafkaError._AUTHENTICATION,  # noqa: SLF001 - how confluent-kafka names client-side errors
        KafkaError._SSL,  # noqa: SLF001
        KafkaError.SASL_AUTHENTICATION_FAILED,
        KafkaError.UNSUPPORTED_SASL_MECHANISM,
        KafkaError.ILLEGAL_SASL_STATE,
    }
)
_NOT_AUTHORISED: Final = frozenset(
    {KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.CLUSTER_AUTHORIZATION_FAILED}
)


def check_access(connection: Connection, topics: Sequence[str] = ()) -> None:
    """See that the cluster answers, lets us in, and lets us see the topics that exist.

    Args:
        connection: The cluster.
        topics: Topics that are to be read; those that do not exist are no fault.

    Raises:
        EnvironmentFault: It does not.
    """
    _check_addresses(connection.bootstrap_servers.split(","))
    said: list[KafkaError] = []
    consumer = Consumer(
        {
            **connection.librdkafka(),
            "group.id": "redrive-access",  # required, though it never joins a group
            "allow.auto.create.topics": False,
            "error_cb": said.append,
            "log_level": 0,
        }
    )
    try:
        _check_sign_in(consumer, connection, said)
        for topic in topics:
            _check_topic(consumer, connection, topic)
    finally:
        consumer.close()


def _check_addresses(addresses: Iterable[str]) -> None:
    problems = []
    for address in addresses:
        host, _, port = address.rpartition(":")
        try:
            with socket.create_connection((host.strip("[]"), int(port)), _CONNECT_TIMEOUT):
                return
        except OSError as error:
            problems.append(f"{address}: {_reason(error)}")
    raise EnvironmentFault(
        f"no broker can be reached ({'; '.join(problems)})",
        hint="is it running, and is this its address? "
        "redrive broker start runs one on this machine for trying",
    )


def _reason(error: OSError) -> str:
    if isinstance(error, socket.gaierror):
        return "no such host"
    if isinstance(error, TimeoutError):
        return f"no answer within {_CONNECT_TIMEOUT:g} s"
    return (error.strerror or str(error)).lower()


def _check_sign_in(consumer: Consumer, connection: Connection, said: list[KafkaError]) -> None:
    deadline = time.monotonic() + _SIGN_IN_TIMEOUT
    while True:
        try:
            consumer.list_topics(timeout=_LOOK)
        except KafkaException:
            consumer.poll(0)  # hands over what the client heard
        else:
            return
        refusals = [error for error in said if _is_refusal(error)]
        if refusals:
            raise _sign_in_refused(connection, refusals[0])
        if time.monotonic() > deadline:
            raise _no_kafka(connection)


def _is_refusal(error: KafkaError) -> bool:
    # A broker without TLS just closes the connection; librdkafka tells in words what it was at.
    return error.code() in _SIGN_IN_ERRORS or "SSL handshake failed" in error.str()


def _sign_in_refused(connection: Connection, error: KafkaError) -> EnvironmentFault:
    name = f" as {connection.sasl_username}" if connection.sasl_username else ""
    return EnvironmentFault(
        f"the cluster at {connection.bootstrap_servers} does not let us in{name} with "
        f"{connection.security_protocol}: {_words(error)}",
        hint="see security_protocol, sasl_... and ssl_ca_file in [kafka]",
    )


def _words(error: KafkaError) -> str:
    """What the client heard, without its own name for the connection and its stopwatch."""
    return re.sub(r"^\S+://\S+: | \(after .*$", "", error.str())


def _no_kafka(connection: Connection) -> EnvironmentFault:
    return EnvironmentFault(
        f"something listens at {connection.bootstrap_servers}, but it does not answer as a Kafka "
        f"broker with {connection.security_protocol} within {_SIGN_IN_TIMEOUT:g} s",
        hint="see security_protocol in [kafka], and whether the broker's advertised listeners "
        "can be reached from here",
    )


def _check_topic(consumer: Consumer, connection: Connection, topic: str) -> None:
    try:
        error = consumer.list_topics(topic, timeout=_SIGN_IN_TIMEOUT).topics[topic].error
    except KafkaException as exception:
        error = exception.args[0]
    if error is not None and error.code() in _NOT_AUTHORISED:
        name = connection.sasl_username or "this client"
        raise EnvironmentFault(
            f"{name} may not read topic {topic}",
            hint="the cluster's administrator can grant Describe and Read on it",
        )
