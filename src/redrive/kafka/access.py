"""Access checks: the cluster answers, authenticates this user, and grants the needed rights.

One message lists what is missing. It is no guarantee: rights may change later, and the clients then
report that themselves.
"""

from __future__ import annotations

import re
import socket
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient

from redrive.errors import EnvironmentFault, UnreachableFault
from redrive.kafka.connection import Connection
from redrive.kafka.deadline import AGAIN, CONNECT, COORDINATOR, answer_of, close_client
from redrive.kafka.errors import certificate_refusal
from redrive.kafka.rights import Resource, Right

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
    {
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    }
)
_WITH_RIGHTS: Final[Mapping[str, Any]] = {
    "include_authorized_operations": True,
    "request_timeout": COORDINATOR,
}


def check_access(
    connection: Connection, rights: Sequence[Right] = (), *, any_of: Sequence[Right] = ()
) -> None:
    """Check that the cluster answers, authenticates this user, and grants the rights.

    Args:
        connection: The cluster.
        rights: The needed rights. Rights on missing topics, on transactional ids and on
            name prefixes are not checked: the cluster does not report them beforehand.
        any_of: Further rights, of which one is enough.

    Raises:
        UnreachableFault: No broker answers.
        EnvironmentFault: A broker answers and refuses.
    """
    _check_addresses(connection.bootstrap_servers.split(","))
    errors: list[KafkaError] = []
    consumer = Consumer(
        {
            **connection.reader(),
            "allow.auto.create.topics": False,
            "error_cb": errors.append,
            "log_level": 0,
        }
    )
    try:
        _check_sign_in(consumer, connection, errors)
    finally:
        close_client(consumer, "the consumer that tries the connection")
    needed = [right for right in (*rights, *any_of) if right.is_needed and not right.is_prefix]
    missing = _missing_rights(AdminClient({**connection.librdkafka(), "log_level": 0}), needed)
    if not set(any_of) <= set(missing):
        missing = [right for right in missing if right not in any_of]
    if missing:
        name = connection.sasl_username or connection.oauth_client_id or "this client"
        raise EnvironmentFault(
            f"{name} lacks rights that the job needs: {'; '.join(map(str, missing))}",
            hint="the cluster's administrator can grant it; redrive acls prints the commands",
        )


def _check_addresses(addresses: Iterable[str]) -> None:
    problems = []
    for address in addresses:
        host, _, port = address.rpartition(":")
        try:
            with socket.create_connection((host.strip("[]"), int(port)), CONNECT):
                return
        except OSError as error:
            problems.append(f"{address}: {_reason(error)}")
    raise UnreachableFault(
        f"no broker can be reached ({'; '.join(problems)})",
        hint="check that it runs, and its address; "
        "redrive broker start runs one on this machine for trying",
    )


def _reason(error: OSError) -> str:
    if isinstance(error, socket.gaierror):
        return "no such host"
    if isinstance(error, TimeoutError):
        return f"no answer within {CONNECT:g} s"
    return (error.strerror or str(error)).lower()


def _check_sign_in(consumer: Consumer, connection: Connection, errors: list[KafkaError]) -> None:
    deadline = time.monotonic() + COORDINATOR
    while True:
        try:
            consumer.list_topics(timeout=AGAIN)
        except KafkaException:
            consumer.poll(0)  # delivers the client's errors
        else:
            return
        if refusal := next(filter(_is_refusal, errors), None):
            raise _sign_in_refused(connection, refusal)
        if time.monotonic() > deadline:
            raise UnreachableFault(
                f"something listens at {connection.bootstrap_servers}, but it does not answer as a"
                f" Kafka broker with {connection.security_protocol} within {COORDINATOR:g} s",
                hint="see security_protocol in [kafka], and whether the broker's advertised"
                " listeners can be reached from here",
            )


def _is_refusal(error: KafkaError) -> bool:
    # A broker without TLS just closes the connection; librdkafka describes the step in words.
    # One that requires a certificate refuses after the handshake, by an alert.
    return (
        error.code() in _SIGN_IN_ERRORS
        or "SSL handshake failed" in error.str()
        or certificate_refusal(error) != ""
    )


def _sign_in_refused(connection: Connection, error: KafkaError) -> EnvironmentFault:
    if refusal := certificate_refusal(error):
        return _certificate_refused(connection, refusal)
    user = connection.sasl_username or connection.oauth_client_id
    name = f" as {user}" if user else ""
    # The client's error begins with its name for the connection, and ends with its timing.
    reason = re.sub(r"^\S+://\S+: | \(after .*$", "", error.str())
    return EnvironmentFault(
        f"the cluster at {connection.bootstrap_servers} refuses the sign-in{name} with "
        f"{connection.security_protocol}: {reason}",
        hint=f"see {_settings_of_sign_in(connection)} in [kafka]",
    )


def _settings_of_sign_in(connection: Connection) -> str:
    if connection.oauth_token_function:
        return "oauth_token_function"
    if connection.uses_oauth:
        return "oauth_endpoint and the other oauth_..."
    return "security_protocol, sasl_... and ssl_..."


def _certificate_refused(connection: Connection, refusal: str) -> EnvironmentFault:
    servers, file = connection.bootstrap_servers, connection.ssl_certificate_file
    if not file:
        return EnvironmentFault(
            f"the cluster at {servers} requires a client certificate: {refusal}",
            hint="set ssl_certificate_file and ssl_key_file in [kafka]",
        )
    return EnvironmentFault(
        f"the cluster at {servers} refuses the client certificate in {file} ({refusal})",
        hint="it must be signed by an authority that the brokers trust, and not be expired; "
        "see ssl_certificate_file in [kafka], and the brokers' logs for their reason",
    )


def _missing_rights(admin: AdminClient, rights: Sequence[Right]) -> list[Right]:
    topics = {right.name for right in rights if right.resource is Resource.TOPIC}
    groups = {right.name for right in rights if right.resource is Resource.GROUP}
    allowed: dict[tuple[Resource, str], Collection[str] | None] = {}
    if topics:
        collection = TopicCollection(sorted(topics))
        described = admin.describe_topics(collection, **_WITH_RIGHTS)
        allowed |= {(Resource.TOPIC, name): _allowed(topic) for name, topic in described.items()}
    if groups:
        described = admin.describe_consumer_groups(sorted(groups), **_WITH_RIGHTS)
        allowed |= {(Resource.GROUP, name): _allowed(group) for name, group in described.items()}
    granted = ((right, allowed.get((right.resource, right.name))) for right in rights)
    return [right for right, some in granted if some is not None and _name(right) not in some]


def _allowed(answer: Any) -> Collection[str] | None:  # noqa: ANN401 - a future of the client
    try:
        operations = answer_of(answer, COORDINATOR).authorized_operations
    except TimeoutError:
        return None
    except KafkaException as exception:
        return () if exception.args[0].code() in _NOT_AUTHORISED else None
    return {operation.name for operation in operations} if operations else None


def _name(right: Right) -> str:
    return re.sub("(?<=[a-z])(?=[A-Z])", "_", right.operation).upper()
