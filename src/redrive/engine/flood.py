"""The flood limit of a handler, above which new dead letters remain unhandled.

They are counted by the minute of their own timestamps, so that a backlog which grew over a day does
not count as a flood, and a repeated batch keeps the same ones.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import ClassVar, Final, NamedTuple

_MINUTE: Final = 60_000
"""Milliseconds."""
_MOST_MINUTES: Final = 120
"""Number of newest minutes to keep for each handler."""


class Minute(NamedTuple):
    """A minute of a handler's dead letters."""

    handler: str
    number: int
    """Minutes since 1970."""

    def __str__(self) -> str:
        return f"{datetime.fromtimestamp(60 * self.number, UTC):%Y-%m-%d %H:%M} UTC"


NO_ARRIVALS: Final[Mapping[Minute, int]] = {}


class SliceFloods:
    """The new dead letters of one slice, and earlier ones."""

    def __init__(self, before: Mapping[Minute, int], now: int) -> None:
        """Take earlier dead letters by minute, and the time of the attempts in milliseconds.

        Dead letters without a timestamp count as of that time.
        """
        self._before = before
        self._now = now
        self.arrivals: Counter[Minute] = Counter()
        """The dead letters of this slice by minute, for handlers with a limit."""

    def begin(self) -> None:
        """Drop the decisions."""
        self.arrivals.clear()

    def excess(
        self, handler: str, limit: int, timestamps: Sequence[int], first: int
    ) -> dict[int, str]:
        """The rows of new dead letters above the limit, and why each remains.

        Args:
            handler: Name of the handler.
            limit: Maximum dead letters to handle in a minute.
            timestamps: Those of all rows, in milliseconds.
            first: The first row to count.
        """
        minutes = [
            Minute(handler, (at if at >= 0 else self._now) // _MINUTE) for at in timestamps[first:]
        ]
        before = {one: self._before.get(one, 0) + self.arrivals[one] for one in {*minutes}}
        self.arrivals.update(minutes)
        rates = {one: self._before.get(one, 0) + self.arrivals[one] for one in before}
        if all(rate <= limit for rate in rates.values()):
            return {}
        why = {
            one: f"flood: {rate} dead letters so far in the minute of {one}, the limit is {limit}"
            for one, rate in rates.items()
        }
        excess = {}
        for row, minute in enumerate(minutes, first):
            before[minute] += 1
            if before[minute] > limit:
                excess[row] = why[minute]
        return excess


@dataclass(frozen=True, slots=True)
class FloodState:
    """A current flood, for views."""

    handler: str
    limit: int
    """Dead letters a minute."""
    rate: int
    """Maximum dead letters in a minute."""
    kept: int
    """Dead letters that remain because of it."""
    since: float
    """Seconds since 1970."""

    began: ClassVar[str] = "a flood of dead letters: those above the limit remain"
    ended: ClassVar[str] = (
        "a flood of dead letters has ended: messages kept by it remain until a replay"
    )

    @property
    def key(self) -> tuple[str, ...]:
        """What it is about."""
        return ("flood", self.handler)

    @property
    def sentence(self) -> str:
        """One line about it, without its time."""
        return (
            f"flood of {self.handler}: {self.rate} dead letters in a minute, the limit is"
            f" {self.limit}; {self.kept} remain until redrive replay --to rules"
        )


class Floods:
    """The floods of one run, in the memory of its driver."""

    def __init__(self, limits: Mapping[str, int]) -> None:
        """Take the limits by handler, in dead letters a minute."""
        self._limits = limits
        self.arrivals: Mapping[Minute, int] = NO_ARRIVALS
        """The dead letters of the last minutes, for the slices of the next batch."""
        self._states: dict[str, tuple[FloodState, int]] = {}
        """By handler the last flood, and the time in milliseconds at which it last kept any."""

    def learn(self, arrivals: Mapping[Minute, int], now: int) -> None:
        """Apply the new dead letters of a batch at a time in milliseconds."""
        if not arrivals:
            return
        known = Counter(self.arrivals)
        known.update(arrivals)
        for handler in {one.handler for one in arrivals}:
            limit = self._limits[handler]
            grown = {one: known[one] for one in arrivals if one.handler == handler}
            kept = sum(min(arrivals[one], max(0, rate - limit)) for one, rate in grown.items())
            if kept:
                self._add(handler, kept, max(grown.values()), now)
            newest = sorted(one.number for one in known if one.handler == handler)
            for number in newest[:-_MOST_MINUTES]:
                del known[Minute(handler, number)]
        self.arrivals = dict(known)

    def states(self, now: int) -> Iterator[FloodState]:
        """The floods that kept a dead letter within the last minute; any thread may ask."""
        for state, last in list(self._states.values()):
            if now - last < _MINUTE:
                yield state

    def _add(self, handler: str, kept: int, rate: int, now: int) -> None:
        current = next((one for one in self.states(now) if one.handler == handler), None)
        if current is None:
            current = FloodState(handler, self._limits[handler], 0, 0, now / 1000)
        state = FloodState(
            handler, current.limit, max(rate, current.rate), kept + current.kept, current.since
        )
        self._states[handler] = state, now
