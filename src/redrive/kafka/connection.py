"""How to connect to a Kafka cluster, as settings of each client, with a user's properties."""

from __future__ import annotations

import json
import re
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Final, Literal, TypeVar
from urllib.parse import urlencode

from pydantic import Field

from redrive.forms import File, Function, Secret, TableForm, Text, text
from redrive.kafka.deadline import COORDINATOR
from redrive.kafka.tokens import basic_authorization, note_endpoint, token_endpoint

_Value = TypeVar("_Value")

_LARGEST: Final = 2_147_483_647
_CHECKS_NAME: Final = "ssl.endpoint.identification.algorithm"


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
    _CHECKS_NAME: Property(kafka_python="ssl_check_hostname", choices=("https", "none")),
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


_RECONNECT: Final = 20
"""Milliseconds before a client reconnects. It also waits half of that between its bootstrap broker,
which only names the others, and the broker that it asks: 50 ms by default."""
_LONGEST_RECONNECT: Final = 1_000
"""Milliseconds to which that grows, Java's default; librdkafka's is ten seconds, for which a client
may sleep after its broker is back."""

_SECURITY: Final = "org.apache.kafka.common.security"


@dataclass(frozen=True, kw_only=True)
class Tls(TableForm):
    """What a client trusts, and its own certificate."""

    ssl_ca_file: File = ""
    """PEM file of the authorities to trust; by default those of the system."""
    ssl_certificate_file: File = ""
    """PEM file of this client's certificate, with its chain."""
    ssl_key_file: File = ""
    """PEM file of its key, in PKCS #8; `openssl pkcs8 -topk8` converts others."""
    ssl_key_password: Secret = field(default="", repr=False)
    """As `sasl_password`, for an encrypted key."""
    ssl_key_password_file: File = ""
    """File whose first line is that password."""


@dataclass(frozen=True, kw_only=True)
class ClientCredentials(TableForm):
    """How a client gets tokens."""

    oauth_endpoint: Annotated[
        str,
        text("http://... or https://..., without a user", r"https?://[^\s/@,?#]+(/[^\s,#]*)?"),
    ] = ""
    """URL that issues [tokens](#tokens) for a client's credentials."""
    oauth_client_id: Text = ""
    """Required with `oauth_endpoint`."""
    oauth_client_secret: Secret = field(default="", repr=False)
    """As `sasl_password`, for the client."""
    oauth_client_secret_file: File = ""
    """File whose first line is that secret."""
    oauth_scope: Text = ""
    """Scope to ask for; by default the endpoint's."""
    oauth_ca_file: File = ""
    """As `ssl_ca_file`, for the endpoint."""

    def requested_token(self) -> str:
        """A token from ``oauth_endpoint`` (RFC 6749, 4.4), for clients that request none.

        They are kafka-python and the client of a schema registry.

        Raises:
            OSError: The server did not answer within ten seconds, or refused.
            ValueError: Its answer is not a token.
        """
        from urllib.request import Request, urlopen  # noqa: PLC0415 - few need it

        body = {"grant_type": "client_credentials"}
        if self.oauth_scope:
            body["scope"] = self.oauth_scope
        credentials = basic_authorization(self.oauth_client_id, self.oauth_client_secret)
        request = Request(  # noqa: S310 - the settings take only http and https
            self.oauth_endpoint,
            data=urlencode(body).encode("ascii"),
            headers={"Authorization": credentials, "Accept": "application/json"},
        )
        trust = ssl.create_default_context(cafile=self.oauth_ca_file or None)
        with urlopen(request, timeout=COORDINATOR, context=trust) as answer:  # noqa: S310 - as above
            document = json.load(answer)
        try:
            return str(document["access_token"])
        except (KeyError, TypeError) as error:
            raise ValueError("the answer of the OAuth server has no access_token") from error


