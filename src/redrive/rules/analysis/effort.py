"""How much work may go into an answer, so that every answer comes in seconds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

__all__ = ["EFFORT", "Effort", "Undecided"]

EFFORT: Final = 10_000_000
"""Steps for all questions about a table: about ten seconds. Steps and not seconds, so that the same
table has the same answer on every machine."""


class Undecided(Exception):
    """Whether there is such a message is not known: the search is too long or a pattern unknown."""


@dataclass(slots=True)
class Effort:
    """Steps that are left."""

    left: int = EFFORT

    def spend(self, steps: int) -> None:
        """Take some steps: comparisons of a pattern with a character or a value.

        Raises:
            Undecided: There are none left.
        """
        if self.left <= 0:
            raise Undecided
        self.left -= steps
