"""Read MQSC scripts: from commands to the definitions of one queue manager.

Reading never raises: an error in a command becomes a finding with its location, and reading
continues with the next command. docs/resolution.md, "MQSC scripts", describes the forms.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from redrive.diagnostics import Diagnostic, Severity, SourceLocation, did_you_mean, in_order
from redrive.topology.mq import objects as mq
from redrive.topology.mq.objects import (
    CHANNEL_TYPES,
    OPTIONS,
    RECORDED,
    SYNONYMS,
    TAKING_ANY_KEYWORD,
    Form,
    ValueProblem,
    check_name,
    name_list,
)
from redrive.topology.mq.queue_manager import (
    DEFAULT_CHANNELS,
    DEFAULT_QUEUES,
    SYSTEM_OBJECTS,
    SYSTEM_QUEUES,
    QueueManager,
)
from redrive.topology.mq.script import (
    MAX_LINE_LENGTH,
    NO_CONFIGURATION,
    Command,
    CommandFailed,
    Configuration,
    Parameter,
    ScriptProblem,
    hint_for_insert,
    long_lines,
    manager_name,
    split_script,
    with_inserts,
)

VERBS: Final[Mapping[str, str]] = {
    verb: words.split()[0]
    for words in (
        *("DEFINE DEF", "ALTER ALT", "DELETE DEL", "DISPLAY DIS", "START STA", "STOP STO"),
        *("RESET RES", "REFRESH REF", "RECOVER REC", "ARCHIVE ARC", "RESOLVE", "SUSPEND", "RESUME"),
        *("BACKUP", "CLEAR", "MOVE", "PING", "PURGE", "RVERIFY", "SET"),
    )
    for verb in words.split()
}
"""Verbs of MQSC and their short forms, each with its full form."""

_VERB: Final = re.compile(r"[\s,]*([^\s,()']+)")
_QUOTED: Final = re.compile(r"'(?:[^']|'')*+'")
_TYPOGRAPHIC_QUOTE: Final = re.compile("[\u2018\u2019\u201c\u201d]")


def verb_of(command: Command) -> tuple[str, int]:
    """The verb of a command in full, and the offset after it."""
    match = _VERB.match(command.text)
    word = match[1] if match else command.text.strip()[:1]
    verb = VERBS.get(word.upper())
    if match and verb:
        return verb, match.end()
    hint = did_you_mean(word.upper(), VERBS)
    if word.startswith(("#", "*", "//", "--")):
        hint = "a comment is a line that starts with * in its first column"
    elif any(word.upper() in attributes for attributes in mq.ATTRIBUTES.values()):
        hint = "to continue the previous command, end its line with +"
    raise ScriptProblem(
        "UNKNOWN_COMMAND",
        f"{word} is not an MQSC command",
        match.start(1) if match else len(command.text) - len(command.text.lstrip()),
        length=len(word),
        expected="a command such as DEFINE, ALTER or DELETE",
        hint=hint,
    )


def check_quotes(command: Command) -> None:
    """Refuse typographic quotes outside quoted text: MQSC reads them as ordinary characters."""
    if command.text.isascii():
        return
    outside = _QUOTED.sub(lambda quoted: " " * len(quoted[0]), command.text)
    if quote := _TYPOGRAPHIC_QUOTE.search(outside):
        message = "a typographic quote does not quote"
        raise ScriptProblem("SYNTAX", message, quote.start(), expected="'")


class Given:
    """The parameters of one command by purpose.

    Attributes:
        fields: Values by field of the object.
        others: Attributes that resolution does not use, as written, by keyword.
        options: Options of the command.
        keywords: Keywords of fields and others, without synonyms.

    Raises:
        ScriptProblem: A parameter is unknown, given twice, or has an invalid value.
    """

    __slots__ = ("_parameters", "fields", "keywords", "options", "others")

    def __init__(self, kind: type[mq.Definition], parameters: Iterable[Parameter]) -> None:
        self.fields: dict[str, Any] = {}
        self.others: dict[str, str] = {}
        self.options: dict[str, Parameter] = {}
        self._parameters: list[Parameter] = []
        attributes, recorded = mq.ATTRIBUTES[kind], RECORDED[kind]
        seen: set[str] = set()
        for parameter in parameters:
            self._parameters.append(parameter)
            keyword = parameter.keyword
            known_as = SYNONYMS.get(keyword, keyword)
            if known_as in seen:
                raise ScriptProblem.at("DUPLICATE", f"{keyword} is given twice", parameter)
            seen.add(known_as)
            if (attribute := attributes.get(known_as)) is not None:
                self.fields[attribute.field] = _read_value(parameter, attribute.form)
            elif keyword in OPTIONS:
                self.options[keyword] = parameter
            elif known_as in recorded or kind in TAKING_ANY_KEYWORD:
                value = "" if parameter.value is None else f"({parameter.source})"
                self.others[known_as] = f"{keyword}{value}"
            else:
                hint = did_you_mean(keyword, [*attributes, *recorded, *SYNONYMS])
                message = f"{kind.keyword} has no attribute {keyword}"
                raise ScriptProblem.at("UNKNOWN_KEYWORD", message, parameter, hint=hint)
        self.keywords = seen - self.options.keys()

    def check_channel_type(self, channel_type: mq.ChannelType) -> None:
        """Refuse attributes that channels of a type do not have."""
        for parameter in self._parameters:
            types = CHANNEL_TYPES.get(parameter.keyword)
            if types is not None and channel_type not in types:
                message = f"a channel with CHLTYPE({channel_type}) has no {parameter.keyword}"
                hint = f"it is an attribute of channels with CHLTYPE {', '.join(sorted(types))}"
                raise ScriptProblem.at("UNKNOWN_KEYWORD", message, parameter, hint=hint)


def _read_value(parameter: Parameter, form: Form) -> object:
    if parameter.value is None:
        raise ScriptProblem.at("SYNTAX", f"{parameter.keyword} needs a value", parameter)
    try:
        return form(parameter.source if form is name_list else parameter.value)
    except ValueProblem as problem:
        raise bad_value(parameter, problem, f"{parameter.keyword} ") from None


def bad_value(parameter: Parameter, problem: ValueProblem, prefix: str = "") -> ScriptProblem:
    """The error about the value of a parameter."""
    value = parameter.value or ""
    return ScriptProblem(
        problem.code,
        f"{prefix}{value!r} {problem.problem}",
        parameter.value_offset,
        length=len(value),
        expected=problem.expected,
        hint=hint_for_insert(value),
    )


def object_name(kind: type[mq.Definition], subject: Parameter) -> str:
    """The name in ``QLOCAL(NAME)``."""
    if kind is mq.QueueManagerAttributes:
        raise ScriptProblem.at("SYNTAX", "a queue manager can only be altered", subject)
    if subject.value is None:
        raise ScriptProblem.at("SYNTAX", f"{subject.keyword} needs a name", subject)
    try:
        name = check_name(subject.value, kind.longest_name)
    except ValueProblem as problem:
        raise bad_value(subject, problem) from None
    if not name:
        raise ScriptProblem.at("BAD_NAME", f"{subject.keyword} needs a name", subject)
    return name


_OTHER_OBJECTS: Mapping[type[mq.Definition], str] = {
    mq.Channel: "channels",
    mq.ClientChannel: "client_channels",
    mq.Topic: "topics",
    mq.Namelist: "namelists",
}
"""Kinds of objects other than queues, with the field of a queue manager that holds them."""
_DEFAULT_CHANNEL_NAMES = {kind: name for name, kind in DEFAULT_CHANNELS.items()}


class DefinitionStore:
    """The objects so far, what a DEFINE copies, and which definitions ``runmqsc`` refuses."""

    def __init__(self, base: QueueManager, *, refuses: bool) -> None:
        self._base, self.refuses = base, refuses
        self.attributes = base.attributes
        self.suspended = set(base.suspended_clusters)
        self._objects: dict[str, Any] = {
            name: dict(getattr(base, name))
            for name in ("queues", "shared_queues", *_OTHER_OBJECTS.values())
        }

    def queue_manager(self) -> QueueManager:
        """The queue manager after the commands so far."""
        suspended = frozenset(self.suspended)
        attributes = self.attributes
        return replace(
            self._base, attributes=attributes, suspended_clusters=suspended, **self._objects
        )

    def of_kind(self, kind: type[mq.Definition], *, shared: bool = False) -> dict[str, Any]:
        """The objects of a kind by name, without the product's own; all queues are one kind."""
        field = _OTHER_OBJECTS.get(kind, "shared_queues" if shared else "queues")
        objects: dict[str, Any] = self._objects[field]
        return objects

    def find(self, kind: type[mq.Definition], name: str) -> mq.Definition | None:
        """The object of this kind and name, including the product's own."""
        definition: mq.Definition | None = self.of_kind(kind).get(name)
        if issubclass(kind, mq.Queue):
            shared_queues = self._objects["shared_queues"]
            definition = definition or shared_queues.get(name) or SYSTEM_QUEUES.get(name)
        else:
            definition = definition or SYSTEM_OBJECTS.get(kind, {}).get(name)
        return definition if type(definition) is kind else None

    def existing(self, kind: type[mq.Definition], subject: Parameter) -> mq.Definition:
        """The object that a command names; raises ``CommandFailed`` (AMQ8147E) without one."""
        name = object_name(kind, subject)
        if (definition := self.find(kind, name)) is not None:
            return definition
        hint = "another script may define it: QM=FOLDER reads several in order"
        hint = did_you_mean(name, self.of_kind(kind)) or hint
        if kind is mq.Channel and self.find(mq.ClientChannel, name):
            hint = "CHLTABLE(CLNTTAB) or CHLTYPE(CLNTCONN) names the client connection"
        message = f"AMQ8147E: there is no {kind.keyword}({name})"
        raise CommandFailed.at("NOT_FOUND", message, subject, hint=hint)

    def check_free(
        self, kind: type[mq.Definition], name: str, subject: Parameter, given: Given
    ) -> None:
        """Refuse (AMQ8150E) to define an existing object, except with REPLACE and the same type."""
        shared = given.fields.get("is_shared", False)
        existing = self.of_kind(kind, shared=shared).get(name)
        if existing is None:
            return
        if type(existing) is not kind:
            message = f"AMQ8150E: {name} exists as {existing.keyword}"
            raise CommandFailed.at("EXISTS", message, subject)
        if "REPLACE" not in given.options:
            hint = f"it was defined at {existing.location}; add REPLACE to redefine it"
            raise CommandFailed.at("EXISTS", f"AMQ8150E: {existing} exists", subject, hint=hint)

    def model(
        self, kind: type[mq.Definition], subject: Parameter, given: Given
    ) -> mq.Definition | None:
        """The object whose attributes a DEFINE copies; None for the product's defaults."""
        if (like := given.options.get("LIKE")) is not None:
            model = self.find(kind, like.value or "")
            if model is None:
                message = f"AMQ8147E: there is no {kind.keyword}({like.value})"
                raise CommandFailed.at("NOT_FOUND", message, like)
            return model
        if issubclass(kind, mq.Channel):
            channel_type = given.fields.get("channel_type")
            if channel_type is None:
                raise ScriptProblem.at("MISSING", "a channel needs CHLTYPE", subject)
            return self.of_kind(kind).get(_DEFAULT_CHANNEL_NAMES.get(channel_type, ""))
        return self.of_kind(mq.Queue).get(DEFAULT_QUEUES.get(kind, ""))

    def keep(self, definition: mq.Definition, subject: Parameter) -> None:
        """Add or replace a definition, unless ``runmqsc`` refuses it."""
        problem = ""
        match definition:
            case mq.QueueManagerAttributes():
                problem = _refusal_of_queue_manager(definition, self._objects["queues"].values())
            case mq.Channel():
                problem = _refusal_of_channel(definition)
            case mq.Queue():
                problem = _refusal_of_queue(definition, self.attributes.max_message_length)
        if problem and self.refuses:
            raise CommandFailed.at("REFUSED", problem, subject)
        if isinstance(definition, mq.QueueManagerAttributes):
            self.attributes = definition
        else:
            self._home_of(definition)[definition.name] = definition

    def delete(self, definition: mq.Definition) -> None:
        """Remove an existing definition."""
        del self._home_of(definition)[definition.name]

    def _home_of(self, definition: mq.Definition) -> dict[str, Any]:
        shared = getattr(definition, "is_shared", False)
        return self.of_kind(type(definition), shared=shared)


