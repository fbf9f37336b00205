"""``redrive demo``: the whole job on sample messages and an embedded broker.

The job is ``redrive run`` in a process of its own, as a user would run it; broker, dead letters,
reconciliation and report are here.
"""

from __future__ import annotations

import math
import secrets
import signal
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import click
from rich.console import Console
from rich.table import Table

from redrive.broker import EmbeddedBroker
from redrive.broker.configuration import free_port
from redrive.command.options import json_option
from redrive.command.output import print_json
from redrive.console.command import check_console
from redrive.demo.client import Client, ClientError
from redrive.demo.kafka import KafkaDeadLetters
from redrive.demo.mq import MqDeadLetters
from redrive.demo.reconciliation import DemoMessage, Reconciliation, Trace, trace
from redrive.demo.script import SETTINGS, Script
from redrive.errors import EnvironmentFault, UsageError
from redrive.java import fetch_jars
from redrive.kafka.administration import TopicAdministration
from redrive.settings import read_settings

_BACKLOG: Final = 0.8
"""Share of the dead letters that exist before the job starts."""
_LOOK: Final = 0.3
"""Seconds between two checks of the outcomes."""
_LINE_EVERY: Final = 5.0
"""Seconds between two lines that show the progress."""
_PATIENCE: Final = 300.0
"""Seconds without progress after which a wait fails."""
_SHOWN_PROBLEMS: Final = 20
_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_JOB_LOG: Final = "job.log"
_VERDICT: Final = (
    "Each message was followed by its number: it is in one place, where the table puts it, and"
    " every byte is as it must be."
)


class DemoReport:
    """The result of a demo."""

    def __init__(self, script: Script, traces: Sequence[Trace]) -> None:
        self._traces = traces
        self._totals = Reconciliation(traces)
        delays = (
            (at - failed_at) / 1000 - script.least_wait(attempt)
            for traced in traces
            for failed_at, at, attempt in _retries_of(traced)
        )
        self._delays = sorted(delays)
        """How many seconds after its earliest time each retry was; below 0 is early."""
        self._early = sum(delay < 0 for delay in self._delays)
        self.adds_up = self._totals.adds_up and not self._early
        """Whether every message ended where it should, exactly once, and no retry was early."""

    def show(self, console: Console) -> None:
        """Print the report."""
        table = Table(title="Results of the dead letters", title_justify="left", box=None)
        table.add_column("dead letters, and failed attempts", overflow="fold")
        table.add_column("number", justify="right", no_wrap=True)
        table.add_column("rules", justify="right", no_wrap=True)
        table.add_column("ended", overflow="fold")
        for row in self._rows():
            failures = (
                f"[dim]{count} failed: {reason.removeprefix('MQRC_')}"
                for reason, count in row["failures"].items()
            )
            what, rules = "\n".join([row["what"], *failures]), map(str, row["rules"])
            ended = f"{', '.join(row['ends'])} {', '.join(row['places'])}"
            table.add_row(what, str(row["messages"]), ", ".join(rules) or "none", ended)
        console.print(table)
        console.print(self._punctuality(), soft_wrap=True)
        problems = self._totals.problems
        for problem in problems[:_SHOWN_PROBLEMS]:
            console.print(problem, style="red", markup=False, soft_wrap=True)
        if len(problems) > _SHOWN_PROBLEMS:
            console.print(f"and {len(problems) - _SHOWN_PROBLEMS} more", style="red")
        style = "bold green" if self.adds_up else "bold red"
        console.print(str(self._totals), style=style, soft_wrap=True)
        if self.adds_up:
            console.print(_VERDICT, style="dim", soft_wrap=True)

    def document(self) -> Mapping[str, Any]:
        """The report for programs."""
        return {
            "in": self._totals.inputs,
            **self._totals.ends,
            "lost": self._totals.lost,
            "duplicated": self._totals.duplicated,
            "problems": self._totals.problems,
            "adds_up": self.adds_up,
            "kinds": self._rows(),
            "retries": {"count": len(self._delays), "early": self._early},
        }

    def _rows(self) -> list[dict[str, Any]]:
        """Each kind of dead letters, with its ends, its rules and its failed attempts."""
        kinds: dict[str, list[Trace]] = defaultdict(list)
        for traced in sorted(self._traces, key=lambda traced: traced.message.end.what):
            kinds[traced.message.kind].append(traced)
        rows = []
        for kind, traces in kinds.items():
            ends = [end for traced in traces for end in traced.ends]
            outcomes = [outcome for traced in traces for outcome in traced.outcomes]
            failures = Counter(outcome.reason_name for outcome in outcomes if outcome.reason_name)
            row = {"what": kind, "messages": len(traces), "failures": failures}
            row["rules"] = sorted({outcome.rule_line for outcome in outcomes} - {0})
            row["ends"] = sorted({what for what, _ in ends})
            row["places"] = sorted({stored.topic for _, stored in ends if stored})
            rows.append(row)
        return rows

    def _punctuality(self) -> str:
        if not (delays := self._delays):
            return "no retries"
        early = f"{self._early} EARLY" if self._early else "none early"
        p50, p99 = (delays[math.ceil(len(delays) * percent / 100) - 1] for percent in (50, 99))
        return (
            f"{len(delays)} retries, {early}, after their earliest time by {delays[0]:.2f} s"
            f" (least), {p50:.2f} s (p50), {p99:.2f} s (p99)"
        )


