"""One record of a topic, in lines for people and as JSON: why it failed, its headers, its body."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any, Final

from redrive.operations.durations import clock
from redrive.operations.record_view import RecordView, ShownHeader, body_text

__all__ = ["as_json", "lines"]

_SHOWN_LINES: Final = 4
"""Lines of a header that are shown."""
_SHOWN_TEXT: Final = 4_000
"""Characters of a body that are shown."""
_SHOWN_BYTES: Final = 256
"""Bytes of a body that are shown in hexadecimal digits."""


def lines(shown: RecordView) -> Iterator[str]:
    """A record in lines for people.

    Args:
        shown: The record.
    """
    yield from map(_printable, _lines(shown))


def _lines(shown: RecordView) -> Iterator[str]:
    record = shown.record
    time = clock(datetime.fromtimestamp(max(0, record.timestamp) / 1000, UTC))
    yield f"{shown.place}  {time}"
    yield f"key  {_text(record.key)}"
    yield ""
    if shown.letter.is_dead_letter:
        yield f"dead letter of {shown.letter.scheme}"
        yield from (f"  {name:16} {told}" for name, told in _told(shown))
        fields = shown.letter.fields
        yield f"  for rules        DESTQ('{fields['DESTQ']}') REASON({fields['REASON']})"
    else:
        yield f"no dead letter: {shown.letter.problem}"
    yield from (f"  odd: {sentence}" for sentence in shown.unreadable)
    yield ""
    yield f"{len(shown.headers)} headers"
    for header in shown.headers:
        yield from _header(header)
    yield ""
    yield from _body(record.value)


def _told(shown: RecordView) -> Iterator[tuple[str, str]]:
    """The parts of the view that are there; the stack trace stands among the headers."""
    view = asdict(shown.view)
    for name in ("scheme", "error_stack", "pointer" if not shown.view.pointer else ""):
        view.pop(name, None)
    if shown.view.first_origin == shown.view.origin:
        del view["first_origin"]
    for name, told in view.items():
        if isinstance(told, dict):
            words = " ".join(f"{key} {one}" for key, one in told.items() if one is not None)
            if words:
                yield name.replace("_", " "), words
        elif told is not None:
            yield name.replace("_", " "), str(told)


def _header(header: ShownHeader) -> Iterator[str]:
    scheme = f"  ({header.scheme})" if header.scheme else ""
    if header.number is not None and header.raw != str(header.number).encode():
        raw = (header.raw or b"").hex()
        yield f"  {header.name}: {header.number} = 0x{raw}{scheme}"
        return
    first, *rest = _text(header.raw).splitlines() or [""]
    yield f"  {header.name}: {first}{scheme}"
    yield from (f"      {line}" for line in rest[: _SHOWN_LINES - 1])
    if len(rest) >= _SHOWN_LINES:
        yield f"      ... {len(rest) - _SHOWN_LINES + 1} more lines; --json shows all"


def _body(value: bytes | None) -> Iterator[str]:
    if not value:
        yield "no body: the value is null" if value is None else "empty body"
        return
    text = body_text(value)
    form = ", hexadecimal" if text is None else ""
    yield f"body ({len(value)} bytes{form})"
    most = 2 * _SHOWN_BYTES if text is None else _SHOWN_TEXT
    whole = value.hex() if text is None else text
    yield from (f"  {line}" for line in whole[:most].splitlines())
    if len(whole) > most:
        yield "  ... cut; --json shows all"


def _text(raw: bytes | None) -> str:
    if raw is None:
        return "(null)"
    try:
        return raw.decode() or "(empty)"
    except UnicodeDecodeError:
        return f"0x{raw.hex()}"


def _printable(text: str) -> str:
    """A text that does nothing to a terminal."""
    return "".join(
        one if one.isprintable() or one == "\t" else "\N{REPLACEMENT CHARACTER}" for one in text
    )


def as_json(shown: RecordView) -> dict[str, Any]:
    """A record as JSON takes it.

    Args:
        shown: The record.
    """
    record = shown.record
    return {
        "place": shown.place,
        "timestamp": record.timestamp,
        **_in_json("key", record.key),
        "scheme": shown.letter.scheme,
        "problem": shown.letter.problem,
        "view": asdict(shown.view),
        "fields": dict(shown.letter.fields),
        "unreadable": list(shown.unreadable),
        "headers": [
            {
                "name": header.name,
                "scheme": header.scheme,
                "number": header.number,
                **_in_json("value", header.raw),
            }
            for header in shown.headers
        ],
        **_in_json("value", record.value),
    }


def _in_json(name: str, raw: bytes | None) -> dict[str, str | None]:
    """Bytes as text where they are UTF-8, else as base64."""
    if raw is None:
        return {name: None}
    try:
        return {name: raw.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": b64encode(raw).decode()}
