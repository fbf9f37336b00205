"""``redrive run``: runs the job until it is stopped or WAIT of the tables ends it."""

from __future__ import annotations

import faulthandler
import logging
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final

import click

from redrive.command import report_error
from redrive.command.options import choice_option, json_option, repeated_option
from redrive.command.output import print_json
from redrive.configuration import JobConfiguration
from redrive.errors import RedriveError, UsageError
from redrive.library import SummaryObserver, checked_restart, prepared
from redrive.logs import LogObserver, configure_logging, log_all_output, log_findings
from redrive.operations.process import handling_signals
from redrive.operations.restart import FileWatch, RestartRecord, changed_tables
from redrive.settings import (
    DEFAULT_FILE,
    Document,
    LogFormat,
    LogLevel,
    LogSettings,
    Option,
    Settings,
    WatchedFiles,
    read_settings,
    settings_of,
    with_environment,
)
from redrive.streaming.lifecycle import JobControl, JobObserver
from redrive.topology.names import escape
from redrive.version import __version__

_LOGGER: Final = logging.getLogger("redrive.run")

_STANDARD_ERROR: Final = 2
"""The file descriptor; the stream itself may be replaced."""

_SETTINGS: Final = {
    "bootstrap_server": ("kafka", "bootstrap_servers"),
    "application": ("application", "name"),
    "directory": ("application", "directory"),
    "instance": ("application", "instance"),
    "take_over": ("application", "take_over"),
    "beside": ("application", "beside"),
    "log_format": ("log", "format"),
    "log_level": ("log", "level"),
    "wait": ("supervision", "wait_for_broker"),
    "watch": ("job", "watch"),
}


@dataclass(frozen=True, slots=True)
class _Source:
    path: Path | None
    options: Sequence[Option]

    def read(self) -> Settings:
        if self.path is not None:
            return read_settings(self.path, options=self.options)
        document = with_environment(Document.empty(), os.environ)
        return settings_of(document.with_options("redrive run", self.options))

    def text(self) -> str:
        """The options as a settings file in the job's folder; empty if they have a file."""
        if self.path is not None:
            return ""
        files = {
            option.path: _absolute(str(option.value))
            for option in self.options
            if option.path[-1] == "rules" or option.path[0] == "topology"
        }
        document = Document.empty().with_options("redrive run", self.options)
        return document.with_values({**files, ("application", "directory"): "."}).toml()


def _absolute(named: str) -> str:
    """A file, or ``QM=FILE``, with its whole path; as ``named_sources`` reads it."""
    if "=" not in named or Path(named).exists():
        return str(Path(named).expanduser().absolute())
    manager, _, name = named.partition("=")
    return f"{manager}={Path(name).expanduser().absolute()}"


