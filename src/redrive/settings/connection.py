"""The tables [kafka] and [schema_registry]: addresses and credentials."""

from __future__ import annotations

import base64
import binascii
import re
import ssl
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from redrive.diagnostics import did_you_mean
from redrive.engine.names import HandlerIdentity, cluster_topic
from redrive.forms import keys_of
from redrive.kafka.connection import (
    PROPERTIES,
    ClientCredentials,
    Connection,
    KafkaTable,
    RegistryAccess,
    Tls,
    refusal,
)
from redrive.rules.keywords import CLUSTER_NAME
from redrive.settings.findings import Section
from redrive.settings_file import SettingsFile

_ADDRESS: Final = re.compile(r"(?:[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\]):([0-9]{1,5})")
_LARGEST_PORT: Final = 65_535
_VARIABLE_ALONE: Final = re.compile(r"\$\{[^}]*\}")
_PASSWORD_KEYS: Final = ("sasl_username", "sasl_password", "sasl_password_file")
_OAUTH_KEYS: Final = (*keys_of(ClientCredentials), "oauth_token_function")
_NO_KERBEROS: Final = (
    "GSSAPI (Kerberos) is not supported: librdkafka needs Cyrus SASL for it, which the packages"
    " of confluent-kafka lack"
)
_INSTEAD_OF_KERBEROS: Final = (
    "use a listener with SCRAM-SHA-512, OAUTHBEARER or client certificates"
)


def read_connection(section: Section[KafkaTable], group: str) -> Connection:
    """The connection of a [kafka] table; errors are reported in the section.

    ``group`` is the consumer group of its clients.
    """
    protocol = section.value.security_protocol
    uses_tls = protocol.endswith("SSL")
    for key in () if uses_tls else keys_of(Tls):
        _without_effect(section, "security_protocol", protocol, key, "SSL or SASL_SSL")
    return Connection(
        **{
            **vars(section.value),
            "bootstrap_servers": _bootstrap_servers(section),
            "properties": _properties(section.inner(section.value.properties, "properties")),
            **(_tls(section) if uses_tls else {}),
            **_sign_in(section, protocol),
        },
        group=group,
    )


def _sign_in(section: Section[KafkaTable], protocol: str) -> dict[str, str]:
    if not protocol.startswith("SASL"):
        for key in ("sasl_mechanism", *_PASSWORD_KEYS, *_OAUTH_KEYS):
            _without_effect(section, "security_protocol", protocol, key, "SASL_SSL")
        return {}
    mechanism = section.value.sasl_mechanism or "SCRAM-SHA-512"
    if mechanism == "GSSAPI":
        section.bad_value("sasl_mechanism", _NO_KERBEROS, hint=_INSTEAD_OF_KERBEROS)
        return {}
    if mechanism == "OAUTHBEARER":
        for key in _PASSWORD_KEYS:
            _without_effect(section, "sasl_mechanism", mechanism, key, "SCRAM-SHA-512")
        return _oauth(section)
    for key in _OAUTH_KEYS:
        _without_effect(section, "sasl_mechanism", mechanism, key, "OAUTHBEARER")
    if not section.has("sasl_username"):
        section.missing("sasl_username", f"{protocol} signs in with a name")
    password = read_secret(section, "sasl_password", f"{protocol} signs in with a password")
    return {"sasl_mechanism": mechanism, "sasl_password": password}


def _oauth(section: Section[KafkaTable]) -> dict[str, str]:
    if not section.has("oauth_token_function"):
        where = "the URL of the OAuth server, or set oauth_token_function"
        return _client_credentials(section, where)
    for key in filter(section.has, keys_of(ClientCredentials)):
        message = f"{key} has no effect: tokens come from oauth_token_function"
        hint = f"remove {key} or oauth_token_function"
        section.error_at_key(key, "WITHOUT_EFFECT", message, hint=hint)
    return {"oauth_token_function": section.function("oauth_token_function")}


