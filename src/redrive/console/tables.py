"""Rules tables in the console: those that ran, and a trial of another one before it goes live."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from redrive.command.diff import difference_document, difference_lines
from redrive.command.plan import with_table
from redrive.command.restart import Restart, table_file
from redrive.command.tables import required_text, table_document
from redrive.diagnostics import Diagnostic, Severity
from redrive.errors import ConfigurationError, EnvironmentFault, TransientFault, UsageError
from redrive.operations.restart import running_process
from redrive.operations.rules_file import RulesFile
from redrive.operations.tables import hits_of, tables_of
from redrive.printable import printable
from redrive.rules import parse
from redrive.rules.analysis import analyse, compare
from redrive.settings import Settings, read_settings
from redrive.what_if import Over, Question, ask
from redrive.what_if.document import document_of
from redrive.what_if.text import lines_of

_WAITING: Final = (Over.REMAINING, Over.PARKED)
_ANSWER: Final = 60.0
"""Seconds in which a job answers a restart."""


class RulesTables:
    """The tables of one job.

    Args:
        config: The file of its settings.
    """

    def __init__(self, config: Path) -> None:
        self._config = config

    def every(self) -> dict[str, Any]:
        """What ``redrive tables --hits --json`` prints, and the handlers of the settings."""
        job = read_settings(self._config).job
        handlers = [one.identity.name for one in job.handlers]
        try:
            found = tables_of(job)
            counted, notes = hits_of(job, found.tables)
        except (EnvironmentFault, TransientFault) as fault:
            return {"tables": [], "notes": [fault.message], "handlers": handlers}
        shown = [table_document(one, found, counted) for one in found.tables]
        return {"tables": shown, "notes": [*found.notes, *notes], "handlers": handlers}

    def ran(self, handler: str, digits: str) -> dict[str, Any]:
        """A table that ran for a handler, as ``one`` shows another text.

        Args:
            handler: Its name.
            digits: The first digits of its hash.

        Raises:
            UsageError: There is no such handler, or no such table of it ran.
            EnvironmentFault: The brokers can't be read, or only the hash of the table is kept.
        """
        kept = tables_of(read_settings(self._config).job).find(digits, handler)
        return {**self.one(handler, required_text(kept)), "hash": kept.hash}

    def difference(self, old: str, new: str, handler: str) -> dict[str, Any]:
        """What ``redrive diff --json`` prints of two tables that ran, and its lines.

        Args:
            old: The first digits of the hash of one.
            new: Those of the other.
            handler: Whose they are; empty if that is clear from the digits.

        Raises:
            UsageError: They name no table, or several.
            EnvironmentFault: As for ``ran``.
        """
        settings = read_settings(self._config)
        found = tables_of(settings.job)
        kept = [found.find(digits, handler or None) for digits in (old, new)]
        tables = [parse(required_text(one), name=one.name).required() for one in kept]
        compared = compare(*tables)
        lines = difference_lines(compared, *tables)
        return {
            "old": kept[0].hash,
            "new": kept[1].hash,
            "handler": handler,
            "lines": [settings.mask.text(line) for line in lines],
            **settings.mask.plain(difference_document(compared, *tables)),
        }

    def go_back(self, handler: str, digits: str) -> dict[str, Any]:
        """Restarts the job with a table that ran before; undone if the job refuses.

        Args:
            handler: Its name.
            digits: The first digits of the table's hash.

        Raises:
            RedriveError: As for ``redrive restart --table``.
        """
        answer = Restart(self._config, (), (), yes=True).with_kept(digits, handler, _ANSWER)
        return {"handler": handler, "process": answer.pid}

    def one(self, handler: str, text: str | None = None) -> dict[str, Any]:
        """The table of a handler, or another text for it, with what ``redrive check`` says of it.

        Args:
            handler: Its name.
            text: The other text; None for what the file holds.

        Raises:
            UsageError: There is no such handler.
        """
        settings = read_settings(self._config)
        index = _index(settings, handler)
        now = settings.job.handlers[index]
        shown = now.rules if text is None else text
        return {
            "handler": handler,
            "name": now.rules_name,
            "text": shown,
            "is_changed": shown != now.rules,
            **self._checked(index, now.rules_name, shown),
        }

    def trial(self, handler: str, text: str) -> dict[str, Any]:
        """What another table would do: the difference in meaning, and what waits under it.

        Raises:
            UsageError: There is no such handler.
            EnvironmentFault: The brokers or the ledger can't be read.
        """
        found = self.one(handler, text)
        if found["has_errors"]:
            return {**found, "difference": [], "plan": [], "what_if": None}
        settings = read_settings(self._config)
        index = _index(settings, handler)
        with TemporaryDirectory(prefix="redrive-console-") as folder:
            new = self._with_text(index, text, Path(folder))
        question = Question(
            old=settings.job, new=new.job, handler=handler, over=_WAITING, mask=settings.mask
        )
        answer = ask(question)
        tables = [parse(one.handlers[index].rules).required() for one in (settings.job, new.job)]
        difference = difference_lines(compare(*tables), *tables)
        return {
            **found,
            "difference": [settings.mask.text(line) for line in difference],
            "plan": [*map(printable, lines_of(answer))],
            "what_if": document_of(answer),
        }

    def put_live(self, handler: str, text: str) -> dict[str, Any]:
        """Writes a table into the file of the settings and restarts the job; undone if it refuses.

        Raises:
            UsageError: There is no such handler, or no job runs.
            ConfigurationError: The table has errors.
            RedriveError: The job refused; the file holds what it held.
        """
        settings = read_settings(self._config)
        running_process(settings.job)
        path, handlers = table_file(settings.job, _index(settings, handler))
        file = RulesFile(path)
        restart = Restart(self._config, (), (), yes=True)
        answer = restart.with_text(file, handlers, text, _ANSWER, lambda _: None)
        saved = file.saved.name if file.saved.exists() else ""
        return {"handler": handler, "process": answer.pid, "saved": saved}

    def _checked(self, index: int, name: str, text: str) -> dict[str, Any]:
        with TemporaryDirectory(prefix="redrive-console-") as folder:
            findings: Sequence[Diagnostic]
            try:
                self._with_text(index, text, Path(folder))
                findings = analyse(parse(text, name=name).required(), text, name=name)
            except ConfigurationError as error:
                findings = error.diagnostics
            shown = [
                {
                    "severity": one.severity.value,
                    "line": one.line,
                    "code": one.code,
                    "text": one.render().replace(f"{folder}/", ""),
                }
                for one in findings
            ]
        has_errors = any(one.severity is Severity.ERROR for one in findings)
        return {"findings": shown, "has_errors": has_errors}

    def _with_text(self, index: int, text: str, folder: Path) -> Settings:
        table = folder / "table"
        table.write_bytes(text.encode())
        return with_table(self._config, index, table)


def _index(settings: Settings, handler: str) -> int:
    names = [one.identity.name for one in settings.job.handlers]
    if handler not in names:
        raise UsageError(f"there is no handler {handler}", hint=f"there are {', '.join(names)}")
    return names.index(handler)
