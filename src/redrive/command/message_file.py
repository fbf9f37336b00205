"""Messages in files, to test a table with: JSON with field values, or raw bytes."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from redrive.diagnostics import did_you_mean
from redrive.errors import UsageError
from redrive.messages.constants import constant_family, constant_value
from redrive.messages.dead_letter_header import MQDLH, DeadLetterHeader, encode_header
from redrive.messages.dead_letters import decode_dead_letter, read_view
from redrive.messages.fields import MQMD, FieldType, Headers, mqmd_headers
from redrive.messages.schemes import Message, SchemeTable
from redrive.messages.schemes.reading import DLH_PREFIX
from redrive.rules import PATTERN_KEYWORDS, Dialect, FieldReader, FieldValue, RulesTable
from redrive.rules.keywords import KAFKA_PATTERNS, Keyword, Value, field_name, split_field
from redrive.rules.patterns import RuleInput
from redrive.rules.values import read_number

_FORM: Final = (
    'a JSON object {"md": {"Field": value, ...}, "dlh": {"Field": value, ...}}, '
    'or {"headers": {"name": "text", ...}, "value": "text"}, or one line of kcat -J'
)


class WrittenRecord(NamedTuple):
    """A record as a file holds it."""

    key: bytes | None
    value: bytes | None
    headers: Headers
    timestamp: int | None
    """Milliseconds since 1970; None if the file has no time."""


def read_written(path: Path) -> WrittenRecord:
    """JSON (``message_from_json``), a line of ``kcat -J``, or bytes; raises ``UsageError``."""
    data = path.read_bytes()
    if not data:
        raise UsageError(f"{path} is empty", hint=f"a message is written as {_FORM}")
    if not data.lstrip().startswith(b"{"):
        return WrittenRecord(None, data, [], None)
    try:
        document = json.loads(data)
        if "payload" in document:
            return _from_kcat(document)
        return WrittenRecord(None, *message_from_json(document), None)
    except (ValueError, UsageError) as error:
        raise UsageError(f"{path}: {error}", hint=f"a message is written as {_FORM}") from error


def _from_kcat(document: Mapping[str, Any]) -> WrittenRecord:
    flat, timestamp = document.get("headers") or [], document.get("ts")
    if not isinstance(flat, list) or len(flat) % 2:
        raise UsageError("headers of kcat are a list that alternates names and values")
    return WrittenRecord(
        _bytes(document.get("key")),
        _bytes(document["payload"]),
        [(str(name), _bytes(raw)) for name, raw in zip(flat[::2], flat[1::2], strict=True)],
        timestamp if isinstance(timestamp, int) and timestamp > 0 else None,
    )


def _bytes(text: object) -> bytes | None:
    return None if text is None else str(text).encode()


def parse_field(
    text: str, source: str = "--field", *, dialect: Dialect = Dialect.IBM
) -> tuple[str, FieldValue]:
    """A pattern keyword, with its argument if it has one, and a value.

    Args:
        text: ``KEYWORD=VALUE``; numbers also by their symbolic names, in DIALECT(KAFKA) with their
            units, and ``HEADER(name)=VALUE``. Nothing is folded.
        source: Where it was written, for errors.
        dialect: The dialect of the keywords.

    Raises:
        UsageError: There is no such keyword, or the value is not a number where one is needed.
    """
    known = KAFKA_PATTERNS if dialect is Dialect.KAFKA else PATTERN_KEYWORDS
    where = f"{source} {text}"
    written, equals, value = text.partition("=")
    name, argument = split_field(written.strip())
    name = name.upper()
    if not equals:
        raise UsageError(f"{where} has no value", hint=f"write {name}=VALUE")
    if name not in known:
        raise UsageError(
            f"{where}: {name} is not a pattern keyword",
            hint=did_you_mean(name, known) or f"one of {', '.join(known)}",
        )
    keyword = known[name]
    if bool(argument) is not bool(keyword.argument):
        what = f"a {keyword.argument} in parentheses" if keyword.argument else "no argument"
        raise UsageError(
            f"{where}: {name} takes {what}",
            hint=f'write "{field_name(keyword, keyword.argument)}=VALUE"',
        )
    field = field_name(keyword, argument)
    if keyword.value in {Value.STRING, Value.TEXTS}:
        return field, value.partition("\0")[0].rstrip(" ")
    value = value.strip()
    if keyword.value is not Value.NUMBERS:
        return field, _symbolic(where, keyword, value.upper())
    number = read_number(keyword, value)
    if number is None:
        units = f", with {' or '.join(unit for unit, _ in keyword.units)}" if keyword.units else ""
        raise UsageError(f"{where}: {value} is not a number", hint=f"write digits{units}")
    return field, number


def _symbolic(where: str, keyword: Keyword, value: str) -> int:
    families = keyword.families
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
    """The value and headers of a record from field values.

    Args:
        document: ``md`` and ``dlh`` map MQ's field names to values, numbers also by their symbolic
            names; fields not given are blank or 0. Without ``dlh``, or with null there, the
            message has no dead-letter header, and ``raw_prefix_hex`` has its first bytes.
            ``body_hex`` is what follows the header, ``body_length`` the length of the value.
            ``headers`` maps the names of further headers to texts, such as Kafka
            Connect's; ``value`` is the text of a record without ``dlh``.

    Returns:
        The header is binary; if its fields do not fit an MQDLH (names longer than 48), it is
        headers ``mqdlh.*`` instead.

    Raises:
        UsageError: MQ has no such field, or a value is not a number.
    """
    descriptor = _fields(document.get("md"), MQMD, "md")
    headers: list[tuple[str, bytes | None]] = list(mqmd_headers(descriptor).items())
    headers += [(name, _bytes(text)) for name, text in document.get("headers", {}).items()]
    if "value" in document:
        return str(document["value"]).encode(), headers
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
    """A value that may look as if it had a dead-letter header."""
    if "raw_prefix_hex" in document:
        body = bytes.fromhex(document["raw_prefix_hex"]).ljust(200, b"\0") + body
    elif "body_length" in document:
        body = encode_header(DeadLetterHeader(reason=1)) + body
    length = document.get("body_length", len(body))
    return body[:length].ljust(length, b"\0")


def _fields(values: Any, known: Mapping[str, Any], structure: str) -> dict[str, str | int]:  # noqa: ANN401 - JSON
    if not isinstance(values or {}, Mapping):
        raise UsageError(f"{structure} is not a JSON object")
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


def message_fields(
    written: WrittenRecord, schemes: SchemeTable, rules: RulesTable
) -> tuple[dict[str, FieldValue], str]:
    """The match fields of a message by pattern keyword, and why it is not a dead letter."""
    key, value, headers, _ = written
    letter = decode_dead_letter(value, headers, key=key, schemes=schemes)
    fields = dict(letter.fields)
    if rules.control.dialect is Dialect.KAFKA:
        fields.update(_kafka_fields(rules, written, schemes))
    return fields, letter.problem


def _kafka_fields(
    rules: RulesTable, written: WrittenRecord, schemes: SchemeTable
) -> dict[str, FieldValue]:
    """The fields that DIALECT(KAFKA) adds; a message without a time has failed just now."""
    key, value, headers, timestamp = written
    view = read_view(key, value, headers, schemes=schemes)
    now = int(time.time() * 1000)
    since = view.failed_at if view.first_failed_at is None else view.first_failed_at
    put = now if timestamp is None else timestamp
    message = RuleInput(
        key, value, headers, put, now, view, view.error_message, view.origin.partition, since
    )
    plain = {name for name, keyword in KAFKA_PATTERNS.items() if not keyword.argument}
    reader = FieldReader(plain | rules.asked)
    fields = zip(reader.names, reader.values(message), strict=True)
    return {name: field for name, field in fields if field is not None}
