"""Messages known only by their outcomes, as far as decisions need them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from redrive.engine.breaker import PROBE
from redrive.engine.message import NO_ATTEMPTS, Attempts, Message
from redrive.engine.outcome import FIELDS, Result
from redrive.messages import NO_VALID_SCHEME, DeadLetterProfile
from redrive.messages.schemes.known import CONNECT
from redrive.messages.schemes.scheme import CONNECT_GROUP, DeadLetterView, Origin
from redrive.outcomes.rows import Row
from redrive.rules import Dialect

if TYPE_CHECKING:
    from redrive.rules import RulesTable

_KNOWN: Final = frozenset({*FIELDS, "SCHEME", "GROUP", "TOPIC", "ROOTCLASS"})
"""Pattern fields that outcomes have."""


def message_of(row: Row) -> Message:
    """The message of an outcome; its body, key and headers are unknown."""
    profile = profile_of(
        row.form,
        row.pattern_fields,
        error_class=row.error_class,
        group=row.consumer_group,
        problem=row.detail or "",
    )
    return Message(
        key=None,
        value=None,
        headers=[],
        timestamp=-1,
        identity=row.message,
        origin=row.origin,
        hops=row.hop or 0,
        profile=profile,
    )


def profile_of(
    form: str,
    fields: Mapping[str, str | int],
    *,
    error_class: str | None,
    group: str | None,
    problem: str = "",
) -> DeadLetterProfile:
    """The profile of dead letters, as far as outcomes have it.

    Args:
        form: Name of the scheme.
        fields: The pattern fields by keyword.
        error_class: The innermost named cause, or the exception.
        group: The consumer group that failed.
        problem: Why they are not dead letters, if they are not.
    """
    is_letter = form != NO_VALID_SCHEME
    is_connect = form == CONNECT.name  # it names the connector, and so the group
    view = DeadLetterView(
        scheme=form if is_letter else None,
        origin=Origin(topic=str(fields.get("DESTQ") or "") or None),
        error_class=error_class,
        error_root_class=error_class,
        group=None if is_connect else group,
        connector=group.removeprefix(CONNECT_GROUP) if is_connect and group else None,
    )
    problem = "" if is_letter else problem or "no valid dead-letter header"
    return DeadLetterProfile(form, problem, fields, None, view)


def missing_fields(table: RulesTable) -> Sequence[str]:
    """Fields that the patterns of a table need and outcomes do not have."""
    return sorted(table.asked - _KNOWN)


def attempts_of(rows: Sequence[Row], table: RulesTable) -> Attempts:
    """The failed attempts under a table according to outcomes; those under others do not count.

    The outcomes are of one message, in order and at least one.
    """
    last = rows[-1]
    if last.result != Result.PARKED or not table.hash.startswith(last.table_hash or "-"):
        return NO_ATTEMPTS
    lines = Counter(
        row.rule_line
        for row in rows
        if (row.handler, row.table_hash) == (last.handler, last.table_hash)
        and _has_failed(row, last, table)
    )
    by_rule = [
        (number, min(lines[rule.line], rule.retry))
        for number, rule in enumerate(table.rules)
        if lines[rule.line]
    ]
    return Attempts(last.attempt - is_wait(last), tuple(by_rule))


def is_wait(row: Row) -> bool:
    """Whether a message was parked before an attempt, and not because one had failed."""
    return row.result == Result.PARKED and not row.reason


def _has_failed(row: Row, last: Row, table: RulesTable) -> bool:
    """Whether an outcome reports an attempt that had failed by the time of the last one.

    Under DIALECT(KAFKA) a put has also failed, since the message came back. A probe of a breaker
    does not count.
    """
    if row.result == Result.PARKED:
        return row.origin == last.origin and not is_wait(row)
    is_put = row.result in {Result.RETRIED, Result.FORWARDED}
    is_probe = (row.detail or "").startswith(PROBE)
    return is_put and not is_probe and table.control.dialect is Dialect.KAFKA
