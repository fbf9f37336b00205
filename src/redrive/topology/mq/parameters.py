"""The words of MQSC commands: verbs, keywords with their values, and the names of objects."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from redrive.diagnostics import did_you_mean
from redrive.topology.mq import objects as mq
from redrive.topology.mq.attributes import (
    CHANNEL_TYPES,
    OPTIONS,
    RECORDED,
    SYNONYMS,
    TAKING_ANY_KEYWORD,
)
from redrive.topology.mq.forms import Form, ValueProblem, check_name, name_list
from redrive.topology.mq.inserts import hint_for_insert
from redrive.topology.mq.script import Command, Parameter, ScriptProblem

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
    found = _VERB.match(command.text)
    word = found[1] if found else command.text.strip()[:1]
    verb = VERBS.get(word.upper())
    if found and verb:
        return verb, found.end()
    hint = did_you_mean(word.upper(), VERBS)
    if word.startswith(("#", "*", "//", "--")):
        hint = "a comment is a line that starts with * in its first column"
    elif any(word.upper() in attributes for attributes in mq.ATTRIBUTES.values()):
        hint = "to continue the previous command, end its line with +"
    raise ScriptProblem(
        "UNKNOWN_COMMAND",
        f"{word} is not an MQSC command",
        found.start(1) if found else len(command.text) - len(command.text.lstrip()),
        length=len(word),
        expected="a command such as DEFINE, ALTER or DELETE",
        hint=hint,
    )


def check_quotes(command: Command) -> None:
    """Refuse typographic quotes outside quoted text: MQSC reads them as ordinary characters."""
    if command.text.isascii():
        return
    outside = _QUOTED.sub(lambda quoted: " " * len(quoted[0]), command.text)
    if found := _TYPOGRAPHIC_QUOTE.search(outside):
        message = "a typographic quote does not quote"
        raise ScriptProblem("SYNTAX", message, found.start(), expected="'")


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
                self.others[known_as] = _as_written(parameter)
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


def _as_written(parameter: Parameter) -> str:
    if parameter.value is None:
        return parameter.keyword
    return f"{parameter.keyword}({parameter.source})"


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
