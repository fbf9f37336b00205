"""One attempt on every record of some lanes: what to write, and how a refusal changes it."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from redrive.decisions import waiting
from redrive.decisions.deliveries import Delivery
from redrive.decisions.processor import (
    HEADROOM,
    Context,
    Entry,
    Failure,
    LaneRecords,
    LaneWork,
    Queues,
    Role,
    Summary,
)
from redrive.decisions.puts import LanePuts
from redrive.decisions.routers import Router, seed_of
from redrive.messages import INTERNAL, OutputRecord, Refused, TopicPartition, remove_header
from redrive.messages import own_headers as own

if TYPE_CHECKING:
    from redrive.decisions.handlers import Handler, Plan
    from redrive.messages.dead_letters import DeadLetterDecoder, DeadLetterProfile
    from redrive.topology.put import Destination


class Attempts:
    """The work of one transaction: one attempt on every record of its lanes.

    Records are read and decisions are made while the outputs are produced. Decisions are made again
    alike when the transaction has to be redone, and records are kept for it; only a refusal changes
    the plan of its own record.
    """

    def __init__(
        self,
        parts: Iterable[LaneRecords],
        ends: Mapping[TopicPartition, int],
        decoder: DeadLetterDecoder,
        queues: Queues,
        *,
        outcomes_topic: str,
        control_topic: str = "",
        discovered: frozenset[tuple[str, str, str]] = frozenset(),
        now: int,
    ) -> None:
        """Take the lanes; nothing is read or decided yet.

        Args:
            parts: The records to try; those of each lane in offset order.
            ends: For each lane the next offset to read once its records are done.
            decoder: Reads dead-letter headers.
            queues: Limits and depths.
            outcomes_topic: Where outcome records go.
            control_topic: Where definitions that puts discover are kept.
            discovered: Definitions that are kept there already.
            now: Time of the attempts, in milliseconds.
        """
        self._incoming = iter(parts)
        self._taken: list[tuple[LaneRecords, int]] = []
        self._count = 0
        self._is_broken = False
        self._ends = dict(ends)
        self._committed: Mapping[TopicPartition, int | None] = {}
        self._decoder = decoder
        self._context = Context(
            queues, outcomes_topic, now, control_topic=control_topic, discovered=set(discovered)
        )
        self._works: dict[TopicPartition, LaneWork] = {}

    def lanes(self) -> Sequence[TopicPartition]:
        """See ``protocol.Work.lanes``."""
        return list(self._ends)

    def resume(self, committed: Mapping[TopicPartition, int | None]) -> None:
        """See ``protocol.Work.resume``."""
        self._committed = committed

    def ends(self) -> Mapping[TopicPartition, int]:
        """See ``protocol.Work.ends``."""
        return {lane: end for lane, end in self._ends.items() if self._done(lane) < end}

    def refuse(self, refusals: Sequence[Refused]) -> None:
        """See ``protocol.Work.refuse``."""
        for refusal in refusals:
            self._context.refused[refusal.entry] = refusal

    def outputs(self) -> Iterator[Entry]:
        """See ``protocol.Work.outputs``."""
        self._context.depths.clear()
        self._context.plans.clear()
        self._works.clear()
        for part, base in self._parts():
            first = bisect_left(part.records.offsets, self._done(part.lane))
            yield from self._work(part).outputs(part, base, first)

    def summary(self) -> Summary:
        """What was committed; to be asked once the work is emitted."""
        results: Counter[tuple[str, int, str]] = Counter()
        failures: Counter[Failure] = Counter()
        invalid = 0
        for plan, count in self._context.plans.items():
            line = plan.rule.line if plan.rule else 0
            results[plan.handler, line, plan.result.value] += count
            invalid += count if plan.is_invalid else 0
            if plan.news:
                target = f"{plan.queue}@{plan.queue_manager}" if plan.queue_manager else plan.queue
                failure = Failure(plan.handler, line, plan.reason, target, plan.detail)
                failures[failure] += count
        return Summary(results, failures, invalid, self._context.now)

    def _done(self, lane: TopicPartition) -> int:
        return self._committed.get(lane) or 0

    def _parts(self) -> Iterator[tuple[LaneRecords, int]]:
        """The records with their first entry number: those read before, then the rest."""
        yield from list(self._taken)
        while (part := self._next_part()) is not None:
            taken = part, self._count
            self._taken.append(taken)
            self._count += len(part.records)
            yield taken

    def _next_part(self) -> LaneRecords | None:
        # After an error the iterator ends at once: what it did not give must not pass as done.
        if self._is_broken:
            raise RuntimeError("records that could not be read are asked for again")
        self._is_broken = True
        part = next(self._incoming, None)
        self._is_broken = False
        return part

    def _work(self, part: LaneRecords) -> LaneWork:
        work = self._works.get(part.lane)
        if work is None:
            if isinstance(part.handler, Router):
                work = LanePuts(part, part.handler, self._context)
            else:
                work = LaneAttempts(part, part.handler, self._decoder, self._context)
            self._works[part.lane] = work
        return work


class LaneAttempts(LaneWork):
    """The attempts on the records of one lane.

    The common case, a fresh dead letter that goes to a queue without limits, takes a prepared
    ``Delivery``; every other record is read, decided and checked by itself.
    """

    def __init__(
        self, part: LaneRecords, handler: Handler, decoder: DeadLetterDecoder, context: Context
    ) -> None:
        """Take the lane; nothing is decided yet.

        Args:
            part: Some records of the lane.
            handler: Decides about its dead letters.
            decoder: Reads dead-letter headers.
            context: What all lanes of the transaction share.
        """
        super().__init__(part, context)
        self._handler = handler
        self._decoder = decoder
        self._letters: list[DeadLetterProfile] = []
        # What is kept for a letter names it by its id: the letters are kept too.
        self._kept: dict[int, DeadLetterProfile] = {}
        self._plans: dict[tuple[int, int, int, int], Plan] = {}
        self._failed: dict[tuple[int, int, str], Plan] = {}
        self._deliveries: dict[tuple[str, ...], dict[int, Delivery | None]] = {}
        self._has_own_headers = True

    def _rows(self, first: int) -> Iterator[Entry]:
        part = self._part
        codes, profiles = self._decoder.decode(part.records)
        self._letters = [profiles[code] for code in codes.tolist()]
        grid = part.records.grid
        names = grid.layout if grid is not None else (own.PREFIX,)
        self._has_own_headers = any(name.startswith(own.PREFIX) for name in names)
        is_fresh = part.role is Role.DEAD_LETTERS and not self._has_own_headers
        if is_fresh and not self._context.refused:
            return self._quick_rows(first, names)
        return super()._rows(first)

    def _quick_rows(self, first: int, layout: tuple[str, ...]) -> Iterator[Entry]:
        plans, prefix, records = self._context.plans, self._prefix, self._part.records
        base = self._base
        deliveries = self._deliveries.setdefault(layout, {})
        for row in range(first, len(records)):
            letter, value = self._letters[row], records.values[row]
            try:
                delivery = deliveries[id(letter)]
            except KeyError:
                delivery = deliveries[id(letter)] = self._prepare(letter, layout)
            if delivery is None or value is None or len(value) > delivery.room:
                yield from self._outputs_of(row)
                continue
            here, key = f"{prefix}{records.offsets[row]}", records.keys[row]
            identity = here.encode("ascii")
            headers = delivery.headers(records.headers[row], identity)
            body, timestamp = value[delivery.cut :], records.timestamps[row]
            yield base + row, OutputRecord(delivery.topic, key, body, headers, timestamp)
            plans[delivery.plan] += 1
            yield (
                INTERNAL,
                self._outcome(row, identity, here, here, 0, key, value, delivery.plan),
            )

    def _outputs_of(self, row: int) -> Iterator[Entry]:
        part = self._part
        if part.records.values[row] is None and part.role is Role.REMAINING:
            return  # a tombstone
        letter, entry = self._letters[row], self._base + row
        record, failures = self._read(row)
        plan = self._plan(letter, failures, record.hops)
        if plan.destination is not None and plan.destination.is_choice:
            plan = self._plan(letter, failures, record.hops, seed_of(record.identity))
        if plan.destination is not None:
            put = self._put(record, letter, plan, plan.destination)
            problem = self._context.refused.get(entry) or self._check(
                entry, put, int(letter.fields.get("PERSIST", 0)), plan.destination
            )
            if problem is None:
                yield entry, put
            else:
                plan = self._after(letter, plan, problem)
        yield from self._settled(row, record, plan)

    def _prepare(self, letter: DeadLetterProfile, layout: tuple[str, ...]) -> Delivery | None:
        """The delivery of a kind of dead letter; None where it takes a closer look."""
        plan = self._plan(letter, 0, 0)
        if plan.destination is None or plan.destination.is_choice:
            return None
        longest = plan.destination.limits.longest
        if longest is None:
            return None
        room = self._context.queues.max_message_bytes(plan.destination.topic) - HEADROOM
        return Delivery(plan, letter, layout, min(room, longest))

    def _plan(self, letter: DeadLetterProfile, failures: int, hops: int, seed: int = 0) -> Plan:
        key = (id(letter), failures, hops, seed)
        plan = self._plans.get(key)
        if plan is None:
            self._kept[id(letter)] = letter
            plan = self._plans[key] = self._handler.plan(letter, failures, hops, seed)
        return plan

    def _read(self, row: int) -> tuple[waiting.DeadLetterRecord, int]:
        """The dead letter of a row, and how often it failed under the handler's table."""
        part, records = self._part, self._part.records
        here = f"{self._prefix}{records.offsets[row]}"
        key, value, headers = records.keys[row], records.values[row], records.headers[row]
        timestamp = records.timestamps[row]
        mine = own.read_own(headers) if self._has_own_headers else own.NO_OWN_HEADERS
        if mine is own.NO_OWN_HEADERS:
            return waiting.DeadLetterRecord(key, value, headers, timestamp, here, here, 0), 0
        headers = own.without_own(headers)
        if part.role is Role.DEAD_LETTERS:
            identity = mine.identity or here
            letter = waiting.DeadLetterRecord(
                key, value, headers, timestamp, identity, here, mine.hops
            )
            return letter, 0
        if part.role is Role.REMAINING:
            key, value = mine.key, None if mine.is_null else value
        letter = waiting.taken_back(key, value, headers, timestamp=timestamp, mine=mine, here=here)
        return letter, mine.failures if mine.table == self._handler.table_id else 0

    @staticmethod
    def _put(
        record: waiting.DeadLetterRecord,
        letter: DeadLetterProfile,
        plan: Plan,
        destination: Destination,
    ) -> OutputRecord:
        value, headers = record.value, record.headers
        if plan.strip:
            value, headers = remove_header(letter, value, headers)
        headers = [
            *headers,
            (own.ID, record.identity.encode("ascii")),
            *plan.headers,
            (own.HOPS, own.number(record.hops + 1)),
        ]
        return OutputRecord(destination.topic, record.key, value, headers, record.timestamp)

    def _after(self, letter: DeadLetterProfile, plan: Plan, problem: Refused) -> Plan:
        """The plan that follows a failed put."""
        key = (id(plan), problem.reason, problem.detail)
        failed = self._failed.get(key)
        if failed is None:
            failed = self._failed[key] = self._handler.failed(
                letter, plan, problem.reason, problem.detail
            )
        return failed
