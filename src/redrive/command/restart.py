"""``redrive restart``: reloads the settings and tables of a running job."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import click

from redrive.checkpoints.tables import KeptTable
from redrive.command.options import config_option, instance_options, yes_option
from redrive.command.output import ask, print_lines
from redrive.command.plan import ask_with_progress, show
from redrive.command.tables import required_text
from redrive.configuration import HandlerConfiguration, JobConfiguration
from redrive.errors import ConfigurationError, RedriveError, UsageError
from redrive.messages.schemes import schemes_id
from redrive.operations.restart import RestartAnswer, RulesFile, meaning_of, running_process
from redrive.operations.restart import restart as restart_job
from redrive.operations.tables import SHORT_HASH, Tables, tables_of
from redrive.printable import printable
from redrive.settings import Option, Settings, read_settings, read_settings_for_lookup
from redrive.what_if import Over, Question

_NOTHING_MOVES: Final = (
    "parked messages keep their attempt counts, and remaining messages"
    " stay until their table changes"
)
_ENRICHED: Final = "the effect of the enrichment function is unknown: the preview does not call it"
_REPLAY: Final = "redrive replay now replays remaining messages under the same table"
_NEW_RUN: Final = "the query was restarted; changed rules tables alone do not need that"
_NOT_RESTARTED: Final = "not restarted, the job continues with the old settings"
_WAITING: Final = (Over.REMAINING, Over.PARKED)


class _RestartRefusedError(RedriveError):
    """The job keeps its settings."""


@click.command()
@config_option
@instance_options
@click.option("--plan", "shows_plan", is_flag=True, help="Preview the effect on messages, and ask.")
@click.option(
    "--over",
    "places",
    type=click.Choice([over.value for over in Over]),
    multiple=True,
    help="With --plan, which messages; may be repeated. Default: remaining and parked.",
)
@click.option(
    "--table", "digits", metavar="HASH", help="Restore an earlier table: see redrive tables."
)
@click.option("--handler", metavar="NAME", help="With --table, its handler, if several used it.")
@yes_option
@click.option(
    "--timeout",
    type=click.FloatRange(min=0),
    default=60.0,
    show_default=True,
    metavar="SECONDS",
    help="How long to wait for the job's answer.",
)
def restart(
    *,
    config: Path,
    options: Sequence[Option],
    shows_plan: bool,
    places: Sequence[str],
    digits: str | None,
    handler: str | None,
    yes: bool,
    timeout: float,
) -> None:
    """Reload the settings and rules tables of a running job.

    Changed tables apply from the next batch on; other changes restart the query. If anything is
    wrong with the new settings or tables, the job continues with the old ones, and this command
    says why. If a table or [schemes] changed in meaning, every parked and remaining message of the
    handler is evaluated again, otherwise none. The command lists both.

    \b
    redrive restart -c redrive.toml
    redrive restart -c redrive.toml --plan
    redrive restart -c redrive.toml --table 3f2a9c

    --table writes an earlier table into the file that the settings name, after asking. The old file
    is kept beside it, and restored if the job refuses.

    Exit codes: 0 restarted, 1 not restarted, 2 usage.
    """  # noqa: D301 - \b keeps click from wrapping the examples
    if (places and not shows_plan) or (handler is not None and digits is None):
        raise UsageError("--over belongs to --plan, and --handler to --table")
    over = (tuple(map(Over, places)) or _WAITING) if shows_plan else ()
    reload = RestartCommand(config, options, over, yes)
    answer = reload.here(timeout) if digits is None else reload.with_kept(digits, handler, timeout)
    click.echo(f"process {answer.pid} goes on with {config} and its rules tables as they are now")
    if answer.is_new_run:
        click.echo(_NEW_RUN)
    print_lines(_effect_lines(answer))


@dataclass(frozen=True, slots=True)
class RestartCommand:
    """One restart of a job."""

    path: Path
    options: Sequence[Option]
    over: Sequence[Over]
    """The messages that a plan is shown for; empty without a plan."""
    yes: bool
    operator: str = ""
    """Who asks, and why; empty for the user of this process."""

    def here(self, timeout: float) -> RestartAnswer:
        """Restart with the files as they are."""
        settings = self._checked()
        # Report errors in tables before asking the job.
        running_process(settings.job)
        if self.over:
            _show_plan(settings, tables_of(settings.job), self.over)
            ask("Restart with these tables?", yes=self.yes)
        return self._restart(settings.job, timeout)

    def with_kept(self, digits: str, handler: str | None, timeout: float) -> RestartAnswer:
        """Restart with an earlier table instead of the one in the file."""
        # The table in the file may be broken, which may be why another is wanted.
        now = read_settings_for_lookup(self.path, options=self.options).job
        running_process(now)
        ran = tables_of(now)
        kept = ran.find(digits, handler)
        file, handlers = _file_of(now, kept)
        text = required_text(kept)
        if file.holds(text):
            click.echo(f"{file.path} holds the table {kept.hash[:SHORT_HASH]} already")
            return self.here(timeout)

        def confirm(settings: Settings) -> None:
            if self.over:
                _show_plan(settings, ran, self.over)
            ask(
                f"Write the table {kept.hash[:SHORT_HASH]} into {printable(str(file.path))} and"
                f" restart? The present content is kept as {printable(file.saved.name)}.",
                yes=self.yes,
            )

        answer = self.with_text(file, handlers, text, timeout, confirm)
        before = f"; its former content is kept as {file.saved.name}" if file.saved.exists() else ""
        line = f"{file.path} holds the table {kept.hash[:SHORT_HASH]} again{before}"
        click.echo(printable(line))
        return answer

    def with_text(
        self,
        file: RulesFile,
        handlers: Sequence[HandlerConfiguration],
        text: str,
        timeout: float,
        confirm: Callable[[Settings], None],
    ) -> RestartAnswer:
        """Restart with another text in a file, which is restored if the job refuses.

        ``confirm`` is called with the settings before anything changes, and may raise.
        """
        with file.prepared(text) as candidate:
            settings = self._checked(
                Option(("handlers", section, "rules"), "the new table", str(candidate))
                for section in {handler.section for handler in handlers}
            )
            confirm(settings)
            file.replace()
            try:
                return self._restart(settings.job, timeout)
            except _RestartRefusedError:
                file.put_back()
                raise

    def _checked(self, more: Iterable[Option] = ()) -> Settings:
        try:
            return read_settings(self.path, options=[*self.options, *more])
        except ConfigurationError as error:
            raise ConfigurationError(
                f"{_NOT_RESTARTED}: {error.message}", hint=error.hint, diagnostics=error.diagnostics
            ) from error

    def _restart(self, job: JobConfiguration, timeout: float) -> RestartAnswer:
        answer = restart_job(job, timeout=timeout, operator=self.operator)
        if answer.message:
            for finding in answer.findings:
                click.echo(printable(finding), err=True)
            raise _RestartRefusedError(f"{_NOT_RESTARTED}: {answer.message}", hint=answer.hint)
        return answer


def _file_of(
    job: JobConfiguration, kept: KeptTable
) -> tuple[RulesFile, Sequence[HandlerConfiguration]]:
    """The file of a kept table, and the handlers that read it."""
    names = [handler.identity.name for handler in job.handlers]
    if kept.handler not in names:
        raise UsageError(
            f"the table {kept.hash[:SHORT_HASH]} ran for the handler {kept.handler}, which the"
            " settings do not have",
            hint=f"they have {', '.join(names)}",
        )
    path, reading = table_file(job, names.index(kept.handler))
    if len(reading) > 1:
        shared = ", ".join(handler.identity.name for handler in reading)
        click.echo(f"{path} is read by several handlers: {shared}", err=True)
    return RulesFile(path), reading


def table_file(job: JobConfiguration, index: int) -> tuple[Path, Sequence[HandlerConfiguration]]:
    """The file of a handler's table, and the handlers that read it."""
    path = Path(job.handlers[index].rules_name)
    reading = [
        handler for handler in job.handlers if Path(handler.rules_name).resolve() == path.resolve()
    ]
    return path, reading


