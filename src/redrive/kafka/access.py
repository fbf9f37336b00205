"""Access checks: the cluster answers, authenticates this user, and grants the needed rights.

One message lists what is missing. It is no guarantee: rights may change later, and the clients then
report that themselves.
"""

from __future__ import annotations

import re
import socket
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient

from redrive.errors import EnvironmentFault, UnreachableFault
from redrive.kafka.connection import Connection
from redrive.kafka.deadline import AGAIN, CONNECT, COORDINATOR, answer_of
from redrive.kafka.errors import NOT_ALLOWED, SIGN_IN_REFUSED, certificate_refusal


class Resource(StrEnum):
    """The kind of resource, as ``kafka-acls`` names its options."""

    TOPIC = "topic"
    GROUP = "group"
    TRANSACTIONAL_ID = "transactional-id"


@dataclass(frozen=True, slots=True, kw_only=True)
class Right:
    """One operation on one resource, or on all resources with a name prefix."""

    resource: Resource
    name: str
    operation: str
    """``Read``, ``Write``, ``Delete`` and ``Alter``, which bring ``Describe`` with them (Kafka's
    documentation, "Authorization and ACLs"); ``Create``, ``Describe``, ``DescribeConfigs``."""
    purpose: str
    """The use of the right, or the job's behaviour without it."""
    is_prefix: bool = False
    is_needed: bool = True

    def __str__(self) -> str:
        """``Write on topics that begin with redrive-shop-``."""
        kind = self.resource.replace("-", " ")
        named = f"{kind}s that begin with" if self.is_prefix else kind
        return f"{self.operation} on {named} {self.name}"

    def command(self, server: str, principal: str) -> tuple[str, ...]:
        """The words of the ``kafka-acls`` command that grants it.

        Args:
            server: A broker.
            principal: The principal that gets it, such as ``User:shop``.
        """
        pattern = ("--resource-pattern-type", "prefixed") if self.is_prefix else ()
        return (
            *("kafka-acls", "--bootstrap-server", server),
            *("--add", "--allow-principal", principal, "--operation", self.operation),
            *(f"--{self.resource}", self.name, *pattern),
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
    settings: dict[str, Any] = {
        **connection.librdkafka(),
        "log_level": 0,
        "error_cb": errors.append,
    }
    admin = AdminClient(settings)
    _check_sign_in(admin, connection, errors)
    needed = [right for right in (*rights, *any_of) if right.is_needed and not right.is_prefix]
    missing = _missing_rights(admin, needed)
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
            if isinstance(error, socket.gaierror):
                reason = "no such host"
            elif isinstance(error, TimeoutError):
                reason = f"no answer within {CONNECT:g} s"
            else:
                reason = (error.strerror or str(error)).lower()
            problems.append(f"{address}: {reason}")
    raise UnreachableFault(
        f"no broker can be reached ({'; '.join(problems)})",
        hint="check that it runs, and its address; "
        "redrive broker start runs one on this machine for trying",
    )


def _check_sign_in(admin: AdminClient, connection: Connection, errors: list[KafkaError]) -> None:
    deadline = time.monotonic() + COORDINATOR
    while True:
        try:
            admin.list_topics(timeout=AGAIN)
        except KafkaException:
            admin.poll(0)  # delivers the client's errors
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
        error.code() in SIGN_IN_REFUSED
        or "SSL handshake failed" in error.str()
        or certificate_refusal(error) != ""
    )


def _sign_in_refused(connection: Connection, error: KafkaError) -> EnvironmentFault:
    if refusal := certificate_refusal(error):
        return _certificate_refused(connection, refusal)
    if connection.oauth_token_function:
        keys = "oauth_token_function"
    elif connection.uses_oauth:
        keys = "oauth_endpoint and the other oauth_..."
    else:
        keys = "security_protocol, sasl_... and ssl_..."
    user = connection.sasl_username or connection.oauth_client_id
    name = f" as {user}" if user else ""
    # The client's error begins with its name for the connection, and ends with its timing.
    reason = re.sub(r"^\S+://\S+: | \(after .*$", "", error.str())
    return EnvironmentFault(
        f"the cluster at {connection.bootstrap_servers} refuses the sign-in{name} with "
        f"{connection.security_protocol}: {reason}",
        hint=f"see {keys} in [kafka]",
    )


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
    missing = []
    for right in rights:
        granted = allowed.get((right.resource, right.name))
        operation = re.sub("(?<=[a-z])(?=[A-Z])", "_", right.operation).upper()
        if granted is not None and operation not in granted:
            missing.append(right)
    return missing


def _allowed(answer: Any) -> Collection[str] | None:  # noqa: ANN401 - a future of the client
    try:
        operations = answer_of(answer, COORDINATOR).authorized_operations
    except TimeoutError:
        return None
    except KafkaException as exception:
        return () if exception.args[0].code() in NOT_ALLOWED else None
    return {operation.name for operation in operations} if operations else None