# What runmqsc refuses although the syntax is right, by the references of the commands (DEFINE
# CHANNEL, DEFINE queues, ALTER QMGR) and of the PCF reason codes that the findings name.

_SERVES_QUEUE = frozenset({mq.ChannelType.SDR, mq.ChannelType.SVR})
_CALLS = frozenset(
    {mq.ChannelType.SDR, mq.ChannelType.RQSTR, mq.ChannelType.CLUSSDR, mq.ChannelType.CLNTCONN}
)


def _refusal_of_channel(channel: mq.Channel) -> str:
    if channel.name in DEFAULT_CHANNELS:
        return ""  # it only holds defaults
    kind = channel.channel_type
    if kind in _SERVES_QUEUE and not channel.transmission_queue:
        return f"a channel with CHLTYPE({kind}) needs XMITQ"
    if kind in _CALLS and not channel.connection:
        return f"a channel with CHLTYPE({kind}) needs CONNAME"
    return _refusal_of_clusters(channel)


def _refusal_of_queue(queue: mq.Queue, most: int) -> str:
    if isinstance(queue, mq.HoldingQueue) and queue.max_message_length > most:
        length = queue.max_message_length
        return f"MAXMSGL({length}) is more than the {most} of the queue manager"
    if isinstance(queue, mq.LocalQueue):
        is_transmission_queue = queue.is_transmission_queue
        if queue.is_clustered and is_transmission_queue:
            return "a transmission queue cannot be in a cluster (MQRCCF_CLUSTER_Q_USAGE_ERROR)"
        if queue.cluster_channels and not is_transmission_queue:
            return "CLCHNAME needs USAGE(XMITQ) (MQRCCF_CLUS_XMIT_Q_USAGE_ERROR)"
    return _refusal_of_clusters(queue)


