"""Making a plan: the messages, where they will go, and warnings."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import islice, takewhile
from typing import TYPE_CHECKING, Any, Final

from redrive.collector import collector_paused
from redrive.configuration import HandlerConfiguration, JobConfiguration
from redrive.configuration.deciders import DeciderFactory
from redrive.engine.attempts import LOOP
from redrive.engine.commands import NO_STATES, Replay, States, To
from redrive.engine.context import SliceContext
from redrive.engine.decision import NO_PROFILE, Decision, Discard, Keep, Put
from redrive.engine.edits import NO_EDIT, Content
from redrive.engine.facts import TAKEN_AWAY, Answers, DepthQuestion, Facts, Questions
from redrive.engine.message import Attempts
from redrive.engine.put_record import PutTimes, risks_of
from redrive.engine.rules_decider import RulesDecider
from redrive.engine.sources import DeadLetterSource, PartitionRecords, SourceKind
from redrive.errors import RedriveError
from redrive.kafka.administration import group_positions
from redrive.kafka.cluster import Cluster
from redrive.kafka.compacted import LiveCopies
from redrive.masking import NO_MASK, Mask
from redrive.messages import NO_VALID_SCHEME, DeadLetterDecoder, Records, TopicPartition
from redrive.messages import own_headers as own
from redrive.messages.constants import reason_name
from redrive.operations.durations import duration
from redrive.operations.replay.plan import (
    Change,
    Part,
    Plan,
    Warned,
    change_of,
    new_plan_id,
    places_of,
)
from redrive.operations.restart import meaning_of
from redrive.operations.retention import gone_from, held_places, held_until, until_text
from redrive.operations.tables import deciding_in
from redrive.outcomes.bodies import Lost, find_record, find_records
from redrive.outcomes.inventory import Places
from redrive.outcomes.row_messages import attempts_of, message_of, missing_fields
from redrive.outcomes.rows import Row
from redrive.printable import counted
from redrive.topology.names import Names
from redrive.topology.put import Destination, Refusal

if TYPE_CHECKING:
    from redrive.engine.context import Decided
    from redrive.kafka.records import StoredRecord

_SOON: Final = 24 * 3600
"""A plan warns if a payload will be deleted within this many seconds."""
_SHOWN: Final = 20
"""Maximum parts of one kind in a plan."""


@dataclass(frozen=True, slots=True)
class MissingCopies:
    """Messages without a copy on the remaining topic."""

    lost: list[Row] = field(default_factory=list)
    """The dead-letter topic still has the message."""
    taken_away: list[Row] = field(default_factory=list)
    """They no longer remain."""
    gone: list[Row] = field(default_factory=list)
    """They are on neither topic."""
    deleted: Mapping[str, int] = field(default_factory=dict)
    """By dead-letter topic, the number of discarded messages among those."""

    def notes(self) -> Iterator[str]:
        """Why a plan has fewer messages than asked for."""
        if self.taken_away:
            yield f"{left_out(len(self.taken_away))}: they no longer remain"
        for topic, count in self.deleted.items():
            yield gone_from(topic, count)
        if self.gone and not self.deleted:
            yield (
                f"{left_out(len(self.gone))}: their payload was deleted from both the remaining"
                " topic and their dead-letter topic"
            )


@dataclass(frozen=True, slots=True)
class Payloads:
    """Looks for the payloads of a job's messages; nothing is written."""

    _cluster: Cluster
    _handlers: Mapping[str, HandlerConfiguration]
    _entries: Mapping[str, Mapping[str, Any]]

    def missing(self, rows: Sequence[Row]) -> MissingCopies:
        """The remaining messages, of handlers of the job, that have no remaining copy."""
        missing = MissingCopies()
        lost = []
        following = LiveCopies(self._cluster)
        try:
            for lane, those in self._by_lane(rows).items():
                copies = following.on(lane) if self._cluster.partitions([lane.topic]) else {}
                for row in those:
                    place = copies.get(row.origin.encode("ascii"))
                    if place is None:
                        lost.append(row)
                    elif place == TAKEN_AWAY:
                        missing.taken_away.append(row)
        finally:
            following.close()
        held = self.without_copies(lost)
        return replace(missing, lost=held.lost, gone=held.gone)

    def without_copies(self, rows: Sequence[Row]) -> MissingCopies:
        """The same of messages that have no copy, as discarded ones: their topic has them or not.

        A recreated topic has others.
        """
        missing, deleted = MissingCopies(), Counter[str]()
        topics = {self._source_of(row)[0].topic for row in rows}
        held = held_places(self._cluster, self._entries, sorted(topics))
        for row in rows:
            place = held.get(row.origin.rpartition(":")[0])
            lane, offset = self._source_of(row)
            if place is not None and place.holds(offset):
                missing.lost.append(row)
            else:
                missing.gone.append(row)
                deleted[lane.topic] += 1
        return replace(missing, deleted=deleted)

    def warnings(self, lost: Sequence[Row]) -> Iterator[Warned]:
        """Warnings about messages only on their dead-letter topic (``MissingCopies.lost``)."""
        by_topic, firsts = defaultdict(list), dict[TopicPartition, int]()
        for row in lost:
            lane, offset = self._source_of(row)
            by_topic[lane.topic].append(row)
            firsts[lane] = min(offset, firsts.get(lane, offset))
        settings = self._cluster.settings_of(list(by_topic))
        until = held_until(self._cluster, firsts)
        for topic, rows in by_topic.items():
            text = f"payload only on {topic}{until_text(until.get(topic))}: fetched from there"
            yield Warned("restored", text, len(rows))
            kept = int(settings.get(topic, {}).get("retention.ms") or -1) / 1000
            # On a topic that keeps records for a day, every message would be late.
            within = min(_SOON, kept / 2)
            if within > 0 and (soon := self._older_than(rows, kept - within)):
                yield Warned("expires", f"deleted from {topic} within {duration(within)}", soon)

    def _older_than(self, rows: Sequence[Row], age: float) -> int:
        places = [self._source_of(row) for row in rows]
        time = int(1000 * (datetime.now(UTC).timestamp() - age))
        bounds = self._cluster.offsets_at({lane: time for lane, _ in places})
        # Below 0: every record of the partition is older.
        return sum(bounds[lane] < 0 or offset < bounds[lane] for lane, offset in places)

    def _source_of(self, row: Row) -> tuple[TopicPartition, int]:
        _, partition, offset = row.origin.rsplit(":", 2)
        topic = self._handlers[row.handler].identity.topic
        return TopicPartition(topic, int(partition)), int(offset)

    def _by_lane(self, rows: Sequence[Row]) -> dict[TopicPartition, list[Row]]:
        by_lane: defaultdict[TopicPartition, list[Row]] = defaultdict(list)
        for row in rows:
            partition = int(row.origin.rsplit(":", 2)[1])
            topic = self._handlers[row.handler].identity.remaining_topic
            by_lane[TopicPartition(topic, partition)].append(row)
        return dict(sorted(by_lane.items()))


