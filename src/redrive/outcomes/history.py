"""The outcomes of one message, its next step, and why one was not found."""

from __future__ import annotations

import difflib
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

from redrive.configuration.deciders import (
    DeciderFactory,
    inhibited_queues,
    sources_of,
    topology_of,
)
from redrive.engine.context import SliceContext
from redrive.engine.facts import Facts
from redrive.engine.outcome import FINAL, UNTOUCHED, Result
from redrive.engine.rules_decider import RulesDecider
from redrive.errors import EnvironmentFault, NotFoundError, TransientFault
from redrive.kafka.cluster import Cluster
from redrive.kafka.deadline import CONNECT, GLIMPSE, PATIENCE
from redrive.kafka.records import StoredRecord
from redrive.masking import NO_MASK, Mask
from redrive.messages import TopicPartition
from redrive.outcomes.acknowledgements import (
    Acknowledgement,
    ReadAcknowledgements,
    no_acknowledgements,
)
from redrive.outcomes.bodies import Lost, find_record
from redrive.outcomes.inventory import Inventory
from redrive.outcomes.ledger import Ledger
from redrive.outcomes.row_messages import attempts_of, message_of, missing_fields
from redrive.outcomes.rows import Row
from redrive.outcomes.selection import Criteria
from redrive.outcomes.storage import may_exist
from redrive.outcomes.table import sql_text
from redrive.rules import Action
from redrive.topology.layout import TopicRole, topics_of

if TYPE_CHECKING:
    from redrive.configuration import JobConfiguration
    from redrive.topology.layout import QueueTopic

_MOST: Final = 10_000
"""Maximum outcomes to read for one message, far more than RETRY and the hop limit allow."""

