"""One record of a topic, as text and as JSON: why it failed, its headers, its body."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any, Final

from redrive.operations.durations import clock
from redrive.operations.record_view import RecordView, ShownHeader, body_text
from redrive.operations.schema_registry import Decoded
from redrive.printable import printable

_SHOWN_LINES: Final = 4
"""Lines of a header that are shown."""
_SHOWN: Final = 4_096
"""Bytes of a body that are shown unless all are asked for."""
_DECODED: Final = frozenset({"auto", "json"})
"""Forms in which a body is decoded by its schema."""
_LINE: Final = 16
"""Bytes on one line of a hexadecimal body."""

FORMS: Final = ("auto", "text", "json", "hex", "none")
"""How a body may be shown: auto is JSON, else text, else hexadecimal."""


def lines(shown: RecordView, form: str = "auto", *, whole: bool = False) -> Iterator[str]:
    """A record as lines of text; ``form`` is one of ``FORMS``, ``whole`` shows a long body."""
    for line in _lines(shown, form, whole=whole):
        yield printable(line).replace("\n", "\N{SYMBOL FOR LINE FEED}")


def _lines(shown: RecordView, form: str, *, whole: bool) -> Iterator[str]:
    record = shown.record
    time = clock(datetime.fromtimestamp(max(0, record.timestamp) / 1000, UTC))
    yield f"{record.place}  {time}"
    yield f"key  {_text(record.key)}"
    yield ""
    if shown.profile.is_dead_letter:
        yield f"dead letter of {shown.profile.scheme}"
        yield from (f"  {name:16} {text}" for name, text in _view_parts(shown))
        fields = shown.profile.fields
        yield f"  for rules        DESTQ('{fields['DESTQ']}') REASON({fields['REASON']})"
    else:
        yield f"not a dead letter: {shown.profile.problem}"
    yield from (f"  odd: {sentence}" for sentence in shown.unreadable)
    yield ""
    yield f"{len(shown.headers)} headers"
    for header in shown.headers:
        yield from _header(header)
    yield ""
    if shown.decoded is not None and form in _DECODED:
        yield from _decoded_lines(shown.decoded, len(shown.body or b""))
        if shown.decoded.text:
            return
    yield from _body(shown.body, form, whole=whole)


def _view_parts(shown: RecordView) -> Iterator[tuple[str, str]]:
    """The parts of the view; the stack trace is among the headers."""
    view = asdict(shown.view)
    for name in ("scheme", "error_stack", "pointer" if not shown.view.pointer else ""):
        view.pop(name, None)
    if shown.view.first_origin == shown.view.origin:
        del view["first_origin"]
    for name, value in view.items():
        if isinstance(value, dict):
            words = " ".join(f"{key} {part}" for key, part in value.items() if part is not None)
            if words:
                yield name.replace("_", " "), words
        elif value is not None:
            yield name.replace("_", " "), str(value)


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


def _decoded_lines(decoded: Decoded, length: int) -> Iterator[str]:
    if decoded.problem:
        yield f"schema {decoded.schema}: {decoded.problem}"
        return
    yield f"body ({length} bytes, {decoded.kind} by schema {decoded.schema})"
    yield from (f"  {line}" for line in decoded.text.splitlines())


def _body(body: bytes | None, form: str, *, whole: bool) -> Iterator[str]:
    if form == "none":
        return
    if not body:
        yield "no body: the value is null" if body is None else "empty body"
        return
    cut = body if whole else body[:_SHOWN]
    text = None if form == "hex" else _body_as_text(body, cut, form)
    yield f"body ({len(body)} bytes{', hexadecimal' if text is None else ''})"
    lines = hexadecimal(cut) if text is None else text.splitlines()
    yield from (f"  {line}" for line in lines)
    if len(cut) < len(body):
        yield f"  ... {len(body) - len(cut)} more bytes; redrive show --all shows them"


def _body_as_text(body: bytes, cut: bytes, form: str) -> str | None:
    text = cut.decode("utf-8", "replace")
    if form == "text":
        return text
    is_cut = len(cut) < len(body) and len(cut) > _LINE  # perhaps within a character
    shown = body_text(cut.decode("utf-8", "ignore").encode() if is_cut else cut)
    return text if shown is None and form == "json" else shown


def hexadecimal(data: bytes) -> Iterator[str]:
    """Bytes as lines: the offset, sixteen bytes, and the same in ASCII."""
    for start in range(0, len(data), _LINE):
        part = data[start : start + _LINE]
        text = "".join(chr(byte) if 0x20 <= byte < 0x7F else "." for byte in part)  # noqa: PLR2004 - ASCII
        yield f"{start:08x}  {part.hex(' '):<{3 * _LINE}} {text}"


def _text(raw: bytes | None) -> str:
    if raw is None:
        return "(null)"
    text = text_or_none(raw)
    return f"0x{raw.hex()}" if text is None else text or "(empty)"


def as_json(shown: RecordView) -> dict[str, Any]:
    """A record for JSON."""
    record = shown.record
    return {
        "place": record.place,
        "timestamp": record.timestamp,
        **_in_json("key", record.key),
        "scheme": shown.profile.scheme,
        "problem": shown.profile.problem,
        "view": asdict(shown.view),
        "fields": dict(shown.profile.fields),
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
        "decoded": None if shown.decoded is None else asdict(shown.decoded),
    }


def text_or_none(data: bytes) -> str | None:
    """Bytes as text; None if they are not UTF-8."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None


def _in_json(name: str, raw: bytes | None) -> dict[str, str | None]:
    if raw is None:
        return {name: None}
    text = text_or_none(raw)
    return {f"{name}_base64": b64encode(raw).decode()} if text is None else {name: text}