def _client_credentials(section: Section[Any], where: str) -> dict[str, str]:
    for key, purpose in (("oauth_endpoint", where), ("oauth_client_id", "tokens are for a client")):
        if not section.has(key):
            section.missing(key, purpose)
    return {
        "oauth_client_secret": read_secret(
            section, "oauth_client_secret", "a client needs a secret"
        ),
        "oauth_ca_file": _absolute(_existing_file(section, "oauth_ca_file")),
    }


def read_clusters(
    root: Section[SettingsFile], handlers: Iterable[HandlerIdentity]
) -> dict[str, Connection]:
    """The connections of the table ``[clusters]`` by name; errors are reported in the section.

    No cluster may share its topic with one of the application's handlers.
    """
    application, clusters = root.value.application.name, root.value.clusters
    handlers_by_topic = {
        topic: handler.name for handler in handlers for topic in handler.own_topics
    }
    for name in clusters:
        topic = cluster_topic(application, name)
        if not CLUSTER_NAME.fullmatch(name):
            root.findings.error_at_key(
                ("clusters", name),
                "BAD_VALUE",
                f"{name!r} is not a name",
                expected="up to 48 letters, digits, hyphens, underscores",
            )
        elif topic in handlers_by_topic:
            message = f"its topic would be {topic}, which handler {handlers_by_topic[topic]} has"
            root.findings.error_at_key(
                ("clusters", name),
                "CONFLICT",
                message,
                expected="another name for the cluster or the handler",
            )
    return {
        name: read_connection(root.inner(table, "clusters", name), application)
        for name, table in clusters.items()
    }


def read_registry(section: Section[RegistryAccess]) -> RegistryAccess | None:
    """The schema registry of a [schema_registry] table; None if there is none."""
    if not section.findings.document.data.get("schema_registry"):
        return None
    if not section.has("url"):
        section.missing("url", "the URL of the registry")
        return None
    secrets: dict[str, str] = {}
    if section.has("username"):
        secrets["password"] = read_secret(section, "password", "a user needs a password")
    given = [key for key in keys_of(ClientCredentials) if section.has(key)]
    if given and section.has("username"):
        message = "a registry accepts a user's password or a client's token, not both"
        section.error_at_key(given[0], "CONFLICT", message, expected="username or oauth_...")
    elif given:
        secrets |= _client_credentials(section, "the URL of the OAuth server")
    return replace(section.value, **secrets, **_tls(section))


def _properties(section: Section[Mapping[str, str]]) -> dict[str, str]:
    """The client properties that all clients support; others are reported."""
    properties = {}
    for name, value in section.value.items():
        known = PROPERTIES.get(name)
        if known is None:
            reason = refusal(name) or "not a property of all of Redrive's clients"
            section.error_at_key(
                name,
                "REFUSED_PROPERTY",
                f"{name} cannot be set: {reason}",
                hint=did_you_mean(name, PROPERTIES),
            )
        elif known.takes(value):
            properties[name] = value
        else:
            message = f"{section.written(name)!r} is not a value of {name}"
            section.bad_value(name, message, expected=known.expected)
    return properties


def _bootstrap_servers(section: Section[KafkaTable]) -> str:
    text = section.text("bootstrap_servers")
    addresses = [address.strip() for address in text.split(",")]
    for address in addresses if text else ():
        match = _ADDRESS.fullmatch(address)
        if match is None or not 1 <= int(match[1]) <= _LARGEST_PORT:
            message = f"{address!r} is not an address" if address else "an address is empty"
            expected = "host:port, several separated by commas"
            section.bad_value("bootstrap_servers", message, expected=expected)
    return ",".join(addresses)


def _tls(section: Section[Any]) -> dict[str, str]:
    authorities = _existing_file(section, "ssl_ca_file")
    certificate = _existing_file(section, "ssl_certificate_file")
    key = _existing_file(section, "ssl_key_file")
    needed = {"ssl_certificate_file": "ssl_key_file", "ssl_key_file": "ssl_certificate_file"}
    for given, required in needed.items():
        if section.has(given) and not section.has(required):
            section.missing(required, "a certificate and its key belong together")
    password = ""
    if section.has("ssl_key_password") or section.has("ssl_key_password_file"):
        password = read_secret(section, "ssl_key_password", "")
        if not section.has("ssl_key_file"):
            section.missing("ssl_key_file", "the key that the password decrypts")
    if certificate and key:
        check_certificate(section, certificate, key, password)
    return {
        "ssl_ca_file": _absolute(authorities),
        "ssl_certificate_file": _absolute(certificate),
        "ssl_key_file": _absolute(key),
        "ssl_key_password": password,
    }