def _retries_of(traced: Trace) -> Iterator[tuple[int, int, int]]:
    """Each failure's time, and time and number of the attempt that follows.

    First attempts are left out: their dead letters are older than the job.
    """
    for before, after in pairwise(traced.outcomes):
        if before.reason_name and after.attempt:
            yield before.time, after.time, after.attempt
    retries = [outcome for outcome in traced.outcomes if outcome.result == "retried"]
    # A message that is quarantined after its last failure has no further retry.
    for letter, retry in zip(traced.inputs[1:], retries[1:], strict=False):
        yield letter.record.timestamp, retry.time, retry.attempt


class Demonstration:
    """Runs one demo and cleans up in any case.

    A given folder is kept; without one, a temporary folder is used. With ``keep`` the broker keeps
    running after a success.
    """

    def __init__(self, script: Script, *, directory: Path | None, keep: bool) -> None:
        self._script = script
        self._directory = directory
        self._keep = keep
        self._console = Console(stderr=True, highlight=False, soft_wrap=True)
        self._began = self._last_line = time.monotonic()

    def run(self) -> DemoReport:
        """Run the demo.

        Raises:
            UsageError: The folder is in use.
            RedriveError: No Java, no jars, no broker, or the job failed.
            KeyboardInterrupt: Interrupted; everything is cleaned up.
        """
        with ExitStack() as handlers, ExitStack() as stack:
            old = {number: signal.getsignal(number) for number in _SIGNALS}
            # What is ignored stays so, as with nohup.
            caught = [number for number in _SIGNALS if old[number] is not signal.SIG_IGN]
            for number in caught:
                handlers.callback(signal.signal, number, old[number])
                signal.signal(number, signal.default_int_handler)
            try:
                report = self._run(stack)
                if self._keep:
                    stack.pop_all()
            except ClientError as error:
                hint = "--directory keeps the demo's folder with the broker's log"
                raise EnvironmentFault(str(error), hint=hint) from error
            finally:
                for number in caught:
                    signal.signal(number, signal.SIG_IGN)  # cleanup must not be interrupted
        return report

    def _run(self, stack: ExitStack) -> DemoReport:
        script = self._script
        self.say(f"redrive demo {script.title}")
        if self._directory is None:
            name = TemporaryDirectory(prefix="redrive-demo-", ignore_cleanup_errors=True)
            folder = Path(stack.enter_context(name))
        else:
            folder = new_folder(self._directory.absolute())
        with self._console.status("Java and jars") as status:
            fetch_jars(progress=lambda done, of: status.update(f"jars: {done} of {of} steps"))
        broker = EmbeddedBroker(folder / "broker")
        # Before the start, which may be interrupted: stop() also stops a starting broker.
        stack.callback(broker.stop)
        broker.start(timeout=_PATIENCE)
        self.say(f"an embedded broker runs at {broker.bootstrap_servers}")
        # A ledger would be deleted with the folder.
        ledger = self._directory is not None
        script.write_files(folder, broker.bootstrap_servers, ledger=ledger)
        job = read_settings(folder / SETTINGS).job
        settings = job.connection.kafka_python()
        with Client(settings, job.application, job.outcomes_topic) as client:
            play = Play(script, TopicAdministration(job.connection), client, self)
            play.run(folder)
            self.say("kafka-python reads every topic to its end, for the reconciliation")
            identities = [handler.identity for handler in job.handlers]
            observation = client.observe(
                script.queues,
                {identity.retry_topic for identity in identities},
                [identity.remaining_topic for identity in identities],
            )
        return DemoReport(script, trace(script.messages, observation, play.failed))

    def say(self, text: str) -> None:
        """Print a line with the seconds since the start of the demo."""
        self._last_line = time.monotonic()
        self._console.print(f"{self._last_line - self._began:5.1f} s: {text}", markup=False)

    @property
    def seconds_silent(self) -> float:
        """Seconds since the last line."""
        return time.monotonic() - self._last_line


