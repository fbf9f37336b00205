"""The results as tables and pictures in docs/performance.md."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeAlias

from benchmarks.plot import bars

PAGE: Final = Path(__file__).parents[2] / "docs" / "performance.md"
PICTURES: Final = PAGE.parent / "performance"
BEGIN, END = "<!-- results: written by make bench-peers -->\n", "<!-- end of results -->\n"
OURS: Final = "redrive"
GOALS: Final = {
    "python loop": 1.0, "kafka streams": 0.8, "pyflink": 2.0, "quix streams": 3.0,
    "aiokafka loop": 5.0, "bytewax": 1.5, "spark sink": 0.48,
}  # fmt: skip
"""What Redrive's speed is meant to be of another's; of Spark's sink, 0.95 in records written."""
_RATE: Final = "records_per_second"
_COLUMNS: Final = {
    "peer_cpu": "CPU s per million, contestant",
    "broker_cpu": "broker",
    "peak_mb": "peak memory, MB",
    "seconds": "s, start included",
}
_PICTURED_RATE: Final = 1_000
Values: TypeAlias = Mapping[str, float]
"""A figure of each contestant, by name."""


def write_page(results: Path) -> None:
    """Replaces what stands between the two marks, and the pictures.

    Args:
        results: The folder of the results; what was not measured is left out.
    """
    PICTURES.mkdir(exist_ok=True)
    peers = _read(results / "peers.json") or {"sets": [], "latency": []}
    parts = ["## Routing by a table"]
    for peer_set in sorted(
        peers["sets"],
        key=lambda peer_set: (peer_set["form"] != "spring", peer_set["rules"], peer_set["kinds"]),
    ):
        parts += _set(peer_set)
    parts.append(f"Versions: {', '.join(_versions(peers['sets']))}.")
    parts += ["## Latency", *(_latency(peers["latency"]) or ["Not measured yet."])]
    parts += ["## Matching alone", *_matching(_read(results / "matching.json") or [])]
    text = PAGE.read_text(encoding="utf-8")
    head, _, rest = text.partition(BEGIN)
    _, _, tail = rest.partition(END)
    middle = "\n\n".join(parts)
    PAGE.write_text(f"{head}{BEGIN}\n{middle}\n\n{END}{tail}", encoding="utf-8")


def _read(file: Path) -> Any:  # noqa: ANN401 - whatever JSON has
    return json.loads(file.read_text(encoding="utf-8")) if file.exists() else None


def _picture(name: str, title: str, values: Values) -> str:
    """Writes a picture of bars, and gives its place on the page."""
    file = PICTURES / f"{name}.svg"
    file.write_text(bars(title, values, OURS), encoding="utf-8")
    return f"![{title}]({PICTURES.name}/{file.name})"


# -- routing -----------------------------------------------------------------------------------


def _set(peer_set: Mapping[str, Any]) -> Iterator[str]:
    title = {"spring": "Spring's headers", "mqdlh": "MQDLH"}[peer_set["form"]]
    about = f"{title}, {peer_set['rules']:,} rules, {peer_set['kinds']:,} combinations of fields"
    yield f"### {about}"
    rated = [contestant for contestant in peer_set["contestants"] if contestant["runs"]]
    rated.sort(key=lambda contestant: contestant["median"][_RATE] or 0, reverse=True)
    speeds = _values(rated, _RATE)
    name = f"{peer_set['form']}-{peer_set['rules']}-{peer_set['kinds']}"
    yield _picture(name, f"{about}: records/s", speeds)
    if peer_set["busy"]:
        yield f"**The machine was busy**: load {peer_set['load before']} before the start."
    names = ["contestant", "records/s", "Redrive's speed"]
    lines = [_row([*names, *_COLUMNS.values()]), "|---" * (len(names) + len(_COLUMNS)) + "|"]
    ours = speeds.get(OURS)
    lines += [_row(_cells(contestant, ours)) for contestant in rated]
    yield "\n".join(lines)
    yield from (
        f"{contestant['name']}: {contestant['failed']}"
        for contestant in peer_set["contestants"]
        if contestant["failed"]
    )


def _versions(sets: Sequence[Mapping[str, Any]]) -> list[str]:
    listed = [peer["versions"].split(", ") for peer_set in sets for peer in peer_set["contestants"]]
    return sorted({version for versions in listed for version in versions})


