"""The job for hours at 70 % of what it can do, while something dies or is restarted now and then.

Three brokers, one job, dead letters with retries, refusals and discards. First as many come as can
be sent, for a while: how many a second the job takes then, with load, brokers, job and audit all on
this machine, is its capacity here. 70 % of that come from then on. Now and then, at moments that a
seed chooses, a fault happens as in ``benchmarks.crash_cluster``, and operators' commands are
killed. Inputs, outcomes and puts are reconciled all the while; memory, open files and threads of
driver, Java and workers, those that emit apart, are noted, and have to be flat: in the last third
the median is about that of the first third after the warm-up. Topics keep half an hour of records,
so that the disk lasts; an audit that falls behind that ends the run at once.

Run it as ``python -m benchmarks.soak --hours 2`` (``make soak HOURS=2``), on Linux; a printed seed
repeats the schedule. It leaves a report in JSON and a picture of the curves.
"""

from __future__ import annotations

import contextlib
import itertools
import random
import statistics
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar, Final

from benchmarks.clients import Sent
from benchmarks.engine import CrashProgram, Report, Scene, main, option, say
from benchmarks.load import (
    APPLICATION,
    DEAD_LETTERS,
    MOSTLY_DELIVERED,
    PARTITIONS,
    dead_letter,
)
from benchmarks.plot import Panel, svg
from benchmarks.processes import KINDS, usage
from kafka.errors import KafkaError, OffsetOutOfRangeError

from redrive.errors import ProtocolError
from redrive.kafka.cluster import Cluster
from redrive.kafka.connection import Connection
from redrive.messages import TopicPartition

SHARE: Final = 0.7
"""Part of the measured capacity that comes."""
FLOOD: Final = 100_000.0
"""Dead letters a second: more than can be sent."""
FLOOD_SECONDS: Final = 90.0
"""Seconds for which as many come as can be sent, at most: a fifth of a short run."""
WARM_UP: Final = 900.0
"""Seconds of a run before it is judged, at most a fifth of it."""
YOUNG: Final = 60.0
"""Seconds from a start of the job in which nothing is judged."""
TOLERANCES: Final = {"memory": (0.15, 30.0), "files": (0.10, 10.0), "threads": (0.10, 10.0)}
"""By how much the last third may be above the first: a share of it, and so many beside."""
_FEWEST: Final = 10
"""Samples of a third, below which nothing is judged."""
_LOOK: Final = 2.0
"""Seconds between two looks of the audit."""
_SAMPLES: Final = 1_000
"""Points of a curve."""
_ANSWER: Final = 10.0
"""Seconds for an answer of the brokers."""


@dataclass
class Sample:
    """How the job was at one moment."""

    at: float
    """Seconds since the load began."""
    age: float
    """Seconds since the job was started last."""
    waiting: int | None
    """Dead letters that were not committed; None while nobody answered."""
    ended: int
    """Inputs that had come to their end."""
    kept: int
    """Inputs that the audit had in memory."""
    usage: dict[str, dict[str, float]]
    """Resident memory in MB, open files and threads, by kind of process."""


