"""A demo from beginning to end: environment, script, the job, the reconciliation."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

from redrive.demo.cluster import Cluster
from redrive.demo.environment import Environment
from redrive.demo.messages import SETTINGS
from redrive.demo.reconciliation import reconcile, trace
from redrive.demo.report import Report
from redrive.demo.script import Operator, Script, ScriptRunner
from redrive.settings import read_settings
from redrive.streaming.lifecycle import JobControl

__all__ = ["Demonstration"]


class Demonstration:
    """Runs one demo and cleans up behind it, whatever happens."""

    def __init__(self, script: Script, *, directory: Path | None, keep: bool) -> None:
        """Take what is asked for; nothing is started yet.

        Args:
            script: What the demo is made of.
            directory: A new folder for everything, which stays; None for one that goes.
            keep: Whether the broker goes on after the end, if that is a good one.
        """
        self._script = script
        self._directory = directory
        self._keep = keep

    def run(self) -> Report:
        """Run the demo.

        Returns:
            What came of it.

        Raises:
            UsageError: The folder is in use.
            RedriveError: No Java, no jars, no broker, or the job broke down.
            KeyboardInterrupt: Somebody asked for the end; everything is cleaned up.
        """
        with Environment.opened(self._directory, keep=self._keep) as environment:
            return self._run(environment)

    def _run(self, environment: Environment) -> Report:
        script = self._script
        environment.console.print(f"Redrive demo {script.title}")
        script.write_files(environment.folder, environment.start_broker())
        # As ``redrive run -c`` reads them. A ledger would be gone with the folder.
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
        """Run the job, and the script beside it, until one of them has come to its end."""
        view = self._script.view(environment.console)
        control = JobControl(*self._script.observers, view)
        runner = ScriptRunner(self._script, operator, control)
        control.add_observer(runner)
        with view.shown(), environment.asking(control):
            try:
                environment.run_job(operator.job, control)
            finally:
                runner.end()
            runner.check()