@click.command()
@click.option(
    "-c",
    "--config",
    "path",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="The settings, by default redrive.toml.",
)
@click.option(
    "--bootstrap-server", metavar="HOST:PORT", help="A broker, or several separated by commas."
)
@repeated_option(
    "--dlq",
    "queues",
    metavar="QUEUE[@QM]",
    help_text="A dead-letter queue (of QM); by default INPUTQ of the table.",
)
@click.option(
    "--rules",
    multiple=True,
    metavar="FILE",
    help="Rules table: one for each --dlq in the same order, or one for all.",
)
@repeated_option(
    "--topology",
    "files",
    metavar="[QM=]FILE",
    help_text="Definitions of queue managers: an MQSC script (of QM), MQe network or bindings, or a"
    " folder of them.",
)
@click.option(
    "--application",
    metavar="NAME",
    help="Name of the job, under which it keeps its progress; by default that of the only"
    " dead-letter queue.",
)
@click.option("--directory", metavar="DIR", help="The job's folder for local files.")
@click.option("--instance", metavar="N/M", help="This instance's share, such as 1/2; or auto.")
@click.option(
    "--take-over",
    metavar="NAME",
    help="At the first start, continue where the application NAME, which has ended, has stopped.",
)
@click.option(
    "--beside",
    is_flag=True,
    default=None,
    help="At the first start, handle everything although another application handles it too.",
)
@choice_option("--log-format", values=LogFormat, help_text="Format of the log.")
@choice_option("--log-level", values=LogLevel, help_text="Lowest level of the log.")
@click.option(
    "--wait",
    is_flag=True,
    default=None,
    help="Wait for a broker that does not answer, instead of failing.",
)
@click.option(
    "--watch",
    is_flag=True,
    default=None,
    help="Reload settings, rules tables and definitions when they change.",
)
@click.option("--once", is_flag=True, help="Handle what is due now, whatever WAIT says, and end.")
@click.option(
    "--dry-run", is_flag=True, help="Show what the job would do with the waiting messages."
)
@json_option
@click.pass_context
def run(
    context: click.Context,
    /,
    path: Path | None,
    queues: tuple[str, ...],
    rules: tuple[str, ...],
    files: tuple[str, ...],
    *,
    once: bool,
    dry_run: bool,
    as_json: bool,
    **given: str | bool | None,
) -> None:
    """Handle dead letters by rules tables, exactly once, until stopped.

    \b
    redrive run -c redrive.toml
    redrive run --bootstrap-server localhost:9092 --dlq orders.dlq --rules orders.rul
    redrive run --bootstrap-server localhost:9092 --application net --topology definitions
    redrive run -c redrive.toml --once
    redrive run -c redrive.toml --dry-run

    With a topology the job also carries out the puts to its queue managers.

    With --once the job ends when the messages that were due at its start are handled, and prints
    one line of what it did, or the counts with --json. Messages parked for later wait for the next
    run.

    With --dry-run nothing is started: each table is tried on the messages that its handler would
    read now, and on those that are parked or remain. The counts are by rule and target; --json is
    for programs.

    With --wait the job waits for a broker that does not answer; a refusal still ends it. With
    --watch the job reloads changed files as redrive restart does, and refuses broken ones.

    Options override the file. SIGTERM or Ctrl+C stop the job after the running batch; SIGHUP or
    redrive restart reload its settings and tables. Without a file the job's folder keeps the
    options as one, which other commands find in the same working directory.

    Exit codes: 0 stopped, ended by WAIT or --once, or tried, 1 error, 2 usage, 75 stalled, or Java
    ended: start it again.
    """  # noqa: D301 - \b keeps click from wrapping the examples
    if as_json and not (dry_run or once):
        raise UsageError(
            "--json is for --dry-run and --once", hint="--log-format json is for the job's log"
        )
    if once and (dry_run or given["watch"]):
        raise UsageError(f"--once and {'--dry-run' if dry_run else '--watch'} exclude each other")
    if path is None and not (queues or rules or files) and DEFAULT_FILE.exists():
        path = DEFAULT_FILE
    if path is not None and files:
        raise click.UsageError("-c FILE and --topology exclude each other")
    options = _handler_options(path, queues, rules, files)
    options += [
        Option(("topology", "files", index), "--topology", file) for index, file in enumerate(files)
    ]
    options += [
        Option(_SETTINGS[name], f"--{name.replace('_', '-')}", value)
        for name, value in given.items()
        if value is not None
    ]
    if path is None and not given["application"]:
        # The name of its queue, so that a later start uses the same.
        if len(queues) != 1:
            raise click.UsageError(
                "name the job by --application NAME: its progress is kept under that name"
            )
        options.append(Option(("application", "name"), "--application", escape(queues[0])))
    source = _Source(path, options)
    watched = WatchedFiles.of(path, options)
    taken = watched.digest()  # before they are read: a later change causes one more reload
    settings = source.read()
    if dry_run:
        # Slow to import, and not needed by a job that starts.
        from redrive.command.plan import try_tables  # noqa: PLC0415

        try_tables(settings, as_json=as_json)
        return
    _configure_log(settings, logs_output=not once)
    load = partial(_reload, source, settings.job, logs_output=not once)
    if once:
        observer = SummaryObserver()
        code = run_job(settings, LogObserver(), observer, load=load, kept=source.text(), once=True)
        summary = observer.summary()
        if as_json:
            print_json(asdict(summary))
        else:
            click.echo(summary)
        context.exit(code)
    watch = FileWatch.of(settings.job, watched.digest, taken) if settings.job.watch else None
    context.exit(run_job(settings, LogObserver(), load=load, kept=source.text(), watch=watch))


def _configure_log(settings: Settings, *, logs_output: bool) -> None:
    """Log as the settings say; as JSON also what is printed, but for the result of a run once."""
    log = settings.log
    if logs_output and log.format is LogFormat.JSON and not log.file:
        log_all_output()
    configure_logging(log)
    log_findings(_LOGGER, settings.warnings)


