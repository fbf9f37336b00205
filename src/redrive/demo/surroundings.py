"""What moves around the job: dead letters that keep coming, a slow consumer, a late queue."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from threading import Event, Thread

from redrive.configuration import JobConfiguration
from redrive.demo.cluster import Cluster
from redrive.demo.queues import (
    DEAD_LETTER_QUEUE,
    INVOICES,
    ORDERS,
    PARTITIONS,
    QUEUES,
    SLOW_CONSUMER,
)
from redrive.demo.samples import Sample
from redrive.demo.scenario import Scenario
from redrive.streaming.lifecycle import BatchSummary, JobControl, JobObserver

__all__ = ["Surroundings"]

_TICK = 0.25
"""Seconds between two steps of anything that goes on steadily."""


class Surroundings(JobObserver):
    """The world of the demo apart from the job.

    Each of its parts runs in a thread of its own, from the start of the job to ``end``.
    """

    def __init__(
        self,
        cluster: Cluster,
        scenario: Scenario,
        samples: Sequence[Sample],
        control: JobControl,
    ) -> None:
        """Take what is to be moved; nothing moves yet.

        Args:
            cluster: The broker.
            scenario: How fast.
            samples: The dead letters, in the order in which they come.
            control: Stops the job when a part fails, so that it does not wait for it in vain.
        """
        self._cluster = cluster
        self._scenario = scenario
        self._samples = samples
        self._control = control
        self._ended = Event()
        self._all_written = Event()
        self._parked = Event()
        self._threads: list[Thread] = []
        self._failures: list[Exception] = []
        self.written = 0
        """Dead letters that are on the dead-letter queue."""
        self.consumed = 0
        """Messages that the slow consumer has read."""
        self.late_queue_exists = False
        """Whether the late queue has appeared."""

    def prepare(self) -> None:
        """Make the topics, fill the queue that is full, and write the backlog of dead letters.

        Raises:
            EnvironmentFault: The broker did not take it.
        """
        self._cluster.create({DEAD_LETTER_QUEUE: PARTITIONS})
        for queue in QUEUES.values():
            if not queue.is_late:
                self._cluster.create_queue(queue)
        backlog = round(len(self._samples) * self._scenario.backlog)
        with self._cluster.writer() as writer:
            writer.fill(ORDERS, self._scenario.max_depth)
            writer.write(self._samples[:backlog])
        self.written = backlog

    def started(self, configuration: JobConfiguration) -> None:
        """Let everything move: the job runs."""
        del configuration
        for part in (self._feed, self._consume, self._appear):
            thread = Thread(target=self._guarded, args=(part,), name=part.__name__, daemon=True)
            self._threads.append(thread)
            thread.start()

    def batch(self, summary: BatchSummary) -> None:
        """Note that the first puts have failed, those on the late queue among them."""
        if summary.by_result.get("parked"):
            self._parked.set()

    def end(self) -> None:
        """Let everything come to rest."""
        self._ended.set()
        for thread in self._threads:
            thread.join()

    def check(self) -> None:
        """Raise what made a part fail, if any did.

        Raises:
            EnvironmentFault: The broker did not do what the part wanted.
        """
        if self._failures:
            raise self._failures[0]

    def _guarded(self, part: Callable[[], None]) -> None:
        try:
            part()
        except Exception as error:  # noqa: BLE001 - check() raises it again
            self._failures.append(error)
            self._control.request_stop("something around the job failed")

    def _feed(self) -> None:
        """Write the dead letters that are not there yet, evenly over the time of feeding."""
        began, backlog = time.monotonic(), self.written
        rest = len(self._samples) - backlog
        with self._cluster.writer() as writer:
            while self.written < len(self._samples) and not self._ended.wait(_TICK):
                passed = min(1.0, (time.monotonic() - began) / self._scenario.feeding)
                upto = backlog + round(rest * passed)
                writer.write(self._samples[self.written : upto])
                writer.flush()
                self.written = upto
        self._all_written.set()

    def _consume(self) -> None:
        """Read the full queue at the consumer's rate, once puts on it have failed."""
        if not self._is_reached(self._parked):
            return
        consumer = self._cluster.slow_consumer(ORDERS, SLOW_CONSUMER)
        allowed, last = 0.0, time.monotonic()
        try:
            while not self._ended.wait(_TICK):
                allowed += (time.monotonic() - last) * self._scenario.consumer_rate
                last = time.monotonic()
                if allowed >= 1:
                    self.consumed += consumer.read(int(allowed))
                    # What it did not find is not made up for later.
                    allowed %= 1
        finally:
            consumer.close()

    def _appear(self) -> None:
        """Make the late queue, but not before every dead letter is there and some are parked.

        Messages for it are parked until then, and a table with WAIT(NO) ends the job only once
        nothing is: so the job ends after the last dead letter has come, however slow all this is.
        """
        if self._ended.wait(self._scenario.late_by):
            return
        if not (self._is_reached(self._all_written) and self._is_reached(self._parked)):
            return
        self._cluster.create_queue(QUEUES[INVOICES])
        self.late_queue_exists = True

    def _is_reached(self, event: Event) -> bool:
        """Wait for an event; False if everything came to an end before."""
        while not event.wait(_TICK):
            if self._ended.is_set():
                return False
        return True
