"""What to do about a word or a character that stands where the grammar does not have it."""

from __future__ import annotations

import unicodedata
from typing import Final

from redrive.rules.keywords import IBM, KAFKA, LARGEST_NUMBER, Keyword, Value, Vocabulary

_QUOTES: Final = "\u2018\u2019\u201a\u201b\u201c\u201d\u201e\u201f\u00b4\u0060\u00ab\u00bb"
COMMENTS: Final = "*#;/!"
"""Characters with which people begin a comment where no clause can begin."""
_KNOWN_WISHES: Final = {
    "CONVERT": "bodies are never converted; no platform has such a keyword",
    "CORRELID": "no keyword looks at message or correlation identifiers",
    "MSGID": "no keyword looks at message or correlation identifiers",
    "PRIORITY": "no keyword looks at the priority",
    "PUT": "to put the message on another queue write ACTION(FWD) FWDQ(queue)",
    "QUEUE": "the original destination is DESTQ, the target of ACTION(FWD) is FWDQ",
}


def keyword_hint(name: str, known: Vocabulary) -> str:
    """The keyword that an unknown upper-case word probably means; empty if none."""
    if name in known.keywords["ACTION"].words:
        return f"write ACTION({name})"
    if known is IBM and name == "DIALECT":
        return "DIALECT(KAFKA) has to be the first clause of the table"
    if known is IBM and name in KAFKA.names:
        return f"{name} is for tables whose first clause is DIALECT(KAFKA)"
    return _KNOWN_WISHES.get(name, "")


def character_hint(character: str) -> str:
    """What is probably meant by a character that cannot start a clause; empty if unknown."""
    if character == "$":
        return "variables of a shell are not replaced here"
    if character == "*":
        return "a comment has a line of its own, which starts with *"
    if character in COMMENTS:
        return "a comment is a line that starts with *"
    return _look_alike(character)


def value_hint(keyword: Keyword, text: str, at: int) -> str:
    """What is probably meant by a character that cannot stand in a value without quotes.

    It is empty if nothing is known but that quotes may help.
    """
    character = text[at]
    if keyword.value in {Value.COUNT, Value.COUNT_OR_WORD, Value.NUMBER} and character in "+-":
        low = keyword.minimum
        return f"a number has no sign: {keyword.name} takes numbers from {low} to {LARGEST_NUMBER}"
    if character == "'" and text[at + 1 :].lstrip(" \t").startswith(")"):
        return "a quoted value has a quote at both ends"
    if character == "=" and keyword.references:
        return f"for a field of the message write {' or '.join(keyword.references)}"
    return _look_alike(character)


def closing_of(text: str, start: int) -> int:
    """Where the parenthesis is closed whose content begins at ``start``; -1 if nowhere.

    Parentheses within are taken in pairs; if they are none, the first closing one is it.
    """
    depth = 1
    for index in range(start, len(text)):
        depth += {"(": 1, ")": -1}.get(text[index], 0)
        if not depth:
            return index
    return text.find(")", start)


def _look_alike(character: str) -> str:
    """The hint for a character of a word processor that looks like one of the language."""
    if character in _QUOTES:
        return "this is a typographic quote: values stand between two straight ones, '"
    if character == '"':
        return "values stand between single quotes, '"
    if character != " " and unicodedata.category(character) in {"Zs", "Cf"}:
        name = unicodedata.name(character, "no character").lower()
        return f"this is no blank but U+{ord(character):04X}, {name}: write a blank"
    return ""
