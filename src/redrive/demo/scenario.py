"""The scenario of a demo: how many messages, how fast the world around the job moves."""

from __future__ import annotations

import re
from dataclasses import dataclass
from importlib.resources import files
from typing import Self

from redrive.demo.queues import DEAD_LETTER_QUEUE, ORDERS, QUEUES, SLOW_CONSUMER
from redrive.demo.samples import KINDS

__all__ = ["APPLICATION", "Scenario"]

APPLICATION = "demo"
"""The job's application name."""

_FULL_PARTS = 8
"""The full queue holds so small a part of the messages for it, so that they need many retries."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """What a demo is made of; times in seconds."""

    messages: int
    """Dead letters to make."""
    seed: int
    retry_interval: int
    """RETRYINT of the table."""
    feeding: float
    """How long dead letters keep coming once the job runs."""
    draining: float
    """How long the slow consumer takes to make room for all messages for its queue."""
    late_by: float
    """When the queue that is missing at first appears, counted from the job's start."""
    backlog: float = 0.8
    """Which part of the dead letters is there before the job starts."""

    @classmethod
    def usual(cls, messages: int, seed: int) -> Self:
        """A demo to watch: a little more than a minute of work."""
        return cls(
            messages=messages, seed=seed, retry_interval=6, feeding=40, draining=45, late_by=60
        )

    @classmethod
    def fast(cls, messages: int, seed: int) -> Self:
        """A demo to test with: the same in a few seconds."""
        return cls(messages=messages, seed=seed, retry_interval=1, feeding=2, draining=4, late_by=3)

    @property
    def orders(self) -> int:
        """About how many messages are for the full queue."""
        [share] = [kind.share for kind in KINDS if kind.queues == (ORDERS,)]
        return max(1, self.messages * share // sum(kind.share for kind in KINDS))

    @property
    def max_depth(self) -> int:
        """MAXDEPTH of the full queue."""
        return max(5, self.orders // _FULL_PARTS)

    @property
    def consumer_rate(self) -> float:
        """Messages that the slow consumer reads in a second."""
        return self.orders / self.draining

    def rules(self) -> str:
        """The sample table with this scenario's RETRYINT."""
        text = files("redrive.demo").joinpath("sample.rul").read_text(encoding="utf-8")
        return re.sub(r"\bRETRYINT\([0-9]+\)", f"RETRYINT({self.retry_interval})", text)

    def settings(self, bootstrap_servers: str, *, ledger: bool) -> str:
        """The settings of the job, as ``redrive run -c`` reads them.

        Args:
            bootstrap_servers: The broker.
            ledger: Whether the job keeps a ledger.
        """
        limits = [
            f'[queues."{queue.name}"]\nmax_message_length = {queue.max_message_length}\n'
            for queue in QUEUES.values()
            if queue.max_message_length is not None
        ]
        return (
            f'[application]\nname = "{APPLICATION}"\ndirectory = "job"\n\n'
            f'[kafka]\nbootstrap_servers = "{bootstrap_servers}"\n\n'
            f'[[handlers]]\nqueue = "{DEAD_LETTER_QUEUE}"\nrules = "sample.rul"\n\n'
            f'[queues."{ORDERS}"]\nmax_depth = {self.max_depth}\n'
            f'consumer_group = "{SLOW_CONSUMER}"\n\n'
            f"{''.join(limits)}\n"
            f'[job]\ndriver_memory = "1g"\n\n'
            f"[ledger]\nenabled = {str(ledger).lower()}\n"
        )
