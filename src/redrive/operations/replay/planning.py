"""Making a plan: the messages, where they will go, and warnings."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from redrive.collector import collector_paused
from redrive.configuration import JobConfiguration
from redrive.configuration.deciders import DeciderFactory
from redrive.engine.attempts import LOOP
from redrive.engine.commands import NO_STATES, Replay, States, To
from redrive.engine.context import SliceContext
from redrive.engine.decision import NO_PROFILE, Decision, Discard, Keep, Put
from redrive.engine.facts import Answers, DepthQuestion, Facts, Questions
from redrive.engine.message import Attempts
from redrive.engine.put_record import PutTimes, risks_of
from redrive.engine.rules_decider import RulesDecider
from redrive.kafka.cluster import Cluster
from redrive.masking import NO_MASK, Mask
from redrive.messages import NO_VALID_SCHEME
from redrive.messages.constants import reason_name
from redrive.operations.replay.changes import Preview
from redrive.operations.replay.payloads import MissingCopies, Payloads, left_out
from redrive.operations.replay.plan import Order, Part, ReplayPlan, Warned, new_plan_id, places_of
from redrive.operations.restart import meaning_of
from redrive.operations.tables import deciding_in
from redrive.outcomes.inventory import Places
from redrive.outcomes.row_messages import attempts_of, message_of, missing_fields
from redrive.outcomes.rows import Row
from redrive.printable import counted
from redrive.topology.names import Names
from redrive.topology.put import Destination

_SHOWN: Final = 20
"""Maximum parts of one kind in a plan."""


@dataclass(frozen=True, slots=True)
class PlannedPut:
    """What the job would do with one message."""

    handler: str
    names: Names
    text: str
    """For display: the names, or what happens instead of a put."""
    decision: Decision | None = None
    """None if outcomes do not have what the rules need."""


class Planner:
    """Makes plans for one job; nothing is written."""

    def __init__(
        self,
        job: JobConfiguration,
        cluster: Cluster,
        answers: Callable[[Questions], Answers],
        *,
        entries: Mapping[str, Mapping[str, Any]],
        states: States = NO_STATES,
    ) -> None:
        """Plan for a job; ``entries`` of its control topic are empty before its first start."""
        self._job = job
        self._cluster = cluster
        self._answers = answers
        self._entries = entries
        self._deciding = deciding_in(job, entries)
        self._handlers = {handler.identity.name: handler for handler in job.handlers}
        self._facts = Facts(time.monotonic)
        deciders = DeciderFactory(job, self._facts).deciders(states)
        self._deciders = {
            name: decider
            for name, handler in self._handlers.items()
            if isinstance(decider := deciders[handler.identity.topic][0], RulesDecider)
        }

    @property
    def preview(self) -> Preview:
        """The preview, which decides single messages by the same deciders and facts."""
        return Preview(self._cluster, self._handlers, self._deciders, self._facts, self._answers)

    @collector_paused()
    def plan(
        self,
        places: Places,
        order: Order,
        *,
        notes: Sequence[str] = (),
        mask: Mask = NO_MASK,
    ) -> ReplayPlan:
        """A plan for messages; ``notes`` say why some may be missing."""
        rows = places.rows
        own_rows = [row for row in rows if row.handler in self._handlers]
        notes = [*notes]
        if len(own_rows) < len(rows):
            others = sorted({row.handler for row in rows} - set(self._handlers))
            notes.append(
                f"{left_out(len(rows) - len(own_rows))}: no handler of these settings has them"
                f" ({', '.join(others[:3])}); `redrive queue release` retries undeliverable"
                " messages of a queue manager"
            )
        payloads = Payloads(self._job, self._cluster, self._entries)
        missing_copies = MissingCopies() if order.to.is_about_parked else payloads.missing(own_rows)
        missing = {row.origin for row in (*missing_copies.taken_away, *missing_copies.gone)}
        own_rows = [row for row in own_rows if row.origin not in missing]
        notes += missing_copies.notes()
        if order.to is To.GROUP and (without := sum(not row.consumer_group for row in own_rows)):
            own_rows = [row for row in own_rows if row.consumer_group]
            notes.append(f"{left_out(without)}: the consumer group is unknown")
        puts = self.puts(own_rows, order)
        return ReplayPlan(
            plan=new_plan_id(),
            application=self._job.application,
            cluster=self._cluster.identity,
            created=datetime.now(UTC).isoformat(timespec="seconds"),
            order=order,
            messages=_messages(own_rows),
            size=sum(row.body_size or 0 for row in own_rows),
            reasons=_parts(own_rows, [_reason_of(row) for row in own_rows]),
            exceptions=_column_parts(own_rows, "error_class"),
            groups=_column_parts(own_rows, "consumer_group"),
            targets=_parts(own_rows, [put.text for put in puts]),
            handlers=_parts(own_rows, [str(row.handler) for row in own_rows]),
            warnings=[
                *self._about_targets(puts, order),
                *self._about_risks(own_rows, puts),
                *self._about_messages(own_rows, places.replays, order),
                *payloads.warnings(missing_copies.lost),
            ],
            changes=[*self.preview.changes(own_rows, order, mask)]
            if order.edit and own_rows
            else (),
            notes=notes,
        )

    # -- where messages go -----------------------------------------------------------------------

    def puts(self, rows: Sequence[Row], order: Order) -> Sequence[PlannedPut]:
        """What the job would do with each message now, once all needed facts are known."""
        replay = order.replay("")

        def decide() -> Sequence[PlannedPut]:
            facts = SliceContext(self._facts, "", int(time.time() * 1000))
            known: dict[object, PlannedPut] = {}
            return [self._put_of(row, order, replay, facts, known) for row in rows]

        return self._facts.answered(decide, self._answers)

    def _put_of(
        self,
        row: Row,
        order: Order,
        replay: Replay,
        facts: SliceContext,
        known: dict[object, PlannedPut],
    ) -> PlannedPut:
        decider = self._deciders[row.handler]
        message = message_of(row)
        attempts = attempts_of([row], decider.table)
        profile = message.profile or NO_PROFILE
        fields = tuple(profile.fields.items())
        group = profile.view.consumer_group
        key = row.handler, profile.scheme, fields, group, attempts, message.hops
        put = known.get(key)
        if put is None:
            if why := self._why_undecidable(order, decider, attempts):
                put = known[key] = PlannedPut(row.handler, Names(), f"depends on the rules: {why}")
            else:
                matched = decider.profiles.shared(profile)
                decision = facts.cache.decide(decider, matched, attempts, message, replay)
                put = known[key] = PlannedPut(
                    row.handler, decision.target, _text(decision, order), decision
                )
        return put

    @staticmethod
    def _why_undecidable(order: Order, decider: RulesDecider, attempts: Attempts) -> str:
        """Why outcomes do not show what the rules decide; empty if they do."""
        if order.to not in {To.RULES, To.ATTEMPT}:
            return ""
        if missing := missing_fields(decider.table):
            return f"outcomes do not have {', '.join(missing)}"
        counted = sum(number for _, number in attempts.by_rule)
        if order.to is To.ATTEMPT and decider.profiles.is_kafka and counted < attempts.failures:
            return "it depends on which rules have failed before"
        return ""

    def _about_targets(self, puts: Sequence[PlannedPut], order: Order) -> Iterator[Warned]:
        blank = sum(order.to is To.ORIGINAL and not put.names.queue for put in puts)
        if blank:
            text = "no original destination: they will remain"
            yield Warned("no-original", text, blank)
        counts = Counter((put.handler, put.names) for put in puts if put.names.queue)
        decisions = {(put.handler, put.names): put.decision for put in puts}
        for (handler, names), count in counts.most_common():
            decision = decisions[handler, names]
            if isinstance(decision, Put):
                yield from self._about_target(decision.destination, names, count)
            elif decision is not None and decision.reason:
                code = "would-loop" if decision.reason == LOOP else "target-missing"
                why = f"{reason_name(decision.reason)}: {decision.detail}"
                yield Warned(code, f"puts to {names} fail with {why}", count)

    def _about_risks(self, rows: Sequence[Row], puts: Sequence[PlannedPut]) -> Iterator[Warned]:
        """What may happen after the puts; a message is at least as old as its last outcome."""
        facts = SliceContext(self._facts, "", int(time.time() * 1000))
        risks: Counter[str] = Counter()
        for row, put in zip(rows, puts, strict=True):
            if isinstance(put.decision, Put):
                message = message_of(row)._replace(timestamp=int(row.time.timestamp() * 1000))
                times = PutTimes.of(put.decision, facts)
                risks.update(risks_of(times.decided(message, put.decision, facts), facts))
        for risk, count in risks.most_common():
            yield Warned("after-the-put", risk, count)

    def _about_target(self, place: Destination, names: Names, count: int) -> Iterator[Warned]:
        limits, topics = place.limits, {handler.identity.topic for handler in self._job.handlers}
        if place.topic in topics:
            text = f"{names} is a dead-letter queue of this job: they will return as dead letters"
            yield Warned("would-loop", text, count)
        if not limits.put_enabled:
            yield Warned("put-disabled", f"{names} is disabled for puts", count)
        facts = self._facts.topic(place.topic)
        if facts.silent:
            yield Warned("target-silent", f"{place.topic} is unavailable: {facts.silent}", count)
        if limits.max_depth is None or not limits.consumer_group:
            return
        question = DepthQuestion(place.topic, limits.consumer_group, limits.max_depth)
        depth = self._facts.answered(lambda: self._facts.depth(question), self._answers)
        if depth + count > limits.max_depth:
            room = max(0, limits.max_depth - depth)
            most = counted(limits.max_depth, "message")
            text = f"{names} holds {depth} of at most {most}: room for {room}"
            yield Warned("target-full", text, count - room)

    # -- the messages themselves -----------------------------------------------------------------

    def _about_messages(
        self, rows: Sequence[Row], replays: Mapping[str, int], order: Order
    ) -> Iterator[Warned]:
        moves = order.to not in {To.DISCARD, To.REMAIN}
        again = [replays[row.origin] for row in rows if row.origin in replays]
        if again and moves:
            times = f"up to {max(again)} times" if max(again) > 1 else "once"
            text = f"replayed before ({times}), and remain again"
            yield Warned("replayed-before", text, len(again))
        invalid = sum(row.form == NO_VALID_SCHEME for row in rows)
        if invalid and order.to is To.RULES:
            yield Warned("no-header", "no dead-letter header, so no rule applies", invalid)
        if order.to is To.RULES:
            yield from self._about_tables(rows)
        keys = Counter(
            (row.handler, row.message_key) for row in rows if row.message_key is not None
        )
        several = sum(count for count in keys.values() if count > 1)
        if several and moves:
            text = (
                "same key as other messages of the plan: these are put in their original order,"
                " after messages put there since"
            )
            yield Warned("order", text, several)

    def _about_tables(self, rows: Sequence[Row]) -> Iterator[Warned]:
        others = {
            name
            for name, handler in self._handlers.items()
            if self._deciding.get(name)
            and meaning_of(handler, self._job) not in self._deciding[name]
        }
        if other := sum(row.handler in others for row in rows):
            text = "the job uses another table than the settings name: run redrive restart first"
            yield Warned("other-table", text, other)
        same = sum(
            self._deciders[row.handler].table.hash.startswith(row.table_hash or "-") for row in rows
        )
        if same:
            text = "left by the same table, which will decide the same unless the targets changed"
            yield Warned("same-table", text, same)


def _text(decision: Decision, order: Order) -> str:
    if order.to is To.DISCARD:
        return "discarded"
    if order.to is To.REMAIN:
        return str(order).removeprefix("to ")
    rule = decision.rule
    if rule is None or (isinstance(decision, Keep) and not decision.reason):
        return f"remains: {decision.detail}"
    is_by_order = order.to in {To.ORIGINAL, To.GROUP, To.QUEUE}
    by = "" if is_by_order else f" by the rule at line {rule.line}"
    if isinstance(decision, Discard):
        return f"discarded{by}"
    return f"{str(decision.target) or 'no original destination'}{by}"


def _messages(rows: Sequence[Row]) -> dict[str, dict[str, list[int]]]:
    origins: defaultdict[str, list[str]] = defaultdict(list)
    for row in rows:
        origins[row.handler].append(row.origin)
    return {
        handler: places_of(origins_of_handler)
        for handler, origins_of_handler in sorted(origins.items())
    }


def _column_parts(rows: Sequence[Row], column: str) -> Sequence[Part]:
    """The parts by the value of a column; empty if no dead letter has one."""
    values = [getattr(row, column) for row in rows]
    return _parts(rows, [value or "unknown" for value in values]) if any(values) else ()


def _reason_of(row: Row) -> str:
    if row.form == NO_VALID_SCHEME or row.field_reason is None:
        return "no dead-letter header"
    return f"{row.field_reason} {reason_name(row.field_reason)}"


def _parts(rows: Sequence[Row], names: Sequence[str]) -> list[Part]:
    """The most frequent names with their counts and an example, the rest as one."""
    counts = Counter(names)
    examples: dict[str, str] = {}
    for row, name in zip(rows, names, strict=True):
        examples.setdefault(name, row.message)
    shown = [Part(name, count, examples[name]) for name, count in counts.most_common(_SHOWN)]
    rest = len(rows) - sum(part.count for part in shown)
    return [*shown, Part(f"{len(counts) - _SHOWN} others", rest, "")] if rest else shown
