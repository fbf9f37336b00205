"""Read MQSC scripts: from commands to the definitions of one queue manager.

Resolution specification C. Whatever a script holds, reading goes on with the next command and
never raises: what is wrong becomes a finding with its place.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from redrive.diagnostics import Diagnostic, Severity, SourceLocation, in_order
from redrive.topology.mq.attributes import ATTRIBUTES
from redrive.topology.mq.inserts import Inserts
from redrive.topology.mq.objects import (
    BUILT_IN,
    AliasQueue,
    Channel,
    Definition,
    Disposition,
    LocalQueue,
    ModelQueue,
    Namelist,
    Queue,
    QueueManagerAttributes,
    RemoteQueue,
    Topic,
)
from redrive.topology.mq.parameters import (
    Given,
    did_you_mean,
    failure_at,
    object_name,
    problem_at,
)
from redrive.topology.mq.queue_manager import QueueManager
from redrive.topology.mq.refusals import refusal_of, refusal_of_queue_manager
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
from redrive.topology.mq.system_objects import (
    DEFAULT_CHANNELS,
    DEFAULT_QUEUES,
    SYSTEM_OBJECTS,
    SYSTEM_QUEUES,
)

_VERBS: Mapping[str, str] = {
    verb: words[0]
    for words in (
        ("DEFINE", "DEF"),
        ("ALTER", "ALT"),
        ("DELETE", "DEL"),
        ("DISPLAY", "DIS"),
        ("START", "STA"),
        ("STOP", "STO"),
        ("RESET", "RES"),
        ("REFRESH", "REF"),
        ("RECOVER", "REC"),
        ("RESOLVE",),
        ("SUSPEND",),
        ("RESUME",),
        ("ARCHIVE", "ARC"),
        ("BACKUP",),
        ("CLEAR",),
        ("MOVE",),
        ("PING",),
        ("PURGE",),
        ("RVERIFY",),
        ("SET",),
    )
    for verb in words
}
_TYPES: Mapping[str, type[Definition]] = {
    "QLOCAL": LocalQueue,
    "QL": LocalQueue,
    "QREMOTE": RemoteQueue,
    "QR": RemoteQueue,
    "QALIAS": AliasQueue,
    "QA": AliasQueue,
    "QMODEL": ModelQueue,
    "QM": ModelQueue,
    "CHANNEL": Channel,
    "CHL": Channel,
    "TOPIC": Topic,
    "NAMELIST": Namelist,
    "NL": Namelist,
    "QMGR": QueueManagerAttributes,
}
_OTHER_TYPES = frozenset(
    {
        *("AUTHINFO", "BUFFPOOL", "CFSTRUCT", "COMMINFO", "LISTENER", "LSTR", "LOG", "MAXSMSGS"),
        *("POLICY", "PROCESS", "PRO", "PSID", "SECURITY", "SERVICE", "STGCLASS", "STC", "SUB"),
        "TRACE",
    }
)
_DEFAULT_CHANNEL_NAMES = {kind: name for name, kind in DEFAULT_CHANNELS.items()}
_VERB = re.compile(r"[\s,]*([^\s,()']+)")
# Blanks and letters of EBCDIC; in UTF-8 or Latin text these bytes are ``@`` and accents.
_EBCDIC_BYTES = frozenset([0x40, *range(0x81, 0xAA), *range(0xC1, 0xEA)])
_QUOTED = re.compile(r"'(?:[^']|'')*+'")
_TYPOGRAPHIC_QUOTE = re.compile("[\u2018\u2019\u201c\u201d]")


@dataclass(frozen=True, slots=True)
class CommandCounts:
    """How many commands a script has; as text, what ``runmqsc`` says at its end."""

    read: int = 0
    """Commands, END left out."""
    syntax_errors: int = 0
    """Commands that are none."""
    failed: int = 0
    """Valid commands that could not be processed."""

    @property
    def has_failures(self) -> bool:
        """Whether a command was not carried out."""
        return bool(self.syntax_errors or self.failed)

    def __str__(self) -> str:
        wrong = _counted(self.syntax_errors, "command has", "commands have", "a syntax error")
        failed = "All valid MQSC commands were processed"
        if self.failed:
            words = ("valid MQSC command", "valid MQSC commands", "could not be processed")
            failed = _counted(self.failed, *words)
        return f"{_counted(self.read, 'MQSC command', 'MQSC commands', 'read')}. {wrong}. {failed}."


def _counted(number: int, one: str, many: str, rest: str) -> str:
    return f"One {one} {rest}" if number == 1 else f"{number or 'No'} {many} {rest}"


@dataclass(frozen=True, slots=True)
class MqscResult:
    """What a script holds."""

    queue_manager: QueueManager
    """What the commands make that could be carried out."""
    diagnostics: tuple[Diagnostic, ...]
    """Findings in the order of the script; each error is a command that was not carried out."""
    counts: CommandCounts = CommandCounts()
    """How many commands there are."""


def read_mqsc(
    text: str,
    *,
    queue_manager: str = "",
    file: str = "<input>",
    base: QueueManager | None = None,
    inserts: Inserts | None = None,
    commands: Iterable[Command] | None = None,
    refuses: bool = True,
) -> MqscResult:
    """Read a script as ``runmqsc`` does: a command that fails changes nothing, the rest stands.

    Args:
        text: The script.
        queue_manager: Name of the queue manager; empty to take the one that the header comment of
            ``dmpmqcfg`` gives.
        file: Name of the script for findings and places.
        base: A queue manager to which the commands apply; a fresh one by default.
        inserts: What stands for ``+NAME+``; the manager's name by default.
        commands: The commands that the text stands for, if it is no MQSC itself.
        refuses: Whether commands fail that would make what ``runmqsc`` refuses; without it, a
            test can make managers as they come about in other ways.

    Returns:
        The queue manager, the findings and the number of commands.
    """
    name = queue_manager or manager_name(text)
    reader = _Reader(name, file, base, inserts or Inserts.of(name), refuses=refuses)
    if commands is None:
        for line in long_lines(text):
            reader.report_long_line(line)
    for command in split_script(text) if commands is None else commands:
        reader.run(command)
    return MqscResult(reader.queue_manager(), in_order(reader.diagnostics), reader.counts)


def is_mqsc(text: str) -> bool:
    """Whether a text is an MQSC script: ``dmpmqcfg`` wrote it, or its first command has a verb.

    Args:
        text: Any text, such as a rules table.
    """
    first = next(split_script(text), None)
    verb = first.text.split(maxsplit=1)[0].upper() if first else ""
    return bool(manager_name(text)) or verb in _VERBS


def decode_script(data: bytes, *, file: str) -> str | Diagnostic:
    """The text of a script, which has to be UTF-8.

    Args:
        data: The file's bytes.
        file: Its name, for the finding.

    Returns:
        The text without a byte order mark, or the one finding that says which encoding it is in.
    """
    if data.startswith((b"\xff\xfe", b"\xfe\xff")) or b"\0" in data[:4096]:
        return _encoding_finding("it is UTF-16 or binary", file)
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as problem:
        if _looks_like_ebcdic(data):
            return _encoding_finding("it is EBCDIC", file)
        before = data[: problem.start]
        line = before.count(b"\n") + 1
        column = problem.start - (before.rfind(b"\n") + 1) + 1
        what = f"byte {data[problem.start]:#04x} at column {column} is no UTF-8"
        return _encoding_finding(what, file, line=line)


def _looks_like_ebcdic(data: bytes) -> bool:
    sample = data[:4096]
    likely = sum(byte in _EBCDIC_BYTES for byte in sample)
    return likely * 2 > len(sample) and b" " not in sample


def _encoding_finding(what: str, file: str, *, line: int = 0) -> Diagnostic:
    return SourceLocation(file, line).finding(
        Severity.ERROR,
        "ENCODING",
        f"the script cannot be read: {what}",
        expected="a text in UTF-8",
        hint="convert it, for example with iconv -t UTF-8",
    )


def _verb_of(command: Command) -> tuple[str, int]:
    """The verb of a command and the offset behind it."""
    found = _VERB.match(command.text)
    word = found[1] if found else command.text.strip()[:1]
    verb = _VERBS.get(word.upper())
    if found and verb:
        return verb, found.end()
    offset = found.start(1) if found else len(command.text) - len(command.text.lstrip())
    raise ScriptProblem(
        "UNKNOWN_COMMAND",
        f"{word} is no MQSC command",
        offset,
        length=len(word),
        expected="a command such as DEFINE, ALTER or DELETE",
        hint=_hint_for_verb(word),
    )


def _hint_for_verb(word: str) -> str:
    if word.startswith(("#", "*", "//", "--")):
        return "a comment is a line that starts with * in its first column"
    if any(word.upper() in attributes for attributes in ATTRIBUTES.values()):
        return "to continue the command before, end the line before in +"
    return did_you_mean(word.upper(), _VERBS)


def _check_quotes(command: Command) -> None:
    """Refuse typographic quotes: MQSC reads them as ordinary characters."""
    if command.text.isascii():
        return
    found = _TYPOGRAPHIC_QUOTE.search(
        _QUOTED.sub(lambda quoted: " " * len(quoted[0]), command.text)
    )
    if found:
        raise ScriptProblem(
            "SYNTAX", "a typographic quote does not quote", found.start(), expected="'"
        )


_Action: TypeAlias = Callable[[Command, type[Definition], Parameter, list[Parameter]], None]
_STATES = frozenset({"EXISTS", "NOT_FOUND"})
"""Failures that IGNSTATE(YES) makes none of."""


class _Reader:
    """Applies commands to the definitions of one queue manager."""

    def __init__(
        self, name: str, file: str, base: QueueManager | None, inserts: Inserts, *, refuses: bool
    ) -> None:
        self.file = file
        self.diagnostics: list[Diagnostic] = []
        self.counts = CommandCounts()
        self._inserts = inserts
        self._refuses = refuses
        unaltered = QueueManagerAttributes(name=name, location=SourceLocation(file))
        self._base = base or QueueManager(attributes=unaltered)
        self._attributes = self._base.attributes
        self._queues = dict(self._base.queues)
        self._shared = dict(self._base.shared_queues)
        self._others: dict[type[Definition], dict[str, Any]] = {
            Channel: dict(self._base.channels),
            Topic: dict(self._base.topics),
            Namelist: dict(self._base.namelists),
        }
        self._suspended = set(self._base.suspended_clusters)
        self._actions = {
            "DEFINE": self._define,
            "ALTER": self._alter,
            "DELETE": self._delete,
            "SUSPEND": self._suspend,
            "RESUME": self._resume,
        }

    def queue_manager(self) -> QueueManager:
        """The queue manager as the commands so far leave it."""
        return replace(
            self._base,
            attributes=self._attributes,
            queues=self._queues,
            shared_queues=self._shared,
            channels=self._others[Channel],
            topics=self._others[Topic],
            namelists=self._others[Namelist],
            suspended_clusters=frozenset(self._suspended),
        )

    def report_long_line(self, line: Command) -> None:
        """Warn of a physical line that ``runmqsc`` would refuse."""
        problem = ScriptProblem(
            "LINE_TOO_LONG",
            f"runmqsc reads no more than {MAX_LINE_LENGTH} characters per line",
            0,
            hint="continue the command on further lines with +",
        )
        self._report(Severity.WARNING, line, problem)

    def run(self, command: Command) -> None:
        """Carry out one command, or report why not."""
        counts = self.counts = replace(self.counts, read=self.counts.read + 1)
        try:
            self._run(command)
        except CommandFailed as problem:
            self.counts = replace(counts, failed=counts.failed + 1)
            self._report(Severity.ERROR, command, problem)
        except ScriptProblem as problem:
            self.counts = replace(counts, syntax_errors=counts.syntax_errors + 1)
            self._report(Severity.ERROR, command, problem)

    def _report(self, severity: Severity, command: Command, problem: ScriptProblem) -> None:
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
        verb, offset = _verb_of(command)
        _check_quotes(command)
        parameters = list(command.parameters(offset))
        if "+" in command.text:
            parameters = list(map(self._inserts.into, parameters))
        if not parameters:
            raise ScriptProblem(
                "SYNTAX", f"{verb} needs an object", offset - 1, expected="such as QLOCAL(NAME)"
            )
        subject = parameters.pop(0)
        action = self._actions.get(verb)
        kind = _TYPES.get(subject.keyword)
        if action is None or (kind is None and subject.keyword in _OTHER_TYPES):
            self._ignore(command, verb, subject)
        elif kind is None:
            raise problem_at(
                "UNKNOWN_OBJECT_TYPE",
                f"{subject.keyword} is no object type",
                subject,
                hint=did_you_mean(subject.keyword, [*_TYPES, *_OTHER_TYPES]),
            )
        else:
            self._carry_out(action, command, kind, subject, parameters)

    def _carry_out(
        self,
        action: _Action,
        command: Command,
        kind: type[Definition],
        subject: Parameter,
        parameters: list[Parameter],
    ) -> None:
        """Carry out a command; with IGNSTATE(YES) the state it wants may be there already."""
        try:
            action(command, kind, subject, parameters)
        except CommandFailed as problem:
            ignores = any(one.keyword == "IGNSTATE" and one.value == "YES" for one in parameters)
            if not (ignores and problem.code in _STATES):
                raise
            self._report(Severity.NOTE, command, problem)

    def _ignore(self, command: Command, verb: str, subject: Parameter) -> None:
        message = f"{verb} {subject.keyword} does not concern resolution and was ignored"
        problem = ScriptProblem("IGNORED", message, subject.offset, length=len(subject.keyword))
        self._report(Severity.NOTE, command, problem)

    def _define(
        self,
        command: Command,
        kind: type[Definition],
        subject: Parameter,
        parameters: list[Parameter],
    ) -> None:
        name = object_name(kind, subject)
        given = Given(kind, parameters)
        self._check_free(kind, name, subject, given)
        model = self._model(kind, subject, given)
        location = SourceLocation(self.file, command.line)
        others = given.others
        if model is None:
            definition = kind(name=name, location=location, others=others, **given.fields)
        else:
            others = {**model.others, **others}
            definition = replace(model, name=name, location=location, others=others, **given.fields)
        self._keep(definition, subject)

    def _check_free(
        self, kind: type[Definition], name: str, subject: Parameter, given: Given
    ) -> None:
        """Refuse to define what exists, unless REPLACE is given and the type is the same."""
        shared = given.fields.get("disposition") is Disposition.SHARED
        existing = self._store(kind, shared=shared).get(name)
        if existing is None:
            return
        if type(existing) is not kind:
            message = f"AMQ8150E: {name} exists as {existing.keyword}"
            raise failure_at("EXISTS", message, subject)
        if "REPLACE" not in given.options:
            hint = f"it was defined at {existing.location}; add REPLACE to define it anew"
            raise failure_at("EXISTS", f"AMQ8150E: {existing} exists", subject, hint=hint)

    def _model(self, kind: type[Definition], subject: Parameter, given: Given) -> Definition | None:
        """The object whose attributes a DEFINE copies; None for the product's defaults."""
        like = given.options.get("LIKE")
        if like is not None:
            model = self._find(kind, like.value or "")
            if model is None:
                message = f"AMQ8147E: there is no {kind.keyword}({like.value})"
                raise failure_at("NOT_FOUND", message, like)
            return model
        if kind is Channel:
            channel_type = given.fields.get("channel_type")
            if channel_type is None:
                raise problem_at("MISSING", "a channel needs CHLTYPE", subject)
            return self._others[Channel].get(_DEFAULT_CHANNEL_NAMES.get(channel_type, ""))
        return self._queues.get(DEFAULT_QUEUES.get(kind, ""))

    def _alter(
        self,
        command: Command,
        kind: type[Definition],
        subject: Parameter,
        parameters: list[Parameter],
    ) -> None:
        given = Given(kind, parameters)
        if misplaced := {"LIKE", "REPLACE", "NOREPLACE"}.intersection(given.options):
            keyword = min(misplaced)
            raise problem_at("SYNTAX", f"ALTER takes no {keyword}", given.options[keyword])
        location = SourceLocation(self.file, command.line)
        if kind is QueueManagerAttributes:
            others = {**self._attributes.others, **given.others}
            altered = replace(self._attributes, location=location, others=others, **given.fields)
            problem = refusal_of_queue_manager(altered, self._queues.values())
            if problem and self._refuses:
                raise failure_at("REFUSED", problem, subject)
            self._attributes = altered
            return
        existing = self._existing(kind, subject)
        if given.fields.get("channel_type", existing) not in (
            existing,
            getattr(existing, "channel_type", None),
        ):
            raise failure_at("EXISTS", f"{existing} has another CHLTYPE", subject)
        location = existing.location if existing.location.line else location
        others = {**existing.others, **given.others}
        self._keep(replace(existing, location=location, others=others, **given.fields), subject)

    def _delete(
        self, command: Command, kind: type[Definition], subject: Parameter, _: list[Parameter]
    ) -> None:
        existing = self._existing(kind, subject)
        if existing.location is BUILT_IN:
            self._ignore(command, "DELETE", subject)
            return
        shared = getattr(existing, "disposition", None) is Disposition.SHARED
        del self._store(kind, shared=shared)[existing.name]

    def _suspend(
        self, command: Command, kind: type[Definition], subject: Parameter, rest: list[Parameter]
    ) -> None:
        self._suspended |= self._named_clusters(command, kind, subject, rest)

    def _resume(
        self, command: Command, kind: type[Definition], subject: Parameter, rest: list[Parameter]
    ) -> None:
        self._suspended -= self._named_clusters(command, kind, subject, rest)

    def _named_clusters(
        self, command: Command, kind: type[Definition], subject: Parameter, rest: list[Parameter]
    ) -> set[str]:
        values = {parameter.keyword: parameter.value or "" for parameter in rest}
        cluster, namelist = values.get("CLUSTER", "").strip(), values.get("CLUSNL", "")
        if kind is not QueueManagerAttributes or not (cluster or namelist):
            self._ignore(command, "SUSPEND or RESUME", subject)
            return set()
        listed = self._others[Namelist].get(namelist)
        return {cluster} if cluster else set(listed.names if listed else ())

    def _store(self, kind: type[Definition], *, shared: bool = False) -> dict[str, Any]:
        if issubclass(kind, Queue):
            return self._shared if shared else self._queues
        if kind is QueueManagerAttributes:
            return {}
        return self._others[kind]

    def _find(self, kind: type[Definition], name: str) -> Definition | None:
        """The object of this kind and name, the product's own included."""
        found: Definition | None = self._store(kind).get(name)
        if issubclass(kind, Queue):
            found = found or self._shared.get(name) or SYSTEM_QUEUES.get(name)
        else:
            found = found or SYSTEM_OBJECTS.get(kind, {}).get(name)
        return found if type(found) is kind else None

    def _existing(self, kind: type[Definition], subject: Parameter) -> Definition:
        name = object_name(kind, subject)
        found = self._find(kind, name)
        if found is None:
            similar = did_you_mean(name, self._store(kind))
            raise failure_at(
                "NOT_FOUND",
                f"AMQ8147E: there is no {kind.keyword}({name})",
                subject,
                hint=similar or "another script may define it: QM=FOLDER reads several in order",
            )
        return found

    def _keep(self, definition: Definition, subject: Parameter) -> None:
        if self._refuses and (problem := refusal_of(definition, self._attributes)):
            raise failure_at("REFUSED", problem, subject)
        shared = getattr(definition, "disposition", None) is Disposition.SHARED
        self._store(type(definition), shared=shared)[definition.name] = definition
