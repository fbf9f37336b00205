"""Outcomes: what became of one dead letter in one attempt, as a value and as a record (design 7).

One outcome record goes to the application's outcomes topic for every input, in the transaction
that carries its effects. The record's value is one JSON object whose members are the columns of the
ledger.
"""

from __future__ import annotations

from binascii import b2a_base64
from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Final

import orjson

import redrive
from redrive.messages.constants import reason_name

FIELDS: Final = (
    "APPLIDAT", "APPLNAME", "APPLTYPE", "DESTQ", "DESTQM", "FEEDBACK", "FORMAT",
    "MSGTYPE", "PERSIST", "REASON", "REPLYQ", "REPLYQM", "USERID",
)  # fmt: skip
"""The pattern fields, in the order of the ledger's columns."""


class Result(StrEnum):
    """What became of one input in one attempt."""

    RETRIED = "retried"
    """Put to its original destination."""
    FORWARDED = "forwarded"
    """Put to the queue that the rule names."""
    DISCARDED = "discarded"
    """Deleted, as the rule says."""
    PARKED = "parked"
    """The attempt failed; the message waits for its next one."""
    REMAINS = "remains"
    """No rule can place it now; kept until a new table or a person deals with it."""


FINAL = frozenset({Result.RETRIED, Result.FORWARDED, Result.DISCARDED})
"""Results after which Redrive has nothing more to do with the message."""


def static_members(members: Mapping[str, Any]) -> str:
    """The members that many outcomes share, as JSON text without the braces."""
    return orjson.dumps(members).decode()[1:-1]


def reason_members(reason: int, detail: str) -> dict[str, Any]:
    """Reason code, its name and what the broker or the rules said about it."""
    return {
        "reason": reason,
        "reason_name": reason_name(reason) if reason else "",
        "detail": detail,
    }


def version_members() -> dict[str, Any]:
    """What tells which program decided."""
    return {"job_version": redrive.__version__}


def json_key(key: bytes | None) -> str:
    """A record key as JSON: base64 text, or null."""
    return "null" if key is None else f'"{b2a_base64(key, newline=False).decode()}"'
