"""A network's demo from beginning to end: broker, check, topics, the job, the reconciliation."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path
from types import MappingProxyType
from typing import Final

from redrive.configuration import JobConfiguration
from redrive.demo.networks import mq_network, mqe_network
from redrive.demo.networks.cluster import NetworkCluster
from redrive.demo.networks.course import Course, CourseRunner
from redrive.demo.networks.ends import Places
from redrive.demo.networks.prediction import Predictor
from redrive.demo.networks.puts import Act, generate_puts
from redrive.demo.networks.reconciliation import reconcile_puts, trace
from redrive.demo.networks.report import NetworkReport
from redrive.demo.workplace import Workplace
from redrive.diagnostics import Severity
from redrive.settings import read_settings
from redrive.streaming.factory import topology_of
from redrive.streaming.lifecycle import JobControl
from redrive.topology.files import read_topology

__all__ = ["NETWORKS", "ExampleNetwork", "NetworkDemonstration"]

_SETTINGS: Final = "redrive.toml"
_SERVERS: Final = "localhost:9092"
"""The broker that the settings of the examples name."""
_NOT_COPIED: Final = frozenset({"README.md"})


@dataclass(frozen=True, slots=True)
class ExampleNetwork:
    """A network of the folder ``examples``, and what its demo does to it."""

    name: str
    """Name of its folder."""
    title: str
    acts: Sequence[Act]
    """What is put, part by part."""
    play: Callable[[Course], None]
    """What happens."""

    def write_files(self, folder: Path, bootstrap_servers: str) -> None:
        """Write its definitions, rules and settings.

        Args:
            folder: Where to.
            bootstrap_servers: The broker for the settings.
        """
        for one in files("redrive.demo.networks").joinpath(self.name).iterdir():
            if one.name not in _NOT_COPIED:
                text = one.read_text(encoding="utf-8").replace(_SERVERS, bootstrap_servers)
                (folder / one.name).write_text(text, encoding="utf-8")


NETWORKS: Final[Mapping[str, ExampleNetwork]] = MappingProxyType(
    {
        one.name: one
        for one in (
            ExampleNetwork("mq", "IBM MQ", mq_network.ACTS, mq_network.play),
            ExampleNetwork("mqe", "MQ Everyplace", mqe_network.ACTS, mqe_network.play),
        )
    }
)
"""The networks that have a demo, by name."""


class NetworkDemonstration:
    """Runs the demo of one network and cleans up behind it, whatever happens."""

    def __init__(
        self,
        network: ExampleNetwork,
        *,
        messages: int,
        seed: int,
        directory: Path | None,
        keep: bool,
    ) -> None:
        """Take what is asked for; nothing is started yet.

        Args:
            network: The network.
            messages: How many messages are put.
            seed: Decides about their order and content.
            directory: A new folder for everything, which stays; None for one that goes.
            keep: Whether the broker goes on after the end, if that is a good one.
        """
        self._network = network
        self._seed = seed
        self._directory = directory
        self._keep = keep
        self._puts = generate_puts(network.acts, messages, seed)

    def run(self) -> NetworkReport:
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

    def _run(self, place: Workplace) -> NetworkReport:
        title, count = self._network.title, len(self._puts)
        place.console.print(
            f"Redrive demo of a network of {title} with {count} puts, seed {self._seed}"
        )
        job = self._job(place, place.start_broker())
        with NetworkCluster(job) as cluster:
            with place.step("Topics") as tell:
                tell(f"{len(cluster.create_topics())} created, as redrive topology apply does")
            place.console.print("The job starts, which takes some seconds")
            control = JobControl()
            course = Course(job, cluster, self._puts, place.console)
            runner = CourseRunner(course, self._network.play, control)
            control.add_observer(runner)
            began = time.monotonic()
            with place.asking(control):
                try:
                    place.run_job(job, control)
                finally:
                    runner.end()
            return self._report(place, job, cluster, course, time.monotonic() - began)

    def _job(self, place: Workplace, servers: str) -> JobConfiguration:
        """The job of the example's settings, once its definitions are written and checked."""
        self._network.write_files(place.folder, servers)
        with place.step("Check") as tell:
            job = read_settings(place.folder / _SETTINGS).job
            found = read_topology(job.topology).diagnostics
            warnings = [one for one in found if one.severity is Severity.WARNING]
            tell(f"{_counted(len(warnings), 'warning')}, as redrive check says")
        for one in warnings:
            where = f"{Path(one.file).name}:{one.line}"
            place.console.print(f"  {where}: {one.message}", markup=False, style="dim")
        # A ledger would be gone with the folder.
        ledger = replace(job.ledger, enabled=self._directory is not None)
        return replace(job, ledger=ledger)

    def _report(
        self,
        place: Workplace,
        job: JobConfiguration,
        cluster: NetworkCluster,
        course: Course,
        seconds: float,
    ) -> NetworkReport:
        places = Places(
            topology_of(job.topology), {handler.identity.topic for handler in job.handlers}
        )
        predictor = Predictor(job)
        place.console.print()
        with place.step("Reconciliation") as tell:
            found = [
                (places.end(topic, record.topic), record)
                for topic, record in cluster.messages(tell)
            ]
            outcomes = cluster.outcomes()
            tell("every topic read to its end by kafka-python")
        predicted = {
            put.number: predictor.end(put, there.identity)
            for put in self._puts
            if (there := course.written.get(put.number))
        }
        traced = trace(self._puts, course.written, predicted, found, outcomes)
        return NetworkReport(
            network=self._network.name,
            seed=self._seed,
            kinds=list(dict.fromkeys(kind for act in self._network.acts for kind, _ in act.shares)),
            traced=traced,
            reconciliation=reconcile_puts(traced),
            places=places,
            seconds=seconds,
        )


def _counted(count: int, what: str) -> str:
    return f"{count} {what}{'s' * (count != 1)}"
