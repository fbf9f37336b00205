"""What emitting took: transactions, refusals and new tries of one process, for whoever watches."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

__all__ = ["EmissionFigures"]


@dataclass(slots=True)
class EmissionFigures:
    """What one emitter did since it was last asked."""

    transactions: list[float] = field(default_factory=list)
    """Seconds of each committed transaction, from its begin to the end of its commit."""
    records: int = 0
    """Records written in them, those of Redrive's own included."""
    aborted: int = 0
    """Transactions that were aborted, or given up with their producer."""
    refused: Counter[int] = field(default_factory=Counter)
    """Refused records by the MQ reason code that the refusal maps to."""
    retries: int = 0
    """Failed tries of an emission that was begun again."""
    opened: int = 0
    """Producers opened: the first one, and one for each that was given up."""

    def add(self, other: EmissionFigures) -> None:
        """Takes in what another emitter did, or the same one later."""
        self.transactions += other.transactions
        self.records += other.records
        self.aborted += other.aborted
        self.refused.update(other.refused)
        self.retries += other.retries
        self.opened += other.opened