@dataclass(frozen=True, slots=True)
class Tried:
    """An edit, tried on the messages of a plan."""

    failing: Mapping[str, Change] = field(default_factory=dict)
    """Why it does not apply, by the origin of the message."""
    applies: int = 0
    """On how many it applies."""
    unread: int = 0
    """How many could not be read."""

    def notes(self, *, leaves_out: bool) -> Iterator[str]:
        """On how many messages it applies, and whether the others are left out.

        Those that would not be put without the edit either are not counted.
        """
        count = len(self.failing)
        if count or self.applies:
            total = counted(self.applies + count, "message")
            others = f"; {left_out(count)}, unless you add --include-failing"
            text = f"the edit applies to {self.applies:,} of {total}"
            yield text + others if count and leaves_out else text

    def warnings(self, *, includes_failing: bool) -> Iterator[Warned]:
        """Messages of the plan to which the edit will not, or may not apply."""
        if self.failing and includes_failing:
            text = "the edit does not apply: a failed attempt each"
            yield Warned("edit-fails", text, len(self.failing))
        if self.unread:
            text = "it is not known whether the edit applies: they could not be read"
            yield Warned("edit-unknown", text, self.unread)

    def example(self, mask: Mask) -> Iterator[Change]:
        """One message on which the edit does not apply, and why; nothing if it always does."""
        for change in islice(self.failing.values(), 1):
            yield replace(change, problem=mask.text(change.problem))


