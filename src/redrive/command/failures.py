"""Why messages failed, in the terms of Kafka or of IBM MQ."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from redrive.configuration import JobConfiguration
from redrive.configuration.deciders import table_of
from redrive.messages import NO_VALID_SCHEME
from redrive.messages.constants import reason_name
from redrive.outcomes.rows import Row
from redrive.printable import printable
from redrive.rules import Dialect

_NO_HEADER: Final = "no dead-letter header"
_IN_KAFKA: Final[Mapping[str, str]] = {
    "MQRC_UNKNOWN_OBJECT_NAME": "unknown topic",
    "MQRC_UNKNOWN_REMOTE_Q_MGR": "invalid topic",
    "MQRC_NOT_AUTHORIZED": "not authorized",
    "MQRC_MSG_TOO_BIG_FOR_Q": "record too large",
    "MQRC_FORMAT_ERROR": "invalid record",
    "MQRC_RESOURCE_PROBLEM": "partition did not answer",
    "MQRC_LOOPING_PUBLICATION": "loop",
    "MQRC_NO_MSG_AVAILABLE": "original is gone",
    "MQRC_Q_FULL": "topic is full",
    "MQRC_API_EXIT_ERROR": "transformation failed",
}
"""Why an attempt to put to a topic fails, by the name of MQ's reason."""


def shows_mq(job: JobConfiguration, *, mq: bool) -> bool:
    """Whether to show MQ's terms: with ``--mq``, or if the tables or a topology use them."""
    return (
        mq
        or bool(job.topology)
        or not job.handlers
        or any(table_of(handler).control.dialect is not Dialect.KAFKA for handler in job.handlers)
    )


def cause(row: Row, *, mq: bool) -> dict[str, object]:
    """Why a message is a dead letter, from one of its outcomes, as columns of a table."""
    is_invalid = row.form == NO_VALID_SCHEME
    if mq:
        return {
            "for": at(row.field_destq, row.field_destqm),
            "reason": reason_text(None if is_invalid else row.field_reason),
        }
    return {
        "exception": _NO_HEADER if is_invalid else short_class(row.error_class),
        "group": row.consumer_group,
        "topic": row.field_destq,
    }


def short_class(name: str | None) -> str:
    """An exception without its package."""
    return (name or "").rpartition(".")[2]


def why(row: Row, *, mq: bool) -> str:
    """Why an attempt failed, what it changed, and who requested it; may be empty."""
    number = f"{row.reason} " if mq else ""
    reason = f"{number}{failure_text(row.reason_name, mq=mq)}" if row.reason else ""
    failure = ": ".join(part for part in (reason, row.detail) if part)
    edit = f"changed {row.edit}" if row.edit else ""
    purpose = f" ({row.purpose})" if row.purpose else ""
    replay = f"replay {row.replay} by {row.operator}{purpose}" if row.replay else ""
    return printable("; ".join(part for part in (failure, edit, replay) if part))


def exception_and_why(row: Row, *, mq: bool) -> str:
    """What the exception of the dead letter said, then ``why``; may be empty."""
    return "; ".join(filter(None, (exception_message(row), why(row, mq=mq))))


def exception_message(row: Row) -> str:
    """What the exception of the dead letter said, in one line; empty if unknown."""
    return printable(" ".join((row.error_message or "").split()))


def failure_text(name: str, *, mq: bool) -> str:
    """The name of a reason for which an attempt failed."""
    return name if mq else _IN_KAFKA.get(name, name)


def reason_text(reason: int | None) -> str:
    """A reason code with its name; empty for 0, in words for None."""
    if reason is None:
        return _NO_HEADER
    return f"{reason} {reason_name(reason)}" if reason else ""


def at(queue: str | None, queue_manager: str | None) -> str:
    """A queue as ``QUEUE@QM``, leaving out what is blank."""
    return printable(f"{queue or ''}@{queue_manager or ''}".removesuffix("@"))