def _refusal_of_clusters(definition: mq.Channel | mq.Queue) -> str:
    if definition.cluster and definition.cluster_namelist:
        return "CLUSTER and CLUSNL exclude each other (MQRCCF_CLUSTER_NAME_CONFLICT)"
    return ""


def _refusal_of_queue_manager(
    queue_manager: mq.QueueManagerAttributes, queues: Iterable[mq.Queue]
) -> str:
    if queue_manager.default_transmission_queue == mq.CLUSTER_TRANSMISSION_QUEUE:
        return f"AMQ8520E: DEFXMITQ cannot be {mq.CLUSTER_TRANSMISSION_QUEUE}"
    if queue_manager.repository_cluster and queue_manager.repository_namelist:
        return "REPOS and REPOSNL exclude each other (MQRCCF_REPOS_NAME_CONFLICT)"
    most = queue_manager.max_message_length
    for queue in queues:
        if isinstance(queue, mq.HoldingQueue) and queue.max_message_length > most:
            return f"MAXMSGL({most}) is less than the {queue.max_message_length} of {queue}"
    return ""


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


def _plural(number: int, single: str, many: str, rest: str) -> str:
    return f"One {single} {rest}" if number == 1 else f"{number or 'No'} {many} {rest}"


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
            parameters = [with_inserts(parameter, self._inserts) for parameter in parameters]
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
        words = {(parameter.keyword, (parameter.value or "").upper()) for parameter in parameters}
        if kind is mq.Channel and not words.isdisjoint(_CLIENT):
            kind = mq.ClientChannel
        try:
            action(_Call(command, verb, kind, subject, parameters))
        except CommandFailed as problem:
            # With IGNSTATE(YES) the requested state may exist already.
            ignores = any(
                parameter.keyword == "IGNSTATE" and parameter.value == "YES"
                for parameter in parameters
            )
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
