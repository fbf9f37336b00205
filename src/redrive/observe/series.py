"""Counters of which messages name the labels, with a bound on how many series there can be."""

from __future__ import annotations

from typing import Final

from prometheus_client import Counter

OTHER: Final = "other"
"""The label of what is not counted apart any more."""


class Capped:
    """A counter whose series are bounded: from the last on, they share one for each handler."""

    def __init__(self, counter: Counter, most: int) -> None:
        self._counter = counter
        self._most = most
        self._known: set[tuple[str, ...]] = set()

    def add(self, handler: str, labels: tuple[str, ...], count: int) -> None:
        """Adds to the series of a handler and further labels, or to that of the rest."""
        values = (handler, *labels)
        if values not in self._known and len(self._known) >= self._most:
            values = (handler, *(OTHER for _ in labels))
        self._known.add(values)
        self._counter.labels(*values).inc(count)
