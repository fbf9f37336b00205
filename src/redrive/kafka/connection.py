"""How to connect to a Kafka cluster, as settings of each client."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import Field

from redrive.forms import File, Function, Secret, TableForm, Text, text
from redrive.kafka.properties import for_java, for_kafka_python, for_librdkafka
from redrive.kafka.token_function import note_endpoint

_RECONNECT: Final = 20
"""Milliseconds before a client reconnects. It also waits half of that between its bootstrap broker,
which only names the others, and the broker that it asks: 50 ms by default."""
_LONGEST_RECONNECT: Final = 1_000
"""Milliseconds to which that grows, Java's default; librdkafka's is ten seconds, for which a client
may sleep after its broker is back."""

_SECURITY: Final = "org.apache.kafka.common.security"
"""The package of Java's login modules."""


@dataclass(frozen=True, kw_only=True)
class Tls(TableForm):
    """What a client trusts, and its own certificate."""

    ssl_ca_file: File = ""
    """PEM file of the authorities to trust; by default those of the system."""
    ssl_certificate_file: File = ""
    """PEM file of this client's certificate, with its chain, for servers that require one."""
    ssl_key_file: File = ""
    """PEM file of its key, in PKCS #8 (`BEGIN PRIVATE KEY` or `BEGIN ENCRYPTED PRIVATE KEY`);
    `openssl pkcs8 -topk8` converts others."""
    ssl_key_password: Secret = field(default="", repr=False)
    """Instead of the file: exactly `"${NAME}"`, an environment variable."""
    ssl_key_password_file: File = ""
    """File whose first line is the password of an encrypted key."""


