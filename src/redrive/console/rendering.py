"""Pages from documents: templates and their filters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final
from urllib.parse import quote, urlencode

import orjson
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from redrive.command.failures import (
    cause,
    exception_message,
    failure_text,
    reason_text,
    short_class,
    why,
)
from redrive.command.record import hexadecimal
from redrive.console.access import Role
from redrive.operations.durations import clock, duration
from redrive.outcomes.inventory import State, state_of
from redrive.outcomes.rows import Row
from redrive.printable import counted, printable
from redrive.version import __version__

_SHOWN: Final = 64 * 1024
"""Characters of a body that a page shows; the whole can be downloaded."""
_HEX_SHOWN: Final = 8 * 1024
"""Hex digits of a body that a page shows."""
_CLAMPED: Final = 120
"""Characters of a name or a cause in a list."""
_WIDTH: Final = 120
_HEIGHT: Final = 24
"""Size of a curve, in its own units."""
_RESULTS: Final = (
    "retried", "forwarded", "discarded", "routed", "dead-lettered", "expired", "parked", "remains",
    "quarantined", "skipped", "cancelled",
)  # fmt: skip
"""All results, in the order of their curves."""


def page_templates() -> Environment:
    """The templates, with the filters and names that they use."""
    environment = Environment(
        loader=PackageLoader("redrive.console"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_finalize,
    )
    environment.filters |= {
        "cause": lambda document, mq: cause(_row(document), mq=mq),
        "said": lambda document: exception_message(_row(document)),
        "why": lambda document, mq: why(_row(document), mq=mq),
        "failure": lambda name, mq: failure_text(name, mq=mq),
        "state": lambda document: state_of(_row(document)),
        "reason": reason_text,
        "short_class": short_class,
        "clamped": clamped,
        "moment": moment,
        "ago": ago,
        "number": lambda number: f"{number:,}",
        "counted": counted,
        "share": share,
        "curve": curve,
        "link": link,
        "path": lambda text: quote(str(text), safe=""),
        "pretty": pretty,
        "hexadecimal": lambda text: "\n".join(hexadecimal(bytes.fromhex(text[:_HEX_SHOWN]))),
        "depth": depth,
    }
    environment.globals |= {
        "Role": Role, "states": [*State], "results": _RESULTS, "version": __version__,
    }  # fmt: skip
    return environment


def _row(document: Mapping[str, Any]) -> Row:
    """The row of the ledger that is shown, from the members of its document."""
    return Row._make(map(document.get, Row._fields))


def _finalize(value: object) -> object:
    """Texts without control characters, which may reverse or hide text."""
    if isinstance(value, Markup):
        return value
    if value is None:
        return ""
    return printable(value) if isinstance(value, str) else value


def _time(value: datetime | str | float) -> datetime:
    if isinstance(value, float | int):
        return datetime.fromtimestamp(value, UTC)
    return (datetime.fromisoformat(value) if isinstance(value, str) else value).astimezone(UTC)


def moment(value: datetime | str | float | None) -> Markup:
    """A time, which the browser shows in the reader's time zone; in UTC without scripts.

    It is ISO 8601 or seconds since 1970; None for nothing.
    """
    if value is None:
        return Markup("")
    time = _time(value)
    return Markup('<time datetime="{}" title="{} UTC">{}</time>').format(
        time.isoformat(), clock(time), clock(time)[:-4]
    )


def ago(value: datetime | str | float | None, now: datetime) -> Markup:
    """How long ago a time was, with the time itself as a tooltip."""
    if value is None:
        return Markup("")
    time = _time(value)
    seconds = (now - time).total_seconds()
    text = f"{duration(seconds)} ago" if seconds >= 0 else f"in {duration(-seconds)}"
    return Markup('<time datetime="{}" title="{} UTC" data-relative>{}</time>').format(
        time.isoformat(), clock(time), text
    )


def clamped(text: str | None) -> Markup:
    """The start of a long text, with the whole as a tooltip: names in headers have any length."""
    whole = printable(text or "")
    if len(whole) <= _CLAMPED:
        return escape(whole)
    return Markup('<span class="clamped" title="{}">{}…</span>').format(whole, whole[:_CLAMPED])


def share(part: int, whole: int) -> str:
    """A share of a whole in per cent."""
    return f"{100 * part / whole:.1f} %" if whole else ""


def curve(values: Sequence[int], label: str) -> Markup:
    """Numbers as a small chart, with a text for screen readers."""
    most, step = max(values, default=0), _WIDTH / max(1, len(values))
    width = max(0.5, step - 0.6)
    heights = [max(1.5, value * _HEIGHT / most) if value else 0 for value in values]
    # One path: a page has thousands of bars.
    bars = "".join(
        f"M{place * step:.1f} {_HEIGHT}v-{height:.1f}h{width:.1f}V{_HEIGHT}z"
        for place, height in enumerate(heights)
        if height
    )
    return Markup(
        '<svg class="curve" viewBox="0 0 {} {}" role="img" preserveAspectRatio="none"'
        ' aria-label="{}"><path d="{}"/></svg>'
    ).format(_WIDTH, _HEIGHT, f"{label}: {sum(values):,}, at most {most:,}", bars)


def link(path: str, values: Mapping[str, object], **changed: object) -> str:
    """A link to a page with parameters; empty ones are left out."""
    parameters = {
        name: value for name, value in {**values, **changed}.items() if value not in {"", None}
    }
    return f"{path}?{urlencode(parameters)}" if parameters else path


def depth(topics: Sequence[str], depths: Mapping[str, Mapping[str, Any]]) -> str:
    """The messages that wait on some topics; empty if not counted."""
    known = [depths[topic] for topic in topics if topic in depths]
    if not known:
        return ""
    is_exact = all(topic_depth["is_exact"] for topic_depth in known)
    return f"{'' if is_exact else '≤ '}{sum(topic_depth['messages'] for topic_depth in known):,}"


def pretty(text: str) -> str:
    """A body for reading: JSON with one member a line, other text unchanged."""
    if len(text) <= _SHOWN and text.lstrip()[:1] in {"{", "["}:
        try:
            return orjson.dumps(orjson.loads(text), option=orjson.OPT_INDENT_2).decode()
        except orjson.JSONDecodeError:
            return text
    return text[:_SHOWN]
