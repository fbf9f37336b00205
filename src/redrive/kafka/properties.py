"""Client properties that users may set, by Kafka's names, and their names in each client."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

_LARGEST: Final = 2_147_483_647


@dataclass(frozen=True, slots=True, kw_only=True)
class Property:
    """A property of librdkafka; clients without a name for it do not support it."""

    librdkafka: str = ""
    """Its name in librdkafka, if that differs."""
    java: bool = True
    """Whether Java clients have it, by its own name."""
    kafka_python: str = ""
    minimum: int | None = None
    """The minimum of a whole number; None for other properties."""
    choices: tuple[str, ...] = ()
    """The allowed values, if they are limited."""

    def takes(self, value: str) -> bool:
        """Whether a text is a valid value."""
        if self.minimum is not None:
            is_number = value.isascii() and value.isdecimal()
            return is_number and self.minimum <= int(value) <= _LARGEST
        return value in self.choices if self.choices else bool(value.strip())

    @property
    def expected(self) -> str:
        """The allowed values, as text."""
        if self.minimum is not None:
            return f"a whole number from {self.minimum:,}, in quotes"
        return f"one of {', '.join(self.choices)}" if self.choices else "text"


PROPERTIES: Final[Mapping[str, Property]] = {
    "client.dns.lookup": Property(
        kafka_python="client_dns_lookup",
        choices=("use_all_dns_ips", "resolve_canonical_bootstrap_servers_only"),
    ),
    "client.id": Property(kafka_python="client_id"),
    "client.rack": Property(),
    "connections.max.idle.ms": Property(kafka_python="connections_max_idle_ms", minimum=60_000),
    "enable.metrics.push": Property(choices=("true", "false")),
    "metadata.max.age.ms": Property(kafka_python="metadata_max_age_ms", minimum=1_000),
    "metadata.recovery.strategy": Property(choices=("none", "rebootstrap")),
    "receive.buffer.bytes": Property(
        librdkafka="socket.receive.buffer.bytes",
        kafka_python="receive_buffer_bytes",
        minimum=16_384,
    ),
    "send.buffer.bytes": Property(
        librdkafka="socket.send.buffer.bytes", kafka_python="send_buffer_bytes", minimum=16_384
    ),
    # Java clients always do.
    "socket.keepalive.enable": Property(java=False, choices=("true", "false")),
    "socket.connection.setup.timeout.ms": Property(minimum=1_000),
    "ssl.endpoint.identification.algorithm": Property(
        kafka_python="ssl_check_hostname", choices=("https", "none")
    ),
}

_EXACTLY_ONCE: Final = "exactly once depends on it, so Redrive sets it"
_DEADLINES: Final = "Redrive's deadlines and retries depend on its own value"
_TUNED: Final = "Redrive sets how its clients read and write; [job] has the settings for that"
_JAVA: Final = "it names Java classes, which Python clients cannot load"

_REASONS: Final = (
    (r"bootstrap\.servers", "bootstrap_servers of this table has the brokers"),
    (r"security\.protocol", "security_protocol of this table has it"),
    (r"sasl\..*", "the settings sasl_... of this table sign in all clients"),
    (r"ssl\.(truststore|ca)\..*", "ssl_ca_file of this table has the authorities"),
    (
        r"ssl\.(keystore|key|certificate)\..*",
        "ssl_certificate_file and ssl_key_file of this table have the certificate",
    ),
    (
        r"ssl\.(cipher.*|curves.*|enabled\.protocols|protocol|provider)",
        "Java and OpenSSL name it differently; limit it in the brokers' settings",
    ),
    (r"ssl\..*", "not all clients support it"),
    (
        (
            r"acks|request\.required\.acks|.*\.idempotence|transaction.*|isolation\.level|group\..*"
            r"|.*auto\.(commit|offset).*|max\.in\.flight.*|partition.*|allow\.auto\.create\.topics"
            r"|session\.timeout\.ms|heartbeat\.interval\.ms|max\.poll\.interval\.ms|exclude\.internal.*"
        ),
        _EXACTLY_ONCE,
    ),
    (
        (
            r"(request|delivery|message|socket|default\.api)\.timeout\.ms|.*retr(y|ies).*"
            r"|reconnect\.backoff.*|max\.block\.ms"
        ),
        _DEADLINES,
    ),
    (
        (
            r"fetch\..*|max\.partition\.fetch\.bytes|max\.poll\.records|queued?\..*|check\.crcs"
            r"|compression\..*|linger\.ms|batch\..*|buffer\.memory|(max\.request|message\.max).*"
        ),
        _TUNED,
    ),
    (r".*(class(es)?|serializer|reporters|providers|strategy)|auto\.include.*", _JAVA),
)


def refusal(name: str) -> str:
    """Why a property that is not in ``PROPERTIES`` cannot be set; empty if unknown."""
    return next((why for pattern, why in _REASONS if re.fullmatch(pattern, name)), "")


def for_java(properties: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """The properties that Java clients have, as they write them."""
    for name, value in properties.items():
        if PROPERTIES[name].java:
            # An empty text is Java's way to check no name.
            is_unchecked = PROPERTIES[name].kafka_python == "ssl_check_hostname" and value == "none"
            yield name, "" if is_unchecked else value


def for_librdkafka(properties: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """The properties by their names in librdkafka."""
    for name, value in properties.items():
        yield PROPERTIES[name].librdkafka or name, value


def for_kafka_python(properties: Mapping[str, str]) -> Iterator[tuple[str, str | int | bool]]:
    """The properties that kafka-python has, by its names and in its types."""
    for name, value in properties.items():
        known = PROPERTIES[name]
        if known.kafka_python == "ssl_check_hostname":
            yield known.kafka_python, value == "https"
        elif known.kafka_python:
            yield known.kafka_python, value if known.minimum is None else int(value)
