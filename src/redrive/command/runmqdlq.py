"""``redrive runmqdlq``: IBM MQ's command line for one dead-letter queue."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import click

from redrive.checkpoints.control import is_table_of, read_entries
from redrive.checkpoints.instances import AUTO
from redrive.command.run import run_job
from redrive.configuration import JobConfiguration
from redrive.configuration.deciders import table_of
from redrive.engine.outcome import Result
from redrive.errors import AlreadyRunningError, EnvironmentFault, RedriveError, UsageError
from redrive.forms import KeyPath
from redrive.logs import configure_logging
from redrive.messages.constants import constant_value, reason_name
from redrive.operations.network import open_cluster
from redrive.operations.process import free_directory
from redrive.printable import counted
from redrive.rules import Control, Dialect, decode_source, input_queue
from redrive.settings import (
    Document,
    LogLevel,
    Option,
    RulesSource,
    Settings,
    settings_of,
    topology_of,
    with_environment,
)
from redrive.streaming.lifecycle import BatchSummary, JobObserver
from redrive.topology.names import escape

USAGE: Final = """\
Usage: redrive runmqdlq [QName [QMgrName]] [-u UserID] [-c] [--take-over NAME | --beside]
                        < rules-table

  QName     the dead-letter queue; ' ' for the queue manager's own. Without it: INPUTQ of the
            table, else the queue manager's own: DEADQ of its definitions, or REDRIVE_DEADQ
  QMgrName  the queue manager's name; without it or ' ': INPUTQM of the table
  -u        sign in as this user; the first line of standard input is the password
  -c        connect as a client: always the case here
  --take-over NAME, --beside   as for redrive run: what to do at the first start about another
            application that handles the queue

The rules table is read from standard input, all of it, before any message is touched.

Environment: REDRIVE_BOOTSTRAP_SERVERS (by default localhost:9092), REDRIVE_DEADQ,
REDRIVE_DIRECTORY, REDRIVE_SECURITY_PROTOCOL, REDRIVE_SASL_MECHANISM, REDRIVE_SSL_CA_FILE; and
REDRIVE_SETTINGS, a settings file of which all but the application's name and handlers applies.

Exit codes: 0 stopped or ended by WAIT, 1 error, 2 usage, 75 stalled, or Java ended: start it
again.
"""

_VARIABLES: Final[Sequence[tuple[str, KeyPath]]] = (
    ("REDRIVE_BOOTSTRAP_SERVERS", ("kafka", "bootstrap_servers")),
    ("REDRIVE_SECURITY_PROTOCOL", ("kafka", "security_protocol")),
    ("REDRIVE_SASL_MECHANISM", ("kafka", "sasl_mechanism")),
    ("REDRIVE_SSL_CA_FILE", ("kafka", "ssl_ca_file")),
    ("REDRIVE_DEADQ", ("topology", "dead_letter_queue")),
    ("REDRIVE_DIRECTORY", ("application", "directory")),
)

_BROKER: Final = "localhost:9092"
_ON_CONFLICT: Final = ("application", "on_conflict")
_SIGN_IN: Final = {
    # A password is sent in clear text only on request.
    ("kafka", "security_protocol"): "SASL_SSL",
    ("kafka", "sasl_mechanism"): "PLAIN",
}
_PASSWORD: Final = "REDRIVE_STANDARD_INPUT"  # noqa: S105 - a variable's name
"""Environment variable for the password from standard input, as the settings name it."""


@dataclass(frozen=True, slots=True)
class Arguments:
    """The arguments of one call."""

    names: tuple[str, ...] = ()
    """Queue and queue manager, as far as given. More names are ignored, as a trigger monitor
    appends one."""
    user: str = ""
    take_over: str = ""
    """The application whose positions to take over; empty for none."""
    is_beside: bool = False
    wants_help: bool = False

    @classmethod
    def parse(cls, words: Sequence[str]) -> Arguments:
        """Read the arguments as IBM's command does: ``-u id`` and ``-uid`` are the same."""
        names: list[str] = []
        user = take_over = ""
        is_beside = False
        rest = iter(words)
        for word in rest:
            if word.startswith("?") or word in {"-?", "-h", "--help"}:
                return cls(wants_help=True)
            if word.startswith("-u"):
                user = word[2:] or next(rest, "")
                if not user:
                    raise UsageError("-u needs a user")
            elif word == "--take-over":
                take_over = next(rest, "")
                if not take_over:
                    raise UsageError("--take-over needs the name of an application")
            elif word == "--beside":
                is_beside = True
            elif word.startswith("-") and word != "-c":
                raise UsageError(f"there is no option {word}")
            elif word != "-c":
                names.append(word)
        return cls(tuple(names[:2]), user, take_over, is_beside)


