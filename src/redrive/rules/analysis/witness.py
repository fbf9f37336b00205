"""A message as text, in the words that ``redrive explain --field`` takes."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Final

from redrive.masking import Mask
from redrive.messages.constants import constant_name
from redrive.rules.keywords import Value, field_order, pattern_keyword, split_field
from redrive.rules.patterns import ABSENT, FieldValue

__all__ = ["hidden_field", "told_fields", "write_field", "write_message"]

_BLANK_MESSAGE: Final = "a message with blank fields"


def write_message(message: Mapping[str, FieldValue]) -> str:
    """The fields of a message that are neither blank nor 0, such as ``REASON=MQRC_Q_FULL``.

    Args:
        message: Match fields by pattern keyword.
    """
    told = [write_field(name, value) for name, value in told_fields(message).items()]
    return " ".join(told) or _BLANK_MESSAGE


def told_fields(message: Mapping[str, FieldValue]) -> dict[str, FieldValue]:
    """The fields of a message, in order, without those that a message like it does not have.

    Args:
        message: Match fields by pattern keyword.
    """
    names = sorted(message, key=field_order)
    return {name: message[name] for name in names if _is_told(name, message[name])}


def _is_told(name: str, value: FieldValue) -> bool:
    """Whether a field is not what it is in a message that does not have it."""
    if pattern_keyword(name).value is Value.NUMBERS:
        return value != ABSENT
    return bool(value)


def write_field(name: str, value: FieldValue) -> str:
    """One field, quoted for a shell where it has to be.

    Args:
        name: The pattern keyword.
        value: The value; a number is shown by its symbolic name if it has one.
    """
    if isinstance(value, int):
        names = (constant_name(family, value) for family in pattern_keyword(name).families)
        return f"{name}={next(filter(None, names), value)}"
    if "(" in name:  # HEADER(name) of DIALECT(KAFKA)
        return shlex.quote(f"{name}={value}")
    return f"{name}={shlex.quote(value)}"


def hidden_field(mask: Mask, name: str, value: FieldValue) -> FieldValue:
    """The value of a field without secrets.

    Args:
        mask: What is not to be shown.
        name: The field, as patterns name it.
        value: Its value.
    """
    if not isinstance(value, str):
        return value
    keyword, argument = split_field(name)
    if keyword == "HEADER":
        return (mask.header(argument, value.encode()) or b"").decode(errors="replace")
    return mask.text(value)