@dataclass(frozen=True, kw_only=True)
class KafkaTable(Tls, ClientCredentials):
    """The table ``[kafka]``."""

    bootstrap_servers: Annotated[
        str,
        text("host:port, several separated by commas"),
        Field(description="a broker to begin with", examples=["localhost:9092"]),
    ]
    """`"host:port"`, several separated by commas."""
    security_protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"] = "PLAINTEXT"
    """`"PLAINTEXT"`, `"SSL"`, `"SASL_PLAINTEXT"` or `"SASL_SSL"`."""
    sasl_mechanism: (
        Annotated[
            Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "GSSAPI"],
            Field(title="one of PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER"),
        ]
        | None
    ) = None
    """With SASL: `"SCRAM-SHA-512"` (the default), `"SCRAM-SHA-256"`, `"PLAIN"` or
    `"OAUTHBEARER"`."""
    sasl_username: Text = ""
    """Required for SASL with a password."""
    sasl_password: Secret = field(default="", repr=False)
    """Exactly `"${NAME}"`, an environment variable. A password itself is refused."""
    sasl_password_file: File = ""
    """Instead: a file whose first line is the password."""
    oauth_token_function: Function = ""
    """Instead of endpoint, client and secret: `"package.module:function"`, which [returns
    tokens](#tokens)."""
    properties: Annotated[Mapping[str, str], Field(title="[kafka.properties]")] = field(
        default_factory=dict, hash=False
    )
    """Table of [further client properties](#kafkaproperties): `[kafka.properties]`."""


@dataclass(frozen=True, kw_only=True)
class RegistryAccess(Tls, ClientCredentials):
    """The table ``[schema_registry]``."""

    url: Annotated[
        str,
        Field(
            title='an address such as "https://registry.example.com:8081"',
            pattern=r"\Ahttps?://[^/@\s]+(/\S*)?\Z",
        ),
    ] = ""
    """Its address: Confluent's, Apicurio's (under `/apis/ccompat/v7`) or Karapace's. Protobuf
    needs one that returns schemas with `format=serialized`."""
    username: Text = ""
    """Name to sign in with."""
    password: Secret = field(default="", repr=False)
    """Exactly `"${NAME}"`, an environment variable."""
    password_file: File = ""
    """File whose first line is the password."""


