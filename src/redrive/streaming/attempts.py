"""One attempt on every record of some lanes: what to write, and how a refusal changes it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from redrive.checkpoints import headers as own
from redrive.checkpoints import waiting
from redrive.checkpoints.protocol import INTERNAL, Lane, OutputRecord, Refused
from redrive.messages import remove_header
from redrive.streaming.deliveries import Delivery
from redrive.streaming.lane_work import (
    HEADROOM,
    Context,
    Failure,
    LaneRecords,
    LaneWork,
    Queues,
    Role,
    Summary,
)
from redrive.streaming.puts import LanePuts
from redrive.streaming.routers import Router, seed_of

if TYPE_CHECKING:
    from redrive.messages.dead_letters import DeadLetter, DeadLetterDecoder
    from redrive.streaming.handlers import Handler, Plan
    from redrive.topology.put import Destination


class Attempts:
    """The work of one transaction: one attempt on every record of its lanes.

    Decisions are made while the outputs are produced, and made again alike when the transaction
    has to be redone; only a refusal changes the plan of its own record.
    """

    def __init__(
        self,
        lanes: Sequence[LaneRecords],
        decoder: DeadLetterDecoder,
        queues: Queues,
        *,
        outcomes_topic: str,
        control_topic: str = "",
        discovered: frozenset[tuple[str, str, str]] = frozenset(),
        now: int,
    ) -> None:
        """Take the records; nothing is decided yet.

        Args:
            lanes: The records to try, each lane in offset order.
            decoder: Reads dead-letter headers.
            queues: Limits and depths.
            outcomes_topic: Where outcome records go.
            control_topic: Where definitions that puts discover are kept.
            discovered: Definitions that are kept there already.
            now: Time of the attempts, in milliseconds.
        """
        self._lanes = lanes
        self._decoder = decoder
        self._context = Context(
            queues, outcomes_topic, now, control_topic=control_topic, discovered=set(discovered)
        )
        self._letters: dict[int, list[DeadLetter]] = {}

    def lanes(self) -> Sequence[Lane]:
        """See ``protocol.Work.lanes``."""
        return [part.lane for part in self._lanes]

    def resume(self, committed: Mapping[Lane, int | None]) -> None:
        """See ``protocol.Work.resume``."""
        for part in self._lanes:
            done = committed.get(part.lane)
            if done is not None:
                offsets = part.records.offsets
                while part.first < len(offsets) and offsets[part.first] < done:
                    part.first += 1
                if part.end <= done:
                    part.first, part.end = len(offsets), -1

    def ends(self) -> Mapping[Lane, int]:
        """See ``protocol.Work.ends``."""
        return {part.lane: part.end for part in self._lanes if part.end >= 0}

    def refuse(self, refusals: Sequence[Refused]) -> None:
        """See ``protocol.Work.refuse``."""
        for refusal in refusals:
            self._context.refused[refusal.entry] = refusal

    def outputs(self) -> Iterator[tuple[int, OutputRecord]]:
        """See ``protocol.Work.outputs``."""
        self._context.depths.clear()
        self._context.plans.clear()
        base = 0
        for number, part in enumerate(self._lanes):
            yield from self._work_on(number, part, base)
            base += len(part.records.offsets)

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

    def _work_on(
        self, number: int, part: LaneRecords, base: int
    ) -> Iterable[tuple[int, OutputRecord]]:
        if isinstance(part.handler, Router):
            return LanePuts(part, part.handler, self._context, base)
        return LaneAttempts(part, part.handler, self._letters_of(number, part), self._context, base)

    def _letters_of(self, number: int, part: LaneRecords) -> list[DeadLetter]:
        letters = self._letters.get(number)
        if letters is None:
            codes, profiles = self._decoder.decode(part.records)
            letters = [profiles[code] for code in codes.tolist()]
            self._letters[number] = letters
        return letters


class LaneAttempts(LaneWork):
    """The attempts on the records of one lane; iterating gives the records to write.

    The common case, a fresh dead letter that goes to a queue without limits, takes a prepared
    ``Delivery``; every other record is read, decided and checked by itself.
    """

    def __init__(
        self,
        part: LaneRecords,
        handler: Handler,
        letters: Sequence[DeadLetter],
        context: Context,
        base: int,
    ) -> None:
        """Take the lane; nothing is decided yet.

        Args:
            part: The lane.
            handler: Decides about its dead letters.
            letters: The decoded dead-letter header of each record.
            context: What all lanes of the transaction share.
            base: Entry number of the lane's first record.
        """
        super().__init__(part, context, base)
        self._handler = handler
        self._letters = letters
        self._plans: dict[tuple[int, int, int, int], Plan] = {}
        self._failed: dict[tuple[int, int, str], Plan] = {}
        self._deliveries: dict[int, Delivery | None] = {}
        self._is_quick = (
            part.role is Role.DEAD_LETTERS
            and not part.has_own_headers
            and part.layout is not None
            and not context.refused
        )

    def __iter__(self) -> Iterator[tuple[int, OutputRecord]]:
        part, context = self._part, self._context
        records, base, prefix = part.records, self._base, self._prefix
        is_tombstone = part.role is Role.REMAINING
        for row in range(part.first, len(self._letters)):
            value = records.values[row]
            delivery = self._delivery(self._letters[row]) if self._is_quick else None
            if delivery is not None and value is not None and len(value) <= delivery.room:
                here, key = f"{prefix}{records.offsets[row]}", records.keys[row]
                identity = here.encode("ascii")
                headers = delivery.headers(records.headers[row], identity)
                body, timestamp = value[delivery.cut :], records.timestamps[row]
                yield base + row, OutputRecord(delivery.topic, key, body, headers, timestamp)
                context.plans[delivery.plan] += 1
                yield (
                    INTERNAL,
                    self._outcome(row, identity, here, here, 0, key, value, delivery.plan),
                )
            elif value is not None or not is_tombstone:
                yield from self._attempt(row)

    def _delivery(self, letter: DeadLetter) -> Delivery | None:
        """The prepared delivery of a kind of dead letter; None where it takes a closer look."""
        try:
            return self._deliveries[id(letter)]
        except KeyError:
            delivery = self._deliveries[id(letter)] = self._prepare(letter)
            return delivery

    def _prepare(self, letter: DeadLetter) -> Delivery | None:
        plan = self._plan(letter, 0, 0)
        if plan.destination is None or plan.destination.is_choice:
            return None
        longest = plan.destination.limits.longest
        if longest is None:
            return None
        room = self._context.queues.max_message_bytes(plan.destination.topic) - HEADROOM
        room = min(room, longest)
        return Delivery(plan, letter, self._part.layout or (), room)

    def _plan(self, letter: DeadLetter, failures: int, hops: int, seed: int = 0) -> Plan:
        key = (id(letter), failures, hops, seed)
        plan = self._plans.get(key)
        if plan is None:
            plan = self._plans[key] = self._handler.plan(letter, failures, hops, seed)
        return plan

    def _attempt(self, row: int) -> Iterator[tuple[int, OutputRecord]]:
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
        yield from self._stay(record, plan)
        self._context.plans[plan] += 1
        identity = record.identity.encode("ascii")
        yield (
            INTERNAL,
            self._outcome(
                row, identity, record.identity, record.origin, record.hops, record.key,
                record.value, plan,
            ),
        )  # fmt: skip

    def _read(self, row: int) -> tuple[waiting.DeadLetterRecord, int]:
        """The dead letter of a row, and how often it failed under the handler's table."""
        part, records = self._part, self._part.records
        here = f"{self._prefix}{records.offsets[row]}"
        key, value, headers = records.keys[row], records.values[row], records.headers[row]
        timestamp = records.timestamps[row]
        mine = own.read_own(headers) if part.has_own_headers else own.NO_OWN_HEADERS
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
        record: waiting.DeadLetterRecord, letter: DeadLetter, plan: Plan, destination: Destination
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

    def _after(self, letter: DeadLetter, plan: Plan, problem: Refused) -> Plan:
        """The plan that follows a failed put."""
        key = (id(plan), problem.reason, problem.detail)
        failed = self._failed.get(key)
        if failed is None:
            failed = self._failed[key] = self._handler.failed(
                letter, plan, problem.reason, problem.detail
            )
        return failed