@click.command(
    add_help_option=False,
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
)
@click.argument("words", nargs=-1, type=click.UNPROCESSED)
@click.pass_context
def runmqdlq(context: click.Context, /, words: tuple[str, ...]) -> None:
    """Handle one dead-letter queue by the rules table on standard input."""
    try:
        arguments = Arguments.parse(words)
    except UsageError:
        click.echo(USAGE, err=True)
        raise
    if arguments.wants_help:
        click.echo(USAGE, nl=False)
        context.exit(0)
    if sys.stdin.isatty():
        click.echo("Type the rules table and end it with Ctrl+D.", err=True)
    rules, password = read_input(sys.stdin.buffer.read(), has_password=bool(arguments.user))
    settings = settings_for(arguments, rules, {**os.environ, _PASSWORD: password})
    configure_logging(settings.log)
    report = Report(settings, click.echo)
    job = settings.job
    try:
        open_queue(job)
        # The first process has the job's folder, as an only one has.
        with free_directory(job.directory) if job.rebalances else nullcontext(None) as folder:
            own = job if folder is None else replace(job, directory=folder)
            code = run_job(replace(settings, job=own), report, load=None)
    except AlreadyRunningError as error:
        raise not_opened(job, "MQRC_OBJECT_IN_USE", error.message) from error
    except RedriveError as error:
        report.failed(error)
        raise
    context.exit(code)


def open_queue(job: JobConfiguration) -> None:
    """Check that the queue can be opened, like the open of IBM's command.

    Raises:
        EnvironmentFault: It does not exist, or a running handler has another rules table.
        TransientFault: The broker did not answer in time.
    """
    [handler, *_] = job.handlers
    topic = handler.identity.topic
    with open_cluster(job.connection) as cluster:
        if topic not in cluster.topics():
            raise not_opened(job, "MQRC_UNKNOWN_OBJECT_NAME", f"there is no topic {topic}")
        if not cluster.partitions([job.control_topic]) or not cluster.members(job.application):
            return
        entries = read_entries(cluster, job.control_topic)
    own = table_of(handler).hash + job.schemes_id(handler)
    tables = {entry.get("table") for key, entry in entries.items() if is_table_of(key, topic)}
    if tables and own not in tables:
        # Several handlers may share a queue if they have one table (D-PROC, note 7).
        raise not_opened(
            job, "MQRC_OBJECT_IN_USE", "a running handler of it has another rules table"
        )


def not_opened(job: JobConfiguration, reason: str, detail: str) -> EnvironmentFault:
    """The error about a dead-letter queue that cannot be opened (AMQ8745)."""
    queue, code = job.handlers[0].identity.queue, constant_value(reason)
    return EnvironmentFault(
        f"AMQ8745: the dead-letter queue {queue} cannot be opened: {reason} ({code}), {detail}",
        hint="correct QName, INPUTQ or DEADQ, or create the queue"
        if reason == "MQRC_UNKNOWN_OBJECT_NAME"
        else "stop the other first; handlers with the same table share a queue",
    )


def read_input(data: bytes, *, has_password: bool) -> tuple[RulesSource, str]:
    """The rules table and the password from standard input.

    The password is the first line, if there is one. Line numbers count it.
    """
    password = b""
    if has_password:
        password, end, data = data.partition(b"\n")
        data = end + data
    text = decode_source(data)
    return RulesSource(text, "<stdin>"), password.rstrip(b"\r").decode("utf-8", "replace")


