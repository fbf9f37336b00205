"""MQSC commands in the JSON of the mqweb server's administrative REST API, and its answers.

``runCommandJSON`` has verb, qualifier, name and parameters apart; ``runCommand`` holds one command
as text ("POST - JSON formatted command", q133340). An answer to DISPLAY names the attributes of
objects that exist; it is read as their definitions.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from redrive.diagnostics import Diagnostic, Severity, SourceLocation
from redrive.topology.mq.forms import quote
from redrive.topology.mq.script import Command

_NOT_JSON: Final = re.compile(r"[\s,]*")
_NEGATED: Final = frozenset({"HARDENBO", "REPLACE", "SHARE", "TRIGGER"})
_FLAGS: Final = _NEGATED | {"ALL", "FORCE", *(f"NO{word}" for word in ("FORCE", *_NEGATED))}
"""Keywords without a value, for which JSON has yes or no."""
_DISPLAYED: Final = {
    "queue": "type",
    "channel": "chltype",
    "topic": "",
    "namelist": "",
    "qmname": "",
}
"""The parameter with the name of a displayed object -> the parameter with its kind."""


def is_mqweb(data: bytes) -> bool:
    """Whether a JSON file has commands or answers of mqweb, not a CCDT or other settings."""
    return any(word in data for word in (b'"runCommand', b'"commandResponse"'))


def read_commands(text: str, file: str) -> tuple[list[Command], list[Diagnostic]]:
    """The commands, as MQSC, of a text with JSON objects or lists of them, and JSON errors."""
    commands: list[Command] = []
    decoder, at = json.JSONDecoder(), 0
    while (start := _begin(text, at)) < len(text):
        line = text.count("\n", 0, start)
        try:
            value, at = decoder.raw_decode(text, start)
        except json.JSONDecodeError as problem:
            where = SourceLocation(file, problem.lineno, problem.colno)
            return commands, [where.finding(Severity.ERROR, "SYNTAX", f"not JSON: {problem.msg}")]
        for one in value if isinstance(value, list) else [value]:
            # A command has the line of its object, for findings.
            commands += (
                Command(command, [""] * line + [command], line, line + 1)
                for command in _commands(one)
            )
    return commands, []


def _begin(text: str, at: int) -> int:
    found = _NOT_JSON.match(text, at)
    return found.end() if found else at


def _commands(value: Any) -> Iterator[str]:  # noqa: ANN401 - JSON is anything
    match value:
        case {"type": "runCommand", "parameters": {"command": str(command)}}:
            yield command
        case {"type": "runCommandJSON", "command": str(verb), "qualifier": str(kind), **others}:
            parameters = others.get("parameters")
            given = parameters if isinstance(parameters, dict) else {}
            yield _command(verb, kind, others.get("name"), given)
        case {"commandResponse": list(answers)}:
            for answer in answers:
                match answer:
                    case {"parameters": dict(parameters)} if parameters:
                        yield from _definition(parameters)
        case _:
            yield json.dumps(value)  # the reader reports that it is not a command


def _definition(parameters: Mapping[str, Any]) -> Iterator[str]:
    given = {key.lower(): value for key, value in parameters.items()}
    for key, kind_key in _DISPLAYED.items():
        if key not in given:
            continue
        name = given.pop(key)
        if key == "qmname":
            yield _command("ALTER", "QMGR", None, given)
        elif key == "channel":
            yield f"{_command('DEFINE', 'CHANNEL', name, given)} REPLACE"
        else:
            kind = given.pop(kind_key, key) if kind_key else key
            yield f"{_command('DEFINE', str(kind), name, given)} REPLACE"
        return


def _command(verb: str, kind: str, name: object, parameters: Mapping[str, Any]) -> str:
    subject = kind if name is None else f"{kind}({quote(str(name))})"
    words = [_parameter(key.upper(), value) for key, value in parameters.items()]
    return " ".join([verb, subject, *filter(None, words)])


def _parameter(keyword: str, value: object) -> str:
    """A parameter in MQSC; numbers and lists are unquoted, texts keep their case."""
    if keyword in _FLAGS:
        said = value is True or str(value).lower() in {"yes", "true", ""}
        if said:
            return keyword
        return f"NO{keyword}" if keyword in _NEGATED else ""
    if isinstance(value, list):
        return f"{keyword}({','.join(quote(str(one)) for one in value)})"
    if isinstance(value, bool):
        return f"{keyword}({'YES' if value else 'NO'})"
    return f"{keyword}({value if isinstance(value, int) else quote(str(value))})"