def _cells(contestant: Mapping[str, Any], ours: float | None) -> Iterator[str]:
    name = contestant["name"]
    cell = f"**{name}**" if name.startswith(OURS) else name
    promise = "" if contestant["promise"] == "exactly once" else f", {contestant['promise']}"
    moved = any(run["reordered"] for run in contestant["runs"])
    yield f"{cell}{promise}{', headers in another order' if moved else ''}"
    speed, speeds = (
        contestant["median"][_RATE],
        [run[_RATE] for run in contestant["runs"] if run[_RATE]],
    )
    spread = f" ({min(speeds):,} to {max(speeds):,})" if len(speeds) > 1 else ""
    yield f"{_figure(speed)}{spread}"
    goal = f", goal {GOALS[contestant['name']]}" if contestant["name"] in GOALS else ""
    known = ours and speed and not contestant["name"].startswith(OURS)
    yield f"{ours / speed:.2f}{goal}" if known else ""
    yield from (_figure(contestant["median"][name]) for name in _COLUMNS)


def _values(rated: Sequence[Mapping[str, Any]], name: str) -> dict[str, float]:
    return {peer["name"]: peer["median"][name] for peer in rated if peer["median"][name]}


# -- latency -----------------------------------------------------------------------------------


def _latency(measured: Sequence[Mapping[str, Any]]) -> list[str]:
    parts = []
    for peer_set in measured:
        rates = sorted({rate["rate"] for peer in peer_set["contestants"] for rate in peer["rates"]})
        names = ["contestant", *(f"{rate:,}/s: p50, p99" for rate in rates)]
        lines = [_row(names), "|---" * len(names) + "|"]
        for peer in peer_set["contestants"]:
            known = {rate["rate"]: rate for rate in peer["rates"]}
            lines.append(_row([peer["name"], *(_delay(known.get(rate)) for rate in rates)]))
        parts += ["Milliseconds from produce to visible, at steady rates:", "\n".join(lines)]
        parts += [
            f"{peer['name']}: {peer['failed']}"
            for peer in peer_set["contestants"]
            if peer["failed"]
        ]
        late = _late(peer_set["contestants"], _PICTURED_RATE)
        parts.append(_picture("latency", f"p99 at {_PICTURED_RATE:,}/s, milliseconds", late))
    return parts


def _delay(delay: Mapping[str, Any] | None) -> str:
    if delay is None:
        return ""
    return f"{delay['p50']:,}, {delay['p99']:,}" if "p50" in delay else "does not keep up"


def _late(peers: Sequence[Mapping[str, Any]], rate: int) -> dict[str, float]:
    """The p99 of those that kept up."""
    return {
        peer["name"]: float(rate_result["p99"])
        for peer in peers
        for rate_result in peer["rates"]
        if rate_result["rate"] == rate and "p99" in rate_result
    }


# -- matching ----------------------------------------------------------------------------------


def _matching(results: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    if not results:
        yield "Not measured yet."
    names = list(dict.fromkeys(result["name"] for result in results))
    for percent in dict.fromkeys(result["wildcards"] for result in results):
        chosen = [result for result in results if result["wildcards"] == percent]
        yield f"Messages a second, {percent} % of the rules with a wildcard:"
        lines = [_row(["rules", *names]), "|---" * (1 + len(names)) + "|"]
        for count in dict.fromkeys(result["rules"] for result in chosen):
            cells = {
                result["name"]: _speed(result) for result in chosen if result["rules"] == count
            }
            lines.append(_row([f"{count:,}", *(cells.get(name, "") for name in names)]))
        yield "\n".join(lines)
        most = max(result["rules"] for result in chosen)
        about = f"{most:,} rules, {percent} % with a wildcard: messages/s"
        yield _picture(f"matching-{percent}", about, _speeds(chosen, most))


def _speed(result: Mapping[str, Any]) -> str:
    return f"{result['per_second']:,}" if "per_second" in result else str(result["failed"])


def _speeds(chosen: Sequence[Mapping[str, Any]], count: int) -> dict[str, float]:
    return {
        result["name"]: float(result["per_second"])
        for result in chosen
        if result["rules"] == count and "per_second" in result
    }


def _row(cells: Sequence[str] | Iterator[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _figure(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}"
