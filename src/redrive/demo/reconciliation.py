"""The reconciliation: every message by its number, against every record on the broker.

It does not ask the job, but compares with an independent reader of committed records.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from redrive.demo.cluster import Observation
from redrive.demo.messages import WAITING, End, Found, Message, Outcome
from redrive.messages import decode_dead_letter, remove_header

_GONE = frozenset({"discarded", "expired"})
"""Results after which a message is rightly nowhere."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """One message, its records and its outcomes."""

    message: Message
    inputs: Sequence[Found]
    """Where it was put, initially and after each failure."""
    ends: Sequence[tuple[End, Found | None]]
    """Where it was found; without a record if an outcome says that it no longer exists."""
    outcomes: Sequence[Outcome]

    @property
    def reasons(self) -> list[int]:
        """Reason codes of its failed attempts, in order of time, each once."""
        return list(dict.fromkeys(one.reason for one in self.outcomes if one.reason))

    def problems(self) -> Iterator[str]:
        """What is wrong with it, apart from being lost or duplicated."""
        if len(self.inputs) != 1 + self.message.failures:
            yield f"was put {len(self.inputs)} times, not {1 + self.message.failures}"
        for end, found in self.ends:
            wanted = next((one for one in self.message.ends if one == end), None)
            if wanted is None:
                yield f"ended {end}, not {' or '.join(map(str, self.message.ends))}"
            elif wanted.reason and self.reasons[-1:] != [wanted.reason]:
                yield f"ended {end} with reasons {self.reasons}, not {wanted.reason}"
            if found is not None:
                yield from self._changes(found)

    def _changes(self, found: Found) -> Iterator[str]:
        record, where = found.record, f"on {found.place}"
        original, headers = self.message.original, list(record.headers)
        letter = decode_dead_letter(record.value, headers)
        value, headers = remove_header(letter, record.value, headers)
        if record.key != original.key:
            yield f"the key {where} changed"
        if value != original.value:
            yield f"the value {where} changed"
        # Dead-letter header fields that return to the descriptor may change the order.
        given = [pair for pair in headers if pair[0] not in self.message.made]
        has_made = len(headers) - len(given) == len(self.message.made)
        if Counter(given) != Counter(original.headers) or not has_made:
            yield f"the headers {where} changed"
        times = {letter.record.timestamp for letter in self.inputs}
        own_time = record.timestamp if found.own_time is None else found.own_time
        if own_time not in times | {original.timestamp}:
            yield f"the timestamp {where} changed"


@dataclass(frozen=True, kw_only=True)
class Reconciliation:
    """The totals of all messages."""

    expected: int
    inputs: int
    """Messages found where they were put."""
    counted: str
    """The word for an input: ``in`` or ``put``."""
    ends: Mapping[str, int]
    lost: int
    """Messages that are nowhere, without being discarded or expired."""
    duplicated: int
    """Messages with more than one end."""
    problems: Sequence[str] = field(default=())

    @cached_property
    def adds_up(self) -> bool:
        """Whether every message ended where it should, exactly once."""
        counted = self.inputs == self.expected == sum(self.ends.values())
        wrong = self.lost or self.duplicated or self.problems or self.ends.get(WAITING)
        return counted and not wrong

    def __str__(self) -> str:
        parts = " + ".join(f"{count} {end}" for end, count in self.ends.items())
        total = f"{self.inputs} {self.counted} = {parts}"
        return f"{total}, {self.lost} lost, {self.duplicated} duplicated"


def trace(
    messages: Sequence[Message], seen: Observation, end_of: Callable[[Found], End | None]
) -> list[Trace]:
    """The trace of each message; ``end_of`` gives its end where it was found, None for no end."""
    inputs: dict[int | None, list[Found]] = defaultdict(list)
    ends: dict[int | None, list[tuple[End, Found | None]]] = defaultdict(list)
    for one in seen.inputs:
        inputs[one.number].append(one)
        for outcome in seen.outcomes.get(one.place, ()):
            if outcome.result in _GONE:
                ends[one.number].append((End(outcome.result), None))
    for one in seen.found:
        if end := end_of(one):
            ends[one.number].append((end, one))
    return [
        Trace(
            message=message,
            inputs=inputs[message.number],
            ends=ends[message.number],
            outcomes=[
                outcome
                for one in inputs[message.number]
                for outcome in seen.outcomes.get(one.place, ())
            ],
        )
        for message in messages
    ]


def reconcile(traces: Sequence[Trace], ends: Sequence[str], *, counted: str) -> Reconciliation:
    """Total all messages; ``ends`` are the kinds of ends in order."""
    totals = Counter(dict.fromkeys(ends, 0))
    totals.update(one.ends[0][0].what for one in traces if one.ends)
    return Reconciliation(
        expected=len(traces),
        inputs=sum(len(one.inputs) - one.message.failures for one in traces),
        counted=counted,
        ends=totals,
        lost=sum(not one.ends for one in traces),
        duplicated=sum(len(one.ends) > 1 for one in traces),
        problems=tuple(
            f"message {one.message.number} ({one.message.kind}): {problem}"
            for one in traces
            for problem in one.problems()
        ),
    )
