"""The crash engine: load, brokers, the job, faults, operators, and the audit in the end.

A program says what is loaded and which faults it takes; the engine does the rest. Round by round
the job is seen to commit something, operators' commands are started and killed, and one fault
happens that the seed chooses. A supervisor starts the job again whenever it has ended. Then
everything is left in peace until it has come to its end, and reconciled by a kafka-python reader.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import random
import signal
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from tempfile import TemporaryDirectory
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Final

import orjson
from benchmarks.clients import Sent, create
from benchmarks.fault_proxy import HOST, FaultProxy, running
from benchmarks.faults import FAULTS
from benchmarks.load import (
    APPLICATION,
    DEAD_LETTERS,
    LAST,
    LATE,
    OPEN,
    OUTCOMES,
    PARTITIONS,
    REPAIR,
    SMALL,
    TABLE,
    TARGETS,
    Load,
    dead_letter,
)
from benchmarks.operators import COMMANDS, HANDLER, Command, Operators
from benchmarks.processes import Clock, Job
from benchmarks.reconciliation import Findings, Reader, Reconciliation
from kafka import KafkaConsumer, TopicPartition
from kafka.admin import NewTopic
from tests.several_brokers import SeveralBrokers

from redrive.broker import EmbeddedBroker
from redrive.broker.configuration import free_port

if TYPE_CHECKING:
    from benchmarks.cluster import StandaloneCluster


def option(default: Any, text: str) -> Any:  # noqa: ANN401 - a field of any type
    """A field of a program that is an option of its command line too."""
    return field(default=default, metadata={"help": text})


@dataclass
class Report:
    """What happened, to be kept."""

    seed: int
    rounds: list[dict[str, Any]] = field(default_factory=list)
    endings: list[str] = field(default_factory=list)
    """The end of the job's log whenever it ended by itself, with an error, and was begun again."""
    commands: Mapping[str, int] = field(default_factory=dict)
    """Operators' commands, by what they were and how they were killed."""
    figures: dict[str, Any] = field(default_factory=dict)
    """What the program measured."""
    trends: list[str] = field(default_factory=list)
    """How the job's memory, files and threads went on."""
    samples: list[dict[str, Any]] = field(default_factory=list)
    """How the job was from time to time."""
    findings: Findings = field(default_factory=Findings)