@dataclass(slots=True)
class Play:
    """Runs the job, and what happens around it."""

    _script: Script
    _topics: TopicAdministration
    _client: Client
    _teller: Demonstration
    failed: set[str] = field(default_factory=set)
    """Positions of the records that the application failed to process."""
    _positions: dict[int, str] = field(default_factory=dict)
    """Where each message was put, by its number."""
    _is_running: Callable[[], bool] = lambda: True
    _deliveries: Counter[int] | None = None
    """How often each message came to the application; None before it starts."""

    def run(self, folder: Path) -> None:
        """Run the job until every message has come to rest; raises ``EnvironmentFault``."""
        self._topics.ensure(self._script.topics)
        self._client.put(self._script.others)
        backlog = round(len(self._script.messages) * _BACKLOG)
        self._put(self._script.messages[:backlog])
        self._teller.say(f"{backlog} dead letters are on {', '.join(self._script.queues)}")
        self._teller.say(f"redrive run -c {SETTINGS} starts, which takes some seconds")
        command = [sys.executable, "-m", "redrive", "run", "-c", str(folder / SETTINGS)]
        with (folder / _JOB_LOG).open("wb") as log:
            job = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
        self._is_running = lambda: job.poll() is None
        try:
            self._play(self._script.messages[backlog:])
        except _EndedError:
            pass
        finally:
            job.terminate()
            code = job.wait()
        # A job that ends by itself may be terminated while its interpreter exits.
        if code not in {0, -signal.SIGTERM}:
            last_line = "".join((folder / _JOB_LOG).read_text("utf-8").splitlines()[-1:])
            hint = f"run the demo again with --directory DIR and see DIR/{_JOB_LOG}"
            raise EnvironmentFault(f"the job ended with code {code}: {last_line}", hint=hint)

    def _play(self, rest: Sequence[DemoMessage]) -> None:
        late, messages = self._script.late.name, self._script.messages
        self._wait_until("were handled", lambda: [] if self._client.outcomes() else ["any"])
        self._put(rest)
        self._teller.say(f"{len(rest)} more dead letters arrive")
        for_late = [
            message
            for message in messages
            if message.end.what == "retried" and message.end.place.partition(":")[0] == late
        ]
        self._wait_until("were tried", lambda: list(self._untried(for_late)))
        self._teller.say(
            f"{late} does not exist: {len(for_late)} messages for it are tried in vain and wait"
            " for their next attempts, while everything else goes on"
        )
        self._deliveries = Counter()
        self._pause(self._script.late_by)
        self._topics.ensure([self._script.late])
        self._teller.say(f"{late} exists now: messages go there when their next attempts are due")
        self._wait_until("came to rest", lambda: list(self._moving()))
        self._teller.say("every message has come to rest")

    def _put(self, messages: Sequence[DemoMessage]) -> None:
        positions = self._client.put((message.topic, message.record) for message in messages)
        numbers = (message.number for message in messages)
        self._positions |= dict(zip(numbers, positions, strict=True))

    def _pause(self, seconds: float) -> None:
        """Wait for some seconds, or until the job ends; the application continues."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            time.sleep(min(left, _LOOK))
            if not self._is_running():
                raise _EndedError
            if self._deliveries is not None:
                self._process(self._deliveries)
            if self._teller.seconds_silent > _LINE_EVERY:
                messages = len(self._script.messages)
                resting = messages - len(list(self._moving()))
                self._teller.say(f"{resting} of {messages} messages have come to rest")

    def _process(self, deliveries: Counter[int]) -> None:
        topic, at_most = self._script.application_topic, self._script.application_reads
        for stored in self._client.process(topic, at_most):
            if (number := stored.number) is not None:
                deliveries[number] += 1
                if dead_letter := self._script.process(stored, deliveries[number]):
                    self.failed.add(stored.position)
                    self._client.put([dead_letter])

    def _wait_until(self, what: str, missing: Callable[[], Collection[str]]) -> None:
        """Wait until nothing is missing; ``what`` ends the sentence: "came to rest"."""
        last, changed = set(missing()), time.monotonic()
        while last:
            self._pause(_LOOK)
            if (now := set(missing())) != last:
                last, changed = now, time.monotonic()
            elif time.monotonic() - changed > _PATIENCE:
                raise EnvironmentFault(
                    f"{len(now)} messages never {what}, such as {min(now)}: nothing has changed"
                    f" for {_PATIENCE:.0f} s",
                    hint="--directory keeps the job's log, which may show the reason",
                )

    def _untried(self, messages: Sequence[DemoMessage]) -> Iterator[str]:
        """Messages of which no attempt has failed: a first delay may come before it."""
        outcomes = self._client.outcomes()
        for message in messages:
            position = self._positions[message.number]
            if not any(outcome.reason_name for outcome in outcomes.get(position, ())):
                yield position

    def _moving(self) -> Iterator[str]:
        outcomes = self._client.outcomes()
        for message in self._script.messages:
            position = self._positions.get(message.number, "not put")
            results = [outcome.result for outcome in outcomes.get(position, ())]
            decided = len(results) - results.count("parked")
            deliveries = self._deliveries[message.number] if self._deliveries else 0
            is_due = message.failures and results.count("retried") > deliveries
            if decided <= message.failures or is_due:
                yield position


class _EndedError(Exception):
    """The job has ended by itself."""


def new_folder(folder: Path) -> Path:
    """Make a folder, which may exist if it is empty; raises ``UsageError``."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        is_used = any(folder.iterdir())
    except OSError as error:
        message = f"{folder} cannot be used: {error.strerror}"
        raise UsageError(message, hint="name another folder") from error
    if is_used:
        raise UsageError(f"{folder} is not empty", hint="name a new folder for each demo")
    return folder


