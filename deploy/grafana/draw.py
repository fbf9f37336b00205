"""Draw the dashboard by what a Prometheus answers to its queries, as one SVG file.

The panels are those that Grafana shows, at their places, with every job and handler chosen:

    python deploy/grafana/draw.py http://localhost:9090 --minutes 15 > dashboard.svg
"""

from __future__ import annotations

import argparse
import json
import math
import re
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any, Final, TypeAlias
from urllib.parse import urlencode
from urllib.request import urlopen

Ask: TypeAlias = Callable[..., Any]
"""``ask("query", query=..., time=...)``: the data of Prometheus' answer."""

_DASHBOARD: Final[Mapping[str, Any]] = json.loads(
    Path(__file__).with_name("redrive.json").read_text(encoding="utf-8")
)
_COLUMN: Final = 60
_ROW: Final = 30
"""Pixels of a cell of the dashboard's grid, which is 24 columns wide."""
_ALL: Final = 'xmlns="http://www.w3.org/2000/svg" font-family="sans-serif" font-size="11"'
_WHITE: Final = '<rect width="100%" height="100%" fill="white"/>'
_LINE: Final = 14
_TOP: Final = 24
_COLOURS: Final = ("#1f6fb4", "#c2561a", "#2a8a4a", "#7a4fa3", "#b0303c", "#0e8a8a", "#8a6d1f")


@dataclass(frozen=True, slots=True)
class Series:
    """One answer to a query."""

    name: str
    """As the legend of the panel has it."""
    points: Sequence[tuple[float, float]]
    """Time and value, without moments at which there was none."""


def picture(ask: Ask, start: float, end: float) -> str:
    """The dashboard from one moment to another, in seconds since 1970."""
    panels = _DASHBOARD["panels"]
    height = _ROW * max(one["gridPos"]["y"] + one["gridPos"]["h"] for one in panels)
    parts = [f'<svg {_ALL} viewBox="0 0 {24 * _COLUMN} {height}">{_WHITE}']
    for panel in panels:
        place = panel["gridPos"]
        width, high = _COLUMN * place["w"] - 6, _ROW * place["h"] - 6
        box = f'x="{_COLUMN * place["x"] + 3}" y="{_ROW * place["y"] + 3}"'
        parts.append(f'<svg {box} width="{width}" height="{high}">')
        parts.append(f'<text x="6" y="16" font-weight="bold">{escape(panel["title"])}</text>')
        answers = _answers(panel, ask, start, end)
        parts += [*_content(panel, answers, (start, end), (width, high)), "</svg>"]
    return "\n".join([*parts, "</svg>\n"])


def _answers(panel: Mapping[str, Any], ask: Ask, start: float, end: float) -> list[Series]:
    found = []
    step = max(1.0, (end - start) / 240)
    for target in panel.get("targets", ()):
        query = re.sub(r"\$\w+", ".*", target["expr"].replace("$__rate_interval", "1m"))
        if target.get("instant"):
            answer = ask("query", query=query, time=end)
        else:
            answer = ask("query_range", query=query, start=start, end=end, step=step)
        for one in answer["result"]:
            pairs = one.get("values") or [one["value"]]
            points = [(when, float(number)) for when, number in pairs if number != "NaN"]
            named = re.split(r"{{(\w+)}}", target["legendFormat"])
            named[1::2] = [one["metric"].get(label, "") for label in named[1::2]]
            found.append(Series("".join(named), points))
    return [one for one in found if one.points]


def _content(
    panel: Mapping[str, Any],
    series: Sequence[Series],
    times: tuple[float, float],
    size: tuple[int, int],
) -> Iterator[str]:
    if panel["type"] == "row":
        return
    unit = panel["fieldConfig"]["defaults"].get("unit", "short")
    width, height = size
    yield '<rect width="100%" height="100%" fill="none" stroke="#bbb"/>'
    if panel["type"] == "stat":
        last = _text(series[0].points[-1][1], unit) if series else "no data"
        yield f'<text x="{width // 2}" y="75" font-size="30" text-anchor="middle">{last}</text>'
    elif panel["type"] == "table":
        for number, one in enumerate(series):
            y = _TOP + _LINE * (number + 1)
            last = _text(one.points[-1][1], unit)
            yield f'<text x="6" y="{y}">{escape(one.name)}</text>'
            yield f'<text x="{width - 6}" y="{y}" text-anchor="end">{last}</text>'
    else:
        bottom = height - _LINE * (1 + math.ceil(len(series) / 2)) - 6
        highest = max((value for one in series for _, value in one.points), default=0.0)
        yield f'<path d="M6 {bottom}H{width - 6}M6 {_TOP + 6}H{width - 6}" stroke="#ddd"/>'
        yield f'<text x="{width - 6}" y="16" text-anchor="end">{_text(highest, unit)}</text>'
        for number, one in enumerate(series):
            colour = _COLOURS[number % len(_COLOURS)]
            yield _curve(one, times, highest, (width, bottom), colour)
            x, y = 6 + width // 2 * (number % 2), bottom + _LINE * (2 + number // 2)
            yield f'<text x="{x}" y="{y}" fill="{colour}">{escape(one.name)}</text>'


def _curve(
    one: Series, times: tuple[float, float], highest: float, size: tuple[int, int], colour: str
) -> str:
    (start, end), (width, bottom) = times, size
    points = " ".join(
        f"{6 + (width - 12) * (moment - start) / (end - start):.0f},"
        f"{bottom - (bottom - _TOP - 6) * value / (highest or 1.0):.0f}"
        for moment, value in one.points
    )
    return f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="1.5"/>'


def _text(value: float, unit: str) -> str:
    if unit == "dateTimeFromNow":
        return f"{time.time() - value / 1000:,.0f} s ago"
    return f"{round(value, 2):,.10g}" + {"s": " s", "ops": "/s", "rowsps": "/s"}.get(unit, "")


def _asking(address: str) -> Ask:
    def ask(path: str, **parameters: object) -> Any:  # noqa: ANN401 - JSON
        url = f"{address.rstrip('/')}/api/v1/{path}?{urlencode(parameters)}"
        with urlopen(url) as answer:  # noqa: S310 - the user named it
            return json.load(answer)["data"]

    return ask


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("prometheus", help="its address")
    parser.add_argument("--minutes", type=float, default=15.0, help="how long ago it begins")
    told = parser.parse_args()
    now = time.time()
    sys.stdout.write(picture(_asking(told.prometheus), now - 60 * told.minutes, now))
