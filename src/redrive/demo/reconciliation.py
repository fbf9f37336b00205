"""The reconciliation: every message by its number, against every record on the broker.

It does not ask the job, but compares with what the independent client has read.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace

from redrive.demo.client import BrokerRecords, OutcomeRecord, Record, TopicRecord


@dataclass(frozen=True, slots=True)
class End:
    """Where a message must end."""

    what: str
    """forwarded, retried, discarded or remaining."""
    place: str = ""
    """``topic`` or ``topic:partition``; for a remaining message its dead-letter queue."""
    keeps_header: bool = False
    """Whether a forwarded dead letter must arrive as it is; one that remains always does."""

    def is_at(self, what: str, position: str) -> bool:
        """Whether this is the end of a message that was found at a position."""
        return self.what == what and f"{position}:".startswith(f"{self.place}:")

    def __str__(self) -> str:
        return f"{self.what} {self.place}".strip()


@dataclass(frozen=True, slots=True)
class DemoMessage:
    """One message of a demo."""

    number: int
    """From 0, unique."""
    kind: str
    topic: str
    record: Record
    original: Record
    """What has to arrive once the dead-letter header is removed."""
    end: End
    refusals: int | None = 0
    """How many attempts must fail; None for any number."""
    failures: int = 0
    """How often an application fails again to process it, and dead-letters it again."""


@dataclass(frozen=True, slots=True)
class Trace:
    """One message, its records and its outcomes."""

    message: DemoMessage
    inputs: Sequence[TopicRecord]
    """Where it was put, initially and after each failure, in the order of time."""
    ends: Sequence[tuple[str, TopicRecord | None]]
    """How it ended and where; without a record if an outcome says that it was discarded."""
    outcomes: Sequence[OutcomeRecord]

    def problems(self) -> Iterator[str]:
        """What is wrong with it, apart from being lost or duplicated."""
        message = self.message
        if len(self.inputs) != 1 + message.failures:
            yield f"was put {len(self.inputs)} times, not {1 + message.failures}"
        refusals = sum(bool(outcome.reason_name) for outcome in self.outcomes)
        if message.refusals not in {None, refusals}:
            yield f"{refusals} attempts failed, not {message.refusals}"
        for what, stored in self.ends:
            position = stored.position if stored else ""
            if not message.end.is_at(what, position):
                yield f"ended {what} {position}".strip() + f", not {message.end}"
            if stored is not None:
                yield from self._changes(stored)

    def _changes(self, stored: TopicRecord) -> Iterator[str]:
        arrived, wanted = stored.record.without_own_headers(), self.message.original
        end, times = self.message.end, {letter.record.timestamp for letter in self.inputs}
        if self.inputs and (end.keeps_header or end.what == "remaining"):
            wanted = self.inputs[-1].record.without_own_headers()
        if end.what == "forwarded":  # a forwarded dead letter arrives without its stack traces
            kept = (header for header in wanted.headers if not header[0].endswith("stacktrace"))
            wanted = replace(wanted, headers=tuple(kept))
        for part in ("key", "value", "headers"):
            if getattr(arrived, part) != getattr(wanted, part):
                yield f"the {part} on {stored.position} changed"
        if arrived.timestamp not in times | {wanted.timestamp}:
            yield f"the timestamp on {stored.position} changed"


class Reconciliation:
    """The totals of all messages."""

    def __init__(self, traces: Sequence[Trace]) -> None:
        self.inputs = sum(len(trace.inputs) - trace.message.failures for trace in traces)
        """Messages found where they were put."""
        self.ends = Counter(forwarded=0, retried=0, discarded=0, remaining=0)
        self.ends.update(trace.ends[0][0] for trace in traces if trace.ends)
        self.lost = sum(not trace.ends for trace in traces)
        """Messages that are nowhere, without being discarded."""
        self.duplicated = sum(len(trace.ends) > 1 for trace in traces)
        """Messages with more than one end."""
        self.problems = [
            f"message {trace.message.number} ({trace.message.kind}): {problem}"
            for trace in traces
            for problem in trace.problems()
        ]
        counted = self.inputs == len(traces) == self.ends.total()
        self.adds_up = counted and not (self.lost or self.duplicated or self.problems)
        """Whether every message ended where it should, exactly once."""

    def __str__(self) -> str:
        parts = " + ".join(f"{count} {end}" for end, count in self.ends.items())
        return f"{self.inputs} in = {parts}, {self.lost} lost, {self.duplicated} duplicated"


def trace(
    messages: Sequence[DemoMessage],
    observation: BrokerRecords,
    went_on: Collection[str] = (),
) -> list[Trace]:
    """The trace of each message.

    Args:
        messages: What was put.
        observation: What is on the broker.
        went_on: Positions of the records that an application dead-lettered again.
    """
    inputs: dict[int | None, list[TopicRecord]] = defaultdict(list)
    ends: dict[int | None, list[tuple[str, TopicRecord | None]]] = defaultdict(list)
    outcomes: dict[int | None, list[OutcomeRecord]] = defaultdict(list)
    for stored in sorted(observation.inputs, key=lambda stored: stored.record.timestamp):
        inputs[stored.number].append(stored)
        for outcome in observation.outcomes.get(stored.position, ()):
            outcomes[stored.number].append(outcome)
            if outcome.result == "discarded":
                ends[stored.number].append(("discarded", None))
    for what, stored in observation.ends:
        puts = {"retried", "forwarded"} & {outcome.result for outcome in outcomes[stored.number]}
        if what != "arrived":
            ends[stored.number].append((what, stored))
        elif stored.position not in went_on:
            ends[stored.number].append((" and ".join(sorted(puts)) or "arrived", stored))
    return [
        Trace(message, inputs[message.number], ends[message.number], outcomes[message.number])
        for message in messages
    ]
