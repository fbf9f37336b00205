"""The clock for retries: setting the machine's clock does not make retries early.

A run of the query uses one clock to stamp the messages that it parks and to decide which are due.
It starts at the wall-clock time of the run's start and counts the seconds since the machine booted,
which cannot be set. The next run reads the wall clock again. If it was set forward in between,
earlier copies have timestamps that are too old by that much, so the old clock applies to them for
one more interval. So a copy is due once the clock showed its timestamp an interval ago.

The entry of a share in the control topic carries the clock over restarts of the process. On another
machine, or after a boot, nothing can be measured, and the wall clock is used unchanged.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Self

from redrive.checkpoints import machine
from redrive.checkpoints.epoch import EntryStore
from redrive.checkpoints.instances import Share

_CLOCK: Final = "clock/"
_SINCE_BOOT: Final = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""A clock that also counts while the machine sleeps, if there is one."""
_MOST_CHANGES: Final = 16
"""Maximum forward changes of the wall clock to keep individually."""


@dataclass(frozen=True, slots=True, order=True)
class SetForward:
    """One forward change of the clock."""

    at: float
    """Time of the change by the current clock, in seconds since 1970."""
    seconds: float
    """Seconds by which earlier stamps are too old."""


@dataclass(frozen=True, slots=True)
class SteadyClock:
    """The clock of one run of the query, shared by its driver and its planner."""

    TOLERANCE = 1.0
    """Tolerated difference to the wall clock, in seconds."""

    offset: float
    """Time of the machine's boot, in seconds since 1970."""
    set_forward: tuple[SetForward, ...] = ()
    """Its forward changes, oldest first."""

    @classmethod
    def of_wall(cls) -> Self:
        """A clock that shows wall-clock time, and was never set."""
        return cls(time.time() - time.clock_gettime(_SINCE_BOOT))

    def now(self) -> float:
        """Seconds since 1970."""
        return self.offset + time.clock_gettime(_SINCE_BOOT)

    def behind_wall(self) -> float:
        """Seconds by which the wall clock is ahead of this one; negative if behind."""
        return time.time() - self.now()

    def due(self, interval: float) -> float:
        """The latest stamp that is ``interval`` seconds old, even if the clock was set since."""
        return self.now() - interval - self.late(interval)

    def late(self, interval: float) -> float:
        """Seconds that stamps of the last ``interval`` seconds may be too old."""
        before = self.now() - interval
        return max(
            (change.seconds for change in self.set_forward if change.at > before), default=0.0
        )

    def for_next_run(self) -> SteadyClock:
        """The clock of the next run: wall-clock time if it was set by more than the tolerance."""
        by = self.behind_wall()
        if abs(by) <= self.TOLERANCE:
            return self
        known = _shift(self.set_forward, by)
        if by > 0:
            known = [*known, SetForward(self.now() + by, by)]
        return SteadyClock(self.offset + by, _merge_oldest(known))


def begin_clock(store: EntryStore, share: Share) -> SteadyClock:
    """The clock of a starting run, recorded in the control topic before it stamps anything.

    Older runs can no longer emit.

    Raises:
        TransientFault: The broker gave no answer in time.
    """
    kept = dict(_overlapping_clocks(store.entries, share))
    own_entry = kept.pop(share, None)
    # Overlapping shares need this clock when they start; each takes it once.
    before = {} if own_entry is None else own_entry.taken
    untaken = [
        entry_of_other
        for other, entry_of_other in kept.items()
        if before.get(str(other)) != entry_of_other.time
    ]
    clock = _continue(untaken if own_entry is None else [own_entry, *untaken]).for_next_run()
    over = {other for other in kept if share.contains(other)}
    taken = {
        str(other): entry_of_other.time
        for other, entry_of_other in kept.items()
        if other not in over
    }
    entry = _Entry(machine.boot(), clock.now(), clock, taken)
    if over or not entry.is_same(own_entry):
        gone = {f"{_CLOCK}{other}": None for other in over}
        store.write({**gone, f"{_CLOCK}{share}": entry.content()})
    return clock


@dataclass(frozen=True, slots=True)
class _Entry:
    """The entry of a share's clock in the control topic."""

    boot: str
    time: float
    """The clock's time when the entry was written."""
    clock: SteadyClock
    taken: Mapping[str, float] = field(default_factory=dict)
    """Time of the entry last merged into this clock, by overlapping share."""

    @classmethod
    def read(cls, content: Mapping[str, Any]) -> Self | None:
        with contextlib.suppress(KeyError, TypeError, ValueError):
            known = tuple(SetForward(float(at), float(by)) for at, by in content["set forward"])
            clock = SteadyClock(float(content["offset"]), known)
            taken = {str(share): float(at) for share, at in content.get("taken", {}).items()}
            return cls(str(content["boot"]), float(content["time"]), clock, taken)
        return None

    def content(self) -> dict[str, Any]:
        known = [[change.at, change.seconds] for change in self.clock.set_forward]
        return {
            "boot": self.boot,
            "time": self.time,
            "offset": self.clock.offset,
            "set forward": known,
            "taken": dict(self.taken),
        }

    def is_same(self, kept: _Entry | None) -> bool:
        return kept is not None and (kept.boot, kept.clock, kept.taken) == (
            self.boot,
            self.clock,
            self.taken,
        )


def _overlapping_clocks(
    entries: Mapping[str, Mapping[str, Any]], share: Share
) -> Iterator[tuple[Share, _Entry]]:
    """Clocks of all overlapping shares, whose parked messages may now belong to this share."""
    for key, content in entries.items():
        if key.startswith(_CLOCK):
            with contextlib.suppress(ValueError):
                other, entry = Share.parse(key.removeprefix(_CLOCK)), _Entry.read(content)
                if entry is not None and share.overlaps(other):
                    yield other, entry


def _continue(kept: Sequence[_Entry]) -> SteadyClock:
    """The clock that continues earlier ones; the slowest if this machine has several."""
    here = [entry for entry in kept if entry.boot == machine.boot()]
    clock = min((entry.clock for entry in here), key=lambda clock: clock.offset, default=None)
    clock = replace(SteadyClock.of_wall() if clock is None else clock, set_forward=())
    known: list[SetForward] = []
    for entry in kept:
        by = (
            clock.offset - entry.clock.offset if entry in here else min(0, clock.now() - entry.time)
        )
        known += _shift(entry.clock.set_forward, by)
    return replace(clock, set_forward=_merge_oldest(known))


def _shift(known: Iterable[SetForward], by: float) -> list[SetForward]:
    return [
        SetForward(change.at + by, change.seconds + by)
        for change in known
        if change.seconds + by > 0
    ]


def _merge_oldest(known: Iterable[SetForward]) -> tuple[SetForward, ...]:
    changes = sorted(known)
    surplus = len(changes) - _MOST_CHANGES + 1
    oldest, newest = changes[:surplus], changes[surplus:]
    if len(oldest) <= 1:
        return tuple(changes)
    together = SetForward(oldest[-1].at, max(change.seconds for change in oldest))
    return (together, *newest)
