"""Two charts of the answer as SVG: flows between actions, and messages by target."""

from __future__ import annotations

import html
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from redrive.printable import counted, printable, shortened
from redrive.what_if.answer import TargetCount, WhatIf
from redrive.what_if.equal_messages import Disposition

# Colours that colour-blind people can distinguish (Okabe and Ito).
_COLOURS: Final[Mapping[Disposition, str]] = {
    Disposition.DISCARD: "#d55e00",
    Disposition.RETRY: "#0072b2",
    Disposition.FWD: "#56b4e9",
    Disposition.IGNORE: "#e69f00",
    Disposition.QUARANTINE: "#cc79a7",
    Disposition.REMAINS: "#999999",
}
_WIDTH: Final = 760
_HEIGHT: Final = 320
"""Pixels of all messages together."""
_TOP: Final = 30.0
"""Pixels above them for text."""
_SIDE: Final = 190
"""Pixels at both sides for text."""
_BAR: Final = 18
_GAP: Final = 14
_LEAST: Final = 1.5
"""Minimum pixels of a band, so that one message in a million is visible."""
_ROWS: Final = 15
_ROW: Final = 34
_NAME: Final = 38
"""Columns of a target's name."""


def escaped(text: str) -> str:
    """A text for HTML: markup and control characters are shown without effect."""
    return html.escape(printable(text))


def flow(answer: WhatIf) -> str:
    """Bands from the old actions to the new ones, as wide as their number of messages."""
    counts: Counter[tuple[Disposition, Disposition]] = Counter()
    for cell, count in answer.matrix.items():
        counts[cell.old, cell.new] += count
    old, new = answer.dispositions(new=False), answer.dispositions(new=True)
    starts, ends = _stacked(old, answer.total), _stacked(new, answer.total)
    parts = [
        *_side(starts, old, "old table", x=_SIDE - _BAR, words=-1),
        *_side(ends, new, "new table", x=_WIDTH - _SIDE, words=1),
        *_bands(counts, dict(starts), dict(ends), answer.total),
    ]
    label = "What the old table does with the messages, and what the new one does with them"
    most = max(sum(map(bool, dispositions.values())) for dispositions in (old, new))
    return _svg(_TOP + _HEIGHT + most * (_GAP + _LEAST), label, parts)


def targets(rows: Sequence[TargetCount]) -> str:
    """Two bars for each target: its messages under the old and the new table."""
    shown = rows[:_ROWS]
    most = max((max(it.old, it.new) for it in shown), default=1) or 1
    parts = []
    left, room = 330, _WIDTH - 330 - 110
    for number, it in enumerate(shown):
        y = 10 + number * _ROW
        name = escaped(shortened(f"{it.disposition} {it.target}", _NAME))
        parts.append(f'<text x="0" y="{y + 17}">{name}</text>')
        for count, shift, style in ((it.old, 0, "old"), (it.new, 13, "new")):
            width = max(_LEAST, room * count / most) if count else 0
            parts.append(
                f'<rect class="{style}" x="{left}" y="{y + shift}" width="{width:.1f}"'
                f' height="11"><title>{style}: {count:,}</title></rect>'
                f'<text class="small" x="{left + width + 6:.1f}" y="{y + shift + 10}">'
                f"{count:,} {style}</text>"
            )
    return _svg(20 + len(shown) * _ROW, "Where messages are put under both tables", parts)


def _svg(height: float, label: str, parts: Sequence[str]) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height:.0f}" role="img"'
        f' aria-label="{escaped(label)}">{"".join(parts)}</svg>'
    )


def _height(count: int, total: int) -> float:
    return max(_LEAST, _HEIGHT * count / total) if count else 0.0


def _stacked(dispositions: Mapping[Disposition, int], total: int) -> dict[Disposition, float]:
    tops, y = {}, _TOP
    for disposition, count in dispositions.items():
        if count:
            tops[disposition] = y
            y += _height(count, total) + _GAP
    return tops


def _side(
    tops: Mapping[Disposition, float],
    dispositions: Mapping[Disposition, int],
    title: str,
    *,
    x: int,
    words: int,
) -> Iterator[str]:
    total = sum(dispositions.values())
    anchor, at = ("end", x - 8) if words < 0 else ("start", x + _BAR + 8)
    yield f'<text class="strong" x="{at}" y="16" text-anchor="{anchor}">{title}</text>'
    for disposition, y in tops.items():
        height = _height(dispositions[disposition], total)
        yield (
            f'<rect x="{x}" y="{y:.1f}" width="{_BAR}" height="{height:.1f}"'
            f' fill="{_COLOURS[disposition]}"/>'
            f'<text x="{at}" y="{y + min(height / 2 + 4, height + 4):.1f}" text-anchor="{anchor}">'
            f"{disposition} {dispositions[disposition]:,}</text>"
        )


def _bands(
    counts: Mapping[tuple[Disposition, Disposition], int],
    starts: dict[Disposition, float],
    ends: dict[Disposition, float],
    total: int,
) -> Iterator[str]:
    left, right = _SIDE, _WIDTH - _SIDE
    middle = (left + right) / 2
    for (old, new), count in sorted(counts.items()):
        height = _height(count, total)
        y1, y2 = starts[old] + height / 2, ends[new] + height / 2
        starts[old] += height
        ends[new] += height
        yield (
            f'<path class="band" d="M{left} {y1:.1f}C{middle} {y1:.1f} {middle} {y2:.1f} {right}'
            f' {y2:.1f}" stroke="{_COLOURS[new]}" stroke-width="{height:.1f}">'
            f"<title>{old} becomes {new}: {counted(count, 'message')}</title></path>"
        )
