"""A demo from beginning to end: broker, dead letters, the job, the reconciliation."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final, TypeAlias

from rich.console import Console

from redrive.broker import EmbeddedBroker
from redrive.demo.cluster import Cluster
from redrive.demo.expectation import Walk
from redrive.demo.progress import Progress
from redrive.demo.punctuality import Punctuality
from redrive.demo.queues import DEAD_LETTER_QUEUE, QUEUES
from redrive.demo.reconciliation import reconcile
from redrive.demo.report import Report
from redrive.demo.samples import Sample, generate
from redrive.demo.scenario import APPLICATION, Scenario
from redrive.demo.surroundings import Surroundings
from redrive.demo.view import LiveView
from redrive.demo.workplace import Interruption, folder_for, output_to
from redrive.errors import EnvironmentFault, RedriveError
from redrive.jars import fetch_jars, locked_jars
from redrive.java import find_java
from redrive.rules import parse
from redrive.settings import read_settings
from redrive.streaming.lifecycle import JobControl

__all__ = ["Demonstration"]

_RULES: Final = "sample.rul"
_SETTINGS: Final = "redrive.toml"
_JOB_LOG: Final = "job.log"

_Tell: TypeAlias = Callable[[str], None]


class Demonstration:
    """Runs one demo and cleans up behind it, whatever happens."""

    def __init__(self, scenario: Scenario, *, directory: Path | None, keep: bool) -> None:
        """Take what is asked for; nothing is started yet.

        Args:
            scenario: What the demo is made of.
            directory: A new folder for everything, which stays; None for one that goes.
            keep: Whether the broker goes on after the end, if that is a good one.
        """
        self._scenario = scenario
        self._directory = directory
        self._keep = keep
        self._interruption = Interruption()
        parsed = parse(scenario.rules(), name=_RULES)
        if parsed.table is None:
            raise ValueError(f"{_RULES} has errors")
        self._table = parsed.table

    def run(self) -> Report:
        """Run the demo.

        Returns:
            What came of it.

        Raises:
            UsageError: The folder is in use.
            RedriveError: No Java, no jars, no broker, or the job broke down.
            KeyboardInterrupt: Somebody asked for the end; everything is cleaned up.
        """
        with (
            folder_for(self._directory) as folder,
            self._interruption.heeded(),
            output_to(folder / _JOB_LOG) as stream,
            ExitStack() as stack,
        ):
            try:
                report = self._run(
                    stack, folder, Console(file=stream, highlight=False, soft_wrap=True)
                )
                if self._keep:
                    stack.pop_all()
                return report
            finally:
                # What is left is cleaning up, which nobody should interrupt.
                self._interruption.ignore()

    def _run(self, stack: ExitStack, folder: Path, console: Console) -> Report:
        scenario = self._scenario
        console.print(f"Redrive demo with {scenario.messages} dead letters, seed {scenario.seed}")
        with _step(console, "Java and jars") as tell:
            fetch_jars(progress=lambda done, of: tell(f"{done} of {of} steps"))
            tell(f"{find_java()}, {len(locked_jars())} jars")
        servers = self._start_broker(stack, folder, console)
        cluster = Cluster(servers)
        samples = list(generate(scenario.messages, scenario.seed, int(time.time() * 1000)))
        progress = Progress(scenario.retry_interval)
        control = JobControl(progress)
        surroundings = Surroundings(cluster, scenario, samples, control)
        control.add_observer(surroundings)
        with _step(console, "Dead letters") as tell:
            surroundings.prepare()
            tell(f"{surroundings.written} on {DEAD_LETTER_QUEUE}, the others will come")
        view = LiveView(console, scenario, self._table, progress, surroundings)
        control.add_observer(view)
        self._write_settings(folder, servers)
        began = time.monotonic()
        with view.shown(), self._interruption.asking(control.request_stop):
            self._run_job(folder, control, surroundings)
        return self._report(console, cluster, samples, time.monotonic() - began)

    def _start_broker(self, stack: ExitStack, folder: Path, console: Console) -> str:
        broker = EmbeddedBroker(folder / "broker")
        # Before the start, which may be interrupted: stop() copes with a broker half started.
        stack.callback(broker.stop)
        with _step(console, "Broker") as tell:
            broker.start()
            tell(broker.bootstrap_servers)
        return broker.bootstrap_servers

    def _write_settings(self, folder: Path, servers: str) -> None:
        # A ledger would be gone with the folder.
        settings = self._scenario.settings(servers, ledger=self._directory is not None)
        (folder / _SETTINGS).write_text(settings, encoding="utf-8")
        (folder / _RULES).write_text(self._scenario.rules(), encoding="utf-8")

    @staticmethod
    def _run_job(folder: Path, control: JobControl, surroundings: Surroundings) -> None:
        """Run the job as ``redrive run -c`` would, until nothing is left to process."""
        from redrive.streaming.job import run  # noqa: PLC0415 - needs pyspark, slow to import

        try:
            run(read_settings(folder / _SETTINGS).job, control)
        except RedriveError:
            raise
        except Exception as error:
            message = f"the job broke down: {type(error).__name__}: {_first_line(error)}"
            hint = f"run the demo again with --directory DIR and see DIR/{_JOB_LOG}"
            raise EnvironmentFault(message, hint=hint) from error
        finally:
            surroundings.end()
        surroundings.check()

    def _report(
        self, console: Console, cluster: Cluster, samples: Sequence[Sample], seconds: float
    ) -> Report:
        with _step(console, "Reconciliation") as tell:
            seen = cluster.observe(APPLICATION, tell)
            tell("every topic read to its end by kafka-python")
        return Report(
            scenario=self._scenario,
            table=self._table,
            outcomes=seen.outcomes,
            punctuality=Punctuality.of(seen.outcomes, self._scenario.retry_interval),
            reconciliation=reconcile(samples, Walk(self._table, QUEUES), seen),
            seconds=seconds,
        )


@contextmanager
def _step(console: Console, name: str) -> Iterator[_Tell]:
    """Shows that a step is under way, and in the end what came of it and how long it took."""
    began, told = time.monotonic(), ""
    if not console.is_terminal:
        console.print(f"{name} ...")
    with console.status(f"{name} ...") as status:

        def tell(text: str) -> None:
            nonlocal told
            told = text
            status.update(f"{name}: {text}")

        yield tell
    console.print(f"{name}: {told} ({time.monotonic() - began:.1f} s)")


def _first_line(error: Exception) -> str:
    return next(iter(str(error).splitlines()), "")[:300]
