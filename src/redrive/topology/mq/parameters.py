"""The parameters of MQSC commands: the values that their keywords take, and the object's name."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from typing import Any

from redrive.topology.mq.attributes import (
    ATTRIBUTES,
    NAME_LENGTHS,
    OPTIONS,
    OTHER_KEYWORDS,
    SYNONYMS,
)
from redrive.topology.mq.forms import Flag, Form, ValueProblem, check_name
from redrive.topology.mq.inserts import hint_for_insert
from redrive.topology.mq.objects import (
    MAX_NAME_LENGTH,
    ChannelType,
    Definition,
    QueueManagerAttributes,
)
from redrive.topology.mq.recorded import ANY_OBJECT, CHANNEL_TYPES, RECORDED
from redrive.topology.mq.script import CommandFailed, Parameter, ScriptProblem

_SIMILAR = 0.75


class Given:
    """The parameters of one command, sorted by what they are.

    Raises:
        ScriptProblem: One of them is unknown, given twice, or has no value that it takes.
    """

    __slots__ = ("fields", "options", "others", "parameters")

    def __init__(self, kind: type[Definition], parameters: Iterable[Parameter]) -> None:
        self.fields: dict[str, Any] = {}
        """Fields of the object, with their values."""
        self.others: dict[str, str] = {}
        """Attributes that resolution does not use, as written."""
        self.options: dict[str, Parameter] = {}
        """What says how to carry out the command."""
        self.parameters: list[Parameter] = []
        """All of them."""
        attributes, others = ATTRIBUTES[kind], OTHER_KEYWORDS[kind]
        recorded = RECORDED.get(kind, ANY_OBJECT)
        seen: set[str] = set()
        for parameter in parameters:
            self.parameters.append(parameter)
            keyword = parameter.keyword
            known_as = SYNONYMS.get(keyword, keyword)
            if known_as in seen:
                raise problem_at("DUPLICATE", f"{keyword} is given twice", parameter)
            seen.add(known_as)
            attribute = attributes.get(known_as)
            if attribute is not None:
                source = parameter.source if attribute.is_list else parameter.value
                self.fields[attribute.field] = _value(attribute.form, parameter, source)
            elif keyword in OPTIONS:
                self.options[keyword] = parameter
            elif others is None or known_as in others:
                self.others[known_as] = _as_written(parameter, recorded.get(known_as))
            else:
                raise _unknown_keyword(kind, parameter, [*attributes, *others, *SYNONYMS])

    def check_channel_type(self, channel_type: ChannelType) -> None:
        """Refuses attributes that channels of a type do not have.

        Raises:
            ScriptProblem: One is given.
        """
        for parameter in self.parameters:
            types = CHANNEL_TYPES.get(parameter.keyword)
            if types is not None and channel_type not in types:
                some = ", ".join(sorted(types))
                raise problem_at(
                    "UNKNOWN_KEYWORD",
                    f"a channel with CHLTYPE({channel_type}) has no {parameter.keyword}",
                    parameter,
                    hint=f"it is an attribute of channels with CHLTYPE {some}",
                )


def problem_at(code: str, message: str, at: Parameter, *, hint: str = "") -> ScriptProblem:
    """What is wrong with a parameter, underlined from its keyword on."""
    return ScriptProblem(code, message, at.offset, length=len(at.keyword), hint=hint)


def failure_at(code: str, message: str, at: Parameter, *, hint: str = "") -> CommandFailed:
    """Why a command of valid syntax cannot be processed."""
    return CommandFailed(code, message, at.offset, length=len(at.keyword), hint=hint)


def _value(form: Form, parameter: Parameter, text: str | None) -> object:
    if parameter.value is None or text is None:
        raise problem_at("SYNTAX", f"{parameter.keyword} needs a value", parameter)
    try:
        return form.read(text)
    except ValueProblem as problem:
        raise ScriptProblem(
            problem.code,
            f"{parameter.keyword} {parameter.value!r} {problem.problem}",
            parameter.value_offset,
            length=len(parameter.value),
            expected=problem.expected,
            hint=hint_for_insert(parameter.value),
        ) from None


def _as_written(parameter: Parameter, form: Form | None) -> str:
    if form is not None and not (isinstance(form, Flag) and parameter.value is None):
        _value(form, parameter, parameter.value)
    if parameter.value is None:
        return parameter.keyword
    return f"{parameter.keyword}({parameter.source})"


def _unknown_keyword(
    kind: type[Definition], parameter: Parameter, known: Sequence[str]
) -> ScriptProblem:
    return problem_at(
        "UNKNOWN_KEYWORD",
        f"{kind.keyword} has no attribute {parameter.keyword}",
        parameter,
        hint=did_you_mean(parameter.keyword, known),
    )


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """A hint with the known word that is most like another one; empty if none is."""
    similar = difflib.get_close_matches(word, sorted(set(known)), n=1, cutoff=_SIMILAR)
    return f"did you mean {similar[0]}?" if similar else ""


def object_name(kind: type[Definition], subject: Parameter) -> str:
    """The name in ``QLOCAL(NAME)``.

    Raises:
        ScriptProblem: There is none, or it is none that an object of this kind can have.
    """
    if kind is QueueManagerAttributes:
        raise problem_at("SYNTAX", "a queue manager can only be altered", subject)
    if subject.value is None:
        raise problem_at("SYNTAX", f"{subject.keyword} needs a name", subject)
    try:
        name = check_name(subject.value, NAME_LENGTHS.get(kind, MAX_NAME_LENGTH))
    except ValueProblem as problem:
        raise ScriptProblem(
            problem.code,
            f"{subject.value!r} {problem.problem}",
            subject.value_offset,
            length=len(subject.value),
            expected=problem.expected,
            hint=hint_for_insert(subject.value),
        ) from None
    if not name:
        raise problem_at("BAD_NAME", f"{subject.keyword} needs a name", subject)
    return name
