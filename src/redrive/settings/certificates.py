"""A client's certificate and key in PEM: finds what would fail in one of the clients."""

from __future__ import annotations

import base64
import binascii
import re
import ssl
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from redrive.settings.findings import Section

_CERTIFICATE: Final = re.compile(
    "-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----", re.DOTALL
)
_KEY: Final = re.compile(r"-----BEGIN (ENCRYPTED )?PRIVATE KEY-----(.*?)-----END", re.DOTALL)
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
    match = _KEY.search(_text(key))
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


def _text(path: Path) -> str:
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
    match = _CERTIFICATE.search(_text(path))
    if match is None:
        message = f"{path} has no readable certificate in PEM"
        section.error("ssl_certificate_file", "UNREADABLE_FILE", message)
        return False
    try:
        end = _end_of(ssl.PEM_cert_to_DER_cert(match[0]))
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


def _end_of(certificate: bytes) -> datetime:
    """The end of validity of a certificate in DER.

    Raises:
        ValueError: It is damaged.
        IndexError: It is truncated.
    """
    [(_, content)] = _elements(certificate)
    [(_, body), *_] = _elements(content)
    fields = [field for tag, field in _elements(body) if tag != _VERSION]
    _, (tag, end) = _elements(fields[_VALIDITY])
    form = "%y%m%d%H%M%SZ" if tag == _SHORT_TIME else "%Y%m%d%H%M%SZ"
    return datetime.strptime(end.decode("ascii"), form).replace(tzinfo=UTC)


def _elements(data: bytes) -> Iterator[tuple[int, bytes]]:
    at = 0
    while at < len(data):
        tag, length, at = data[at], data[at + 1], at + 2
        if length > 0x7F:  # noqa: PLR2004 - then it is the number of bytes that hold the length
            size = length - 0x80
            length, at = int.from_bytes(data[at : at + size]), at + size
        yield tag, data[at : at + length]
        at += length
