"""Cost of emitting: transactions, refusals and retries of one process, for monitoring."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field


@dataclass(slots=True)
class EmissionFigures:
    """What one emitter did since it was last asked."""

    transactions: list[float] = field(default_factory=list)
    """Seconds of each committed transaction, from its begin to the end of its commit."""
    records: int = 0
    """Records written in them, including Redrive's own."""
    aborted: int = 0
    """Transactions that were aborted, or abandoned with their producer."""
    refused: Counter[int] = field(default_factory=Counter)
    """Refused records by the MQ reason code that the refusal maps to."""
    retries: int = 0
    """Failed tries of emissions that were retried."""
    opened: int = 0
    """Producers opened: the first one, and one for each that was abandoned."""

    def add(self, other: EmissionFigures) -> None:
        """Adds the figures of another emitter, or later ones of the same emitter."""
        self.transactions += other.transactions
        self.records += other.records
        self.aborted += other.aborted
        self.refused.update(other.refused)
        self.retries += other.retries
        self.opened += other.opened
