"""Making a plan: the messages that are asked for, and what is worth knowing before they move."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, Protocol

from redrive.engine.commands import To
from redrive.engine.facts import TopicFacts
from redrive.messages import NO_VALID_SCHEME
from redrive.messages.constants import reason_name
from redrive.operations.replay.payloads import MissingCopies, Payloads
from redrive.operations.replay.plan import (
    Order,
    Part,
    ReplayPlan,
    Warned,
    new_plan_id,
    places_of,
)
from redrive.operations.restart import meaning_of
from redrive.operations.tables import deciding_in
from redrive.outcomes.rows import Row, pattern_fields
from redrive.rules import Action, Dialect, Matcher, RulesTable, parse, resolve_target, select_rule
from redrive.topology.names import Names
from redrive.topology.put import Destination, Refusal

if TYPE_CHECKING:
    from redrive.configuration import HandlerConfiguration, JobConfiguration
    from redrive.kafka.cluster import Cluster

__all__ = ["Ends", "Planner"]

_SHOWN: Final = 20
"""Parts of one kind that a plan names."""


class Ends(Protocol):
    """Where puts end now; see ``redrive.streaming.targets.Targets``."""

    def of(
        self, handler: HandlerConfiguration, queue_manager: str, queue: str
    ) -> Destination | Refusal:
        """Where a put of a handler ends."""

    def topic(self, name: str) -> TopicFacts:
        """What is known of a topic."""

    def depth(self, destination: Destination) -> int | None:
        """Messages on a queue that can be full; None for any other."""


@dataclass(frozen=True, slots=True)
class _Put:
    """Where one message of a plan is to go, in names."""

    handler: str
    names: Names
    told: str
    """For people: the names, or what happens instead of a put."""


class Planner:
    """Makes plans for one job. It reads, and writes nothing."""

    def __init__(
        self,
        job: JobConfiguration,
        cluster: Cluster,
        ends: Ends,
        entries: Mapping[str, Mapping[str, Any]],
    ) -> None:
        """Take the job.

        Args:
            job: Its settings.
            cluster: Its cluster.
            ends: Leads puts to topics as the job does.
            entries: Of the job's control topic; none before its first start.
        """
        self._job = job
        self._cluster = cluster
        self._ends = ends
        self._entries = entries
        self._deciding = deciding_in(job, entries)
        self._handlers = {one.identity.name: one for one in job.handlers}
        self._tables: dict[str, tuple[RulesTable, Matcher]] = {}

    def plan(self, rows: Sequence[Row], order: Order, *, notes: Sequence[str] = ()) -> ReplayPlan:
        """A plan.

        Args:
            rows: The messages, as ``Inventory.places`` tells them.
            order: What is to become of them.
            notes: Why messages may be missing.

        Raises:
            TransientFault: The broker gave no answer in time.
        """
        mine = [row for row in rows if row["handler"] in self._handlers]
        told = [*notes]
        if len(mine) < len(rows):
            others = sorted({row["handler"] for row in rows} - set(self._handlers))
            told.append(
                f"{len(rows) - len(mine)} messages are left out: no handler of these settings keeps"
                f" them ({', '.join(others[:3])}); `redrive queue release` puts again what a queue"
                " manager could put nowhere"
            )
        payloads = Payloads(self._job, self._cluster, self._entries)
        found = MissingCopies() if order.to.is_about_parked else payloads.missing(mine)
        left_out = {row["origin"] for row in (*found.taken_away, *found.gone)}
        mine = [row for row in mine if row["origin"] not in left_out]
        told += found.notes()
        puts = [self._put_of(row, order) for row in mine]
        return ReplayPlan(
            plan=new_plan_id(),
            application=self._job.application,
            created=datetime.now(UTC).isoformat(timespec="seconds"),
            order=order,
            messages=_messages(mine),
            size=sum(row["body_size"] or 0 for row in mine),
            reasons=_parts(mine, _reason_of),
            exceptions=_told(mine, "error_class"),
            groups=_told(mine, "consumer_group"),
            targets=_parts_of(mine, [put.told for put in puts]),
            handlers=_parts(mine, lambda row: str(row["handler"])),
            warnings=[
                *self._about_targets(puts, order),
                *self._about_messages(mine, order),
                *payloads.warnings(found.lost),
            ],
            notes=told,
        )

    # -- where messages go -----------------------------------------------------------------------

    def _put_of(self, row: Row, order: Order) -> _Put:
        handler = row["handler"]
        if order.to is To.DISCARD:
            return _Put(handler, Names(), "discarded")
        if order.to is To.QUEUE:
            return _Put(handler, order.target, str(order.target))
        if order.to is To.ORIGINAL:
            names = Names(queue=row["field_destq"] or "", queue_manager=row["field_destqm"] or "")
            return _Put(handler, names, str(names) or "no original destination")
        if order.to is To.REMAIN:
            return _Put(handler, Names(), str(order).removeprefix("to "))
        table, _ = self._table(handler)
        # Another table counts from the start.
        is_same = table.hash.startswith(row["table_hash"] or "-")
        return self._by_rules(row, row["attempt"] if order.to is To.ATTEMPT and is_same else 0)

    def _by_rules(self, row: Row, failures: int) -> _Put:
        handler = row["handler"]
        table, matcher = self._table(handler)
        if table.control.dialect is not Dialect.IBM:
            return _Put(handler, Names(), "as the rules say then")
        fields = pattern_fields(row)
        index = select_rule(table, matcher.candidates_of(fields), failures) if fields else None
        if index is None:
            why = "no rule is left for it" if failures else "no rule matches"
            return _Put(handler, Names(), f"remains: {why}")
        rule = table.rules[index]
        if rule.action is Action.DISCARD:
            return _Put(handler, Names(), f"discarded by the rule at line {rule.line}")
        if not rule.action.can_fail:
            return _Put(handler, Names(), f"remains: the rule at line {rule.line} keeps it")
        target = resolve_target(rule, fields)
        names = Names(queue=target.queue, queue_manager=target.queue_manager)
        return _Put(handler, names, f"{names} by the rule at line {rule.line}")

    def _table(self, handler: str) -> tuple[RulesTable, Matcher]:
        if handler not in self._tables:
            settings = self._handlers[handler]
            table = parse(settings.rules, name=settings.rules_name).table
            if table is None:
                raise ValueError(f"{settings.rules_name} has errors")
            self._tables[handler] = table, Matcher(table)
        return self._tables[handler]

    def _about_targets(self, puts: Sequence[_Put], order: Order) -> Iterator[Warned]:
        counts = Counter((put.handler, put.names) for put in puts if put.names.queue)
        blank = sum(1 for put in puts if order.to is To.ORIGINAL and not put.names.queue)
        if blank:
            text = "no original destination: they will remain"
            yield Warned("no-original", text, blank)
        for (handler, names), count in counts.most_common():
            yield from self._about_target(self._handlers[handler], names, count)

    def _about_target(
        self, handler: HandlerConfiguration, names: Names, count: int
    ) -> Iterator[Warned]:
        answer = self._ends.of(handler, names.queue_manager, names.queue)
        if isinstance(answer, Refusal):
            why = f"{reason_name(answer.reason)}: {answer.detail}"
            yield Warned("target-missing", f"puts to {names} fail with {why}", count)
            return
        limits, topics = answer.limits, {one.identity.topic for one in self._job.handlers}
        if answer.topic in topics:
            text = f"{names} is a dead-letter queue of this job: they come back as dead letters"
            yield Warned("would-loop", text, count)
        if not limits.put_enabled:
            yield Warned("put-disabled", f"{names} is disabled for puts", count)
        facts = self._ends.topic(answer.topic)
        if facts.silent:
            yield Warned(
                "target-silent", f"{answer.topic} takes nothing now: {facts.silent}", count
            )
        depth = self._ends.depth(answer)
        if depth is not None and limits.max_depth is not None and depth + count > limits.max_depth:
            room = max(0, limits.max_depth - depth)
            text = f"{names} holds {depth} messages and takes {limits.max_depth}: room for {room}"
            yield Warned("target-full", text, count - room)

    # -- the messages themselves -----------------------------------------------------------------

    def _about_messages(self, rows: Sequence[Row], order: Order) -> Iterator[Warned]:
        moves = order.to not in {To.DISCARD, To.REMAIN}
        again = [row["replays"] for row in rows if row["replays"]]
        if again and moves:
            times = f"up to {max(again)} times" if max(again) > 1 else "once"
            text = f"replayed before ({times}), and remain again"
            yield Warned("replayed-before", text, len(again))
        invalid = sum(1 for row in rows if row["form"] == NO_VALID_SCHEME)
        if invalid and order.to is To.RULES:
            yield Warned("no-header", "no dead-letter header, so no rule applies", invalid)
        if order.to is To.RULES:
            yield from self._about_tables(rows)
        keys = Counter(
            (row["handler"], row["message_key"]) for row in rows if row["message_key"] is not None
        )
        several = sum(count for count in keys.values() if count > 1)
        if several and moves:
            text = (
                "keys shared with others of the plan: such messages go in the order in which they"
                " came, and behind what was put there since"
            )
            yield Warned("order", text, several)

    def _about_tables(self, rows: Sequence[Row]) -> Iterator[Warned]:
        others = {
            name
            for name, one in self._handlers.items()
            if self._deciding.get(name) and meaning_of(one, self._job) not in self._deciding[name]
        }
        if other := sum(row["handler"] in others for row in rows):
            text = "the job decides by another table than the settings name: redrive restart first"
            yield Warned("other-table", text, other)
        same = sum(
            1
            for row in rows
            if self._table(row["handler"])[0].hash.startswith(row["table_hash"] or "-")
        )
        if same:
            text = "left by the same table, which decides the same unless the targets changed"
            yield Warned("same-table", text, same)


def _messages(rows: Sequence[Row]) -> dict[str, dict[str, list[int]]]:
    origins: defaultdict[str, list[str]] = defaultdict(list)
    for row in rows:
        origins[row["handler"]].append(row["origin"])
    return {handler: places_of(found) for handler, found in sorted(origins.items())}


def _told(rows: Sequence[Row], column: str) -> Sequence[Part]:
    """The parts by what dead letters tell in a column; none if none of them tells it."""
    if not any(row[column] for row in rows):
        return ()
    return _parts(rows, lambda row: str(row[column] or "none told"))


def _reason_of(row: Row) -> str:
    if row["form"] == NO_VALID_SCHEME or row["field_reason"] is None:
        return "no dead-letter header"
    return f"{row['field_reason']} {reason_name(row['field_reason'])}"


def _parts(rows: Sequence[Row], name_of: Callable[[Row], str]) -> list[Part]:
    return _parts_of(rows, [name_of(row) for row in rows])


def _parts_of(rows: Sequence[Row], names: Sequence[str]) -> list[Part]:
    """The most frequent names with their counts and an example, the rest in one."""
    counts = Counter(names)
    examples: dict[str, str] = {}
    for row, name in zip(rows, names, strict=True):
        examples.setdefault(name, row["message"])
    shown = [Part(name, count, examples[name]) for name, count in counts.most_common(_SHOWN)]
    rest = len(rows) - sum(part.count for part in shown)
    return [*shown, Part(f"{len(counts) - _SHOWN} others", rest, "")] if rest else shown
