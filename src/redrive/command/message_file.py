"""Messages written down in files, to try a table on: JSON with field values, or raw bytes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from redrive.errors import UsageError
from redrive.messages.constants import constant_family, constant_value
from redrive.messages.dead_letter_header import MQDLH, DeadLetterHeader, encode_header
from redrive.messages.fields import MQMD, FieldType, mqmd_headers
from redrive.messages.schemes import Message
from redrive.messages.schemes.redrive import DLH_PREFIX
from redrive.rules import KEYWORDS, PATTERN_KEYWORDS, FieldValue
from redrive.rules.diagnosis import did_you_mean
from redrive.rules.keywords import Value

__all__ = ["message_from_json", "parse_field", "read_message"]

_FORM: Final = 'a JSON object {"md": {"Field": value, ...}, "dlh": {"Field": value, ...}}'


def read_message(path: Path) -> Message:
    """Read a message from a file.

    Args:
        path: A file that holds a JSON object, see ``message_from_json``; or the value of a record
            as raw bytes, which should begin with an MQDLH.

    Returns:
        Value and headers of a record.

    Raises:
        UsageError: The JSON does not describe a message.
    """
    data = path.read_bytes()
    if not data.lstrip().startswith(b"{"):
        return data, []
    try:
        return message_from_json(json.loads(data))
    except (ValueError, UsageError) as error:
        raise UsageError(f"{path}: {error}", hint=f"a message is written as {_FORM}") from error


def parse_field(text: str, source: str = "--field") -> tuple[str, FieldValue]:
    """A field as a person writes it, its value as the message has it: nothing is folded.

    Args:
        text: ``KEYWORD=VALUE``; numbers also by their symbolic names.
        source: Where it was written, for errors.

    Returns:
        The pattern keyword and the value.

    Raises:
        UsageError: There is no such keyword, or the value is no number where one is needed.
    """
    name, equals, value = text.partition("=")
    name = name.strip().upper()
    if not equals:
        raise UsageError(f"{source} {text} has no value", hint=f"write {name}=VALUE")
    if name not in PATTERN_KEYWORDS:
        raise UsageError(
            f"{source} {text}: no pattern looks at {name}",
            hint=did_you_mean(name, PATTERN_KEYWORDS) or f"one of {', '.join(PATTERN_KEYWORDS)}",
        )
    if KEYWORDS[name].value is Value.STRING:
        return name, value.partition("\0")[0].rstrip(" ")
    return name, _number_of(f"{source} {text}", name, value.strip().upper())


def _number_of(where: str, name: str, value: str) -> int:
    families = KEYWORDS[name].families
    number = constant_value(value) if constant_family(value) in families else None
    if number is None:
        try:
            number = int(value)
        except ValueError:
            raise UsageError(
                f"{where}: {value} is neither a number nor a name "
                + " or ".join(f"{family}_..." for family in families),
                hint="for example REASON=2053 or REASON=MQRC_Q_FULL",
            ) from None
    return number


def message_from_json(document: Mapping[str, Any]) -> Message:
    """A record from field values.

    Args:
        document: ``md`` and ``dlh`` map MQ's field names to values, numbers also by their symbolic
            names; fields not given are blank or 0. Without ``dlh``, or with null there, the
            message has no dead-letter header; ``raw_prefix_hex`` are then its first bytes.
            ``body_hex`` is what follows the header, ``body_length`` how long the value is.

    Returns:
        Value and headers of a record. The header is binary; if its fields do not fit an MQDLH
        (names longer than 48), it is headers ``mqdlh.*`` instead.

    Raises:
        UsageError: A field that MQ does not have, or a number that is none.
    """
    descriptor = _fields(document.get("md"), MQMD, "md")
    headers: list[tuple[str, bytes | None]] = list(mqmd_headers(descriptor).items())
    body = bytes.fromhex(document.get("body_hex", ""))
    if document.get("dlh") is None:
        return _without_header(document, body), headers
    fields = _fields(document["dlh"], MQDLH, "dlh")
    try:
        return encode_header(DeadLetterHeader.from_fields(fields)) + body, headers
    except ValueError:
        named = ((DLH_PREFIX + name, str(value).encode()) for name, value in fields.items())
        return body, [*headers, *named]


def _without_header(document: Mapping[str, Any], body: bytes) -> bytes:
    """A value that may look like one with a dead-letter header, but is none."""
    if "raw_prefix_hex" in document:
        return bytes.fromhex(document["raw_prefix_hex"]).ljust(200, b"\0") + body
    if "body_length" in document:
        complete = encode_header(DeadLetterHeader(reason=1)) + body
        return complete[: document["body_length"]].ljust(document["body_length"], b"\0")
    return body


def _fields(values: Any, known: Mapping[str, Any], structure: str) -> dict[str, str | int]:  # noqa: ANN401 - JSON
    if not isinstance(values or {}, Mapping):
        raise UsageError(f"{structure} is no JSON object")
    unknown = sorted(set(values or {}) - set(known))
    if unknown:
        raise UsageError(f"{structure} has no field {', '.join(unknown)}")
    return {
        name: _number(name, value) if known[name].type is FieldType.LONG else str(value)
        for name, value in (values or {}).items()
        if name not in {"StrucId", "Version"}
    }


def _number(name: str, value: Any) -> int:  # noqa: ANN401 - JSON
    if isinstance(value, str):
        value = constant_value(value) if not value.lstrip("-").isdecimal() else int(value)
    if not isinstance(value, int):
        raise UsageError(f"{name} is neither a number nor a symbolic name")
    return value
