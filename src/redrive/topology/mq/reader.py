"""Read MQSC scripts: from commands to the definitions of one queue manager.

Reading never raises: an error in a command becomes a finding with its location, and reading
continues with the next command. docs/resolution.md, "MQSC scripts", describes the forms.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from redrive.diagnostics import Diagnostic, Severity, SourceLocation, did_you_mean, in_order
from redrive.topology.mq import objects as mq
from redrive.topology.mq.definition_store import DefinitionStore
from redrive.topology.mq.inserts import NO_CONFIGURATION, Configuration, with_inserts
from redrive.topology.mq.parameters import (
    VERBS,
    Given,
    check_quotes,
    object_name,
    verb_of,
)
from redrive.topology.mq.queue_manager import QueueManager
from redrive.topology.mq.script import (
    MAX_LINE_LENGTH,
    Command,
    CommandFailed,
    Parameter,
    ScriptProblem,
    long_lines,
    manager_name,
    split_script,
)

_SHORT: Final = {
    "QL": "QLOCAL", "QR": "QREMOTE", "QA": "QALIAS", "QM": "QMODEL", "CHL": "CHANNEL",
    "NL": "NAMELIST",
}  # fmt: skip
_KINDS: Final = {kind.keyword: kind for kind in mq.ATTRIBUTES}
_TYPES: Final[Mapping[str, type[mq.Definition]]] = {
    **_KINDS,
    **{short: _KINDS[word] for short, word in _SHORT.items()},
}
_OTHERS: Final = """AUTHINFO BUFFPOOL CFSTRUCT COMMINFO LISTENER LSTR LOG MAXSMSGS POLICY PRO
PROCESS PSID SECURITY SERVICE STGCLASS STC SUB TRACE"""
_OTHER_TYPES: Final = frozenset(_OTHERS.split())
_CLIENT: Final = (("CHLTYPE", "CLNTCONN"), ("CHLTABLE", "CLNTTAB"))
"""Parameters with which a command names the client connection of a name, not the channel."""
_STATES: Final = frozenset({"EXISTS", "NOT_FOUND"})
"""Failures that IGNSTATE(YES) ignores."""


@dataclass(frozen=True, slots=True)
class CommandCounts:
    """How many commands a script has; as text, the summary of ``runmqsc``."""

    read: int = 0
    """Commands, END left out."""
    syntax_errors: int = 0
    failed: int = 0
    """Valid commands that could not be processed."""

    @property
    def has_failures(self) -> bool:
        """Whether a command was not carried out."""
        return bool(self.syntax_errors or self.failed)

    def __str__(self) -> str:
        wrong = _plural(self.syntax_errors, "command has", "commands have", "a syntax error")
        failed = "All valid MQSC commands were processed"
        if self.failed:
            words = ("valid MQSC command", "valid MQSC commands", "could not be processed")
            failed = _plural(self.failed, *words)
        return f"{_plural(self.read, 'MQSC command', 'MQSC commands', 'read')}. {wrong}. {failed}."


def _plural(number: int, one: str, many: str, rest: str) -> str:
    return f"One {one} {rest}" if number == 1 else f"{number or 'No'} {many} {rest}"


@dataclass(frozen=True, slots=True)
class MqscResult:
    """The result of reading a script."""

    queue_manager: QueueManager
    """The definitions of the commands that could be carried out."""
    diagnostics: tuple[Diagnostic, ...]
    """Findings in the order of the script; each error is a command that was not carried out."""
    counts: CommandCounts = CommandCounts()


def read_mqsc(
    text: str,
    *,
    queue_manager: str = "",
    file: str = "<input>",
    base: QueueManager | None = None,
    configuration: Configuration = NO_CONFIGURATION,
    refuses: bool = True,
) -> MqscResult:
    """Read a script as ``runmqsc`` does: a command that fails has no effect, others do.

    Args:
        text: The script.
        queue_manager: Name of the queue manager; empty for the one that the header comment of
            ``dmpmqcfg`` names.
        file: Name of the script for findings.
        base: A queue manager to which the commands apply; a fresh one by default.
        configuration: The ``qm.ini`` settings of a fresh manager and of inserts ``+NAME+``.
        refuses: Whether definitions that ``runmqsc`` refuses fail.
    """
    name = queue_manager or manager_name(text)
    attributes = mq.QueueManagerAttributes(name=name, location=SourceLocation(file))
    fresh = QueueManager(attributes=configuration.applied(attributes))
    store = DefinitionStore(base or fresh, refuses=refuses)
    reader = _Reader(file, store, configuration.inserts(name))
    too_long = ScriptProblem(
        "LINE_TOO_LONG",
        f"runmqsc reads no more than {MAX_LINE_LENGTH} characters per line",
        0,
        hint="continue the command on further lines with +",
    )
    for line in long_lines(text):
        reader.report(Severity.WARNING, line, too_long)
    for command in split_script(text):
        reader.run(command)
    return MqscResult(reader.store.queue_manager(), in_order(reader.diagnostics), reader.counts)


def is_mqsc(text: str) -> bool:
    """Whether a text is an MQSC script: from ``dmpmqcfg``, or with a verb in its first command."""
    first = next(split_script(text), None)
    verb = first.text.split(maxsplit=1)[0].upper() if first else ""
    return bool(manager_name(text)) or verb in VERBS


def _is_client(parameters: Iterable[Parameter]) -> bool:
    return any((one.keyword, (one.value or "").upper()) in _CLIENT for one in parameters)


@dataclass(frozen=True, slots=True)
class _Call:
    """One parsed command."""

    command: Command
    verb: str
    kind: type[mq.Definition]
    subject: Parameter
    parameters: list[Parameter]


class _Reader:
    """Applies commands to the definitions of one queue manager."""

    def __init__(self, file: str, store: DefinitionStore, inserts: Mapping[str, str]) -> None:
        self.file, self.store = file, store
        self.diagnostics: list[Diagnostic] = []
        self.counts = CommandCounts()
        self._inserts = inserts
        self._actions = {
            "DEFINE": self._define,
            "ALTER": self._alter,
            "DELETE": self._delete,
            "SUSPEND": self._suspend,
            "RESUME": self._suspend,
        }

    def run(self, command: Command) -> None:
        counts = self.counts = replace(self.counts, read=self.counts.read + 1)
        try:
            self._run(command)
        except CommandFailed as problem:
            self.counts = replace(counts, failed=counts.failed + 1)
            self.report(Severity.ERROR, command, problem)
        except ScriptProblem as problem:
            self.counts = replace(counts, syntax_errors=counts.syntax_errors + 1)
            self.report(Severity.ERROR, command, problem)

    def report(self, severity: Severity, command: Command, problem: ScriptProblem) -> None:
        self.diagnostics.append(
            command.location(self.file, problem.offset, problem.length).finding(
                severity,
                problem.code,
                problem.message,
                expected=problem.expected,
                hint=problem.hint,
                subject=" ".join(command.text.split()[:2]),
            )
        )

    def _run(self, command: Command) -> None:
        verb, offset = verb_of(command)
        check_quotes(command)
        parameters = list(command.parameters(offset))
        if "+" in command.text:
            parameters = [with_inserts(one, self._inserts) for one in parameters]
        if not parameters:
            message, expected = f"{verb} needs an object", "such as QLOCAL(NAME)"
            raise ScriptProblem("SYNTAX", message, offset - 1, expected=expected)
        subject = parameters.pop(0)
        action = self._actions.get(verb)
        kind = _TYPES.get(subject.keyword)
        if action is None or (kind is None and subject.keyword in _OTHER_TYPES):
            self._ignore(command, verb, subject)
            return
        if kind is None:
            hint = did_you_mean(subject.keyword, [*_TYPES, *_OTHER_TYPES])
            message = f"{subject.keyword} is not an object type"
            raise ScriptProblem.at("UNKNOWN_OBJECT_TYPE", message, subject, hint=hint)
        if kind is mq.Channel and _is_client(parameters):
            kind = mq.ClientChannel
        try:
            action(_Call(command, verb, kind, subject, parameters))
        except CommandFailed as problem:
            # With IGNSTATE(YES) the requested state may exist already.
            ignores = any(one.keyword == "IGNSTATE" and one.value == "YES" for one in parameters)
            if not (ignores and problem.code in _STATES):
                raise
            self.report(Severity.NOTE, command, problem)

    def _ignore(self, command: Command, what: str, subject: Parameter) -> None:
        message = f"{what} {subject.keyword} is not relevant to resolution and was ignored"
        self.report(Severity.NOTE, command, ScriptProblem.at("IGNORED", message, subject))

    def _define(self, call: _Call) -> None:
        kind, subject = call.kind, call.subject
        name = object_name(kind, subject)
        given = Given(kind, call.parameters)
        self.store.check_free(kind, name, subject, given)
        model = self.store.model(kind, subject, given)
        if "channel_type" in given.fields and self.store.refuses:
            given.check_channel_type(given.fields["channel_type"])
        location = SourceLocation(self.file, call.command.line)
        if model is None:
            made = kind(name=name, location=location, others=given.others, **given.fields)
        else:
            others = {**model.others, **given.others}
            copied = replace(model, name=name, location=location, locations={}, others=others)
            made = replace(copied, **given.fields)
        self.store.keep(made, subject)

    def _alter(self, call: _Call) -> None:
        subject, given = call.subject, Given(call.kind, call.parameters)
        if misplaced := {"LIKE", "REPLACE", "NOREPLACE"}.intersection(given.options):
            keyword = min(misplaced)
            raise ScriptProblem.at("SYNTAX", f"ALTER takes no {keyword}", given.options[keyword])
        altered_at = location = SourceLocation(self.file, call.command.line)
        existing: mq.Definition = self.store.attributes
        if call.kind is not mq.QueueManagerAttributes:
            existing = self.store.existing(call.kind, subject)
            location = existing.location if existing.location.line else location
        if isinstance(existing, mq.Channel):
            if "channel_type" not in given.fields:
                raise ScriptProblem.at("SYNTAX", f"ALTER {subject.keyword} needs CHLTYPE", subject)
            if given.fields["channel_type"] is not existing.channel_type:
                raise CommandFailed.at("EXISTS", f"{existing} has another CHLTYPE", subject)
            if self.store.refuses:
                given.check_channel_type(existing.channel_type)
        before = {
            keyword: set_at
            for keyword, set_at in existing.locations.items()
            if keyword not in given.keywords
        }
        altered = replace(
            existing,
            location=location,
            locations=before | dict.fromkeys(given.keywords, altered_at),
            others={**existing.others, **given.others},
            **given.fields,
        )
        self.store.keep(altered, subject)

    def _delete(self, call: _Call) -> None:
        existing = self.store.existing(call.kind, call.subject)
        if existing.location is mq.BUILT_IN:
            self._ignore(call.command, "DELETE", call.subject)
        else:
            self.store.delete(existing)

    def _suspend(self, call: _Call) -> None:
        values = {parameter.keyword: parameter.value or "" for parameter in call.parameters}
        cluster, namelist = values.get("CLUSTER", "").strip(), values.get("CLUSNL", "")
        if call.kind is not mq.QueueManagerAttributes or {"FACILITY", "LOG"} & values.keys():
            self._ignore(call.command, "SUSPEND or RESUME", call.subject)
            return
        if not (cluster or namelist):
            message = "SUSPEND and RESUME QMGR need CLUSTER or CLUSNL"
            raise ScriptProblem.at("SYNTAX", message, call.subject)
        listed = self.store.of_kind(mq.Namelist).get(namelist)
        named = {cluster} if cluster else set(listed.names if listed else ())
        if call.verb == "SUSPEND":
            self.store.suspended |= named
        else:
            self.store.suspended -= named
