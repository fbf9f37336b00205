"""The reconciliation of a network: every put by its number, against everything on the broker."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from redrive.demo.networks.cluster import Outcome, Written
from redrive.demo.networks.ends import End, EndKind
from redrive.demo.networks.puts import Put
from redrive.demo.reconciliation import Found
from redrive.demo.samples import Record
from redrive.messages import decode_dead_letter, remove_header

__all__ = ["PutReconciliation", "Traced", "reconcile_puts"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Traced:
    """One put, and everything that is known about it in the end."""

    put: Put
    written: Written | None
    """As it lies on its intake; None if it was never put."""
    predicted: End
    """Where the library says that it ends."""
    ends: Sequence[tuple[End, Found | None]]
    """Everywhere it was found; without a record for what is gone with an outcome."""
    outcomes: Sequence[Outcome]
    """What became of it, in the order of time."""

    @property
    def reasons(self) -> list[int]:
        """Why it did not go its way, in the order of time, each reason code once."""
        return list(dict.fromkeys(one.reason for one in self.outcomes if one.reason))


@dataclass(frozen=True)
class PutReconciliation:
    """How the sum comes out."""

    puts: int
    """Messages that were put."""
    ends: Mapping[EndKind, int]
    """Messages by what became of them."""
    lost: int
    """Messages that are nowhere, without having expired."""
    duplicated: int
    """Messages that are in two places."""
    problems: Sequence[str] = field(default=())
    """Everything else that is not as it has to be, a sentence each."""

    @cached_property
    def adds_up(self) -> bool:
        """Whether every message ended where it had to, exactly once."""
        counted = self.puts == sum(self.ends.values()) and not self.ends.get(EndKind.WAITING)
        return counted and not (self.lost or self.duplicated or self.problems)

    def __str__(self) -> str:
        shown = [kind for kind in EndKind if kind is not EndKind.WAITING or self.ends.get(kind)]
        parts = " + ".join(f"{self.ends.get(kind, 0)} {kind}" for kind in shown)
        return f"{self.puts} put = {parts}, {self.lost} lost, {self.duplicated} duplicated"


def reconcile_puts(traced: Sequence[Traced]) -> PutReconciliation:
    """Reconcile what was put with what was found.

    Args:
        traced: Every put.
    """
    return PutReconciliation(
        puts=sum(one.written is not None for one in traced),
        ends=Counter(one.ends[0][0].kind for one in traced if one.ends),
        lost=sum(not one.ends for one in traced),
        duplicated=sum(len(one.ends) > 1 for one in traced),
        problems=tuple(
            f"put {one.put.number} ({one.put.kind.what}): {problem}"
            for one in traced
            for problem in _problems(one)
        ),
    )


def trace(
    puts: Sequence[Put],
    written: Mapping[int, Written],
    predicted: Mapping[int, End],
    found: Sequence[tuple[End, Found]],
    outcomes: Mapping[str, Sequence[Outcome]],
) -> list[Traced]:
    """Put together what is known about each put.

    Args:
        puts: Every put.
        written: Those that are on an intake, by number.
        predicted: Where the library says that each ends.
        found: Every message that is anywhere, and what kind of an end that is.
        outcomes: What became of each message, by its identity.
    """
    ends: dict[int, list[tuple[End, Found | None]]] = defaultdict(list)
    for end, record in found:
        if record.number is not None:
            ends[record.number].append((end, record))
    traced = []
    for put in puts:
        there = written.get(put.number)
        told = outcomes.get(there.identity, ()) if there else ()
        gone = [(End(EndKind.EXPIRED), None) for one in told if one.result == "expired"]
        traced.append(
            Traced(
                put=put,
                written=there,
                predicted=predicted.get(put.number, End(EndKind.WAITING)),
                ends=[*ends[put.number], *gone],
                outcomes=told,
            )
        )
    return traced


def _problems(one: Traced) -> Iterator[str]:
    if one.written is None:
        yield "was never put"
        return
    for end, found in one.ends:
        if (end.kind, end.place) != (one.predicted.kind, one.predicted.place):
            yield f"ended {end}, and not {one.predicted}"
        elif one.predicted.reason and one.reasons[-1:] != [one.predicted.reason]:
            yield f"ended with reasons {one.reasons}, and not {one.predicted}"
        if found is not None:
            yield from _changes(one.written.record, found)


def _changes(written: Record, found: Found) -> Iterator[str]:
    """What of the message is not as it was put; a dead-letter header is taken off first."""
    record = found.record
    headers = list(record.headers)
    letter = decode_dead_letter(record.value, headers)
    value, headers = remove_header(letter, record.value, headers)
    names = ("key", "value", "headers", "timestamp")
    now = (record.key, value, sorted(headers), record.timestamp)
    before = (written.key, written.value, sorted(written.headers), written.timestamp)
    for name, one, other in zip(names, now, before, strict=True):
        if one != other:
            yield f"the {name} on {found.place} is not as it was put"