def run_job(
    settings: Settings,
    *observers: JobObserver,
    load: Callable[[], JobConfiguration] | None,
    kept: str = "",
    watch: FileWatch | None = None,
    once: bool = False,
) -> int:
    """Run a job in this process until it ends, and return the exit code; raises ``RedriveError``.

    Args:
        settings: The settings.
        observers: The job's observers.
        load: Reads the settings again for SIGHUP; None if they cannot be.
        kept: Settings that the job's folder keeps as a file, where other commands find them.
        watch: Looks for changed files.
        once: Whether the job ends when what was due at its start is handled.
    """
    job = settings.job
    record = RestartRecord(job.directory, job.share)
    control = JobControl(*observers, _RestartObserver(record, job))
    restart = None if load is None else partial(control.request_restart, load)
    with prepared(settings, control, takes_signals=True, once=once):
        if not faulthandler.is_enabled():
            faulthandler.enable(_STANDARD_ERROR)  # prints a stack trace when a client crashes
        record.forget()
        if kept:
            # The job does not need it, and says itself that a disk is full.
            with suppress(OSError):
                (job.directory / DEFAULT_FILE).write_text(kept, encoding="utf-8")
        start = {"event": "start", "version": __version__, **settings.describe()}
        _LOGGER.info(
            "redrive %s: application %s, instance %s, brokers %s; starting Spark",
            *(__version__, job.application, job.instance, job.connection.bootstrap_servers),
            extra={"details": start},
        )
        with (
            handling_signals(control.request_stop, restart),
            watch or nullcontext(),
            _log_error(settings.log),
        ):
            return _job()(job, control, end_process=partial(end_process, control), once=once)


def end_process(control: JobControl, exit_code: int) -> None:
    """End this process at once; the error that ends it is its last line."""
    if control.fatal_error is not None:
        report_error(control.fatal_error)
    os._exit(exit_code)


@dataclass(slots=True)
class _RestartObserver(JobObserver):
    record: RestartRecord
    running: JobConfiguration

    def restarted(self, configuration: JobConfiguration, *, is_new_run: bool) -> None:
        changed, unchanged = changed_tables(self.running, configuration)
        self.running = configuration
        self.record.write(None, changed=changed, unchanged=unchanged, is_new_run=is_new_run)

    def resubscribed(self, configuration: JobConfiguration) -> None:
        self.running = configuration

    def restart_refused(self, error: RedriveError) -> None:
        self.record.write(error)


def _job() -> Callable[..., int]:
    # Spark is slow to import: errors in settings are reported before.
    from redrive.streaming.job import run as run_streaming  # noqa: PLC0415

    return run_streaming


@contextmanager
def _log_error(log: LogSettings) -> Iterator[None]:
    """Log an error that ends the job, unless the command prints it to the same place."""
    try:
        yield
    except RedriveError as error:
        if log.file or log.format is LogFormat.JSON:
            details = {"event": "failed", "hint": error.hint}
            _LOGGER.error("ended by an error: %s", error.message, extra={"details": details})  # noqa: TRY400 - no stack trace
        raise


def _reload(source: _Source, running: JobConfiguration, *, logs_output: bool) -> JobConfiguration:
    settings = source.read()
    job = checked_restart(settings, running)
    _configure_log(settings, logs_output=logs_output)
    operator = RestartRecord(running.directory, running.share).asked_by()
    if operator:
        _LOGGER.info("the settings are read again for %s", operator)
    return replace(job, operator=operator)


def _handler_options(
    path: Path | None, queues: Sequence[str], rules: Sequence[str], files: Sequence[str]
) -> list[Option]:
    if path is not None and (queues or rules):
        raise click.UsageError("-c FILE and --dlq or --rules exclude each other")
    if path is None and not rules and not (files and not queues):
        raise click.UsageError(
            "there is no redrive.toml here: name one with -c FILE, or a table with --rules FILE"
        )
    tables = list(rules) * len(queues) if len(rules) == 1 and queues else list(rules)
    if queues and len(queues) != len(tables):
        raise click.UsageError(
            f"there are {len(queues)} --dlq and {len(rules)} --rules: "
            "give one table for each queue, or one for all"
        )
    options = []
    for index, table in enumerate(tables):
        if queues:
            queue, _, manager = queues[index].partition("@")
            options.append(Option(("handlers", index, "queue"), "--dlq", queue))
            if manager:
                options.append(Option(("handlers", index, "queue_manager"), "--dlq", manager))
        options.append(Option(("handlers", index, "rules"), "--rules", table))
    return options
