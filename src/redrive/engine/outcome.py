"""Outcomes: what became of one dead letter in one attempt, as a value and as a record (design 7).

One outcome record goes to the application's outcomes topic for every input, in the transaction
that carries its effects. The record's value is one JSON object whose members are the columns of the
ledger.
"""

from __future__ import annotations

from binascii import b2a_base64
from collections.abc import Mapping
from enum import StrEnum
from hashlib import sha256
from typing import Any, Final

import orjson

import redrive
from redrive.engine.commands import Replay
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
    """Nothing can place it now; kept until new definitions or a person deal with it."""
    ROUTED = "routed"
    """Put where the names of the put lead: on its queue, or on its way to another manager."""
    DEAD_LETTERED = "dead-lettered"
    """It could not be put, and is on a dead-letter queue."""
    EXPIRED = "expired"
    """It was late, and is gone."""
    SKIPPED = "skipped"
    """Left alone: it does not remain any more, or it waits on while others are tried early."""
    CANCELLED = "cancelled"
    """Left alone: somebody cancelled the replay. It is where it was."""


FINAL = frozenset(
    {
        Result.RETRIED,
        Result.FORWARDED,
        Result.DISCARDED,
        Result.ROUTED,
        Result.DEAD_LETTERED,
        Result.EXPIRED,
    }
)
"""Results after which Redrive has nothing more to do with the message."""

UNTOUCHED = frozenset({Result.SKIPPED, Result.CANCELLED})
"""Results of instructions that changed nothing: the message is where the outcome before says."""


LONGEST_KEY: Final = 4096
"""Bytes of a record key that an outcome keeps."""
LONGEST_TEXT: Final = 1024
"""Characters of a text from outside that an outcome keeps: MQ's own names have 48. An outcome has
some twenty of them, and a topic takes a megabyte by default."""


def static_members(members: Mapping[str, Any]) -> str:
    """The members that many outcomes share, as JSON text without the braces."""
    return orjson.dumps(_bounded_members(members)).decode()[1:-1]


def _bounded_members(members: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: bounded(value)
        if isinstance(value, str)
        else _bounded_members(value)
        if isinstance(value, Mapping)
        else value
        for name, value in members.items()
    }


def decision_members(
    *,
    handler: str,
    queue_manager: str,
    queue: str,
    table: str,
    attempt: int,
    result: Result,
    reason: int,
    detail: str,
    target_queue_manager: str,
    target_queue: str,
    target_topic: str,
    form: str,
    fields: Mapping[str, Any],
    rule_line: int = 0,
    action: str = "",
    authority: str = "",
    error_class: str = "",
    consumer_group: str = "",
) -> str:
    """The members of an outcome that do not depend on the single message, as JSON text.

    Args:
        handler: Name of the handler or router that decided.
        queue_manager: Where it works.
        queue: The queue that it works on; empty for an intake.
        table: 16 hex digits of the rules table or of the definitions.
        attempt: Number of the attempt, from 1; 0 when nothing was tried.
        result: What became of the message.
        reason: Reason code of a failure, or 0.
        detail: What was said about it.
        target_queue_manager: Where the message was put, or was to be put.
        target_queue: The queue there.
        target_topic: Its topic; empty if nothing was put.
        form: Scheme of the dead letter.
        fields: Values of the pattern fields.
        rule_line: Line of the rule, or 0.
        action: Action of the rule.
        authority: PUTAUT of the rule.
        error_class: The exception that the dead letter tells of; empty if it tells of none.
        consumer_group: The group that could not process it; empty if it tells of none.

    Returns:
        The members without the braces.
    """
    told = {"error_class": error_class, "consumer_group": consumer_group}
    return static_members(
        {
            "handler": handler,
            "queue_manager": queue_manager,
            "queue": queue,
            "table": table,
            "rule_line": rule_line,
            "action": action,
            "authority": authority,
            "attempt": attempt,
            "result": result.value,
            **reason_members(reason, detail),
            "target_queue_manager": target_queue_manager,
            "target_queue": target_queue,
            "target_topic": target_topic,
            "form": form,
            **{name: text for name, text in told.items() if text},
            **version_members(),
            "fields": dict(fields),
        }
    )


def replay_members(replay: Replay) -> str:
    """What an outcome tells of the replay that asked for it, as members without the braces."""
    return static_members(
        {"replay": replay.plan, "operator": replay.operator, "purpose": replay.purpose}
    )


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


def key_members(key: bytes | None) -> str:
    """A record key as members of an outcome, without the braces.

    Args:
        key: The key. Of one that is longer than ``LONGEST_KEY`` only the beginning is kept, with
            its length and its SHA-256: an outcome must always be small enough to be written.

    Returns:
        ``"key"`` as base64 text or null; for a long one ``"key_length"`` and ``"key_sha256"`` too.
    """
    if key is None:
        return '"key":null'
    text = b2a_base64(key[:LONGEST_KEY], newline=False).decode()
    if len(key) <= LONGEST_KEY:
        return f'"key":"{text}"'
    return f'"key":"{text}","key_length":{len(key)},"key_sha256":"{sha256(key).hexdigest()}"'


def bounded(text: str) -> str:
    """A text that came from outside, cut to a length that an outcome can always hold.

    Args:
        text: A name, a field of a header, what a broker said.

    Returns:
        The text; if it is longer than ``LONGEST_TEXT`` characters, its beginning with its length
        and hash.
    """
    if len(text) <= LONGEST_TEXT:
        return text
    digest = sha256(text.encode(errors="surrogatepass")).hexdigest()
    return f"{text[:LONGEST_TEXT]}... ({len(text)} characters, SHA-256 {digest})"
