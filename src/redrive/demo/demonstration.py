"""A demo from beginning to end: broker, dead letters, the job, the reconciliation."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

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
from redrive.demo.workplace import Workplace
from redrive.rules import parse
from redrive.settings import read_settings
from redrive.streaming.lifecycle import JobControl

__all__ = ["Demonstration"]

_RULES: Final = "sample.rul"
_SETTINGS: Final = "redrive.toml"


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
        with Workplace.opened(self._directory, keep=self._keep) as place:
            return self._run(place)

    def _run(self, place: Workplace) -> Report:
        scenario, console = self._scenario, place.console
        console.print(f"Redrive demo with {scenario.messages} dead letters, seed {scenario.seed}")
        servers = place.start_broker()
        cluster = Cluster(servers)
        samples = list(generate(scenario.messages, scenario.seed, int(time.time() * 1000)))
        progress = Progress(scenario.retry_interval)
        control = JobControl(progress)
        surroundings = Surroundings(cluster, scenario, samples, control)
        control.add_observer(surroundings)
        with place.step("Dead letters") as tell:
            surroundings.prepare()
            tell(f"{surroundings.written} on {DEAD_LETTER_QUEUE}, the others will come")
        view = LiveView(console, scenario, self._table, progress, surroundings)
        control.add_observer(view)
        self._write_settings(place.folder, servers)
        began = time.monotonic()
        with view.shown(), place.asking(control):
            self._run_job(place, control, surroundings)
        return self._report(place, cluster, samples, time.monotonic() - began)

    def _write_settings(self, folder: Path, servers: str) -> None:
        # A ledger would be gone with the folder.
        settings = self._scenario.settings(servers, ledger=self._directory is not None)
        (folder / _SETTINGS).write_text(settings, encoding="utf-8")
        (folder / _RULES).write_text(self._scenario.rules(), encoding="utf-8")

    @staticmethod
    def _run_job(place: Workplace, control: JobControl, surroundings: Surroundings) -> None:
        """Run the job as ``redrive run -c`` would, until nothing is left to process."""
        try:
            place.run_job(read_settings(place.folder / _SETTINGS).job, control)
        finally:
            surroundings.end()
        surroundings.check()

    def _report(
        self, place: Workplace, cluster: Cluster, samples: Sequence[Sample], seconds: float
    ) -> Report:
        with place.step("Reconciliation") as tell:
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
