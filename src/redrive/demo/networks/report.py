"""The report of a network's demo: where each kind of put ended, by which way and why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from redrive.demo.networks.ends import EndKind, Places
from redrive.demo.networks.puts import Kind
from redrive.demo.networks.reconciliation import PutReconciliation, Traced
from redrive.messages import reason_name

__all__ = ["NetworkReport", "Row"]

_SHOWN_PROBLEMS: Final = 20
_NOWHERE: Final = "nowhere"
_STYLES: Final = {
    EndKind.DEAD_LETTER: "yellow",
    EndKind.EXPIRED: "dim",
    EndKind.REMAINING: "yellow",
    EndKind.WAITING: "red",
}


@dataclass(frozen=True, slots=True)
class Row:
    """Puts of one kind that ended in the same place by the same way for the same reason."""

    kind: Kind
    end: str
    """Where they ended."""
    end_kind: EndKind
    way: tuple[str, ...]
    """Channels, other queues on which they lay before, and the rules that moved them."""
    reasons: tuple[str, ...]
    """Names of the reason codes on the way."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkReport:
    """What came of a network's demo."""

    network: str
    """Its name: ``mq`` or ``mqe``."""
    seed: int
    kinds: Sequence[Kind]
    """The kinds of puts, in the order of the table."""
    traced: Sequence[Traced]
    """Every put."""
    reconciliation: PutReconciliation
    places: Places
    """What the topics are."""
    seconds: float
    """How long the job ran."""

    @property
    def adds_up(self) -> bool:
        """Whether every message ended where it had to, exactly once."""
        return self.reconciliation.adds_up

    def show(self, console: Console) -> None:
        """Print the report.

        Args:
            console: Where to.
        """
        console.print(self._table())
        problems = self.reconciliation.problems
        for problem in problems[:_SHOWN_PROBLEMS]:
            console.print(problem, style="red", markup=False, soft_wrap=True)
        if len(problems) > _SHOWN_PROBLEMS:
            console.print(f"and {len(problems) - _SHOWN_PROBLEMS} more", style="red")
        style = "bold green" if self.adds_up else "bold red"
        console.print(str(self.reconciliation), style=style, soft_wrap=True)
        if self.adds_up:
            console.print("every message ended where redrive resolve says", style=style)

    def document(self) -> Mapping[str, Any]:
        """The report for programs."""
        sums = self.reconciliation
        return {
            "network": self.network,
            "seed": self.seed,
            "seconds": round(self.seconds, 1),
            "put": sums.puts,
            "ends": {kind.value: sums.ends.get(kind, 0) for kind in EndKind},
            "lost": sums.lost,
            "duplicated": sums.duplicated,
            "problems": list(sums.problems),
            "adds_up": sums.adds_up,
            "kinds": [
                {
                    "what": row.kind.what,
                    "at": row.kind.at,
                    "put_to": row.kind.names,
                    "messages": count,
                    "end": row.end_kind.value,
                    "place": row.end,
                    "way": list(row.way),
                    "reasons": list(row.reasons),
                }
                for row, count in self.rows().items()
            ],
        }

    def rows(self) -> Mapping[Row, int]:
        """Puts that are alike, with their number: by kind in the order of the demo."""
        rows = Counter(self._row(one) for one in self.traced)
        order = {kind: number for number, kind in enumerate(self.kinds)}
        return dict(sorted(rows.items(), key=lambda item: (order[item[0].kind], item[0].end)))

    def _row(self, one: Traced) -> Row:
        end = one.ends[0][0] if one.ends else one.predicted
        place = end.place if one.ends else _NOWHERE
        way = dict.fromkeys(self._way(one))
        return Row(
            kind=one.put.kind,
            end=place,
            end_kind=end.kind,
            way=tuple(part for part in way if part != place),
            reasons=tuple(map(reason_name, one.reasons)),
        )

    def _way(self, one: Traced) -> Iterator[str]:
        for outcome in one.outcomes:
            if outcome.rule_line:
                yield f"rule at line {outcome.rule_line}"
            if outcome.topic:
                yield self.places.over(outcome.topic)

    def _table(self) -> Table:
        table = Table(
            title="Where every message ended",
            title_justify="left",
            box=None,
            pad_edge=False,
            header_style="dim",
        )
        table.add_column("put", overflow="fold")
        table.add_column("number", justify="right", no_wrap=True)
        table.add_column("ended", overflow="fold")
        table.add_column("over, and why", overflow="fold")
        shown: set[Kind] = set()
        for row, count in self.rows().items():
            what = Group() if row.kind in shown else _what(row.kind)
            shown.add(row.kind)
            table.add_row(what, str(count), _end(row), _way(row))
        return table


def _what(kind: Kind) -> Group:
    return Group(f"{kind.at}: {kind.names}", Text(kind.what, style="dim"))


def _end(row: Row) -> Text:
    if row.end == _NOWHERE:
        return Text(_NOWHERE, style="red")
    style = _STYLES.get(row.end_kind, "")
    match row.end_kind:
        case EndKind.QUEUE:
            return Text(row.end)
        case EndKind.DEAD_LETTER:
            return Text(f"dead letter on {row.end}", style=style)
        case EndKind.REMAINING:
            return Text(f"remains at {row.end}", style=style)
    return Text(f"{row.end_kind} {row.end}".strip(), style=style)


def _way(row: Row) -> Group:
    reasons = [Text(name.removeprefix("MQRC_"), style="dim") for name in row.reasons]
    return Group(*([", ".join(row.way)] if row.way else []), *reasons)