@dataclass(frozen=True, kw_only=True)
class Connection(KafkaTable):
    """One Kafka cluster and how to sign in to it: paths are absolute, secrets read."""

    group: str = "redrive-reader"
    """The group of consumers that join none and commit nothing: librdkafka still asks for its
    coordinator, for which this user needs a right. A job uses the application's group."""

    def librdkafka(self) -> Mapping[str, str | int | float | bool]:
        """Settings for confluent-kafka clients."""
        settings: dict[str, str | int | float | bool] = {
            **{
                PROPERTIES[name].librdkafka or name: value
                for name, value in self.properties.items()
            },
            "bootstrap.servers": self.bootstrap_servers,
            "security.protocol": self.security_protocol,
            "reconnect.backoff.ms": _RECONNECT,
            "reconnect.backoff.max.ms": _LONGEST_RECONNECT,
            "sasl.mechanism": self.sasl_mechanism or "",
            "sasl.username": self.sasl_username,
            "sasl.password": self.sasl_password,
            "ssl.ca.location": self.ssl_ca_file,
            "ssl.certificate.location": self.ssl_certificate_file,
            "ssl.key.location": self.ssl_key_file,
            "ssl.key.password": self.ssl_key_password,
        }
        if self.uses_oauth:
            access = self.with_endpoint()
            note_endpoint(access.oauth_endpoint)
            settings |= {
                "sasl.oauthbearer.method": "oidc",
                "sasl.oauthbearer.token.endpoint.url": access.oauth_endpoint,
                "sasl.oauthbearer.client.id": access.oauth_client_id,
                "sasl.oauthbearer.client.secret": access.oauth_client_secret,
                "sasl.oauthbearer.scope": access.oauth_scope,
                "https.ca.location": access.oauth_ca_file,
            }
        return _without_empty(settings)

    def reader(self) -> Mapping[str, str | int | float | bool]:
        """Settings for confluent-kafka consumers that join no group and commit nothing."""
        return {
            **self.librdkafka(),
            "group.id": self.group,
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
        }

    def java(self) -> Mapping[str, str]:
        """Settings for Java clients, for Spark's Kafka source after ``kafka.``."""
        settings = {name: value for name, value in self.properties.items() if PROPERTIES[name].java}
        if settings.get(_CHECKS_NAME) == "none":
            settings[_CHECKS_NAME] = ""  # Java's way to check no name
        settings |= {
            "bootstrap.servers": self.bootstrap_servers,
            "security.protocol": self.security_protocol,
            **_without_empty(
                {
                    "sasl.mechanism": self.sasl_mechanism or "",
                    "ssl.key.password": self.ssl_key_password,
                }
            ),
        }
        if self.uses_oauth:
            settings |= self._java_oauth()
        elif self.sasl_mechanism:
            module = "plain.Plain" if self.sasl_mechanism == "PLAIN" else "scram.Scram"
            settings["sasl.jaas.config"] = _jaas(
                module, username=self.sasl_username, password=self.sasl_password
            )
        if self.ssl_ca_file:
            settings["ssl.truststore.type"] = "PEM"
            settings["ssl.truststore.location"] = self.ssl_ca_file
        if self.ssl_certificate_file:
            # As a file, Java accepts the key and the certificate only together.
            settings["ssl.keystore.type"] = "PEM"
            chain = Path(self.ssl_certificate_file).read_text(encoding="utf-8")
            settings["ssl.keystore.certificate.chain"] = chain
            settings["ssl.keystore.key"] = Path(self.ssl_key_file).read_text(encoding="utf-8")
        return settings

    def kafka_python(self) -> Mapping[str, Any]:
        """Settings for kafka-python clients."""
        settings: dict[str, Any] = {}
        for name, value in self.properties.items():
            if name == _CHECKS_NAME:
                settings["ssl_check_hostname"] = value == "https"
            elif known := PROPERTIES[name].kafka_python:
                is_text = PROPERTIES[name].minimum is None
                settings[known] = value if is_text else int(value)
        settings |= {
            "bootstrap_servers": self.bootstrap_servers.split(","),
            "security_protocol": self.security_protocol,
            "sasl_mechanism": self.sasl_mechanism,
            "sasl_plain_username": self.sasl_username,
            "sasl_plain_password": self.sasl_password,
            "ssl_cafile": self.ssl_ca_file,
            "ssl_certfile": self.ssl_certificate_file,
            "ssl_keyfile": self.ssl_key_file,
            "ssl_password": self.ssl_key_password,
        }
        if self.uses_oauth:
            from kafka.net.sasl.oauth import AbstractTokenProvider  # noqa: PLC0415 - slow to import

            access = self.with_endpoint()

            class TokenProvider(AbstractTokenProvider):  # type: ignore[misc]  # it is untyped
                def token(self) -> str:
                    return access.requested_token()

            settings["sasl_oauth_token_provider"] = TokenProvider()
        return _without_empty(settings)

    @property
    def uses_oauth(self) -> bool:
        """Whether clients sign in with tokens."""
        return self.sasl_mechanism == "OAUTHBEARER"

    def with_endpoint(self) -> Connection:
        """This connection with tokens from an endpoint, which all clients support.

        Those of a token function come from an endpoint of this process.
        """
        if not self.oauth_token_function:
            return self
        endpoint = token_endpoint(self.oauth_token_function)
        return replace(
            self,
            oauth_token_function="",
            oauth_endpoint=endpoint.url,
            oauth_client_id=endpoint.client_id,
            oauth_client_secret=endpoint.client_secret,
        )

    def _java_oauth(self) -> dict[str, str]:
        access = self.with_endpoint()
        options = {"clientId": access.oauth_client_id, "clientSecret": access.oauth_client_secret}
        if access.oauth_scope:
            options["scope"] = access.oauth_scope
        if access.oauth_ca_file:
            options["ssl.truststore.type"] = "PEM"
            options["ssl.truststore.location"] = access.oauth_ca_file
        return {
            "sasl.oauthbearer.token.endpoint.url": access.oauth_endpoint,
            "sasl.login.callback.handler.class": f"{_SECURITY}.oauthbearer"
            ".OAuthBearerLoginCallbackHandler",
            "sasl.jaas.config": _jaas("oauthbearer.OAuthBearer", **options),
        }


def _without_empty(settings: Mapping[str, _Value]) -> dict[str, _Value]:
    return {name: value for name, value in settings.items() if value not in ("", None)}


def _jaas(module: str, **options: str) -> str:
    """A JAAS configuration for one of Kafka's login modules, such as ``plain.Plain``."""
    # JAAS strings: a backslash escapes the next character.
    escaped = str.maketrans({"\\": r"\\", '"': r"\""})
    written = " ".join(f'{name}="{value.translate(escaped)}"' for name, value in options.items())
    return f"{_SECURITY}.{module}LoginModule required {written};"
