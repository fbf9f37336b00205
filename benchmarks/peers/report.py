"""The results as tables in docs/benchmarks.md."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

PAGE: Final = Path(__file__).parents[2] / "docs" / "benchmarks.md"
BEGIN, END = "<!-- peers: written by make bench-peers -->\n", "<!-- end of peers -->\n"
_COLUMNS: Final = {
    "records_per_second": "records/s",
    "peer_cpu": "CPU s per million, contestant",
    "broker_cpu": "broker",
    "peak_mb": "peak memory, MB",
    "seconds": "s, start included",
}


def write_tables(report: Mapping[str, Any]) -> None:
    """Replaces what stands between the two marks."""
    text = PAGE.read_text(encoding="utf-8")
    head, _, rest = text.partition(BEGIN)
    _, _, tail = rest.partition(END)
    PAGE.write_text(f"{head}{BEGIN}\n{tables(report)}\n{END}{tail}", encoding="utf-8")


def tables(report: Mapping[str, Any]) -> str:
    """A table for each set, with what Redrive wins and loses."""
    busy = f", **measured on a busy machine** (load {report['load before']} before the start)"
    about = f"{report['cores']} cores for broker and contestant together"
    parts = [f"{about}{busy if report['busy'] else ''}."]
    for one in report["sets"]:
        parts += _set(one)
    return "\n\n".join(parts) + "\n"


def _set(one: Mapping[str, Any]) -> Iterator[str]:
    rounds = max((len(it["runs"]) for it in one["contestants"]), default=0)
    yield (
        f"**{one['form']}, {one['rules']:,} rules**, {one['records']:,} records, "
        f"median of {rounds} round{'s' * (rounds != 1)}:"
    )
    names = ["contestant", "promise, checked", *_COLUMNS.values()]
    lines = [f"| {' | '.join(names)} |", "|---" * len(names) + "|"]
    for it in sorted(one["contestants"], key=_speed, reverse=True):
        remark = f"; {it['remark']}" if it["remark"] else ""
        figures = [_figure(it["median"][name]) for name in _COLUMNS]
        name = f"**{it['name']}**" if it["name"].startswith("redrive") else it["name"]
        cells = [f"{name} ({it['versions']}{remark})", it["promise"], *figures]
        lines.append(f"| {' | '.join(cells)} |")
    yield "\n".join(lines)
    yield from (f"Not run, {name}: {why}" for name, why in one["failed"].items())
    yield from _verdict(one)


def _verdict(one: Mapping[str, Any]) -> Iterator[str]:
    """Redrive's speed against each other contestant's."""
    known = {it["name"]: _speed(it) for it in one["contestants"]}
    mine = known.get("redrive")
    others = {name: speed for name, speed in known.items() if not name.startswith("redrive")}
    if not mine:
        return
    ratios = {name: f"{mine / speed:.2f} of {name}" for name, speed in others.items() if speed}
    won = [text for name, text in ratios.items() if mine >= others[name]]
    lost = [text for name, text in ratios.items() if mine < others[name]]
    said = [f"Redrive's speed is above: {', '.join(won)}."] * bool(won)
    said += [f"It is below: {', '.join(lost)}."] * bool(lost)
    yield " ".join(said)


def _speed(it: Mapping[str, Any]) -> float:
    return float(it["median"]["records_per_second"] or 0)


def _figure(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}"