def settings_for(arguments: Arguments, rules: RulesSource, environ: Mapping[str, str]) -> Settings:
    """The settings of a job that handles one queue by a table already read.

    Raises:
        ConfigurationError: There is an error; every finding is attached.
        UsageError: The table has a dialect that IBM's command does not have.
    """
    if rules.parsed().dialect is not Dialect.IBM:
        raise UsageError(
            "the rules table has DIALECT(KAFKA); runmqdlq takes only IBM's language",
            hint="name the table in a settings file for redrive run, or remove DIALECT and"
            " use IBM's "
            "keywords",
        )
    path = environ.get("REDRIVE_SETTINGS")
    base = Document.from_file(Path(path)).without("handlers") if path else Document.empty()
    document = with_environment(base, environ).with_options(
        "redrive runmqdlq", _options(arguments, environ)
    )
    queue = _queue(arguments, rules, document)
    if not queue and (queue := _defined_queue(arguments, rules, document)):
        own = [Option(("handlers", 0, "queue"), "DEADQ", queue)]
        document = document.with_options("redrive runmqdlq", own)
    # Processes with the same queue share their progress and its partitions.
    handler = _handler(arguments, queue, document)
    name = "@".join(filter(None, (queue, handler.get("queue_manager"))))
    values: dict[KeyPath, Any] = {("application", "name"): escape(name) or "runmqdlq"}
    if not (document.has(("application", "instance")) or document.has(_ON_CONFLICT)):
        values["application", "instance"] = AUTO
    if arguments.take_over:
        values["application", "take_over"] = arguments.take_over
    if arguments.is_beside:
        values["application", "beside"] = True
    if not document.has(("handlers",)):
        values["handlers",] = [handler]
    if not document.has(("kafka", "bootstrap_servers")):
        values["kafka", "bootstrap_servers"] = _BROKER
    if arguments.user:
        values["kafka", "sasl_password"] = f"${{{_PASSWORD}}}"
        values |= {path: value for path, value in _SIGN_IN.items() if not document.has(path)}
    settings = settings_of(document.with_values(values), environ=environ, rules=rules)
    # Another application carries out the puts of a topology.
    settings = replace(settings, job=replace(settings.job, routes_puts=False))
    if document.has(("log",)):
        return settings
    return replace(settings, log=replace(settings.log, level=LogLevel.WARNING))


def _defined_queue(arguments: Arguments, rules: RulesSource, document: Document) -> str:
    """DEADQ of the queue manager in the settings' definitions; empty without them."""
    topology = topology_of(document)
    if topology.definitions is None:
        return ""
    names = topology.definitions.manager_names
    table = rules.parsed().table
    words = [*arguments.names[1:], table.control.input_queue_manager if table else ""]
    manager = next((word for text in words for word in text.split()[:1]), "")
    if not manager and len(names) == 1:
        manager = names[0]
    queue = topology.own_dead_letter_queue(manager)
    if manager in names and not queue:
        raise UsageError(
            f"the dead-letter queue is not named: queue manager {manager} has no DEADQ",
            hint="give QName, INPUTQ in the table, or REDRIVE_DEADQ",
        )
    return queue


def _handler(arguments: Arguments, queue: str, document: Document) -> dict[str, str]:
    """The handler's entry; with the queue manager if the settings have definitions."""
    if not arguments.names:
        return {}
    is_defined = document.has(("topology", "files"))
    if is_defined and len(arguments.names) > 1:
        return {"queue": queue, "queue_manager": arguments.names[1]}
    return {"queue": queue}


def _options(arguments: Arguments, environ: Mapping[str, str]) -> list[Option]:
    options = [
        Option(setting, f"{name}=", environ[name])
        for name, setting in _VARIABLES
        if environ.get(name)
    ]
    for key, words in zip(("queue", "queue_manager"), arguments.names, strict=False):
        # A name ends at its first blank.
        options += [Option(("handlers", 0, key), "", word) for word in words.split()[:1]]
    if arguments.user:
        options.append(Option(("kafka", "sasl_username"), "-u", arguments.user))
    return options


