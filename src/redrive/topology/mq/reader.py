"""Read MQSC scripts: from commands to the definitions of one queue manager.

Resolution specification C. Whatever a script holds, reading goes on with the next command and
never raises: what is wrong becomes a finding with its place.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from redrive.diagnostics import Diagnostic, Severity, SourceLocation, in_order
from redrive.topology.mq.attributes import (
    ATTRIBUTES,
    NAME_LENGTHS,
    OPTIONS,
    OTHER_KEYWORDS,
    SYNONYMS,
    Attribute,
    ValueProblem,
    check_name,
)
from redrive.topology.mq.objects import (
    BUILT_IN,
    DEFAULT_CHANNELS,
    DEFAULT_QUEUES,
    MAX_NAME_LENGTH,
    SYSTEM_QUEUES,
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
from redrive.topology.mq.queue_manager import QueueManager
from redrive.topology.mq.script import (
    MAX_LINE_LENGTH,
    Command,
    Parameter,
    ScriptProblem,
    long_lines,
    manager_name,
    split_script,
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
_SIMILAR = 0.75
_INSERT = "+QMNAME+"
_VERB = re.compile(r"[\s,]*([^\s,()']+)")
# Blanks and letters of EBCDIC; in UTF-8 or Latin text these bytes are ``@`` and accents.
_EBCDIC_BYTES = frozenset([0x40, *range(0x81, 0xAA), *range(0xC1, 0xEA)])
_QUOTED = re.compile(r"'(?:[^']|'')*+'")
_TYPOGRAPHIC_QUOTE = re.compile("[\u2018\u2019\u201c\u201d]")


@dataclass(frozen=True, slots=True)
class MqscResult:
    """What a script holds."""

    queue_manager: QueueManager
    """Everything that could be read."""
    diagnostics: tuple[Diagnostic, ...]
    """Findings in the order of the script."""


def read_mqsc(
    text: str,
    *,
    queue_manager: str = "",
    file: str = "<input>",
    base: QueueManager | None = None,
) -> MqscResult:
    """Read a script.

    Args:
        text: The script.
        queue_manager: Name of the queue manager; empty to take the one that the header comment of
            ``dmpmqcfg`` gives.
        file: Name of the script for findings and places.
        base: A queue manager to which the commands apply; a fresh one by default.

    Returns:
        The queue manager and the findings. A command with an error changes nothing.
    """
    reader = _Reader(queue_manager or manager_name(text), file, base)
    for line in long_lines(text):
        reader.report_long_line(line)
    for command in split_script(text):
        reader.run(command)
    return MqscResult(reader.queue_manager(), in_order(reader.diagnostics))


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


class _Given:
    """The parameters of one command, sorted by what they are."""

    __slots__ = ("fields", "options", "others")

    def __init__(self, kind: type[Definition], parameters: Iterable[Parameter]) -> None:
        self.fields: dict[str, Any] = {}
        """Fields of the object, with their values."""
        self.others: dict[str, str] = {}
        """Attributes that resolution does not use, as written."""
        self.options: dict[str, Parameter] = {}
        """What says how to carry out the command."""
        attributes, others = ATTRIBUTES[kind], OTHER_KEYWORDS[kind]
        seen: set[str] = set()
        for parameter in parameters:
            keyword = parameter.keyword
            known_as = SYNONYMS.get(keyword, keyword)
            if known_as in seen:
                raise _problem("DUPLICATE", f"{keyword} is given twice", parameter)
            seen.add(known_as)
            attribute = attributes.get(known_as)
            if attribute is not None:
                self.fields[attribute.field] = _read_value(attribute, parameter)
            elif keyword in OPTIONS:
                self.options[keyword] = parameter
            elif others is None or known_as in others:
                self.others[known_as] = _as_written(parameter)
            else:
                raise _unknown_keyword(kind, parameter, [*attributes, *others, *SYNONYMS])


def _problem(code: str, message: str, at: Parameter, *, hint: str = "") -> ScriptProblem:
    return ScriptProblem(code, message, at.offset, length=len(at.keyword), hint=hint)


def _read_value(attribute: Attribute, parameter: Parameter) -> object:
    if parameter.value is None:
        raise _problem("SYNTAX", f"{parameter.keyword} needs a value", parameter)
    text = parameter.source if attribute.is_list else parameter.value
    try:
        return attribute.form.read(text)
    except ValueProblem as problem:
        raise ScriptProblem(
            problem.code,
            f"{parameter.keyword} {parameter.value!r} {problem.problem}",
            parameter.value_offset,
            length=len(parameter.value),
            expected=problem.expected,
        ) from None


def _as_written(parameter: Parameter) -> str:
    if parameter.value is None:
        return parameter.keyword
    return f"{parameter.keyword}({parameter.source})"


def _unknown_keyword(
    kind: type[Definition], parameter: Parameter, known: Sequence[str]
) -> ScriptProblem:
    return _problem(
        "UNKNOWN_KEYWORD",
        f"{kind.keyword} has no attribute {parameter.keyword}",
        parameter,
        hint=_did_you_mean(parameter.keyword, known),
    )


def _did_you_mean(word: str, known: Iterable[str]) -> str:
    similar = difflib.get_close_matches(word, sorted(set(known)), n=1, cutoff=_SIMILAR)
    return f"did you mean {similar[0]}?" if similar else ""


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
    return _did_you_mean(word.upper(), _VERBS)


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


class _Reader:
    """Applies commands to the definitions of one queue manager."""

    def __init__(self, name: str, file: str, base: QueueManager | None) -> None:
        self.file = file
        self.diagnostics: list[Diagnostic] = []
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
        try:
            self._run(command)
        except ScriptProblem as problem:
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
        if _INSERT in command.text:
            parameters = [self._with_name(parameter) for parameter in parameters]
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
            raise _problem(
                "UNKNOWN_OBJECT_TYPE",
                f"{subject.keyword} is no object type",
                subject,
                hint=_did_you_mean(subject.keyword, [*_TYPES, *_OTHER_TYPES]),
            )
        else:
            action(command, kind, subject, parameters)

    def _with_name(self, parameter: Parameter) -> Parameter:
        """Read the manager's name where a uniform cluster's script has ``+QMNAME+``."""
        if parameter.value is None:
            return parameter
        return parameter._replace(value=parameter.value.replace(_INSERT, self._attributes.name))

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
        name = _object_name(kind, subject)
        given = _Given(kind, parameters)
        self._check_free(kind, name, subject, given)
        model = self._model(kind, subject, given)
        location = SourceLocation(self.file, command.line)
        others = given.others
        if model is None:
            definition = kind(name=name, location=location, others=others, **given.fields)
        else:
            others = {**model.others, **others}
            definition = replace(model, name=name, location=location, others=others, **given.fields)
        self._keep(definition)

    def _check_free(
        self, kind: type[Definition], name: str, subject: Parameter, given: _Given
    ) -> None:
        """Refuse to define what exists, unless REPLACE is given and the type is the same."""
        shared = given.fields.get("disposition") is Disposition.SHARED
        existing = self._store(kind, shared=shared).get(name)
        if existing is None:
            return
        if type(existing) is not kind:
            raise _problem("EXISTS", f"{name} exists as {existing.keyword}", subject)
        if "REPLACE" not in given.options:
            hint = f"it was defined at {existing.location}; add REPLACE to define it anew"
            raise _problem("EXISTS", f"{existing} exists", subject, hint=hint)

    def _model(
        self, kind: type[Definition], subject: Parameter, given: _Given
    ) -> Definition | None:
        """The object whose attributes a DEFINE copies; None for the product's defaults."""
        like = given.options.get("LIKE")
        if like is not None:
            model = self._find(kind, like.value or "")
            if model is None:
                raise _problem("NOT_FOUND", f"there is no {kind.keyword}({like.value})", like)
            return model
        if kind is Channel:
            channel_type = given.fields.get("channel_type")
            if channel_type is None:
                raise _problem("MISSING", "a channel needs CHLTYPE", subject)
            return self._others[Channel].get(_DEFAULT_CHANNEL_NAMES.get(channel_type, ""))
        return self._queues.get(DEFAULT_QUEUES.get(kind, ""))

    def _alter(
        self,
        command: Command,
        kind: type[Definition],
        subject: Parameter,
        parameters: list[Parameter],
    ) -> None:
        given = _Given(kind, parameters)
        if misplaced := {"LIKE", "REPLACE", "NOREPLACE"}.intersection(given.options):
            keyword = min(misplaced)
            raise _problem("SYNTAX", f"ALTER takes no {keyword}", given.options[keyword])
        location = SourceLocation(self.file, command.line)
        if kind is QueueManagerAttributes:
            others = {**self._attributes.others, **given.others}
            self._attributes = replace(
                self._attributes, location=location, others=others, **given.fields
            )
            return
        existing = self._existing(kind, subject)
        if given.fields.get("channel_type", existing) not in (
            existing,
            getattr(existing, "channel_type", None),
        ):
            raise _problem("EXISTS", f"{existing} has another CHLTYPE", subject)
        location = existing.location if existing.location.line else location
        others = {**existing.others, **given.others}
        self._keep(replace(existing, location=location, others=others, **given.fields))

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
        elif kind is Channel and found is None and name in DEFAULT_CHANNELS:
            found = Channel(name=name, channel_type=DEFAULT_CHANNELS[name], location=BUILT_IN)
        return found if type(found) is kind else None

    def _existing(self, kind: type[Definition], subject: Parameter) -> Definition:
        name = _object_name(kind, subject)
        found = self._find(kind, name)
        if found is None:
            raise _problem(
                "NOT_FOUND",
                f"there is no {kind.keyword}({name})",
                subject,
                hint=_did_you_mean(name, self._store(kind)),
            )
        return found

    def _keep(self, definition: Definition) -> None:
        shared = getattr(definition, "disposition", None) is Disposition.SHARED
        self._store(type(definition), shared=shared)[definition.name] = definition


def _object_name(kind: type[Definition], subject: Parameter) -> str:
    """The name in ``QLOCAL(NAME)``."""
    if kind is QueueManagerAttributes:
        raise _problem("SYNTAX", "a queue manager can only be altered", subject)
    if subject.value is None:
        raise _problem("SYNTAX", f"{subject.keyword} needs a name", subject)
    try:
        name = check_name(subject.value, NAME_LENGTHS.get(kind, MAX_NAME_LENGTH))
    except ValueProblem as problem:
        raise ScriptProblem(
            problem.code,
            f"{subject.value!r} {problem.problem}",
            subject.value_offset,
            length=len(subject.value),
            expected=problem.expected,
        ) from None
    if not name:
        raise _problem("BAD_NAME", f"{subject.keyword} needs a name", subject)
    return name