@dataclass
class Scene:
    """What a fault can reach."""

    brokers: Sequence[EmbeddedBroker]
    servers: str
    job: Job
    operators: Operators
    clock: Clock
    load: Load
    reader: Reader
    report: Report
    chance: random.Random
    patience: float
    relay: FaultProxy | None = None
    spark: StandaloneCluster | None = None
    down: float = 10.0
    """Seconds that a broker is away that was stopped in order."""
    table: str = TABLE
    """What decides."""
    inputs: Mapping[int, int] = field(default_factory=dict)
    """How many inputs each partition has, once nothing is sent any more."""
    problems: list[str] = field(default_factory=list)
    began: float = field(default_factory=time.monotonic)

    @property
    def seconds(self) -> float:
        """Since the load began."""
        return time.monotonic() - self.began

    @property
    def folder(self) -> Path:
        """Where the settings are."""
        return self.job.settings.parent

    def write_table(self, table: str) -> None:
        """Lets another table decide from the next start or restart on."""
        self.table = table
        _write(self.folder / "crash.rul", table)

    def outcome_count(self) -> int:
        """About how many outcomes are committed: enough to see that something moves."""
        with contextlib.closing(KafkaConsumer(bootstrap_servers=self.servers)) as consumer:
            partitions = consumer.partitions_for_topic(OUTCOMES) or set()
            ends = consumer.end_offsets([TopicPartition(OUTCOMES, n) for n in partitions])
            return sum(ends.values())

    def await_progress(self) -> float:
        """Waits until the job commits something, and starts it where it does not run.

        Returns:
            How long that took, in seconds.

        Raises:
            SystemExit: It commits nothing.
        """
        before, began = self.outcome_count(), time.monotonic()
        while self.outcome_count() <= before:
            self.job.supervise()
            if time.monotonic() > began + self.patience:
                raise SystemExit(
                    f"the job made no progress in {self.patience:g} s; {self.job.last_lines()}"
                )
            time.sleep(0.3)
        return time.monotonic() - began

    @contextlib.contextmanager
    def supervised(self) -> Iterator[None]:
        """Starts the job whenever it does not run, for the time of the context."""
        ended = threading.Event()

        def supervise() -> None:
            while not ended.is_set():
                self.job.supervise()
                ended.wait(0.5)

        thread = threading.Thread(target=supervise, daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()


@dataclass(kw_only=True)
class CrashProgram:
    """A program of the engine: what it loads and which faults it takes; its fields are options."""

    rounds: int = option(20, "how many faults")
    seed: int = option(-1, "of everything random; by default another one each time")
    rate: float = option(150.0, "inputs a second")
    patience: float = option(600.0, "seconds without progress after which to give up")
    commands: int = option(3, "operators' commands in each round")
    faults: str = option("", "only these, with commas between them")
    report: str = option("", "file for what happened, as JSON")

    takes: ClassVar[Sequence[str]] = ()
    """Names of faults."""
    operators_do: ClassVar[Mapping[str, Command]] = COMMANDS
    brokers: ClassVar[int] = 1
    is_relayed: ClassVar[bool] = False
    """Whether everything that is said to the broker passes a relay."""
    emitters: ClassVar[Sequence[str]] = ("auto", "driver", "lanes")
    table: ClassVar[str] = TABLE
    interval: ClassVar[float] = 2.0
    """Seconds from one attempt to the next, at least."""
    tables_change: ClassVar[bool] = False
    has_ledger: ClassVar[bool] = False
    targets: ClassVar[Sequence[str]] = TARGETS
    kept: ClassVar[Mapping[str, str]] = {}
    """Settings of topics."""
    late_after: ClassVar[float] = 0.5
    """Part of the rounds after which ``LATE`` appears."""

    def __post_init__(self) -> None:
        """Chooses a seed if none was given."""
        if self.seed < 0:
            self.seed = random.SystemRandom().randrange(1 << 31)

    # -- what a program says in its own way -----------------------------------------------------

    def make(self, number: int, chance: random.Random) -> Sent:
        """The input of a number."""
        return dead_letter(number, chance)

    def topics(self) -> list[NewTopic]:
        """What exists from the beginning."""
        return [
            self.topic(DEAD_LETTERS, PARTITIONS),
            self.topic(
                OUTCOMES, 4, {"message.timestamp.type": "LogAppendTime", "retention.ms": "-1"}
            ),
            self.topic(OPEN, 3),
            self.topic(SMALL, 1, {"max.message.bytes": "1000"}),
            self.topic(LAST, 2),
            self.topic(REPAIR, 2),
        ]

    def handled(self, folder: Path) -> str:
        """Writes tables or definitions, and gives the settings of what is handled."""
        _write(folder / "crash.rul", self.table)
        return f'[[handlers]]\nqueue = "{DEAD_LETTERS}"\nrules = "crash.rul"\nname = "{HANDLER}"\n'

    def more_of_job(self, scene: Scene) -> str:
        """More lines of [job]."""
        del scene
        return ""

    def prepare(self, scene: Scene) -> None:
        """What else there is before the job starts."""

    def machines(self, folder: Path) -> StandaloneCluster | None:
        """Machines on which Spark runs; None for this process's own."""
        del folder
        return None

    def figures(self, scene: Scene) -> dict[str, Any]:
        """What was measured, once everything has come to its end."""
        del scene
        return {}

    def disturb(self, scene: Scene) -> None:
        """Lets faults happen under load."""
        for number in range(1, self.rounds + 1):
            self.one_round(scene, number, self.chosen(scene))
            if number == max(1, int(self.rounds * self.late_after)):
                self.create_late(scene)

    def await_end(self, scene: Scene) -> None:
        """Waits until every input has come to its end, or gives up and lets the audit tell."""
        scene.inputs = scene.reader.read_until_ended(self.patience)

    def audit(self, scene: Scene) -> Findings:
        """Compares inputs, outcomes and puts."""
        scene.reader.read_all(self.patience)
        findings = scene.reader.reconciliation.finish(scene.inputs)
        if findings.inputs != scene.load.acknowledged:
            sent, ends = scene.load.acknowledged, scene.load.ends
            findings.lost.append(f"{sent} were acknowledged to {ends}, {scene.inputs} are there")
        return findings

    # -- the engine -----------------------------------------------------------------------------

    def run(self) -> Report:
        """Runs everything, and gives what happened."""
        with self.scene() as scene:
            scene.began = time.monotonic()
            scene.load.start()
            self.disturb(scene)
            scene.load.stop()
            scene.operators.kill()
            report = scene.report
            with scene.supervised():
                self.await_end(scene)
                report.figures |= self.figures(scene)
                scene.problems += scene.operators.finish()
                self.await_end(scene)
            if code := scene.job.stop():
                scene.problems.append(f"the last job ended with exit code {code}")
            report.findings = self.audit(scene)
            report.findings.wrong += [*scene.problems, *scene.load.refused[:3]]
            report.endings = scene.job.endings
            report.commands = dict(sorted(scene.operators.started.items()))
        return report

    def one_round(self, scene: Scene, number: int, name: str) -> None:
        """Starts operators' commands, and lets one fault happen once the job is at work."""
        emitter = scene.chance.choice(self.emitters)
        self.configure(scene, emitter)
        scene.operators.kill()
        scene.await_progress()
        self.act(scene)
        time.sleep(scene.chance.uniform(0, 6))
        began = scene.seconds
        what = FAULTS[name].happen(scene)
        ended = scene.seconds
        again = scene.await_progress()
        happened = {"round": number, "emitter": emitter, "fault": name, "what": what}
        times = {"at": began, "seconds": ended - began, "handled again after": again}
        scene.report.rounds.append(
            {**happened, **{phase: round(seconds, 1) for phase, seconds in times.items()}}
        )
        say(f"round {number}: {emitter} emitter, {name}: {what}; handled again after {again:.1f} s")

    def chosen(self, scene: Scene) -> str:
        """The name of the next fault."""
        names = self.faults.split(",") if self.faults else list(self.takes)
        return scene.chance.choices(names, [FAULTS[name].weight for name in names])[0]

    def act(self, scene: Scene) -> None:
        """Starts operators' commands."""
        scene.operators.act(self.commands, self.operators_do)

    def create_late(self, scene: Scene) -> None:
        """Creates the queue that was missing; each of its partitions is on one broker alone."""
        alone = {"min.insync.replicas": "1", **self.kept}
        create(scene.servers, NewTopic(LATE, 2, 1, topic_configs=alone))

    def topic(
        self, name: str, partitions: int, settings: Mapping[str, str] = MappingProxyType({})
    ) -> NewTopic:
        """A topic with as many replicas as there are brokers."""
        return NewTopic(name, partitions, self.brokers, topic_configs={**self.kept, **settings})

    def configure(self, scene: Scene, emitter: str) -> None:
        """Writes the settings of the job, with one emitter."""
        _write(
            scene.job.settings,
            f'[application]\nname = "{APPLICATION}"\ndirectory = "job"\n'
            f'[kafka]\nbootstrap_servers = "{scene.servers}"\n{self.handled(scene.folder)}'
            f'[job]\nemitter = "{emitter}"\n{self.more_of_job(scene)}'
            f"[ledger]\nenabled = {str(self.has_ledger).lower()}\n",
        )
        scene.write_table(scene.table)

    @contextlib.contextmanager
    def scene(self) -> Iterator[Scene]:
        """Brokers, topics, settings, load and job, of which only the brokers run yet."""
        with contextlib.ExitStack() as stack:
            folder = Path(stack.enter_context(TemporaryDirectory(prefix="redrive-crash-")))
            brokers, servers, relay = self._brokers(folder, stack)
            create(servers, *self.topics())
            machines = self.machines(folder)
            clock = Clock(folder / "clock")
            audit = Reconciliation(
                self.interval, tables_change=self.tables_change, offsets=clock.offsets
            )
            job = Job(folder / "redrive.toml", folder / "job.log", clock)
            scene = Scene(
                brokers=brokers,
                servers=servers,
                job=job,
                operators=Operators(job.settings, servers, random.Random(self.seed + 1)),
                clock=clock,
                load=Load(servers, self.seed, self.make, self.rate),
                reader=Reader(servers, audit, self.targets),
                report=Report(self.seed),
                chance=random.Random(self.seed),
                patience=self.patience,
                relay=relay,
                spark=machines and stack.enter_context(machines),
                table=self.table,
            )
            self.prepare(scene)
            self.configure(scene, self.emitters[0])
            stack.callback(job.kill, "job")
            stack.callback(scene.operators.kill)
            stack.callback(scene.reader.close)
            yield scene

    def _brokers(
        self, folder: Path, stack: contextlib.ExitStack
    ) -> tuple[Sequence[EmbeddedBroker], str, FaultProxy | None]:
        if self.brokers > 1:
            cluster = stack.enter_context(SeveralBrokers(folder / "brokers", self.brokers))
            return cluster.brokers, cluster.bootstrap_servers, None
        if not self.is_relayed:
            broker = stack.enter_context(EmbeddedBroker(folder / "broker"))
            return [broker], broker.bootstrap_servers, None
        port, advertised = free_port(), free_port()
        properties = {"advertised.listeners": f"PLAINTEXT://{HOST}:{advertised}"}
        relay = stack.enter_context(running(advertised, port, (), seed=self.seed))
        broker = EmbeddedBroker(folder / "broker", port=port, properties=properties)
        return [stack.enter_context(broker)], f"{HOST}:{advertised}", relay


def main(program: type[CrashProgram], description: str | None) -> int:
    """The command line of a program; 1 if anything is wrong.

    Args:
        program: The program, each field of which is an option.
        description: The docstring of its module.
    """
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # the job and the brokers end too
    parser = argparse.ArgumentParser(description=(description or "").splitlines()[0])
    for setting in (each for each in fields(program) if each.init):
        options = {"default": setting.default, "help": setting.metadata["help"]}
        if isinstance(setting.default, bool):
            parser.add_argument(f"--{setting.name}", action="store_true", **options)
        else:
            parser.add_argument(f"--{setting.name}", type=type(setting.default), **options)
    chosen = program(**vars(parser.parse_args()))
    say(f"seed {chosen.seed}")
    return finished(chosen.run(), chosen.report)


_INDENTED: Final = orjson.OPT_INDENT_2 | orjson.OPT_NON_STR_KEYS


def finished(report: Report, file: str) -> int:
    """Prints what happened, keeps it in a file, and gives the exit code."""
    findings = report.findings
    if report.figures:
        print(json.dumps(report.figures, indent=2))
    print(f"{sum(report.commands.values())} operators' commands were started and killed")
    print(f"the job ended by itself and was started again {len(report.endings)} times")
    for ending in report.endings:
        print(
            "  "
            + next((line for line in ending.splitlines()[::-1] if "error:" in line), "no error")
        )
    print(findings.line())
    for name in ("lost", "duplicated", "disordered", "early", "wrong"):
        for text in getattr(findings, name)[:10]:
            print(f"  {name}: {text}")
    print(f"lost {len(findings.lost)}, duplicated {len(findings.duplicated)}")
    if file:  # last: what was found is known, even if the file cannot be written
        Path(file).parent.mkdir(parents=True, exist_ok=True)
        members = {setting.name: getattr(report, setting.name) for setting in fields(report)}
        document = {**members, "result": findings.line()}
        # Not asdict: it counts the pairs of a Counter.
        Path(file).write_bytes(orjson.dumps(document, option=_INDENTED))
    return 0 if findings.are_clean else 1


def say(text: str) -> None:
    """Prints a line while a program runs."""
    print(text, file=sys.stderr, flush=True)


def _write(file: Path, text: str) -> None:
    """Writes a file that a process may read at any moment: it sees all of it, or the one before."""
    scratch = file.with_suffix(".new")
    scratch.write_text(text)
    scratch.replace(file)