def _show_plan(settings: Settings, ran: Tables, over: Sequence[Over]) -> None:
    job, is_changed = settings.job, False
    for handler in job.handlers:
        name, meaning = handler.identity.name, meaning_of(handler, settings.job)
        decides = ran.deciding.get(name, frozenset())
        if not decides:
            click.echo(f"{printable(name)}: a new handler without an earlier table")
        elif decides != {meaning}:
            old = _with_deciding_table(job, _kept_of(ran, name, min(decides - {meaning})))
            question = Question(old=old, new=job, handler=name, over=over, mask=settings.mask)
            show(ask_with_progress(question), as_json=False)
            is_changed = True
    if not is_changed:
        click.echo(f"no table changed in meaning: {_NOTHING_MOVES}")
        if job.enrichment:
            click.echo(_ENRICHED)


def _kept_of(ran: Tables, handler: str, meaning: str) -> KeptTable:
    for kept in ran.tables:
        if kept.handler == handler and meaning.startswith(kept.hash):
            if meaning != kept.hash + schemes_id(kept.schemes, kept.origin_topic):
                raise ConfigurationError(
                    f"the current [schemes] of {handler} are not kept",
                    hint="an earlier version started the job: restart it without --plan, and they"
                    " will be kept",
                )
            return kept
    raise ConfigurationError(
        f"the current table of {handler}, {meaning[:SHORT_HASH]}, is not kept",
        hint="it is older than the kept tables: compare two files by redrive plan NEW --old FILE",
    )


def _with_deciding_table(job: JobConfiguration, kept: KeptTable) -> JobConfiguration:
    text = required_text(kept)

    def changed(handler: HandlerConfiguration) -> HandlerConfiguration:
        if handler.identity.name != kept.handler:
            return handler
        name, topic = "the current table", kept.origin_topic
        return replace(handler, rules=text, rules_name=name, origin_topic=topic)

    return replace(job, handlers=tuple(map(changed, job.handlers)), schemes=kept.schemes)


def _effect_lines(answer: RestartAnswer) -> Iterator[str]:
    for name in answer.changed:
        yield f"{name}: the meaning changed; parked and remaining messages are evaluated again"
    if answer.changed:
        for name in answer.unchanged:
            yield f"{name}: the same table; {_NOTHING_MOVES}"
    elif answer.unchanged:
        yield f"no table changed in meaning: {_NOTHING_MOVES}"
        yield _REPLAY
