"""Simulated processes: threads of which one runs at a time, chosen step by step from one seed.

A process hands over at the calls that it makes of a client, and nowhere else: there it may be
delayed, frozen or killed, and there any other process may go on. So one seed gives one course.
"""

from __future__ import annotations

import os
import random
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

_SWITCH: Final = 0.35
"""Share of the steps at which another process goes on."""
_STEP: Final = 0.01
"""Seconds that a step takes at most."""
ROUNDING: Final = 0.002
"""Seconds that a time in whole milliseconds is off at most."""
_STANDSTILLS: Final = (0.2, 0.4, 0.7, 1.0, 2.0, 10.0)
"""Seconds for which a process stands still that was to stop: others are in the middle of what they
do, or have done all of it."""


class ProcessDied(BaseException):
    """The process was killed at this point; nothing that it does afterwards reaches anybody."""


class Process:
    """One simulated process."""

    def __init__(
        self, name: str, body: Callable[[], None], thread_of: Process | None = None
    ) -> None:
        self.name = name
        self.body = body
        self.thread_of = thread_of
        """The process that it is a thread of, and dies with."""
        self.baton = threading.Lock()
        self.baton.acquire()
        self.wakes = 0.0
        """Not before this time does it go on."""
        self.stops_after: int | None = None
        """Steps after which it stands still for a while; None for never."""
        self.dies_there = False
        """Whether it dies after these steps, and does not go on."""
        self.is_doomed = False
        """Whether it is dead, although it does not know yet."""
        self.is_alive = True
        self.ended_at = 0.0
        """When it ended, once it has."""
        self.frozen = (0.0, 0.0)
        """When it was last frozen, and until when."""

    def silent_since(self, now: float) -> float | None:
        """Since when it says nothing, as it is dead or frozen; None if it does."""
        if self.is_doomed or not self.is_alive:
            return self.ended_at
        begin, end = self.frozen
        return begin if now < end else None


class Scheduler:
    """Runs processes in turns; whoever calls its methods is the process that runs."""

    def __init__(self, seed: int, *, most_steps: int) -> None:
        self.random = random.Random(seed)
        self._draw = self.random.random
        self.now = 1_000_000.0
        """Seconds; the same for every process."""
        self.set_at: list[tuple[float, float]] = [(0.0, 0.0)]
        """When the clock on the wall was set, and by how much it has been ahead since then."""
        self.steps = 0
        self.processes: list[Process] = []
        self.errors: list[tuple[str, BaseException]] = []
        """What ended processes that did not end by themselves."""
        self.on_step: Callable[[], None] = lambda: None
        """Called at every step: the world around the processes."""
        self.on_wait: Callable[[], None] = lambda: None
        """Called when every process waits, before time passes."""
        self.trace: Callable[[str, str], None] | None = None
        self.has_ended_early = False
        """Whether there were more steps than there may be."""
        self._most_steps = most_steps
        self._current: Process | None = None
        self._main = threading.Lock()
        self._main.acquire()

    @property
    def wall(self) -> float:
        """What the clock on the wall shows; somebody may have set it."""
        return self.now + self.set_at[-1][1]

    @property
    def name(self) -> str:
        """Name of the process that runs."""
        return self._current.name if self._current is not None else "world"

    @property
    def current(self) -> Process | None:
        """The process that runs; None for what is around them."""
        return self._current

    def spawn(
        self, name: str, body: Callable[[], None], thread_of: Process | None = None
    ) -> Process:
        """Adds a process, or a thread of one; it begins when it is its turn."""
        process = Process(name, body, thread_of)
        self.processes.append(process)
        threading.Thread(target=self._run, args=(process,), daemon=True, name=name).start()
        return process

    def run(self) -> None:
        """Runs until every process has ended."""
        if self.processes:
            self._hand_over(None)

    def tell(self, what: str) -> None:
        """Notes what happened, if anybody reads the trace."""
        if self.trace is not None:
            self.trace(self.name, what)

    def step(self) -> None:
        """Where a process may be killed, delayed or overtaken."""
        process = self._current
        if process is None:
            return  # nobody else runs: a test that asks directly
        self._die_if_doomed(process)
        self.steps += 1
        self.now += self._draw() * _STEP
        if self.steps > self._most_steps:
            self.has_ended_early = True
            self.kill_all()
        self.on_step()
        if process.stops_after is not None:
            process.stops_after -= 1
            if process.stops_after == 0 and process.dies_there:
                self.kill(process)
            elif process.stops_after == 0:
                process.stops_after = None
                self.freeze(process, self.random.choice(_STANDSTILLS))
        if process.is_doomed or process.wakes > self.now or self._draw() < _SWITCH:
            self._hand_over(process)
            self._die_if_doomed(process)

    def sleep(self, seconds: float) -> None:
        """Lets time pass for the process that runs."""
        process = self._current
        if process is None:
            self.now += seconds
            return
        process.wakes = max(process.wakes, self.now + seconds)
        self.step()

    def freeze(self, process: Process, seconds: float) -> None:
        """Stops a process where it is, for some time (SIGSTOP)."""
        process.wakes = max(process.wakes, self.now + seconds)
        process.frozen = self.now, process.wakes

    def kill(self, process: Process) -> None:
        """Kills a process: it takes no further step."""
        if not process.is_doomed:
            process.is_doomed, process.ended_at = True, self.now
        process.wakes = 0.0

    def die(self, then: Callable[[], None]) -> None:
        """Kills the process that runs, where it is.

        Args:
            then: What somebody does who sees it.
        """
        if self._current is not None:
            self.kill(self._current)
            then()
            self._die_if_doomed(self._current)

    def kill_all(self) -> None:
        for process in self.processes:
            self.kill(process)

    @staticmethod
    def _die_if_doomed(process: Process) -> None:
        if process.is_doomed or (process.thread_of is not None and process.thread_of.is_doomed):
            raise ProcessDied

    def _run(self, process: Process) -> None:
        process.baton.acquire()
        try:
            if not process.is_doomed:
                process.body()
        except ProcessDied:
            pass
        except BaseException as error:  # noqa: BLE001 - looked at by the audit
            self.errors.append((process.name, error))
        process.is_alive, process.ended_at = False, self.now
        self.processes.remove(process)
        self._current = None
        self._next().release()

    def _hand_over(self, process: Process | None) -> None:
        baton = self._next()
        own_baton = self._main if process is None else process.baton
        if baton is not own_baton:
            baton.release()
            own_baton.acquire()

    def _next(self) -> threading.Lock:
        """The baton of the process that goes on; time passes if all of them wait for it."""
        if not self.processes:
            return self._main
        awake = [process for process in self.processes if process.wakes <= self.now]
        if not awake:
            self.on_wait()
            self.now = min(process.wakes for process in self.processes)
            awake = [process for process in self.processes if process.wakes <= self.now]
        self._current = awake[0] if len(awake) == 1 else self.random.choice(awake)
        return self._current.baton


@contextmanager
def one_core() -> Iterator[None]:
    """Keeps this process on one core: there threads take over from each other in a third of the
    time."""
    if not hasattr(os, "sched_setaffinity"):
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {sorted(before)[os.getpid() % len(before)]})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)
