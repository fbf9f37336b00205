"""A demo from start to finish: environment, script, job, reconciliation, report."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from rich.console import Console

from redrive.demo.cluster import Cluster
from redrive.demo.environment import Environment
from redrive.demo.messages import SETTINGS
from redrive.demo.reconciliation import Reconciliation, Trace, reconcile, trace
from redrive.demo.script import Operator, Script, ScriptRunner
from redrive.settings import read_settings
from redrive.streaming.lifecycle import JobControl

_SHOWN_PROBLEMS: Final = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The result of a demo."""

    script: Script
    traces: Sequence[Trace]
    reconciliation: Reconciliation
    seconds: float

    @property
    def adds_up(self) -> bool:
        """Whether every message ended where it should, exactly once."""
        return self.reconciliation.adds_up

    def show(self, console: Console) -> None:
        """Print the report."""
        self.script.show(self.traces, console)
        problems = self.reconciliation.problems
        for problem in problems[:_SHOWN_PROBLEMS]:
            console.print(problem, style="red", markup=False, soft_wrap=True)
        if len(problems) > _SHOWN_PROBLEMS:
            console.print(f"and {len(problems) - _SHOWN_PROBLEMS} more", style="red")
        style = "bold green" if self.adds_up else "bold red"
        console.print(str(self.reconciliation), style=style, soft_wrap=True)
        if self.adds_up:
            console.print(self.script.verdict, style="dim", soft_wrap=True)

    def document(self) -> Mapping[str, Any]:
        """The report for programs."""
        sums = self.reconciliation
        return {
            sums.counted: sums.inputs,
            **self.script.document(self.traces, sums.ends),
            "seconds": round(self.seconds, 1),
            "lost": sums.lost,
            "duplicated": sums.duplicated,
            "problems": list(sums.problems),
            "adds_up": sums.adds_up,
        }


class Demonstration:
    """Runs one demo and cleans up in any case.

    A given folder is kept; without one, a temporary folder is used. With ``keep`` the broker keeps
    running after a success.
    """

    def __init__(self, script: Script, *, directory: Path | None, keep: bool) -> None:
        self._script = script
        self._directory = directory
        self._keep = keep

    def run(self) -> Report:
        """Run the demo.

        Raises:
            UsageError: The folder is in use.
            RedriveError: No Java, no jars, no broker, or the job failed.
            KeyboardInterrupt: Interrupted; everything is cleaned up.
        """
        with Environment.opened(self._directory, keep=self._keep) as environment:
            return self._run(environment)

    def _run(self, environment: Environment) -> Report:
        script = self._script
        environment.console.print(f"Redrive demo {script.title}")
        script.write_files(environment.folder, environment.start_broker())
        # As ``redrive run -c`` reads them. A ledger would be deleted with the folder.
        job = read_settings(environment.folder / SETTINGS).job
        job = replace(job, ledger=replace(job.ledger, enabled=self._directory is not None))
        with Cluster(job) as cluster:
            operator = Operator(job, cluster, environment.console)
            script.prepare(environment, operator)
            began = time.monotonic()
            self._run_job(environment, operator)
            seconds = time.monotonic() - began
            with environment.step("Reconciliation") as progress:
                seen = cluster.observe({one.topic for one in script.messages}, progress)
                progress("every topic read to its end by kafka-python")
        traces = trace(script.messages, seen, script.end_of)
        sums = reconcile(traces, script.ends, counted=script.counted)
        return Report(script=script, traces=traces, reconciliation=sums, seconds=seconds)

    def _run_job(self, environment: Environment, operator: Operator) -> None:
        view = self._script.view(environment.console)
        control = JobControl(view)
        runner = ScriptRunner(self._script, operator, control)
        control.add_observer(runner)
        with view.shown(), environment.asking(control):
            try:
                environment.run_job(operator.job, control)
            finally:
                runner.end()
            runner.check()