def _queue(arguments: Arguments, rules: RulesSource, document: Document) -> str:
    """The dead-letter queue; empty if definitions name it, or if the table has errors."""
    own = document.text(("topology", "dead_letter_queue"))
    has_definitions = document.has(("topology", "files"))
    if arguments.names:
        [queue, *_] = [*arguments.names[0].split(), own]
        if not queue and not has_definitions:
            raise UsageError(
                "a blank QName is the queue manager's own dead-letter queue, which is not named",
                hint="set REDRIVE_DEADQ, or give the queue",
            )
        return queue
    table = rules.parsed().table
    queue = input_queue([], table.control if table else Control(), own)
    if table and not queue and not has_definitions:
        raise UsageError(
            "the dead-letter queue is not named: no QName, no INPUTQ in the table, "
            "no REDRIVE_DEADQ",
            hint="see redrive runmqdlq ?",
        )
    return queue


class Report(JobObserver):
    """The report on standard output: start, failed puts, end, and a summary."""

    def __init__(self, settings: Settings, write: Callable[[str], None]) -> None:
        self._queue = settings.job.handlers[0].identity.queue
        self._write = write
        self._results: Counter[str] = Counter()
        self._is_begun = False

    def started(self, configuration: JobConfiguration) -> None:
        """Report the queue (AMQ8708)."""
        manager = configuration.handlers[0].identity.queue_manager
        of_manager = f" Its queue manager is {manager}." if manager else ""
        self._line(
            f"AMQ8708: Dead-letter queue handler started to process INPUTQ({self._queue})."
            f"{of_manager}"
        )

    def notice(self, message: str, /, **facts: object) -> None:
        """Write a note with its facts."""
        listed = "".join(f", {name.replace('_', ' ')} {value}" for name, value in facts.items())
        self._line(f"Note: {message}{listed}.")

    def warning(self, message: str, /, **facts: object) -> None:
        """Write a note, as runmqdlq has no warnings."""
        self.notice(message, **facts)

    def batch(self, summary: BatchSummary) -> None:
        """Report failed puts (AMQ8722) and invalid headers (AMQ8721)."""
        self._is_begun = True
        self._results.update(summary.by_result)
        for failure, count in summary.failures.items():
            self._line(
                f"AMQ8722: The rule at line {failure.rule_line} could not put "
                f"{counted(count, 'message')} on {failure.target}: "
                f"{reason_name(failure.reason)} ({failure.reason}), {failure.detail}."
            )
        if invalid := summary.invalid.total():
            verb = "has" if invalid == 1 else "have"
            self._line(
                f"AMQ8721: {counted(invalid, 'message')} {verb} no valid dead-letter "
                "header: kept, as no rule can match."
            )

    def stopped(self, reason: str) -> None:
        """Report why it ends, and the summary (AMQ8709, CSQU202, CSQU203)."""
        self._line(f"AMQ8709: Dead-letter queue handler ending: {reason}.")
        self._summary()

    def failed(self, error: RedriveError) -> None:
        """Report an end by an error, which standard error explains."""
        if self._is_begun:
            self._line(f"AMQ8709: Dead-letter queue handler ending by an error: {error.message}.")
            self._summary()

    def _summary(self) -> None:
        done = self._results
        self._line(
            f"Successful actions: {counted(done[Result.RETRIED], 'retry')}, "
            f"{counted(done[Result.FORWARDED], 'forward')}, "
            f"{counted(done[Result.DISCARDED], 'discard')}."
        )
        remaining = done[Result.REMAINS]
        verb = "remains" if remaining == 1 else "remain"
        self._line(f"{counted(remaining, 'message')} {verb} on {self._queue}.")

    def _line(self, text: str) -> None:
        self._write(f"{datetime.now().astimezone():%Y-%m-%d %H:%M:%S} {text}")
