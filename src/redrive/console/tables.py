"""Rules tables in the console: earlier ones, and a preview of a new one."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from redrive.command.diff import difference_document, difference_lines
from redrive.command.plan import handler_index, with_table
from redrive.command.restart import RestartCommand, table_file
from redrive.command.tables import required_text, table_document
from redrive.configuration import HandlerConfiguration, JobConfiguration
from redrive.console.access import EVERYTHING, RefusedError, Scope
from redrive.console.documents import Documents
from redrive.diagnostics import Diagnostic, has_errors
from redrive.errors import ConfigurationError, EnvironmentFault, TransientFault, UsageError
from redrive.operations.restart import RulesFile, running_process
from redrive.operations.tables import hits_of, tables_of
from redrive.printable import printable
from redrive.rules import parse
from redrive.rules.analysis import analyse, compare
from redrive.settings import Settings, read_settings
from redrive.what_if import Over, Question, ask
from redrive.what_if.text import lines_of

_WAITING: Final = (Over.REMAINING, Over.PARKED)
_ANSWER: Final = 60.0
"""Seconds that a job has to answer a restart."""


@dataclass(frozen=True, slots=True)
class RulesTables:
    """The tables of one job, or of a scope of it.

    Methods with a handler or a hash raise ``UsageError`` if it is unknown.
    """

    documents: Documents
    scope: Scope = EVERYTHING

    def within(self, scope: Scope) -> RulesTables:
        """The tables of part of the job."""
        return RulesTables(self.documents, scope)

    def every(self) -> dict[str, Any]:
        """What ``redrive tables --hits --json`` prints, and the handlers of the settings."""
        job = self.documents.settings(self.scope).job
        handlers = [handler.identity.name for handler in job.handlers]
        try:
            ran = tables_of(job)
            counted, notes = hits_of(job, ran.tables)
        except (EnvironmentFault, TransientFault) as fault:
            return {"tables": [], "notes": [fault.message], "handlers": handlers}
        shown = [table_document(table, ran, counted) for table in ran.tables]
        return {"tables": shown, "notes": [*ran.notes, *notes], "handlers": handlers}

    def ran(self, handler: str, digits: str) -> dict[str, Any]:
        """An earlier table of a handler, in the form of ``table``.

        It raises ``EnvironmentFault`` if only the hash of the table was kept.
        """
        settings = self.documents.settings(self.scope)
        _handler(settings, handler)
        kept = tables_of(settings.job).find(digits, handler)
        return {**self.table(handler, required_text(kept)), "hash": kept.hash}

    def difference(self, old: str, new: str, handler: str) -> dict[str, Any]:
        """What ``redrive diff --json`` prints about two earlier tables, and its lines.

        ``handler`` may be empty if the hashes are unambiguous; errors are as for ``ran``.
        """
        settings = self.documents.settings(self.scope)
        if handler:
            _handler(settings, handler)
        ran = tables_of(settings.job)
        kept = [ran.find(digits, handler or None) for digits in (old, new)]
        tables = [parse(required_text(record), name=record.name).required() for record in kept]
        compared = compare(*tables)
        lines = difference_lines(compared, *tables)
        return {
            "old": kept[0].hash,
            "new": kept[1].hash,
            "handler": handler,
            "lines": [settings.mask.text(line) for line in lines],
            **settings.mask.plain(difference_document(compared, *tables)),
        }

    def table(self, handler: str, text: str | None = None) -> dict[str, Any]:
        """The table of a handler, with what ``redrive check`` reports.

        ``text`` replaces the table's text; None for that of the file.
        """
        job = self.documents.settings(self.scope).job
        index = handler_index(job, handler)
        now, (path, reading) = job.handlers[index], table_file(job, index)
        shown = now.rules if text is None else text
        shared = [reader.identity.name for reader in reading if reader.identity.name != handler]
        return {
            "handler": handler,
            "name": now.rules_name,
            "shared_with": shared,
            "text": shown,
            "is_changed": shown != now.rules,
            "is_writable": RulesFile(path).is_writable,
            "key": path.name,
            **self._check([handler, *shared], now.rules_name, shown),
        }

    def trial(self, handler: str, text: str) -> dict[str, Any]:
        """A preview of another table, for each handler of its file that the user may see.

        It has the difference in meaning, what the table would do with waiting messages, and
        ``confirm``, which ``put_live`` takes.
        """
        checked = self.table(handler, text)
        if checked["has_errors"]:
            return {**checked, "difference": [], "trials": [], "confirm": ""}
        settings = self.documents.settings(self.scope)
        names = [handler, *checked["shared_with"]]
        with TemporaryDirectory(prefix="redrive-console-") as folder:
            new = self._with_text(names, text, Path(folder))
        answers = [
            ask(
                Question(
                    old=settings.job, new=new.job, handler=name, over=_WAITING, mask=settings.mask
                )
            )
            for name in names
        ]
        tables = [parse(_handler(side, handler).rules).required() for side in (settings, new)]
        difference = difference_lines(compare(*tables), *tables)
        return {
            **checked,
            "difference": [settings.mask.text(line) for line in difference],
            "messages": sum(answer.total for answer in answers),
            "changed": sum(answer.changed for answer in answers),
            "trials": [
                {
                    "handler": answer.handler,
                    "plan": [
                        printable(line).replace(f"{folder}/table", f"{checked['name']}, as edited")
                        for line in lines_of(answer)
                    ],
                    "what_if": asdict(answer),
                }
                for answer in answers
            ],
            "confirm": _confirmation(settings.job, names, text),
        }

    def put_live(self, handler: str, text: str, *, confirm: str, operator: str) -> dict[str, Any]:
        """Write a table into the file of the settings and restart the job; undone if it refuses.

        Args:
            handler: A handler of the file.
            text: The table.
            confirm: From the trial of this text.
            operator: Who puts it live, and why; for the job's log and the list of tables.

        Raises:
            RefusedError: A handler out of the user's scope has its table in the same file.
            UsageError: The text was not tried against the present file, or no reason is given.
            ConfigurationError: The table has errors.
            EnvironmentFault: The file cannot be written.
            RedriveError: The job refused; the file is unchanged.
        """
        path, handlers = self._file(handler)
        job = self.documents.settings(self.scope).job
        names = [reader.identity.name for reader in handlers]
        if confirm != _confirmation(job, names, text):
            raise UsageError(
                f"this table was not tried on what waits for {', '.join(names)}, or the file"
                " changed since",
                hint="try it, and put live what was tried: /try returns confirm",
            )
        if not operator:
            raise UsageError("a table is put live for a reason", hint="say why: because")
        file = RulesFile(path)
        if not file.is_writable:
            raise EnvironmentFault(
                f"{path} cannot be written by the console",
                hint=f"put the text where the file comes from, on Kubernetes {path.name} of the"
                " ConfigMap, under files in the values of the chart, and restart the job there",
            )
        running_process(job)
        restart = RestartCommand(self.documents.path, (), (), yes=True, operator=operator)
        answer = restart.with_text(file, handlers, text, _ANSWER, lambda _: None)
        saved = file.saved.name if file.saved.exists() else ""
        return {"handlers": names, "process": answer.pid, "saved": saved}

    def _file(self, handler: str) -> tuple[Path, Sequence[HandlerConfiguration]]:
        seen = self.documents.settings(self.scope)
        _handler(seen, handler)
        job = read_settings(self.documents.path).job
        path, handlers = table_file(job, handler_index(job, handler))
        names = {reader.identity.name for reader in handlers}
        if seen.job.only_handlers is not None and not names <= seen.job.only_handlers:
            raise RefusedError(
                f"the table of {handler} is shared with handlers that this user may not see",
                hint="ask an admin of the whole job, or give each handler its own file",
            )
        return path, handlers

    def _check(self, handlers: Sequence[str], name: str, text: str) -> dict[str, Any]:
        with TemporaryDirectory(prefix="redrive-console-") as folder:
            findings: Sequence[Diagnostic]
            try:
                self._with_text(handlers, text, Path(folder))
                findings = analyse(parse(text, name=name).required(), text, name=name)
            except ConfigurationError as error:
                findings = error.diagnostics
            shown = [
                {
                    "severity": finding.severity.value,
                    "line": finding.line,
                    "code": finding.code,
                    "text": finding.render().replace(f"{folder}/", ""),
                }
                for finding in findings
            ]
        return {"findings": shown, "has_errors": has_errors(findings)}

    def _with_text(self, handlers: Sequence[str], text: str, folder: Path) -> Settings:
        table = folder / "table"
        table.write_bytes(text.encode())
        job = read_settings(self.documents.path).job
        settings = with_table(
            self.documents.path,
            table,
            *(job.handlers[handler_index(job, name)] for name in handlers),
        )
        return replace(settings, job=self.scope.restrict(settings.job))


def _confirmation(job: JobConfiguration, handlers: Sequence[str], text: str) -> str:
    """The hash of a text and of the tables that it would replace, by handler."""
    replaced = sorted((name, job.handlers[handler_index(job, name)].rules) for name in handlers)
    return hashlib.sha256(json.dumps([text, replaced]).encode()).hexdigest()


def _handler(settings: Settings, handler: str) -> HandlerConfiguration:
    return settings.job.handlers[handler_index(settings.job, handler)]