_FEWEST: Final = 50
"""Minimum number of messages; with fewer some kinds would be missing."""
_OF_MQ: Final = 10_000
_OF_KAFKA: Final = 2_000
"""Fewer, since many of them wait for a topic."""
_KAFKA, _MQ = "kafka", "mq"
_REMOVED: Final = "mqe"
"""The demo of a network; Redrive 0.1.0 was the last version that had it."""
_INTERRUPTED: Final = 130
"""Exit code after Ctrl+C, as in shells."""


def _known(context: click.Context, parameter: click.Parameter, which: str) -> str:
    del context, parameter
    if which == _REMOVED:
        message = f"redrive demo {which} was removed: the last version that has it is 0.1.0"
        raise UsageError(message, hint=f"examples/{which}/README.md has its network to try by hand")
    if which not in {_KAFKA, _MQ}:
        raise UsageError(f"{which} is not a demo", hint=f"redrive demo, or redrive demo {_MQ}")
    return which


@click.command()
@click.argument("which", metavar="[mq]", default=_KAFKA, callback=_known)
@click.option(
    "--messages",
    "-n",
    type=click.IntRange(_FEWEST, 1_000_000),
    show_default=f"{_OF_KAFKA}; {_OF_MQ} for mq",
    help="How many messages to make.",
)
@click.option("--seed", type=click.IntRange(0), help="Random seed, to repeat a demo.")
@click.option(
    "--directory",
    "-d",
    type=click.Path(file_okay=False, path_type=Path),
    help="New folder for the demo's files; by default a temporary one.",
)
@click.option("--keep", is_flag=True, help="Keep the broker running afterwards.")
@click.option(
    "--console",
    "shows_console",
    is_flag=True,
    help="Afterwards run the job and the web console on the demo's data until Ctrl+C.",
)
@click.option("--fast", is_flag=True, help="Retry every second; done in a few seconds.")
@json_option
@click.pass_context
def demo(
    context: click.Context,
    which: str,
    *,
    messages: int | None,
    seed: int | None,
    directory: Path | None,
    keep: bool,
    shows_console: bool,
    fast: bool,
    as_json: bool,
) -> None:
    """Run the whole job on sample dead letters and an embedded broker.

    A generator makes dead letters of Kafka Connect, Spring and Kafka Streams, and the job handles
    them by one table with back-off. A topic that many return to is missing for fifteen seconds, and
    an application fails again, for some messages in every round. At the end kafka-python reads all
    topics, and the demo checks every message. Everything is removed afterwards, except with --keep
    or --directory.

    With mq, they are dead letters of IBM MQ of many kinds, under a table of runmqdlq: a queue is
    full, another one is missing for a minute.

    \b
    redrive demo
    redrive demo --messages 300 --fast
    redrive demo --keep --directory demo
    redrive demo mq

    Exit codes: 0 every message as expected, 1 not, 2 usage, 130 interrupted.
    """  # noqa: D301 - \b keeps click from wrapping the examples
    if keep and directory is None:
        raise UsageError("--keep needs --directory", hint="redrive demo --keep --directory demo")
    is_mq = which == _MQ
    make, default = (MqDeadLetters, _OF_MQ) if is_mq else (KafkaDeadLetters, _OF_KAFKA)
    script = make(
        messages or default, secrets.randbelow(1_000_000) if seed is None else seed, fast=fast
    )
    with ExitStack() as stack:
        if shows_console:
            check_console()
            temporary = stack.enter_context(TemporaryDirectory(prefix="redrive-demo-"))
            directory, keep = directory or Path(temporary) / "demo", True
        try:
            report = Demonstration(script, directory=directory, keep=keep).run()
        except KeyboardInterrupt:
            click.echo("interrupted; everything is stopped", err=True)
            context.exit(_INTERRUPTED)
        if as_json:
            print_json(report.document())
        else:
            report.show(Console(highlight=False))
        if shows_console:
            assert directory is not None
            _serve(directory)
        elif not as_json:
            _name_next_steps(directory, keep=keep)
    context.exit(0 if report.adds_up else 1)


