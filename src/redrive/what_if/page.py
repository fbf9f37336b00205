"""The answer as one HTML page without scripts or external resources."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from redrive.operations.durations import clock
from redrive.printable import counted
from redrive.what_if.answer import WhatIf
from redrive.what_if.document import document_of
from redrive.what_if.flow import escaped, flow, targets

_ROWS: Final = 500
"""Maximum rows of a table; the JSON has all."""

_NUMBER: Final = ' class="number"'

_POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'"

_STYLE: Final = """
body { font: 15px/1.5 system-ui, sans-serif; color: #1a1a1a; background: #fff;
  max-width: 60rem; margin: 2rem auto; padding: 0 1rem }
h1 { font-size: 1.5rem } h2 { font-size: 1.15rem; margin-top: 2.2rem }
table { border-collapse: collapse; margin: .6rem 0 } td, th { padding: .2rem .8rem .2rem 0;
  text-align: left; vertical-align: top; border-bottom: 1px solid #ddd }
td.number, th.number { text-align: right; font-variant-numeric: tabular-nums }
code, pre, td.code { font: 13px ui-monospace, monospace; overflow-wrap: anywhere }
.quiet { color: #555 } .changed { font-weight: bold }
section.loss { border-left: 6px solid #d55e00; padding-left: 1rem }
section.change { border-left: 6px solid #0072b2; padding-left: 1rem; margin: 1rem 0 }
section.change.lost { border-color: #d55e00 }
.wide { overflow-x: auto }
svg { width: 100%; min-width: 34rem; height: auto; margin: .6rem 0 }
svg text { font: 13px system-ui, sans-serif }
svg .small { font-size: 11px; fill: #555 } svg .strong { font-weight: bold }
svg .band { fill: none; opacity: .45 } svg .old { fill: #b0b0b0 } svg .new { fill: #0072b2 }
ul { margin: .3rem 0 } dl { margin: .3rem 0 } dt { font-weight: bold }
"""


def page_of(answer: WhatIf, now: datetime) -> str:
    """The page."""
    document = document_of(answer)
    title = f"What if: {document['new']['name']} on {document['handler']}"
    parts = [
        "<!DOCTYPE html>",
        '<html lang="en"><head><meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">',
        '<meta name="viewport" content="width=device-width">',
        f"<title>{escaped(title)}</title><style>{_STYLE}</style></head><body>",
        f"<h1>{escaped(title)}</h1>",
        *_head(document, now),
        *(_pictures(answer) if answer.total else ()),
        *_changes(document["changes"]),
        *_lists(document),
        "</body></html>",
    ]
    return "\n".join(parts) + "\n"


def _head(document: Mapping[str, Any], now: datetime) -> Iterator[str]:
    yield f'<p class="quiet">Asked {clock(now)[:-4]} UTC.</p><dl>'
    for name in ("old", "new"):
        table = document[name]
        text = f"{escaped(table['name'])} <code>{table['hash'][:16]}</code>"
        yield f"<dt>{name} table</dt><dd>{text}</dd>"
    yield "</dl>"
    counted = dict(document["messages"])
    if len(counted) == len(("one source", "total")):
        del counted["total"]
    counts = [f"{count:,} {escaped(name)}" for name, count in counted.items()]
    yield (
        f"<p>{', '.join(counts)}. Something changes for"
        f' <span class="changed">{document["changed"]:,}</span> of them.</p>'
    )
    lost, later = document["newly_discarded"], document["newly_discarded_in_the_end"]
    if lost or later:
        yield (
            '<section class="loss"><p><strong>Messages that were kept are discarded:'
            f" {lost:,} at once, {later:,} if all earlier attempts fail.</strong></p></section>"
        )
    yield _items(
        [f"{it['keyword']}: {it['old']} becomes {it['new']}" for it in document["control"]]
        + [f"[schemes.{name}] of the settings differs" for name in document["schemes"]]
        + list(document["notes"])
    )


def _pictures(answer: WhatIf) -> Iterator[str]:
    yield "<h2>From action to action</h2>"
    yield _wide(flow(answer))
    if answer.targets:
        yield "<h2>Where messages go</h2>"
        yield _wide(targets(answer.targets))


def _changes(changes: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    if changes:
        yield "<h2>What changes, and why</h2>"
    for change in changes[:_ROWS]:
        style = "change lost" if change["loss"] else "change"
        loss = f" ({change['loss']})" if change["loss"] else ""
        yield (
            f'<section class="{style}"><p><strong>{counted(change["count"], "message")}:'
            f" {_side(change['old'])} becomes {_side(change['new'])}{loss}</strong></p>"
        )
        for sample in change["samples"]:
            yield f"<p><code>{escaped(sample['message'])}</code> {escaped(sample['shown'])}</p>"
            both = [f"old: {sample['old']}", f"new: {sample['new']}"]
            yield _items([*both, *sample["because"]])
        yield "</section>"


def _side(side: Mapping[str, Any]) -> str:
    line = f" (line {side['line']})" if side["line"] else ""
    return f"{side['action']}{line}"


def _lists(document: Mapping[str, Any]) -> Iterator[str]:
    for title, name, columns in (
        ("Actions", "matrix", ("old", "new", "changed", "count")),
        ("Targets", "targets", ("action", "target", "old", "new")),
        (
            "Puts that would fail now",
            "failing_now",
            ("count", "target", "reason", "reason_name", "detail"),
        ),
        ("Rules", "rules", ("old_line", "new_line", "old", "new", "rule")),
        (
            "Rules of the new table that match none of the messages",
            "never_matched",
            ("line", "rule"),
        ),
    ):
        if document[name]:
            yield f"<h2>{title}</h2>"
            yield _wide("\n".join(_table(document[name], columns)))


def _wide(content: str) -> str:
    return f'<div class="wide">{content}</div>'


def _table(rows: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> Iterator[str]:
    numeric = {name for name in columns if any(type(row[name]) is int for row in rows)}
    yield "<table><tr>"
    yield "".join(
        f"<th{_NUMBER if column in numeric else ''}>{column.replace('_', ' ')}</th>"
        for column in columns
    )
    yield "</tr>"
    for row in rows[:_ROWS]:
        cells = (_cell(row[column], is_number=column in numeric) for column in columns)
        yield f"<tr>{''.join(cells)}</tr>"
    yield "</table>"
    if len(rows) > _ROWS:
        yield f'<p class="quiet">and {len(rows) - _ROWS:,} more</p>'


def _cell(value: object, *, is_number: bool) -> str:
    if isinstance(value, bool):
        return f"<td>{'yes' if value else 'no'}</td>"
    if is_number:
        return f"<td{_NUMBER}>{f'{value:,}' if isinstance(value, int) else '-'}</td>"
    return f'<td class="code">{escaped("-" if value is None else str(value))}</td>'


def _items(lines: Sequence[str]) -> str:
    return f"<ul>{''.join(f'<li>{escaped(line)}</li>' for line in lines)}</ul>" if lines else ""