def _existing_file(section: Section[Any], key: str) -> Path | None:
    path = section.file(key)
    if path is None or path.is_file():
        return path
    section.error(key, "MISSING_FILE", f"there is no file {path}")
    return None


def _absolute(path: Path | None) -> str:
    return str(path.absolute()) if path else ""


def _without_effect(section: Section[Any], by: str, value: str, key: str, needed: str) -> None:
    if section.has(key):
        section.error_at_key(
            key,
            "WITHOUT_EFFECT",
            f"{key} has no effect with {by} {value}",
            hint=f"set {by} to {needed}, or remove it",
        )


def read_secret(section: Section[Any], key: str, purpose: str) -> str:
    """A password or secret from the variable in ``key`` or the file in ``key``_file."""
    word = "secret" if key.endswith("secret") else "password"
    key_of_file = f"{key}_file"
    in_file, here = section.has(key_of_file), section.has(key)
    if in_file and here:
        section.error(
            key, "CONFLICT", f"there is a {key} and a {key_of_file}", expected="one of them"
        )
    if in_file:
        return _password_from_file(section, key_of_file)
    if not here:
        section.missing(key_of_file, purpose, f"the path of a file with the {word}")
        return ""
    written = section.written(key)
    if written and not _VARIABLE_ALONE.fullmatch(written):
        section.error(
            key,
            "SECRET_IN_FILE",
            f"a {word} does not belong in the settings file",
            expected=f'{key} = "${{NAME}}" for an environment variable',
            hint=f"or put it in its own file and set {key_of_file}",
        )
        return ""
    return section.text(key)


def _password_from_file(section: Section[Any], key: str) -> str:
    path = section.file(key)
    if path is None:
        return ""
    try:
        password = path.read_text(encoding="utf-8").split("\n", maxsplit=1)[0].removesuffix("\r")
        problem = "" if password else f"the first line of {path} is empty"
    except FileNotFoundError:
        section.error(key, "MISSING_FILE", f"there is no file {path}")
        return ""
    except OSError as error:
        password, problem = "", f"{path} cannot be read: {error.strerror}"
    except UnicodeDecodeError:
        password, problem = "", f"{path} is not UTF-8"
    if problem:
        section.error(key, "UNREADABLE_FILE", problem)
    return password


_CERTIFICATE: Final = re.compile(
    "-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----", re.DOTALL
)
_PRIVATE_KEY: Final = re.compile(
    r"-----BEGIN (ENCRYPTED )?PRIVATE KEY-----(.*?)-----END", re.DOTALL
)
"""PKCS #8, the only form that all clients read."""
_CONVERT: Final = "openssl pkcs8 -topk8 -v2 aes-256-cbc -in OLD -out NEW converts it"
_PBKDF2: Final = bytes.fromhex("2a864886f70d01050c")
_AES: Final = bytes.fromhex("6086480165030401")
"""Object identifiers (for AES the prefix) that Java needs to decrypt a key."""
_VERSION: Final = 0xA0
_SHORT_TIME: Final = 0x17
"""Tags in a certificate: its version, which is optional, and a time with a year of two digits."""
_VALIDITY: Final = 3
"""Its position among the fields of a certificate, not counting the version (RFC 5280, 4.1)."""