_IDENTITY: Final = re.compile(
    r"([A-Za-z0-9._-]{1,249}(?:~[0-9]{1,9})?):([0-9]{1,10}):([0-9]{1,18})"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Next:
    """The next step of a dead letter after its last known outcome."""

    text: str
    """The step as text."""
    due: datetime | None = None
    """When the next attempt is due."""
    rule_line: int | None = None
    """Line of the rule that will apply; None if none or unknown."""
    attempt: str = ""
    """The next attempt: ``round 3 of 5`` or ``attempt 3``; empty if none is due."""


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """Every outcome of one message."""

    message: str
    """The identity of the message."""
    outcomes: Sequence[Row]
    """The outcomes in order; at least one."""
    next: Next
    notes: tuple[str, ...]
    put_on: str = ""
    """For a put: ``QUEUE@QM`` that the last put took it from, or the manager of its intake."""

    @property
    def last(self) -> Row:
        """The last outcome with an effect: a replay may have skipped the message."""
        effective = (row for row in reversed(self.outcomes) if row.result not in UNTOUCHED)
        return next(effective, self.outcomes[-1])


class NoOutcomeError(NotFoundError):
    """A message has no outcome; the hint has similar identities, or what to do."""

    def __init__(self, message: str, *, hint: str, notes: tuple[str, ...]) -> None:
        super().__init__(message, hint=hint)
        self.notes = notes
        """Why outcomes may be missing."""


class Archive:
    """Answers questions about the outcomes of one job."""

    def __init__(self, configuration: JobConfiguration) -> None:
        """Connect to the broker if it can be reached."""
        self._configuration = configuration
        self.cluster: Cluster | None = None
        self._notes: tuple[str, ...] = ()
        try:
            self.cluster = Cluster.open(configuration.connection, timeout=CONNECT)
        except EnvironmentFault as fault:
            self._notes = (f"{fault.message}; the newest outcomes may be missing",)

    def history(self, text: str) -> History:
        """All outcomes of a message or copy, and its next step; raises ``NoOutcomeError``."""
        ledger = self._open(text.encode())
        rows = ledger.find(Criteria(message=text), limit=_MOST)
        if not rows:
            copies = ledger.find(Criteria(record=text), limit=1)
            if not copies:
                raise self._not_found(text, ledger)
            answer = self.history(copies[0].message)
            note = f"{text} is a record of the message {answer.message}"
            return replace(answer, notes=(note, *answer.notes))
        source = sources_of(self._configuration).get(rows[-1].handler)
        if source is None:
            step = what_next(rows, _deciders(self._configuration))
            step = _while_inhibited(step, rows[-1], _inhibited(self._configuration))
        else:
            step = next_put(rows[-1], source, _transmission(self._configuration, rows[-1]))
        return History(
            message=text,
            outcomes=rows,
            next=step,
            notes=self._all_notes(ledger),
            put_on="" if source is None else source.place,
        )

    def inventory(
        self,
        acknowledgements: ReadAcknowledgements = no_acknowledgements,
        mask: Mask = NO_MASK,
    ) -> tuple[Inventory, tuple[str, ...]]:
        """The dead letters of the job and their states; raises ``EnvironmentFault``.

        Conditions of users see columns as the mask shows them.

        Returns:
            The inventory, a context, and why it may lack outcomes.
        """
        ledger = self._open(b"")
        current: Sequence[Acknowledgement] = ()
        if self.cluster is not None:
            try:
                current = acknowledgements(self.cluster)
            except TransientFault as fault:
                note = f"{fault.message}; acknowledgements are unknown"
                self._notes = (*self._notes, note)
        return Inventory(ledger, current, mask), self._all_notes(ledger)

    def unread(self) -> int | None:
        """Records of the dead-letter topics that the job has not read, which have no outcomes.

        Returns:
            An upper bound, as transaction markers count too; None if unknown.
        """
        if self.cluster is None:
            return None
        topics = {handler.identity.topic for handler in self._configuration.handlers}
        with suppress(TransientFault):
            lanes, silent = self.cluster.led(sorted(topics))
            if silent:
                return None
            extents = self.cluster.extents(lanes)
            committed = self.cluster.committed(self._configuration.application, lanes)
            is_latest = self._configuration.starting_offsets == "latest"
            return sum(
                extent.end - extent.position(committed[lane], from_end=is_latest)
                for lane, extent in extents.items()
            )
        return None

    def record(self, row: Row) -> StoredRecord | Lost:
        """The message of an outcome, the last one of a dead letter."""
        if self.cluster is None:
            return Lost("it could not be read: the broker cannot be reached")
        handler = next(
            (
                handler
                for handler in self._configuration.handlers
                if handler.identity.name == row.handler
            ),
            None,
        )
        return find_record(self.cluster, handler, row)

    def find(self, criteria: Criteria, *, limit: int) -> tuple[Sequence[Row], tuple[str, ...]]:
        """The newest outcomes that match criteria, oldest first, and why some may be missing.

        Raises ``EnvironmentFault``.
        """
        ledger = self._open(b"")
        return ledger.find(criteria, limit=limit), self._all_notes(ledger)

    def _open(self, needle: bytes) -> Ledger:
        path, topic = self._configuration.ledger.path, self._configuration.outcomes_topic
        only = self._configuration.only_handlers
        try:
            ledger = Ledger.open(
                path,
                self.cluster,
                topic=topic,
                seconds=GLIMPSE if may_exist(path) else PATIENCE,
                wanted=lambda value: needle in value,
                handlers=only,
            )
        except TransientFault as fault:
            self._notes = (*self._notes, fault.message)
            ledger = Ledger.open(path, None, topic=topic, seconds=0, handlers=only)
        if ledger.table is None and self._notes:
            # A failed read must not look like an empty topic.
            raise EnvironmentFault(
                f"no outcomes can be read: there is no ledger in {path}, and {self._notes[0]}",
                hint="check the broker, or set the job's ledger in [ledger] path",
            )
        return ledger

    def _all_notes(self, ledger: Ledger) -> tuple[str, ...]:
        return (*self._notes, *ledger.notes)

    def _not_found(self, text: str, ledger: Ledger) -> NoOutcomeError:
        hints = [*self._place_on_topic(text)]
        if similar := list(dict.fromkeys(self._similar(text, ledger))):
            hints.append(f"did you mean {' or '.join(similar)}?")
        return NoOutcomeError(
            f"no outcome of {text} was found",
            hint="; ".join(hints) or "`redrive history --since 1h` lists the newest outcomes",
            notes=self._all_notes(ledger),
        )

    def _place_on_topic(self, text: str) -> Iterator[str]:
        match = _IDENTITY.fullmatch(text)
        if match is None:
            yield "an ID has the form topic:partition:offset"
            return
        lane, offset = TopicPartition(match[1], int(match[2])), int(match[3])
        queues = {handler.identity.topic for handler in self._configuration.handlers}
        if self.cluster is None or lane.topic not in queues:
            return
        if lane not in self.cluster.lanes([lane.topic]):
            yield f"there is no partition {lane}"
            return
        try:
            if self.cluster.leaderless([lane]):
                yield f"no broker leads {lane}"
                return
            extent = self.cluster.extents([lane])[lane]
            committed = self.cluster.committed(self._configuration.application, [lane])[lane]
        except TransientFault:
            return
        position = extent.first if committed is None else committed
        if extent.first == extent.end:
            yield f"{lane} is empty"
        elif offset >= extent.end:
            yield f"{lane} ends at offset {extent.end - 1}"
        elif offset >= position:
            yield f"it waits on its dead-letter queue, where the job continues at offset {position}"
        elif offset < extent.first:
            yield f"{lane} begins at offset {extent.first}: earlier records were deleted"

    def _similar(self, text: str, ledger: Ledger) -> Iterator[str]:
        parts = [part for part in re.split(r"[:/@,\s]+", text.strip()) if part]
        numbers = [part for part in parts if part.isdecimal()][-2:]
        names = [part for part in parts if not part.isdecimal()]
        topics = [handler.identity.topic for handler in self._configuration.handlers]
        if names and names[0] in topics:
            topics = [names[0]]
        elif names and self.cluster is not None and names[0] in self.cluster.topics():
            return  # ids of another topic do not help
        elif names:
            topics = difflib.get_close_matches(names[0], topics, n=2, cutoff=0.5)
        if len(numbers) < len(("partition", "offset")):
            return
        for topic in topics:
            lane, offset = TopicPartition(topic, int(numbers[0])), int(numbers[1])
            wanted = f"{lane}:{offset}"
            if wanted != text and ledger.find(Criteria(message=wanted), limit=1):
                yield wanted
            else:
                yield from _neighbours(lane, offset, ledger)


def _neighbours(lane: TopicPartition, offset: int, ledger: Ledger) -> Iterator[str]:
    if ledger.table is None:
        return
    prefix = sql_text(f"{lane}:")
    for order, sign in (("DESC", "<"), ("ASC", ">")):
        for row in ledger.table.rows(
            f"WHERE message_offset {sign} {offset} AND starts_with(message, {prefix})"
            f" ORDER BY message_offset {order} LIMIT 1",
            columns="message",
        ):
            yield row["message"]


def next_steps(
    configuration: JobConfiguration, inventory: Inventory, letters: Sequence[Row]
) -> dict[str, Next]:
    """The next steps of parked dead letters, by identity, as in ``Archive.history``.

    ``letters`` are the last outcomes of some dead letters; the inventory has all of them.
    """
    parked = [row.message for row in letters if row.result == Result.PARKED]
    if not parked:
        return {}
    deciders = _deciders(configuration)
    stories, inhibited = inventory.stories(parked), _inhibited(configuration)
    return {
        message: _while_inhibited(what_next(rows, deciders), rows[-1], inhibited)
        for message, rows in stories.items()
    }


def _inhibited(configuration: JobConfiguration) -> Mapping[str, str]:
    """The dead-letter queues with GET(DISABLED), by handler."""
    queues = inhibited_queues(configuration)
    identities = (handler.identity for handler in configuration.handlers)
    return {
        identity.name: queues[identity.topic].place
        for identity in identities
        if identity.topic in queues
    }


def _while_inhibited(step: Next, row: Row, inhibited: Mapping[str, str]) -> Next:
    queue = inhibited.get(row.handler)
    if queue is None or row.result in FINAL:
        return step
    return replace(step, text=f"{step.text}, but not while {queue} has GET(DISABLED)")


def _transmission(configuration: JobConfiguration, row: Row) -> QueueTopic | None:
    """The transmission queue to which a put was routed; None if it is not one."""
    if not configuration.topology:
        return None
    topics = topics_of(topology_of(configuration.topology))
    targets = (topic for topic in topics if topic.topic == row.target_topic)
    return next((topic for topic in targets if topic.role is TopicRole.TRANSMISSION), None)


def _deciders(configuration: JobConfiguration) -> Mapping[str, RulesDecider]:
    every = DeciderFactory(configuration, Facts(time.monotonic)).deciders()
    return {
        decider.identity.name: decider
        for decider, _ in every.values()
        if isinstance(decider, RulesDecider)
    }


def what_next(rows: Sequence[Row], deciders: Mapping[str, RulesDecider]) -> Next:
    """The next step after the outcomes of a message, in order and at least one.

    The deciders are the current ones, by handler.
    """
    rows = [outcome for outcome in rows if outcome.result not in UNTOUCHED] or rows
    row = rows[-1]
    if row.result in FINAL:
        return Next(text=f"nothing: it was {row.result}")
    if row.action == Action.QUARANTINE:
        return Next(
            text="it is in quarantine: it stays under any table, until an operator handles it"
        )
    decider = deciders.get(row.handler)
    if decider is None:
        return Next(text=f"the handler {row.handler} is no longer in these settings")
    if not decider.table.hash.startswith(row.table_hash or "-"):
        return Next(
            text="it is evaluated again, without earlier failures, once the job starts with the"
            " current rules table"
        )
    if row.result != Result.PARKED:
        return Next(text="it stays until the rules table changes or an operator handles it")
    return _next_attempt(rows, decider)


def next_put(row: Row, source: QueueTopic, onward: QueueTopic | None = None) -> Next:
    """The next step after the last outcome of a put from an intake or transmission queue.

    ``onward`` is the transmission queue to which it was routed, if it is one.
    """
    if onward is not None and row.result == Result.ROUTED:
        manager, channel = onward.channel
        if onward.resting is not None:
            return Next(text=f"it waits on {onward.place}: {onward.resting.because}")
        if not onward.is_running and not onward.is_pulled:
            why = f"channel {channel} of {manager} does not run by itself"
            return Next(
                text=f"it waits on {onward.place}: {why} (redrive channel status {manager})"
            )
        return Next(
            text=f"channel {channel} of {manager} moves it on from {onward.place}, if it runs"
            f" (redrive channel status {manager})"
        )
    if row.result in FINAL:
        return Next(text=f"nothing: it was {row.result}")
    if row.result == Result.PARKED:
        return Next(
            text=f"try {row.attempt + 1} of {source.message_retries + 1} by the receiving end of"
            f" channel {source.channel[1]} (MRRTY); it waits on {source.place}",
            due=row.time + timedelta(milliseconds=source.message_retry_interval),
        )
    return Next(
        text=f"it waits on {source.place} until definitions change, or until redrive channel start"
        f" or redrive queue release {source.queue_manager} retries it"
    )


def _next_attempt(rows: Sequence[Row], decider: RulesDecider) -> Next:
    """The next attempt on a parked message, as the job will decide it from its outcomes."""
    row, table = rows[-1], decider.table
    if not row.attempt:
        return Next(text="the next attempt, once no earlier message of its key is waiting")
    message, attempts = message_of(row), attempts_of(rows, table)
    facts = SliceContext(Facts(time.monotonic), "", int(row.time.timestamp() * 1000))
    decision = decider.decide(message, attempts, facts).decision
    missing = missing_fields(table)
    tried = next((rule for rule in table.rules if rule.line == row.rule_line), None)
    rule = tried if missing else decision.rule
    home = int(message.origin.split(":")[-2])
    place = decider.waiting_place(message, decider.park(message, rule, attempts), home)
    due = row.time + timedelta(seconds=decider.interval(place))
    name = decider.attempts.next_attempt(rule, attempts)
    attempt = f"attempt {attempts.failures + 1}"
    if missing:
        text = f"{attempt} by the rule that matches then"
        text += f": rules ask for {', '.join(missing)}, which outcomes do not have"
        return Next(text=text, due=due, attempt=name)
    if rule is None:
        return Next(text="no rule is left for it, so it will remain", due=due)
    text = f"{attempt} by the rule at line {rule.line}: {rule.action}"
    if decision.target.queue:
        text += f" to {decision.target}"
    return Next(text=text, due=due, rule_line=rule.line, attempt=name)
