"""A message as text, in the form of ``redrive explain --field``."""

from __future__ import annotations

import shlex
from collections.abc import Mapping

from redrive.masking import Mask
from redrive.messages.constants import constant_name
from redrive.rules.keywords import Value, field_order, pattern_keyword, split_field
from redrive.rules.patterns import ABSENT, FieldValue


def write_message(message: Mapping[str, FieldValue]) -> str:
    """The fields of a message that are neither blank nor 0, such as ``REASON=MQRC_Q_FULL``."""
    written = [write_field(name, value) for name, value in present_fields(message).items()]
    return " ".join(written) or "a message with blank fields"


def present_fields(message: Mapping[str, FieldValue]) -> dict[str, FieldValue]:
    """The fields of a message, in order, without those that are blank, 0 or absent."""
    present = {}
    for name in sorted(message, key=field_order):
        is_range = pattern_keyword(name).value is Value.NUMBERS
        if message[name] != ABSENT if is_range else message[name]:
            present[name] = message[name]
    return present


def write_field(name: str, value: FieldValue) -> str:
    """One field, quoted for a shell; a number by its symbolic name if it has one."""
    if isinstance(value, int):
        names = (constant_name(family, value) for family in pattern_keyword(name).families)
        return f"{name}={next(filter(None, names), value)}"
    if "(" in name:  # HEADER(name) of DIALECT(KAFKA)
        return shlex.quote(f"{name}={value}")
    return f"{name}={shlex.quote(value)}"


def hidden_field(mask: Mask, name: str, value: FieldValue) -> FieldValue:
    """The masked value of a field."""
    if not isinstance(value, str):
        return value
    keyword, argument = split_field(name)
    if keyword == "HEADER":
        return (mask.header(argument, value.encode()) or b"").decode(errors="replace")
    return mask.text(value)
