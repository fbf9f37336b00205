"""Hints about words and characters that the grammar does not allow in their place."""

from __future__ import annotations

import unicodedata
from typing import Final

from redrive.rules.keywords import IBM, KAFKA, LARGEST_NUMBER, Keyword, Value, Vocabulary

_QUOTES: Final = "\u2018\u2019\u201a\u201b\u201c\u201d\u201e\u201f\u00b4\u0060\u00ab\u00bb"
COMMENTS: Final = "*#;/!"
"""Characters that begin comments in other languages."""
_KNOWN_WISHES: Final = {
    "CONVERT": "bodies are never converted; no platform has such a keyword",
    "CORRELID": "no keyword looks at message or correlation identifiers",
    "MSGID": "no keyword looks at message or correlation identifiers",
    "PRIORITY": "no keyword looks at the priority",
    "PUT": "to put the message on another queue write ACTION(FWD) FWDQ(queue)",
    "QUEUE": "the original destination is DESTQ, the target of ACTION(FWD) is FWDQ",
}


def keyword_hint(name: str, known: Vocabulary) -> str:
    """The keyword that an unknown upper-case word probably means; empty if unknown."""
    if name in known.keywords["ACTION"].words:
        return f"write ACTION({name})"
    if known is IBM and name == "DIALECT":
        return "DIALECT(KAFKA) has to be the first clause of the table"
    if known is IBM and name in KAFKA.names:
        return f"{name} is for tables whose first clause is DIALECT(KAFKA)"
    return _KNOWN_WISHES.get(name, "")


def character_hint(character: str) -> str:
    """What a character that cannot start a clause probably means; empty if unknown."""
    if character == "$":
        return "variables of a shell are not replaced here"
    if character == "*":
        return "a comment needs its own line, which starts with *"
    if character in COMMENTS:
        return "a comment is a line that starts with *"
    return _look_alike(character)


def value_hint(keyword: Keyword, text: str, at: int) -> str:
    """What a character that needs quotes in a value probably means.

    Empty if only quotes may help.
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
    """The offset where the parenthesis around ``start`` is closed; -1 if nowhere.

    Inner parentheses are matched in pairs; if they do not match, the first closing one counts.
    """
    depth = 1
    for index in range(start, len(text)):
        depth += {"(": 1, ")": -1}.get(text[index], 0)
        if not depth:
            return index
    return text.find(")", start)


def _look_alike(character: str) -> str:
    if character in _QUOTES:
        return "this is a typographic quote: values stand between two straight ones, '"
    if character == '"':
        return "values stand between single quotes, '"
    if character != " " and unicodedata.category(character) in {"Zs", "Cf"}:
        name = unicodedata.name(character, "no character").lower()
        return f"this is no blank but U+{ord(character):04X}, {name}: write a blank"
    return ""