@dataclass(frozen=True, slots=True)
class Preview:
    """Decides single messages as the job would; nothing is written."""

    _cluster: Cluster
    _handlers: Mapping[str, HandlerConfiguration]
    _deciders: Mapping[str, RulesDecider]
    _facts: Facts
    _answers: Callable[[Questions], Answers]

    def content(self, row: Row, replay: Replay) -> Content:
        """The content of a replay without an edit; raises ``RedriveError`` if there is none."""
        content = self._put(row, self._record(row), replay, is_edited=False)
        if isinstance(content, str):
            raise RedriveError(
                f"{row.message} would not be put: {content}",
                hint="--to names another destination",
            )
        return content

    def changes(self, rows: Sequence[Row], replay: Replay, mask: Mask) -> Iterator[Change]:
        """What an edit changes in the first, the middle and the last of some messages."""
        for number in sorted({0, len(rows) // 2, len(rows) - 1} if rows else ()):
            row = rows[number]
            try:
                record = self._record(row)
                before = self._put(row, record, replay, is_edited=False)
                after = self._put(row, record, replay, is_edited=True)
            except RedriveError as error:
                yield Change(row.message, problem=mask.text(error.message))
                continue
            yield change_of(row.message, before, after, mask)

    def tried(
        self,
        job: JobConfiguration,
        rows: Sequence[Row],
        replay: Replay,
        show_progress: Callable[[int, int], None],
    ) -> Tried:
        """The edit of a replay, tried on each message as it would be put.

        ``show_progress`` gets the number of messages read, and of all.
        """
        failing, applies, number = {}, 0, 0
        for number, (row, record) in enumerate(find_records(self._cluster, job, rows), 1):
            content = self._put(row, record, replay, is_edited=False)
            if isinstance(content, Content):
                changed = replay.edit.applied(content)
                if isinstance(changed, Refusal):
                    failing[row.origin] = Change(row.message, problem=changed.detail)
                else:
                    applies += 1
            show_progress(number, len(rows))
        return Tried(failing, applies, len(rows) - number)

    def _record(self, row: Row) -> StoredRecord:
        record = find_record(self._cluster, self._handlers[row.handler], row)
        if isinstance(record, Lost):
            raise RedriveError(f"{row.message} can't be read: {record.reason}")
        return record

    def _put(
        self, row: Row, record: StoredRecord, replay: Replay, *, is_edited: bool
    ) -> Content | str:
        edit = replay.edit if is_edited else NO_EDIT
        tried = replace(replay, plan=str(is_edited), edit=edit)
        _, decision, records = self._decide(row.handler, record, tried)
        if not records:
            reason = f"{reason_name(decision.reason)}: " if decision.reason else ""
            return f"{reason}{decision.detail or f'the rules say {decision.result}'}"
        put = records[0][1]
        # The put appends its own headers, the identity first.
        kept = takewhile(lambda pair: pair[0] != own.ID, put.headers or [])
        return Content(put.value, list(kept))

    def _decide(self, handler: str, record: StoredRecord, replay: Replay) -> Decided:
        decider = self._deciders[handler]
        is_letter = record.lane.topic == decider.identity.topic
        kind = SourceKind.DEAD_LETTERS if is_letter else SourceKind.REMAINING
        records = Records(
            [record.key], [record.value], [record.headers], [record.timestamp], [record.offset]
        )
        part = PartitionRecords(record.lane, decider, kind, records)
        source = DeadLetterSource(decider, DeadLetterDecoder())
        source.load(part, 0)
        message, attempts, _ = source.read(0)

        def decide() -> Decided:
            facts = SliceContext(self._facts, "", int(time.time() * 1000))
            return decider.decide(message, attempts, facts, replay=replay)

        return self._facts.answered(decide, self._answers)


@dataclass(eq=False)
class Planner:
    """Makes plans for one job; nothing is written."""

    job: JobConfiguration
    cluster: Cluster
    answers: Callable[[Questions], Answers]
    entries: Mapping[str, Mapping[str, Any]]
    """Those of the job's control topic; empty before its first start."""
    states: States = NO_STATES

    def __post_init__(self) -> None:
        self._deciding = deciding_in(self.job, self.entries)
        self._handlers = {handler.identity.name: handler for handler in self.job.handlers}
        self._facts = Facts(time.monotonic)
        deciders = DeciderFactory(self.job, self._facts).deciders(self.states)
        self._deciders = {
            name: decider
            for name, handler in self._handlers.items()
            if isinstance(decider := deciders[handler.identity.topic][0], RulesDecider)
        }

    @property
    def preview(self) -> Preview:
        """The preview, which decides single messages by the same deciders and facts."""
        return Preview(self.cluster, self._handlers, self._deciders, self._facts, self.answers)

    @collector_paused()
    def plan(
        self,
        places: Places,
        replay: Replay,
        *,
        notes: Sequence[str] = (),
        mask: Mask = NO_MASK,
        includes_failing: bool = False,
        show_progress: Callable[[int, int], None] = lambda done, total: None,  # noqa: ARG005
    ) -> Plan:
        """A plan for messages; ``notes`` say why some may be missing.

        An edit is tried on every message. Those on which it does not apply are left out unless the
        plan ``includes_failing`` ones. ``show_progress`` gets the messages tried and all of them.
        """
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
        payloads = Payloads(self.cluster, self._handlers, self.entries)
        missing_copies = MissingCopies()
        if not replay.to.is_about_parked:
            look = payloads.without_copies if replay.is_undo else payloads.missing
            missing_copies = look(own_rows)
        missing = {row.origin for row in (*missing_copies.taken_away, *missing_copies.gone)}
        own_rows = [row for row in own_rows if row.origin not in missing]
        notes += missing_copies.notes()
        if replay.to is To.GROUP and (without := sum(not row.consumer_group for row in own_rows)):
            own_rows = [row for row in own_rows if row.consumer_group]
            notes.append(f"{left_out(without)}: the consumer group is unknown")
        tried = Tried()
        if replay.edit and own_rows:
            tried = self.preview.tried(self.job, own_rows, replay, show_progress)
            notes += tried.notes(leaves_out=not includes_failing)
            if not includes_failing:
                own_rows = [row for row in own_rows if row.origin not in tried.failing]
        decisions = self.decisions(own_rows, replay)
        words = {decision: words_of(decision, replay) for decision in set(decisions)}
        return Plan(
            replay=replace(replay, plan=new_plan_id()),
            application=self.job.application,
            cluster=self.cluster.identity,
            created=datetime.now(UTC).isoformat(timespec="seconds"),
            messages=_messages(own_rows),
            size=sum(row.body_size or 0 for row in own_rows),
            reasons=_parts(own_rows, [_reason_of(row) for row in own_rows]),
            exceptions=_column_parts(own_rows, "error_class"),
            groups=_column_parts(own_rows, "consumer_group"),
            targets=_parts(own_rows, [words[decision] for decision in decisions]),
            handlers=_parts(own_rows, [str(row.handler) for row in own_rows]),
            warnings=[
                *self._about_targets(own_rows, decisions, replay),
                *(self._about_groups(own_rows, decisions) if replay.to is To.GROUP else ()),
                *self._about_risks(own_rows, decisions),
                *self._about_messages(own_rows, places.replays, replay),
                *payloads.warnings(missing_copies.lost),
                *tried.warnings(includes_failing=includes_failing),
            ],
            changes=[*self._changes(own_rows, replay, tried, mask)] if replay.edit else (),
            notes=notes,
        )

    def _changes(
        self, rows: Sequence[Row], replay: Replay, tried: Tried, mask: Mask
    ) -> Collection[Change]:
        """What an edit changes in some messages, and one on which it does not apply."""
        changes = [*self.preview.changes(rows, replay, mask), *tried.example(mask)]
        return {change.message: change for change in changes}.values()

    # -- where messages go -----------------------------------------------------------------------

    def decisions(self, rows: Sequence[Row], replay: Replay) -> Sequence[Decision | str]:
        """What the job would do with each message now, once all needed facts are known.

        Returns:
            The decisions; a text where outcomes do not have what the rules need.
        """

        def decide() -> Sequence[Decision | str]:
            facts = SliceContext(self._facts, "", int(time.time() * 1000))
            known: dict[object, Decision | str] = {}
            return [self._decision(row, replay, facts, known) for row in rows]

        return self._facts.answered(decide, self.answers)

    def _decision(
        self, row: Row, replay: Replay, facts: SliceContext, known: dict[object, Decision | str]
    ) -> Decision | str:
        decider = self._deciders[row.handler]
        message = message_of(row)
        attempts = attempts_of([row], decider.table)
        profile = message.profile or NO_PROFILE
        fields = tuple(profile.fields.items())
        key = row.handler, profile.scheme, fields, profile.view, attempts, message.hops
        if key not in known:
            if why := self._why_undecidable(replay, decider, attempts):
                known[key] = f"depends on the rules: {why}"
            else:
                matched = decider.profiles.shared(profile)
                known[key] = decider.decision_of(message, matched, attempts, facts, replay)
        return known[key]

    @staticmethod
    def _why_undecidable(replay: Replay, decider: RulesDecider, attempts: Attempts) -> str:
        """Why outcomes do not show what the rules decide; empty if they do."""
        if replay.to not in {To.RULES, To.ATTEMPT}:
            return ""
        if missing := missing_fields(decider.table):
            return f"outcomes lack {', '.join(missing)}"
        counted = sum(number for _, number in attempts.by_rule)
        if replay.to is To.ATTEMPT and decider.profiles.is_kafka and counted < attempts.failures:
            return "it depends on which rules have failed before"
        return ""

    def _about_targets(
        self, rows: Sequence[Row], decisions: Sequence[Decision | str], replay: Replay
    ) -> Iterator[Warned]:
        by_target: defaultdict[tuple[str, Names], list[Decision]] = defaultdict(list)
        blank = 0
        for row, decision in zip(rows, decisions, strict=True):
            if isinstance(decision, Decision) and decision.target.queue:
                by_target[row.handler, decision.target].append(decision)
            else:
                blank += replay.to is To.ORIGINAL
        if blank:
            yield Warned("no-original", "no original destination: they will remain", blank)
        for (_, names), same in sorted(by_target.items(), key=lambda target: -len(target[1])):
            decision = same[-1]
            if isinstance(decision, Put):
                yield from self._about_target(decision.destination, names, len(same))
            elif decision.reason:
                code = "would-loop" if decision.reason == LOOP else "target-missing"
                why = f"{reason_name(decision.reason)}: {decision.detail}"
                yield Warned(code, f"puts to {names} fail with {why}", len(same))

    def _about_groups(
        self, rows: Sequence[Row], decisions: Sequence[Decision | str]
    ) -> Iterator[Warned]:
        """Topics of groups that do not exist yet, or that their group does not read."""
        puts = Counter(
            (decision.destination.topic, str(row.consumer_group))
            for row, decision in zip(rows, decisions, strict=True)
            if isinstance(decision, Put)
        )
        existing = self.cluster.topics() if puts else {}
        lanes = self.cluster.lanes({topic for topic, _ in puts if topic in existing})
        groups = {group for topic, group in puts if topic in existing}
        positions = group_positions(self.cluster.connection, groups, lanes) if lanes else {}
        for (topic, group), count in puts.most_common():
            committed = positions.get(group)  # None: this user may not see it
            if topic not in existing:
                text = f"{topic} does not exist yet: the job creates it, and {group} has to read it"
                yield Warned("group-topic-missing", text, count)
            elif committed is not None and topic not in {lane.topic for lane in committed}:
                text = f"{group} has committed no offset on {topic}: check that it reads the topic"
                yield Warned("group-topic-unread", text, count)

    def _about_risks(
        self, rows: Sequence[Row], decisions: Sequence[Decision | str]
    ) -> Iterator[Warned]:
        """What may happen after the puts; a message is at least as old as its last outcome."""
        facts = SliceContext(self._facts, "", int(time.time() * 1000))
        risks: Counter[str] = Counter()
        for row, put in zip(rows, decisions, strict=True):
            if isinstance(put, Put):
                message = message_of(row)._replace(timestamp=int(row.time.timestamp() * 1000))
                times = PutTimes.of(put, facts)
                risks.update(risks_of(times.decided(message, put), facts))
        for risk, count in risks.most_common():
            yield Warned("after-the-put", risk, count)

    def _about_target(self, place: Destination, names: Names, count: int) -> Iterator[Warned]:
        limits, topics = place.limits, {handler.identity.topic for handler in self.job.handlers}
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
        depth = self._facts.answered(lambda: self._facts.depth(question), self.answers)
        if depth + count > limits.max_depth:
            room = max(0, limits.max_depth - depth)
            most = counted(limits.max_depth, "message")
            text = f"{names} holds {depth} of at most {most}: room for {room}"
            yield Warned("target-full", text, count - room)

    # -- the messages themselves -----------------------------------------------------------------

    def _about_messages(
        self, rows: Sequence[Row], replays: Mapping[str, int], replay: Replay
    ) -> Iterator[Warned]:
        moves = replay.to not in {To.DISCARD, To.REMAIN}
        again = [replays[row.origin] for row in rows if row.origin in replays]
        if again and moves:
            times = f"up to {max(again)} times" if max(again) > 1 else "once"
            text = f"replayed before ({times}), and remain again"
            yield Warned("replayed-before", text, len(again))
        invalid = sum(row.form == NO_VALID_SCHEME for row in rows)
        if invalid and replay.to is To.RULES:
            yield Warned("no-header", "no dead-letter header, so no rule applies", invalid)
        if replay.to is To.RULES:
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
            and meaning_of(handler, self.job) not in self._deciding[name]
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


def words_of(decision: Decision | str, replay: Replay) -> str:
    """A decision for display: the names of its target, or what happens instead of a put."""
    if isinstance(decision, str):
        return decision
    if replay.to is To.DISCARD:
        return "discarded"
    if replay.to is To.REMAIN:
        return str(replay).removeprefix("to ")
    rule = decision.rule
    if rule is None or (isinstance(decision, Keep) and not decision.reason):
        return f"remains: {decision.detail}"
    is_by_operator = replay.to in {To.ORIGINAL, To.GROUP, To.QUEUE}
    by = "" if is_by_operator else f" by the rule at line {rule.line}"
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


def left_out(count: int) -> str:
    """The sentence that some messages are left out of a plan."""
    return f"{counted(count, 'message')} {'is' if count == 1 else 'are'} left out"
