"""Curves over time, or bars, as one SVG file, which any browser shows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Final

_COLOURS: Final = ("#1f6fb4", "#c2561a", "#2a8a4a", "#7a4fa3")
_WIDTH: Final = 1000
_HEIGHT: Final = 170
_LEFT: Final = 80
_GAP: Final = 50
_BAR: Final = 30
_NAME: Final = 220


@dataclass(frozen=True, slots=True)
class Panel:
    """One diagram: curves that share an axis."""

    title: str
    """What is shown, with its unit."""
    curves: Mapping[str, Sequence[float | None]]
    """Values at the times of the plot, by name; None where there was none."""


def svg(
    title: str, times: Sequence[float], panels: Sequence[Panel], marks: Mapping[float, str]
) -> str:
    """A picture of panels below each other, with the same times.

    Args:
        title: What the picture shows.
        times: Seconds, growing.
        panels: The diagrams.
        marks: What happened, by second; a vertical line with its name on it.
    """
    height = _GAP + len(panels) * (_HEIGHT + _GAP)
    box = f'viewBox="0 0 {_LEFT + _WIDTH + 20} {height}"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {box} font-family="sans-serif" font-size="12">',
        '<rect width="100%" height="100%" fill="white"/>',
        f'<text x="{_LEFT}" y="20" font-size="15">{escape(title)}</text>',
    ]
    longest = max(times, default=0.0) or 1.0
    for number, panel in enumerate(panels):
        top = _GAP + number * (_HEIGHT + _GAP)
        parts += _panel(panel, times, longest, top)
        parts += [_mark(at / longest, what, top) for at, what in marks.items()]
    return "\n".join([*parts, "</svg>\n"])


def bars(title: str, values: Mapping[str, float], ours: str) -> str:
    """A picture of a bar for each value.

    Args:
        title: What the picture shows, with its unit.
        values: By name, from above to below.
        ours: How the names begin whose bars have a colour.
    """
    most = max(values.values(), default=0.0) or 1.0
    height = _GAP + len(values) * _BAR
    box = f'viewBox="0 0 {_NAME + _WIDTH + 20} {height}"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {box} font-family="sans-serif" font-size="15">',
        '<rect width="100%" height="100%" fill="white"/>',
        f'<text x="{_NAME}" y="24" font-size="18">{escape(title)}</text>',
    ]
    for number, (name, value) in enumerate(values.items()):
        top, width = _GAP - 10 + number * _BAR, (_WIDTH - 90) * value / most
        colour = _COLOURS[0] if name.startswith(ours) else "#b5b5b5"
        frame = f'x="{_NAME}" y="{top}" width="{width:.1f}" height="{_BAR - 6}"'
        parts += [
            f'<text x="{_NAME - 10}" y="{top + 17}" text-anchor="end">{escape(name)}</text>',
            f'<rect {frame} fill="{colour}"/>',
            f'<text x="{_NAME + width + 8:.1f}" y="{top + 17}">{value:,.0f}</text>',
        ]
    return "\n".join([*parts, "</svg>\n"])


def _panel(panel: Panel, times: Sequence[float], longest: float, top: int) -> list[str]:
    values = [value for curve in panel.curves.values() for value in curve if value is not None]
    most = max(values, default=0.0) or 1.0
    bottom = top + _HEIGHT
    frame = f'x="{_LEFT}" y="{top}" width="{_WIDTH}" height="{_HEIGHT}"'
    parts = [
        f'<rect {frame} fill="none" stroke="#999"/>',
        f'<text x="{_LEFT - 6}" y="{top + 10}" text-anchor="end">{most:,.0f}</text>',
        f'<text x="{_LEFT - 6}" y="{bottom}" text-anchor="end">0</text>',
        f'<text x="{_LEFT + _WIDTH}" y="{bottom + 14}" text-anchor="end">{longest:,.0f} s</text>',
        f'<text x="{_LEFT}" y="{top - 6}">{escape(panel.title)}</text>',
    ]
    for number, (name, curve) in enumerate(panel.curves.items()):
        colour = _COLOURS[number % len(_COLOURS)]
        x = _LEFT + _WIDTH - 130 * (len(panel.curves) - number)
        parts.append(f'<text x="{x}" y="{top - 6}" fill="{colour}">{escape(name)}</text>')
        points = (
            f"{_LEFT + _WIDTH * at / longest:.1f},{bottom - _HEIGHT * value / most:.1f}"
            for at, value in zip(times, curve, strict=True)
            if value is not None
        )
        parts.append(f'<polyline fill="none" stroke="{colour}" points="{" ".join(points)}"/>')
    return parts


def _mark(share: float, what: str, top: int) -> str:
    x = _LEFT + _WIDTH * share
    return (
        f'<line x1="{x:.1f}" y1="{top}" x2="{x:.1f}" y2="{top + _HEIGHT}" stroke="#b00"'
        f' stroke-dasharray="3 3"/><text font-size="9" fill="#b00" transform="translate({x + 9:.1f}'
        f' {top + 4}) rotate(90)">{escape(what)}</text>'
    )
