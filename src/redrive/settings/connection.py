"""The [kafka] table: where the brokers are and how to sign in to them."""

from __future__ import annotations

import re
from enum import StrEnum
from pathlib import Path
from typing import Final

from redrive.kafka.connection import Connection
from redrive.settings.reader import Table

__all__ = ["read_connection"]

_ADDRESS: Final = re.compile(r"(?:[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\]):([0-9]{1,5})")
_LARGEST_PORT: Final = 65_535
_VARIABLE_ALONE: Final = re.compile(r"\$\{[^}]*\}")
_SIGN_IN_KEYS: Final = ("sasl_mechanism", "sasl_username", "sasl_password", "sasl_password_file")


class _SecurityProtocol(StrEnum):
    PLAINTEXT = "PLAINTEXT"
    SSL = "SSL"
    SASL_PLAINTEXT = "SASL_PLAINTEXT"
    SASL_SSL = "SASL_SSL"

    @property
    def signs_in(self) -> bool:
        return self.value.startswith("SASL")

    @property
    def encrypts(self) -> bool:
        return self.value.endswith("SSL")


class _SaslMechanism(StrEnum):
    PLAIN = "PLAIN"
    SCRAM_SHA_256 = "SCRAM-SHA-256"
    SCRAM_SHA_512 = "SCRAM-SHA-512"


def read_connection(table: Table) -> Connection:
    """The connection that a [kafka] table describes.

    Args:
        table: The table; what is wrong with it is reported there.
    """
    table.check_keys()
    protocol = table.choice("security_protocol", _SecurityProtocol.PLAINTEXT)
    connection = Connection(
        bootstrap_servers=_bootstrap_servers(table),
        security_protocol=protocol.value,
        ssl_ca_file=_authorities(table, protocol),
    )
    if not protocol.signs_in:
        _refuse_sign_in(table, protocol)
        return connection
    return Connection(
        bootstrap_servers=connection.bootstrap_servers,
        security_protocol=connection.security_protocol,
        ssl_ca_file=connection.ssl_ca_file,
        sasl_mechanism=table.choice("sasl_mechanism", _SaslMechanism.SCRAM_SHA_512).value,
        sasl_username=table.text("sasl_username", required=f"{protocol} signs in with a name"),
        sasl_password=_password(table, protocol),
    )


def _bootstrap_servers(table: Table) -> str:
    expected = "host:port, several separated by commas"
    text = table.text("bootstrap_servers", required="a broker to begin with", example=expected)
    addresses = [address.strip() for address in text.split(",")]
    for address in addresses if text else ():
        match = _ADDRESS.fullmatch(address)
        if match is None or not 1 <= int(match[1]) <= _LARGEST_PORT:
            shown = address if address in table.data["bootstrap_servers"] else "an address in it"
            message = f"{shown!r} is no address of a broker" if shown else "an address is empty"
            table.error("bootstrap_servers", "BAD_VALUE", message, expected=expected)
    return ",".join(addresses)


def _authorities(table: Table, protocol: _SecurityProtocol) -> str:
    path = table.file("ssl_ca_file")
    if path is None:
        return ""
    if not protocol.encrypts:
        table.error(
            "ssl_ca_file",
            "WITHOUT_EFFECT",
            f"ssl_ca_file has no effect with security_protocol {protocol}",
            hint="set security_protocol to SSL or SASL_SSL, or remove it",
        )
    elif not path.is_file():
        table.error("ssl_ca_file", "MISSING_FILE", f"there is no file {path}")
    return str(path.absolute())


def _refuse_sign_in(table: Table, protocol: _SecurityProtocol) -> None:
    for key in _SIGN_IN_KEYS:
        if table.has(key):
            table.findings.error_at_key(
                (*table.path, key),
                "WITHOUT_EFFECT",
                f"{key} has no effect with security_protocol {protocol}",
                hint="set security_protocol to SASL_SSL, or remove it",
            )


def _password(table: Table, protocol: _SecurityProtocol) -> str:
    in_file, here = table.has("sasl_password_file"), table.has("sasl_password")
    if in_file and here:
        table.error(
            "sasl_password",
            "CONFLICT",
            "there is a sasl_password and a sasl_password_file",
            expected="one of them",
        )
    if in_file:
        return _password_from_file(table)
    if not here:
        purpose = f"{protocol} signs in with a password"
        table.missing("sasl_password_file", purpose, "the path of a file that holds the password")
        return ""
    written = table.data["sasl_password"]
    if isinstance(written, str) and not _VARIABLE_ALONE.fullmatch(written):
        table.error(
            "sasl_password",
            "SECRET_IN_FILE",
            "a password does not belong in the settings file",
            expected='sasl_password = "${NAME}" for an environment variable',
            hint="or put it in a file of its own and name that as sasl_password_file",
        )
        return ""
    return table.text("sasl_password")


def _password_from_file(table: Table) -> str:
    path = table.file("sasl_password_file")
    if path is None:
        return ""
    problem, password = _first_line(path)
    if problem:
        code = "MISSING_FILE" if problem.startswith("there is no") else "UNREADABLE_FILE"
        table.error("sasl_password_file", code, problem)
    return password


def _first_line(path: Path) -> tuple[str, str]:
    """What is wrong with a password file, if anything is, and its first line."""
    try:
        password = path.read_text(encoding="utf-8").split("\n", maxsplit=1)[0].removesuffix("\r")
    except FileNotFoundError:
        return f"there is no file {path}", ""
    except OSError as error:
        return f"{path} can't be read: {error.strerror}", ""
    except UnicodeDecodeError:
        return f"{path} is not UTF-8", ""
    return ("" if password else f"the first line of {path} is empty"), password
