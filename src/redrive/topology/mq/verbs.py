"""The first word of an MQSC command, and what is wrong with a command as text."""

from __future__ import annotations

import re
from collections.abc import Mapping

from redrive.topology.mq.attributes import ATTRIBUTES
from redrive.topology.mq.parameters import did_you_mean
from redrive.topology.mq.script import Command, ScriptProblem

VERBS: Mapping[str, str] = {
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
"""Verbs of MQSC and their short forms, each with its full form."""
_VERB = re.compile(r"[\s,]*([^\s,()']+)")
_QUOTED = re.compile(r"'(?:[^']|'')*+'")
_TYPOGRAPHIC_QUOTE = re.compile("[\u2018\u2019\u201c\u201d]")


def verb_of(command: Command) -> tuple[str, int]:
    """The verb of a command and the offset behind it.

    Raises:
        ScriptProblem: The first word is no verb.
    """
    found = _VERB.match(command.text)
    word = found[1] if found else command.text.strip()[:1]
    verb = VERBS.get(word.upper())
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
    return did_you_mean(word.upper(), VERBS)


def check_quotes(command: Command) -> None:
    """Refuse typographic quotes: MQSC reads them as ordinary characters.

    Raises:
        ScriptProblem: There is one outside of quoted text.
    """
    if command.text.isascii():
        return
    found = _TYPOGRAPHIC_QUOTE.search(
        _QUOTED.sub(lambda quoted: " " * len(quoted[0]), command.text)
    )
    if found:
        raise ScriptProblem(
            "SYNTAX", "a typographic quote does not quote", found.start(), expected="'"
        )