@dataclass(frozen=True, kw_only=True)
class ClientCredentials(TableForm):
    """How a client gets tokens."""

    oauth_endpoint: Annotated[
        str,
        text("http://... or https://..., without a user", r"https?://[^\s/@,?#]+(/[^\s,#]*)?"),
    ] = ""
    """URL that issues tokens for a client's credentials, see [tokens](#tokens)."""
    oauth_client_id: Text = ""
    """Required with `oauth_endpoint`."""
    oauth_client_secret: Secret = field(default="", repr=False)
    """Instead of the file: exactly `"${NAME}"`, an environment variable."""
    oauth_client_secret_file: File = ""
    """File whose first line is the secret of the client."""
    oauth_scope: Text = ""
    """Scope to ask for; by default the endpoint's."""
    oauth_ca_file: File = ""
    """PEM file of the authorities to trust about the endpoint; by default those of the system."""


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
    """With SASL `"SCRAM-SHA-512"` by default; or `"SCRAM-SHA-256"`, `"PLAIN"`, `"OAUTHBEARER"`; not
    `"GSSAPI"`, see [tokens](#tokens)."""
    sasl_username: Text = ""
    """Required for SASL with a password."""
    sasl_password: Secret = field(default="", repr=False)
    """Instead of the file: exactly `"${NAME}"`, an environment variable. A password itself does
    not belong in the settings and is refused."""
    sasl_password_file: File = ""
    """File whose first line is the password."""
    oauth_token_function: Function = ""
    """Instead of endpoint, client and secret: a Python function that returns tokens,
    `"package.module:function"`, see [tokens](#tokens). `"OAUTHBEARER"` needs one or the other."""
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
    """Its address, `https://registry.example.com`; Confluent's, Apicurio's (under
    `/apis/ccompat/v7`) or Karapace's. Protobuf needs one that returns schemas with
    `format=serialized`."""
    username: Text = ""
    """Name to sign in with."""
    password: Secret = field(default="", repr=False)
    """`"${NAME}"`: the password, in an environment variable."""
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
            **dict(for_librdkafka(self.properties)),
            "bootstrap.servers": self.bootstrap_servers,
            "security.protocol": self.security_protocol,
            "reconnect.backoff.ms": _RECONNECT,
            "reconnect.backoff.max.ms": _LONGEST_RECONNECT,
        }
        if self.sasl_mechanism:
            settings["sasl.mechanism"] = self.sasl_mechanism
        if self.uses_oauth:
            settings |= self._librdkafka_oauth()
        elif self.sasl_mechanism:
            settings["sasl.username"] = self.sasl_username
            settings["sasl.password"] = self.sasl_password
        if self.ssl_ca_file:
            settings["ssl.ca.location"] = self.ssl_ca_file
        if self.ssl_certificate_file:
            settings["ssl.certificate.location"] = self.ssl_certificate_file
            settings["ssl.key.location"] = self.ssl_key_file
        if self.ssl_key_password:
            settings["ssl.key.password"] = self.ssl_key_password
        return settings

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
        settings = {
            **dict(for_java(self.properties)),
            "bootstrap.servers": self.bootstrap_servers,
            "security.protocol": self.security_protocol,
        }
        if self.sasl_mechanism:
            settings["sasl.mechanism"] = self.sasl_mechanism
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
            settings["ssl.keystore.certificate.chain"] = _text(self.ssl_certificate_file)
            settings["ssl.keystore.key"] = _text(self.ssl_key_file)
        if self.ssl_key_password:
            settings["ssl.key.password"] = self.ssl_key_password
        return settings

    def kafka_python(self) -> Mapping[str, Any]:
        """Settings for kafka-python clients."""
        settings: dict[str, Any] = {
            **dict(for_kafka_python(self.properties)),
            "bootstrap_servers": self.bootstrap_servers.split(","),
            "security_protocol": self.security_protocol,
        }
        if self.sasl_mechanism:
            settings["sasl_mechanism"] = self.sasl_mechanism
        if self.uses_oauth:
            from redrive.kafka.tokens import TokenProvider  # noqa: PLC0415 - slow to import

            access = self.with_endpoint()
            settings["sasl_oauth_token_provider"] = TokenProvider(
                access.oauth_endpoint,
                access.oauth_client_id,
                access.oauth_client_secret,
                scope=access.oauth_scope,
                ca_file=access.oauth_ca_file,
            )
        elif self.sasl_mechanism:
            settings["sasl_plain_username"] = self.sasl_username
            settings["sasl_plain_password"] = self.sasl_password
        if self.ssl_ca_file:
            settings["ssl_cafile"] = self.ssl_ca_file
        if self.ssl_certificate_file:
            settings["ssl_certfile"] = self.ssl_certificate_file
            settings["ssl_keyfile"] = self.ssl_key_file
        if self.ssl_key_password:
            settings["ssl_password"] = self.ssl_key_password
        return settings

    @property
    def uses_oauth(self) -> bool:
        """Whether clients sign in with tokens."""
        return self.sasl_mechanism == "OAUTHBEARER"

    def with_endpoint(self) -> Connection:
        """This connection with tokens from an endpoint, which all three clients support.

        A token function is called by an endpoint of this process: librdkafka's own callback would
        delay each new client by a second, and Java cannot call Python.
        """
        if not self.oauth_token_function:
            return self
        from redrive.kafka.token_endpoint import token_endpoint  # noqa: PLC0415 - few need it

        endpoint = token_endpoint(self.oauth_token_function)
        return replace(
            self,
            oauth_token_function="",
            oauth_endpoint=endpoint.url,
            oauth_client_id=endpoint.client_id,
            oauth_client_secret=endpoint.client_secret,
        )

    def _librdkafka_oauth(self) -> dict[str, str | int | float | bool]:
        access = self.with_endpoint()
        note_endpoint(access.oauth_endpoint)
        settings: dict[str, str | int | float | bool] = {
            "sasl.oauthbearer.method": "oidc",
            "sasl.oauthbearer.token.endpoint.url": access.oauth_endpoint,
            "sasl.oauthbearer.client.id": access.oauth_client_id,
            "sasl.oauthbearer.client.secret": access.oauth_client_secret,
        }
        if access.oauth_scope:
            settings["sasl.oauthbearer.scope"] = access.oauth_scope
        if access.oauth_ca_file:
            settings["https.ca.location"] = access.oauth_ca_file
        return settings

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


def _jaas(module: str, **options: str) -> str:
    """A JAAS configuration for one of Kafka's login modules, such as ``plain.Plain``."""
    written = " ".join(f"{name}={_quoted(value)}" for name, value in options.items())
    return f"{_SECURITY}.{module}LoginModule required {written};"


def _text(path: str) -> str:
    return Path(path).read_text(encoding="utf-8")


def _quoted(text: str) -> str:
    # JAAS strings: a backslash escapes the next character.
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
