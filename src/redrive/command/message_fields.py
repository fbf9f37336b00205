"""What the rules of a table look at in a message that is written down."""

from __future__ import annotations

import time

from redrive.command.message_file import WrittenRecord
from redrive.messages.dead_letters import decode_dead_letter, read_view
from redrive.messages.schemes import SchemeTable
from redrive.rules import Dialect, FieldReader, FieldValue, RulesTable
from redrive.rules.fields import RuleInput
from redrive.rules.keywords import KAFKA_PATTERNS

__all__ = ["message_fields"]


def message_fields(
    written: WrittenRecord, schemes: SchemeTable, rules: RulesTable
) -> tuple[dict[str, FieldValue], str]:
    """What the rules of a table look at in a message.

    Args:
        written: The message.
        schemes: How dead letters of the user's own look.
        rules: The table; in DIALECT(KAFKA) it looks at more.

    Returns:
        The fields by pattern keyword, and why no rule is asked if it is no dead letter.
    """
    key, value, headers, _ = written
    letter = decode_dead_letter(value, headers, key=key, schemes=schemes)
    fields = dict(letter.fields)
    if rules.control.dialect is Dialect.KAFKA:
        fields.update(_kafka_fields(rules, written, schemes))
    return fields, letter.problem


def _kafka_fields(
    rules: RulesTable, written: WrittenRecord, schemes: SchemeTable
) -> dict[str, FieldValue]:
    """What DIALECT(KAFKA) adds; without a time in the message it failed at this moment."""
    key, value, headers, timestamp = written
    view = read_view(key, value, headers, schemes=schemes)
    now = int(time.time() * 1000)
    since = view.failed_at if view.first_failed_at is None else view.first_failed_at
    put = now if timestamp is None else timestamp
    message = RuleInput(key, value, headers, put, now, view, view.error_message, since)
    plain = {name for name, keyword in KAFKA_PATTERNS.items() if not keyword.argument}
    reader = FieldReader(plain | rules.asked)
    told = zip(reader.names, reader.values(message), strict=True)
    return {name: it for name, it in told if it is not None}