def _name_next_steps(directory: Path | None, *, keep: bool) -> None:
    if directory is None:
        click.echo("\nTo look around in it: redrive demo --keep --directory demo")
        return
    broker, settings = directory / "broker", directory / SETTINGS
    click.echo(f"\nEverything is in {directory}: settings, table, logs, the broker's data. Try:")
    if not keep:
        click.echo(f"  redrive broker start -d {broker}    and first start the broker again")
    click.echo(f"  redrive groups -c {settings}     what remains, by cause")
    click.echo(f"  redrive ls -c {settings}         each of these, and redrive show for one")
    click.echo(f"  redrive console -c {settings}    the same in a browser")
    click.echo(f"Stop it with redrive broker stop -d {broker}")


def _serve(directory: Path) -> None:
    from redrive.console.server import serve_console  # noqa: PLC0415 - only with the extra

    settings, redrive = directory / "redrive.toml", [sys.executable, "-m", "redrive"]
    with (directory / "run.log").open("wb") as log:
        job = subprocess.Popen([*redrive, "run", "-c", settings], stdout=log, stderr=log)
        try:
            serve_console(settings, "127.0.0.1", free_port())
        finally:
            job.terminate()
            job.wait()
            subprocess.run(
                [*redrive, "broker", "stop", "-d", directory / "broker"],
                check=False,
                stdout=subprocess.DEVNULL,
            )
