"""The files of ``--tokens`` and ``--access``: users, their roles, and an identity provider.

As for ``redrive.toml`` all findings come at once with their location, and none shows a secret.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Final, Literal, NamedTuple, TypeAlias

from pydantic import Field

from redrive.console.access import (
    EVERYTHING,
    Grant,
    Grants,
    Role,
    Scope,
    SignedInBy,
    User,
    is_name,
)
from redrive.errors import UsageError
from redrive.forms import FileForm, TableForm, Text, number
from redrive.settings.connection import read_secret
from redrive.settings.document import Document
from redrive.settings.findings import Section

__all__ = ["AccessFile", "OidcSettings", "read_access", "read_tokens"]

CALLBACK: Final = "/sign-in/callback"

_Name: TypeAlias = Annotated[
    str,
    Field(
        title="a name of up to 200 characters",
        description="it stands in plans and in the ledger",
        pattern=r"\A.{1,200}\Z",
        examples=["somebody"],
    ),
]
_Names: TypeAlias = Annotated[tuple[_Name, ...], Field(title="a list of names", min_length=1)]
_RoleName: TypeAlias = Annotated[
    Literal["viewer", "operator", "approver", "admin"],
    Field(description="what the user may do", examples=["viewer"]),
]
_Topics: TypeAlias = Annotated[
    tuple[
        Annotated[
            str,
            Field(
                title="a name of a topic, with * and ?",
                pattern=r"\A[A-Za-z0-9._*?-]{1,249}\Z",
            ),
        ],
        ...,
    ],
    Field(title="a list of names of topics, with * and ?", min_length=1),
]
_Address: TypeAlias = Annotated[
    str,
    Field(
        title="https://HOST[:PORT][/PATH]; http:// on the loopback only",
        pattern=(
            r"\A(https://[A-Za-z0-9.-]+|http://(localhost|127\.0\.0\.1|\[::1\]))"
            r"(:[0-9]{1,5})?(/[A-Za-z0-9._~/-]*)?\Z"
        ),
    ),
]


@dataclass(frozen=True, kw_only=True)
class _Granted(TableForm):
    """Keys of all tables that give a role."""

    role: _RoleName
    topics: _Topics = ()


@dataclass(frozen=True, kw_only=True)
class _Token(_Granted):
    name: _Name
    sha256: Annotated[
        str,
        Field(
            title="64 hexadecimal digits in lower case: printf %s TOKEN | sha256sum",
            description="the digest of the token",
            pattern=r"\A[0-9a-f]{64}\Z",
            examples=["0" * 64],
        ),
    ]


@dataclass(frozen=True, kw_only=True)
class _TokensFile(TableForm):
    tokens: Annotated[
        tuple[Annotated[_Token, Field(title="[[tokens]]")], ...],
        Field(
            title="a list of tables, each beginning with [[tokens]]",
            min_length=1,
            examples=[[{"name": "somebody", "role": "viewer", "sha256": "0" * 64}]],
        ),
    ]


@dataclass(frozen=True, kw_only=True)
class _Roles(_Granted):
    users: _Names = ()
    groups: _Names = ()


@dataclass(frozen=True, kw_only=True)
class OidcSettings(TableForm):
    """The table ``[oidc]``."""

    issuer: _Address = ""
    """The identity provider's name in its discovery document and its tokens."""
    client_id: Text = ""
    client_secret: Text = field(default="", repr=False)
    """Empty for a public client, which has only PKCE."""
    client_secret_file: Text = ""
    """The file that has the secret; ``read_access`` reads it."""
    address: _Address = ""
    """The console's own address for browsers: ``https://redrive.example``."""
    scopes: _Names = ("openid", "profile", "email")
    user_claim: Text = "sub"
    """The claim of the ID token that names the user."""
    groups_claim: Text = "groups"
    """The claim that names the user's groups."""
    clock_skew: Annotated[float, number("seconds", 0, 300)] = 60.0
    """Seconds by which the two machines' clocks may differ."""

    @property
    def redirect_uri(self) -> str:
        """The address to which the identity provider redirects browsers."""
        return f"{self.address}{CALLBACK}"


@dataclass(frozen=True, kw_only=True)
class _AccessFile(TableForm):
    roles: Annotated[
        tuple[Annotated[_Roles, Field(title="[[roles]]")], ...],
        Field(title="a list of tables, each beginning with [[roles]]"),
    ] = ()
    oidc: Annotated[OidcSettings, Field(title="[oidc]")] = OidcSettings()


_TOKENS: Final = FileForm(_TokensFile, "the file", "table")
_ACCESS: Final = FileForm(_AccessFile, "the file", "table")
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
    for entry in root.inners(root.value.tokens, "tokens"):
        token = entry.value
        _check_names(entry, "name", [token.name])
        if token.sha256 in users and token.sha256 == entry.written("sha256"):
            entry.error("sha256", "DUPLICATE", f"this is the token of {users[token.sha256].name}")
        users[token.sha256] = User(token.name, _grants(entry), SignedInBy.TOKEN)
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
    for entry in root.inners(root.value.roles, "roles"):
        if not any(entry.has(kind) for kind in grants):
            entry.missing("groups", "who has the role, or users", 'groups = ["developers"]')
        for kind, granted in grants.items():
            names = getattr(entry.value, kind)
            _check_names(entry, kind, names)
            for name in names:
                granted[name] = (*granted.get(name, ()), *_grants(entry))
    oidc = _oidc(root.inner(root.value.oidc, "oidc")) if root.has("oidc") else None
    _check(root)
    return AccessFile(Grants(**grants), oidc)


def _oidc(section: Section[OidcSettings]) -> OidcSettings:
    for key, purpose in _REQUIRED.items():
        if not section.has(key):
            section.missing(key, purpose)
    address = section.value.address.rstrip("/")
    if address.count("/") > 2:  # noqa: PLR2004 - those of https://
        section.bad_value("address", "the console is at the root of its host", expected="no path")
    has_secret = section.has("client_secret") or section.has("client_secret_file")
    secret = read_secret(section, "client_secret", "") if has_secret else ""
    return replace(section.value, address=address, client_secret=secret)


def _grants(entry: Section[Any]) -> tuple[Grant, ...]:
    granted: _Granted = entry.value
    # Topics with errors must not yield an unlimited role.
    scope = Scope(frozenset(granted.topics)) if entry.has("topics") else EVERYTHING
    return (Grant(Role[granted.role.upper()], scope),)


def _check_names(entry: Section[Any], key: str, names: Iterable[str]) -> None:
    for name in names:
        if not is_name(name):
            entry.bad_value(key, f"{name!r} has characters that cannot be shown")


def _check(root: Section[Any]) -> None:
    hint = "fix all errors; docs/console.md describes the file"
    root.findings.checked(root.findings.document.name, hint)