def check_certificate(section: Section[Any], certificate: Path, key: Path, password: str) -> None:
    """Report a certificate or key that a client cannot use, and a pair that does not match.

    Both files exist. The password is empty if there is none or it could not be read.
    """
    is_readable = _check_dates(section, certificate)
    match = _PRIVATE_KEY.search(_pem_text(key))
    if match is None:
        section.error(
            "ssl_key_file",
            "UNREADABLE_FILE",
            f"{key} has no readable key in PKCS #8",
            expected="a PEM file with BEGIN PRIVATE KEY or BEGIN ENCRYPTED PRIVATE KEY",
            hint=_CONVERT,
        )
        return
    is_encrypted = match[1] is not None
    _check_password_is_due(section, key, is_encrypted=is_encrypted)
    if is_encrypted and not _java_decrypts(match[2]):
        message = f"the key in {key} is encrypted in a way that Java cannot read"
        section.error("ssl_key_file", "UNREADABLE_FILE", message, hint=_CONVERT)
    elif is_readable and is_encrypted == bool(password):
        _check_match(section, certificate, key, password)


def _pem_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return ""


def _check_password_is_due(section: Section[Any], key: Path, *, is_encrypted: bool) -> None:
    names = [name for name in ("ssl_key_password", "ssl_key_password_file") if section.has(name)]
    if is_encrypted and not names:
        example = "the path of a file with the password"
        section.missing("ssl_key_password_file", "the key is encrypted", example)
    for name in () if is_encrypted else names:
        message = f"{key} is not encrypted"
        section.error_at_key(name, "WITHOUT_EFFECT", message, hint=f"remove {name}")


def _java_decrypts(key: str) -> bool:
    try:
        data = base64.b64decode(key)
    except binascii.Error:
        return True  # damaged, which OpenSSL finds
    return _PBKDF2 in data and _AES in data


def _check_match(section: Section[Any], certificate: Path, key: Path, password: str) -> None:
    context = ssl.create_default_context()
    try:
        # With a function for the password, OpenSSL never asks on the terminal.
        context.load_cert_chain(certificate, key, lambda: password)
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            message = f"the key in {key} does not belong to the certificate in {certificate}"
            section.bad_value("ssl_key_file", message)
            return
        wrong = ", or its password is wrong" if password else ""
        section.error("ssl_key_file", "UNREADABLE_FILE", f"the key in {key} is damaged{wrong}")
        return
    if not password.isascii():
        message = "Java accepts only ASCII characters in the password of a key"
        section.error("ssl_key_file", "UNREADABLE_FILE", message, hint=_CONVERT)


def _check_dates(section: Section[Any], path: Path) -> bool:
    match = _CERTIFICATE.search(_pem_text(path))
    if match is None:
        message = f"{path} has no readable certificate in PEM"
        section.error("ssl_certificate_file", "UNREADABLE_FILE", message)
        return False
    try:
        end = _end_of_validity(ssl.PEM_cert_to_DER_cert(match[0]))
    except (ValueError, IndexError):
        message = f"the certificate in {path} is damaged"
        section.error("ssl_certificate_file", "UNREADABLE_FILE", message)
        return False
    if end < datetime.now(UTC):
        section.warning(
            "ssl_certificate_file",
            "EXPIRED",
            f"the certificate in {path} has expired at {end:%Y-%m-%d %H:%M:%S} UTC",
            hint="brokers refuse it: renew it",
        )
    return True


def _end_of_validity(certificate: bytes) -> datetime:
    """The end of validity of a certificate in DER.

    Raises:
        ValueError: It is damaged.
        IndexError: It is truncated.
    """
    [(_, content)] = _der_elements(certificate)
    [(_, body), *_] = _der_elements(content)
    fields = [field for tag, field in _der_elements(body) if tag != _VERSION]
    _, (tag, end) = _der_elements(fields[_VALIDITY])
    form = "%y%m%d%H%M%SZ" if tag == _SHORT_TIME else "%Y%m%d%H%M%SZ"
    return datetime.strptime(end.decode("ascii"), form).replace(tzinfo=UTC)


def _der_elements(data: bytes) -> Iterator[tuple[int, bytes]]:
    at = 0
    while at < len(data):
        tag, length, at = data[at], data[at + 1], at + 2
        if length > 0x7F:  # noqa: PLR2004 - then it is the number of bytes that hold the length
            size = length - 0x80
            length, at = int.from_bytes(data[at : at + size]), at + size
        yield tag, data[at : at + length]
        at += length
