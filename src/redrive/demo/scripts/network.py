"""The demos of networks: puts to queue managers, stopped channels, and every end.

Definitions, rules and settings are those of the folder ``examples``, by links that a wheel
resolves.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from rich.console import Console, Group
from rich.text import Text

from redrive.configuration.deciders import topology_of
from redrive.demo.environment import Environment
from redrive.demo.messages import SETTINGS, WAITING, End, Found
from redrive.demo.reconciliation import Trace
from redrive.demo.script import Operator, Script, titled_table
from redrive.demo.scripts.network_operator import NetworkOperator
from redrive.demo.scripts.places import DEAD_LETTERS, EXPIRED, ON_QUEUES, REMAINING, Places
from redrive.demo.scripts.puts import Example, Kind, generate_puts
from redrive.diagnostics import Severity
from redrive.messages import reason_name
from redrive.operations.network import Network
from redrive.operations.topics import TopicCreation
from redrive.printable import counted
from redrive.settings import read_settings
from redrive.topology.files import read_topology

_EXAMPLES: Final = Path(__file__).parents[1] / "networks"
_SERVERS: Final = "localhost:9092"
_NOT_COPIED: Final = frozenset({"README.md"})
_STYLES: Final = {DEAD_LETTERS: "yellow", REMAINING: "yellow", EXPIRED: "dim", WAITING: "red"}
_NOWHERE: Final = "nowhere"


@dataclass(frozen=True, slots=True)
class Row:
    """Messages of one kind with the same path, end and reason."""

    kind: Kind
    end: End
    way: tuple[str, ...]
    """Channels, earlier queues, and the rules that moved them."""
    reasons: tuple[str, ...]


class NetworkScript(Script):
    """Puts of many kinds to the queue managers of an example."""

    counted = "put"
    ends = (ON_QUEUES, DEAD_LETTERS, EXPIRED, REMAINING)
    verdict = "every message ended where redrive resolve says"

    def __init__(self, example: Example, messages: int, seed: int) -> None:
        self.title = f"of a network of {example.title} with {messages} puts, seed {seed}"
        self.messages = generate_puts(example, messages, seed)
        self._example = example
        self._seed = seed
        self.folder = _EXAMPLES / example.name
        shares = (share for stage in example.stages for share in stage.shares)
        self._kinds = {kind.name: kind for kind, _ in shares}

    @cached_property
    def places(self) -> Places:
        """The topics of the network."""
        job = read_settings(self.folder / SETTINGS).job
        return Places(topology_of(job.topology), (one.identity.topic for one in job.handlers))

    def write_files(self, folder: Path, bootstrap_servers: str) -> None:
        """See ``Script.write_files``."""
        for one in self.folder.iterdir():
            if one.name not in _NOT_COPIED:
                text = one.read_text(encoding="utf-8").replace(_SERVERS, bootstrap_servers)
                (folder / one.name).write_text(text, encoding="utf-8")

    def prepare(self, environment: Environment, operator: Operator) -> None:
        """See ``Script.prepare``."""
        with environment.step("Check") as progress:
            found = read_topology(operator.job.topology).diagnostics
            warnings = [one for one in found if one.severity is Severity.WARNING]
            progress(f"{counted(len(warnings), 'warning')}, as redrive check says")
        for one in warnings:
            where = f"{Path(one.file).name}:{one.line}"
            environment.console.print(f"  {where}: {one.message}", markup=False, style="dim")
        with environment.step("Topics") as progress:
            network = _network_of(operator)
            topics = TopicCreation.planned(network, partitions=1, replication_factor=None)
            topics.execute(lambda done: progress(f"{done} created"))
            progress(f"{len(topics.plan.missing)} created, as redrive topology apply does")
        environment.console.print("The job starts, which takes some seconds")

    def play(self, operator: Operator) -> None:
        """See ``Script.play``."""
        network = _network_of(operator)
        NetworkOperator(operator, network, self.messages, self.places).play(self._example.script)
        operator.console.print()

    def end_of(self, found: Found) -> End:
        """See ``Script.end_of``."""
        return self.places.end(found)

    def show(self, traces: Sequence[Trace], console: Console) -> None:
        """See ``Script.show``."""
        table = titled_table("Where every message ended")
        table.add_column("put", overflow="fold")
        table.add_column("number", justify="right", no_wrap=True)
        table.add_column("ended", overflow="fold")
        table.add_column("over, and why", overflow="fold")
        shown: set[Kind] = set()
        for row, count in self.rows(traces).items():
            what = Text(row.kind.name, style="dim")
            kind = Group(f"{row.kind.at}: {row.kind.to}", what)
            why = (Text(name.removeprefix("MQRC_"), style="dim") for name in row.reasons)
            way = Group(*([", ".join(row.way)] if row.way else []), *why)
            table.add_row(Group() if row.kind in shown else kind, str(count), _ended(row.end), way)
            shown.add(row.kind)
        console.print(table)

    def document(self, traces: Sequence[Trace], ends: Mapping[str, int]) -> dict[str, Any]:
        """See ``Script.document``."""
        return {
            "network": self._example.name,
            "seed": self._seed,
            "ends": ends,
            "kinds": [
                {
                    "what": row.kind.name,
                    "at": row.kind.at,
                    "put_to": row.kind.to,
                    "messages": count,
                    "end": row.end.what,
                    "place": row.end.place,
                    "way": list(row.way),
                    "reasons": list(row.reasons),
                }
                for row, count in self.rows(traces).items()
            ],
        }

    def rows(self, traces: Sequence[Trace]) -> Mapping[Row, int]:
        """Equal messages with their count, by kind in the order of the demo."""
        rows = Counter(map(self._row, traces))
        order = list(self._kinds)
        return dict(
            sorted(rows.items(), key=lambda it: (order.index(it[0].kind.name), it[0].end.place))
        )

    def _row(self, one: Trace) -> Row:
        end = one.ends[0][0] if one.ends else End(_NOWHERE)
        way: list[str] = []
        for outcome in one.outcomes:
            if outcome.rule_line:
                way.append(f"rule at line {outcome.rule_line}")
            if outcome.topic:
                way.append(self.places.over(outcome.topic))
        return Row(
            kind=self._kinds[one.message.kind],
            end=end,
            way=tuple(part for part in dict.fromkeys(way) if part != end.place),
            reasons=tuple(map(reason_name, one.reasons)),
        )


def _network_of(operator: Operator) -> Network:
    job = operator.job
    return Network(job.connection, topology_of(job.topology), job)


def _ended(end: End) -> Text:
    words = {
        ON_QUEUES: end.place,
        DEAD_LETTERS: f"dead letter on {end.place}",
        REMAINING: f"remains at {end.place}",
    }
    return Text(words.get(end.what, str(end)), style=_STYLES.get(end.what, ""))
