"""The files of ``--tokens`` and ``--access``: users, their roles, and an identity provider.

As for ``redrive.toml`` all findings come at once with their location, and none shows a secret.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from redrive.console.access import EVERYTHING, Grant, Role, Scope, SignedInBy, User, is_name
from redrive.console.logins import Grants
from redrive.console.oidc import OidcSettings
from redrive.diagnostics import Severity, has_errors
from redrive.errors import ConfigurationError, UsageError
from redrive.printable import counted
from redrive.schemas import Schema
from redrive.settings.connection import read_secret
from redrive.settings.document import Document
from redrive.settings.findings import Section

__all__ = ["AccessFile", "read_access", "read_tokens"]

_TOKENS: Final = Schema.load("redrive.console", "tokens.json", mapping="table")
_ACCESS: Final = Schema.load("redrive.console", "access.json", mapping="table")
_READABLE_BY_OTHERS: Final = stat.S_IRGRP | stat.S_IROTH | stat.S_IWGRP | stat.S_IWOTH
_REQUIRED: Final = {
    "issuer": "the address of the identity provider",
    "client_id": "the console's name at the provider",
    "address": "the console's own address, such as https://redrive.example",
}


class AccessFile(NamedTuple):
    """The file of ``--access``."""

    grants: Grants
    oidc: OidcSettings | None
    """The identity provider; None if it has no table ``[oidc]``."""


def read_tokens(path: Path) -> dict[str, User]:
    """Read a file of tokens: users by the SHA-256 of their tokens.

    Raises:
        UsageError: Other users may read it.
        ConfigurationError: It has errors; all of them are attached.
    """
    root = Section.whole(Document.from_file(path), {}, _TOKENS)
    if _is_open_to_others(path.stat()):
        raise UsageError(
            f"--tokens {path}: other users of this machine may read or change it",
            hint=f"chmod 600 {path}",
        )
    users: dict[str, User] = {}
    for entry in root.sections("tokens"):
        _check_names(entry, "name", [entry.text("name")])
        digest = entry.text("sha256")
        if digest and digest in users:
            entry.error("sha256", "DUPLICATE", f"this is the token of {users[digest].name}")
        users[digest] = User(entry.text("name"), _grants(entry), SignedInBy.TOKEN)
    _check(root)
    return users


def _is_open_to_others(status: os.stat_result) -> bool:
    """Whether other users may read or change a file.

    A file that root owns may be readable by its group, as those of a Secret on Kubernetes are:
    nobody else could read it.
    """
    is_of_root = status.st_uid == 0 and os.geteuid() != 0
    return bool(status.st_mode & _READABLE_BY_OTHERS & ~(stat.S_IRGRP if is_of_root else 0))


def read_access(path: Path, environ: Mapping[str, str] = os.environ) -> AccessFile:
    """Read roles by user and by group, and an identity provider; errors as for ``read_tokens``."""
    root = Section.whole(Document.from_file(path), environ, _ACCESS)
    grants: dict[str, dict[str, tuple[Grant, ...]]] = {"users": {}, "groups": {}}
    for entry in root.sections("roles"):
        if not any(entry.has(kind) for kind in grants):
            entry.missing("groups", "who has the role, or users", 'groups = ["developers"]')
        for kind, granted in grants.items():
            names = [name for name in entry.data.get(kind, []) if name is not None]
            _check_names(entry, kind, names)
            for name in names:
                granted[name] = (*granted.get(name, ()), *_grants(entry))
    oidc = _oidc(root.section("oidc")) if root.has("oidc") else None
    _check(root)
    return AccessFile(Grants(**grants), oidc)


def _oidc(section: Section) -> OidcSettings:
    for key, purpose in _REQUIRED.items():
        if not section.has(key):
            section.missing(key, purpose)
    address = section.text("address").rstrip("/")
    if address.count("/") > 2:  # noqa: PLR2004 - those of https://
        section.bad_value("address", "the console is at the root of its host", expected="no path")
    has_secret = section.has("client_secret") or section.has("client_secret_file")
    chosen: dict[str, Any] = {
        key: section.data[key]
        for key in ("user_claim", "groups_claim", "clock_skew")
        if key in section.data
    }
    if "scopes" in section.data:
        chosen["scopes"] = tuple(scope for scope in section.data["scopes"] if scope is not None)
    return OidcSettings(
        issuer=section.text("issuer"),
        client_id=section.text("client_id"),
        client_secret=read_secret(section, "client_secret", "") if has_secret else "",
        address=address,
        **chosen,
    )


def _grants(entry: Section) -> tuple[Grant, ...]:
    if not entry.text("role"):
        return ()
    topics = frozenset(topic for topic in entry.data.get("topics", ()) if topic is not None)
    # Topics with errors must not yield an unlimited role.
    scope = Scope(topics) if entry.has("topics") else EVERYTHING
    return (Grant(Role[entry.text("role").upper()], scope),)


def _check_names(entry: Section, key: str, names: list[str]) -> None:
    for name in names:
        if name and not is_name(name):
            entry.bad_value(key, f"{name!r} has characters that cannot be shown")


def _check(root: Section) -> None:
    findings = root.findings.in_order()
    if has_errors(findings):
        count = sum(finding.severity is Severity.ERROR for finding in findings)
        raise ConfigurationError(
            f"{counted(count, 'error')} in {root.findings.document.name}",
            hint="fix all errors; docs/console.md describes the file",
            diagnostics=findings,
        )
