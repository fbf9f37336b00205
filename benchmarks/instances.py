"""Instances that share the partitions out among themselves: killed, added and renewed under load.

Up to three processes run the job with ``instance = "auto"``. Every so many seconds one is killed
with all that it started, stopped in order, added, or stands still for longer than it may; the
broker is restarted; or an instance is renewed: another one is started, and when it says so the old
one is stopped, as a rolling update does. Every effect is counted in the end, and for each partition
the longest time without an outcome is printed.

    python -m benchmarks.instances [--minutes 10] [--every 20] [--rate 500]
"""

from __future__ import annotations

import contextlib
import itertools
import signal
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final

import orjson
from benchmarks.engine import CrashProgram, Scene, main, option, say
from benchmarks.faults import FAULTS
from benchmarks.load import DEAD_LETTERS, OUTCOMES
from benchmarks.processes import Job
from kafka import KafkaConsumer, TopicPartition

_MOST: Final = 3
"""Instances at a time; while one is renewed there is one more."""
_STARTED: Final = "handling the dead letters of"
"""What the log of an instance says once it works."""
_STANDING: Final = 15.0
"""Seconds that an instance stands still: the others take over after six."""
_LOOK: Final = 0.5
"""Seconds between two looks at a log."""
_READ: Final = 3000
"""Milliseconds without a record after which a topic is read."""


@dataclass(kw_only=True)
class Instances(CrashProgram):
    """Several processes of one job, which come and go."""

    rate: float = option(500.0, "inputs a second")
    minutes: float = option(10.0, "how long")
    every: float = option(20.0, "seconds between two events, about")

    emitters = ("auto",)
    late_after = 0.0
    broker_faults: ClassVar[tuple[str, ...]] = ("stop broker",)
    """Faults of all programs that happen here too."""
    _jobs: list[Job] = field(default_factory=list, init=False, repr=False)
    _text: str = field(default="", init=False, repr=False)
    _numbers: Iterator[int] = field(default_factory=itertools.count, init=False, repr=False)

    @contextlib.contextmanager
    def scene(self) -> Iterator[Scene]:
        """The scene of one instance, and the end of all others."""
        with super().scene() as scene:
            try:
                yield scene
            finally:
                for job in self._jobs:
                    job.kill("job")

    def configure(self, scene: Scene, emitter: str) -> None:
        """Writes the settings, which all instances share but for the folder."""
        super().configure(scene, emitter)
        self._jobs = self._jobs or [scene.job]
        self._text = scene.job.settings.read_text()
        self._write_settings(scene.job)

    def disturb(self, scene: Scene) -> None:
        """Instances come and go."""
        scene.job.start()
        scene.await_progress()
        self.create_late(scene)
        until = time.monotonic() + 60 * self.minutes
        number = 0
        while time.monotonic() < until:
            time.sleep(self.every * scene.chance.uniform(0.5, 1.5))
            number += 1
            self._event(scene, number)

    def await_end(self, scene: Scene) -> None:
        """Lets one instance end what all have begun."""
        for job in [job for job in self._jobs if job is not scene.job]:
            self._end(scene, job)
        super().await_end(scene)

    def figures(self, scene: Scene) -> dict[str, Any]:
        """The longest time without an outcome, by partition of the dead letters."""
        gaps = longest_gaps(scene.servers)
        return {"longest time without an outcome, s": gaps}

    def _event(self, scene: Scene, number: int) -> None:
        names = [scene.chance.choice(self.broker_faults), "renew"]
        names += ["kill", "stop", "freeze"] if len(self._jobs) > 1 else []
        names += ["add", "add"] if len(self._jobs) < _MOST else []
        name = scene.chance.choice(self.faults.split(",") if self.faults else names)
        began = scene.seconds
        old = scene.chance.choice(self._jobs)
        if name in {"add", "renew"}:
            self._add(scene)
        if name in self.broker_faults:
            FAULTS[name].happen(scene)
        elif name == "freeze":
            old.signal(signal.SIGSTOP, all_processes=True)
            time.sleep(_STANDING)
            old.signal(signal.SIGCONT, all_processes=True)
        elif name == "kill":
            old.kill("job")
            self._jobs.remove(old)
        elif name in {"stop", "renew"}:
            self._end(scene, old)
        scene.job = self._jobs[-1]
        again = scene.await_progress()
        times = {"at": round(began, 1), "handled again after": round(again, 1)}
        scene.report.rounds.append(
            {"round": number, "event": name, "instances": len(self._jobs), **times}
        )
        say(f"{number}: {name}, {len(self._jobs)} instances; handled again after {again:.1f} s")

    def _add(self, scene: Scene) -> None:
        number = next(self._numbers)
        settings, log = scene.folder / f"instance-{number}.toml", scene.folder / f"job-{number}.log"
        job = Job(settings, log, scene.clock)
        self._write_settings(job)
        job.start()
        until = time.monotonic() + self.patience
        while not log.exists() or _STARTED not in log.read_text():
            if not job.is_running or time.monotonic() > until:
                raise SystemExit(f"an instance did not start; {job.last_lines()}")
            time.sleep(_LOOK)
        self._jobs.append(job)

    def _end(self, scene: Scene, job: Job) -> None:
        self._jobs.remove(job)
        if code := job.stop():
            scene.problems.append(f"an instance ended with exit code {code}: {job.last_lines()}")

    def _write_settings(self, job: Job) -> None:
        own = f'instance = "auto"\ndirectory = "{job.settings.stem}"\n'
        job.settings.write_text(self._text.replace('directory = "job"\n', own))


def longest_gaps(servers: str) -> dict[int, float]:
    """The longest time between two outcomes of dead letters, in seconds, by their partition."""
    times: dict[int, list[int]] = defaultdict(list)
    with contextlib.closing(
        KafkaConsumer(
            bootstrap_servers=servers,
            consumer_timeout_ms=_READ,
            isolation_level="read_committed",
        )
    ) as consumer:
        partitions = consumer.partitions_for_topic(OUTCOMES) or set()
        consumer.assign([TopicPartition(OUTCOMES, number) for number in partitions])
        consumer.seek_to_beginning()
        for record in consumer:
            outcome = orjson.loads(record.value)
            if outcome["topic"] == DEAD_LETTERS:
                times[outcome["partition"]].append(record.timestamp)
    gaps = {}
    for partition, known in sorted(times.items()):
        pairs = itertools.pairwise(sorted(known))
        gaps[partition] = max((after - before) / 1000 for before, after in pairs)
    return gaps


if __name__ == "__main__":
    sys.exit(main(Instances, __doc__))