class Watch:
    """Reconciles and takes samples in a thread, for as long as the load goes on."""

    def __init__(self, scene: Scene, seconds: float) -> None:
        """Begin.

        Args:
            scene: What is watched.
            seconds: How long, about.
        """
        self.samples: list[Sample] = []
        self.overtaken = ""
        """Where records were deleted before the audit had read them, if they were."""
        self._scene = scene
        self._age = max(_LOOK, seconds / _SAMPLES)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Ends."""
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        sampled = -float("inf")
        while not self._ended.wait(_LOOK):
            try:
                self._scene.reader.look()
            except OffsetOutOfRangeError as error:
                self.overtaken = str(error)
                return
            except KafkaError:
                pass  # a broker is away: the next look goes on
            if self._scene.seconds - sampled >= self._age:
                sampled = self._scene.seconds
                self.samples.append(self._sample())

    def _sample(self) -> Sample:
        job, known = self._scene.job, self._scene.reader.reconciliation
        waiting = None
        with contextlib.suppress(ProtocolError):
            committed, there = stand(self._scene.servers)
            waiting = there - committed
        return Sample(
            at=round(self._scene.seconds, 1),
            age=round(time.monotonic() - job.started_at, 1),
            waiting=waiting,
            ended=known.ended,
            kept=known.kept,
            usage=usage(job.leader) if job.is_running else {},
        )


@dataclass(frozen=True)
class Trend:
    """One quantity of one kind of process, early and late in a run."""

    name: str
    first: float
    """Median of the first third after the warm-up."""
    last: float
    """Median of the last third."""
    allowed: float
    """What the last may be."""

    @property
    def is_flat(self) -> bool:
        """Whether it has not grown beyond the tolerance."""
        return self.last <= self.allowed

    def __str__(self) -> str:
        """One line for a person."""
        word = "flat" if self.is_flat else "NOT FLAT"
        return f"{self.name}: {self.first:g}, later {self.last:g}, at most {self.allowed:g}: {word}"


def trends(samples: Sequence[Sample]) -> list[Trend]:
    """How memory, files and threads went on after the warm-up; empty for a run that is too short.

    Args:
        samples: Of a whole run.
    """
    end = samples[-1].at if samples else 0.0
    begin = min(WARM_UP, end / 5)
    third = (end - begin) / 3
    warm = [sample for sample in samples if sample.at >= begin and sample.age >= YOUNG]
    drifts = []
    for what, (share, beside) in TOLERANCES.items():
        for kind in KINDS:
            shown = [
                (sample.at, sample.usage.get(what, {})) for sample in warm
            ]  # none while no job runs
            values = [(at, known[kind]) for at, known in shown if kind in known]
            first = [value for at, value in values if at < begin + third]
            last = [value for at, value in values if at >= end - third]
            if min(len(first), len(last)) >= _FEWEST:
                before, after = statistics.median(first), statistics.median(last)
                allowed = round(before * (1 + share) + beside, 1)
                drifts.append(Trend(f"{what} of {kind}", before, after, allowed))
    return drifts


@dataclass(kw_only=True)
class Soak(CrashProgram):
    """Load for hours, and a fault now and then."""

    hours: float = option(2.0, "how long")
    every: float = option(0.0, "seconds between two faults, about; by default 300 or less")
    rate: float = option(0.0, "dead letters a second, instead of 70 %% of what the job can do")
    report: str = option("build/soak.json", "file for what happened; a picture is beside it")

    takes = (
        "kill driver", "kill java", "kill job", "kill worker", "kill broker", "kill coordinator",
        "rolling restart", "stop job", "set clock", "kill commands",
    )  # fmt: skip
    brokers = 3
    kept: ClassVar = {"retention.ms": "1800000", "segment.bytes": "16777216"}

    def make(self, number: int, chance: random.Random) -> Sent:
        """Most dead letters can be delivered at once."""
        return dead_letter(number, chance, MOSTLY_DELIVERED)

    def prepare(self, scene: Scene) -> None:
        """No queue is missing."""
        self.create_late(scene)

    def disturb(self, scene: Scene) -> None:
        """Measures the capacity, and lets faults happen for the rest of the time."""
        end = self.hours * 3600
        scene.load.rate = 50.0
        scene.await_progress()
        watch = Watch(scene, end)
        scene.load.rate = self.rate or self._share_of_capacity(scene)
        self._bounce(scene, end, watch)
        watch.stop()
        scene.report.samples = [asdict(sample) for sample in watch.samples]
        drifts = trends(watch.samples)
        scene.report.trends = [*map(str, drifts)] or ["memory, files, threads: too short to judge"]
        scene.problems += [str(trend) for trend in drifts if not trend.is_flat]

    def _share_of_capacity(self, scene: Scene) -> float:
        """Dead letters a second: a share of what the job takes from a flood."""
        seconds = min(FLOOD_SECONDS, self.hours * 720)
        scene.load.rate = FLOOD
        time.sleep(seconds / 2)
        began, first = time.monotonic(), stand(scene.servers)[0]
        time.sleep(seconds / 2)
        capacity = (stand(scene.servers)[0] - first) / (time.monotonic() - began)
        scene.report.figures |= {"capacity": round(capacity), "rate": round(SHARE * capacity)}
        say(f"capacity {capacity:.0f}/s, now {SHARE * capacity:.0f}/s")
        return SHARE * capacity

    def _bounce(self, scene: Scene, end: float, watch: Watch) -> None:
        every = self.every or min(300.0, end / 5)
        for number in itertools.count(1):
            pause = every * scene.chance.uniform(0.5, 1.5)
            with scene.supervised():
                time.sleep(max(0.0, min(end - scene.seconds, pause)))
            if watch.overtaken:
                raise RuntimeError(f"retention overtook the audit: {watch.overtaken}")
            if scene.seconds > 0.9 * end:
                break
            self.one_round(scene, number, self.chosen(scene))
        with scene.supervised():
            time.sleep(max(0.0, end - scene.seconds))

    def run(self) -> Report:
        """Runs everything, and draws the curves."""
        report = super().run()
        for line in report.trends:
            print(line)
        file = Path(self.report).with_suffix(".svg")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(picture(report, [Sample(**sample) for sample in report.samples]))
        print(f"report in {self.report}, curves in {file}")
        return report


def picture(report: Report, samples: Sequence[Sample]) -> str:
    """The curves of a run, as SVG."""
    gone = [
        (later.ended - sample.ended) / (later.at - sample.at)
        for sample, later in itertools.pairwise(samples)
    ]
    panels = [
        Panel("dead letters a second", {"ended": [None, *gone]}),
        Panel("dead letters that wait", {"not committed": [sample.waiting for sample in samples]}),
    ]
    for title, what in (("memory, MB", "memory"), ("open files", "files"), ("threads", "threads")):
        values: list[dict[str, float]] = [sample.usage.get(what, {}) for sample in samples]
        names = dict.fromkeys(name for use in values for name in use)
        panels.append(Panel(title, {name: [use.get(name) for use in values] for name in names}))
    marks = {entry["at"]: entry["fault"] for entry in report.rounds}
    return svg(report.findings.line(), [sample.at for sample in samples], panels, marks)


def stand(servers: str) -> tuple[int, int]:
    """How many dead letters the job has committed, and how many there are.

    Args:
        servers: The brokers.

    Raises:
        ProtocolError: They do not answer in time.
    """
    lanes = [TopicPartition(DEAD_LETTERS, number) for number in range(PARTITIONS)]
    with Cluster(Connection(bootstrap_servers=servers), timeout=_ANSWER) as cluster:
        committed: Any = cluster.committed(APPLICATION, lanes)
        return sum(offset or 0 for offset in committed.values()), sum(cluster.ends(lanes).values())


if __name__ == "__main__":
    sys.exit(main(Soak, __doc__))
