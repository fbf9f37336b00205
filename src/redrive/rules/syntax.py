r"""From the text of an entry to its clauses, with all syntax errors.

The grammar:

    entry  = sep* clause { sep+ clause } sep*          sep = " " | TAB | ","
    clause = KEYWORD ws* "(" ws* value ws* ")"         ws  = " " | TAB
    value  = quoted | bare

DIALECT(KAFKA) adds, for its own patterns:

    value        = [ argument ws* "," ws* ] ( negated | list | alternatives )
    negated      = "NOT" ( ws+ alternative | ws* list )
    list         = "(" ws* alternatives ws* ")"
    argument     = quoted | bare
    alternatives = alternative { ws* "|" ws* alternative }
    alternative  = quoted | "/" { any character but / | "\/" } "/" | [ comparison ws* ] bare
    comparison   = ">" | ">=" | "<" | "<=" | "="
    bare         = any characters but blanks, quotes, parentheses, commas and | & < > =
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Final

from redrive.diagnostics import did_you_mean
from redrive.rules.diagnosis import Reporter
from redrive.rules.keywords import (
    IBM,
    KAFKA,
    LARGEST_NUMBER,
    Keyword,
    KeywordRole,
    Value,
    Vocabulary,
    field_name,
)
from redrive.rules.source import BLANKS, Entry


@dataclass(frozen=True, slots=True)
class Alternative:
    """One of the alternatives of a value in DIALECT(KAFKA)."""

    text: str
    """The text without quotes, the expression without slashes, the number of a comparison."""
    offset: int
    """Its offset in the text of the entry."""
    length: int
    """Characters with quotes, slashes and comparison."""
    operator: str = ""
    is_regex: bool = False

    @property
    def place(self) -> tuple[int, int]:
        """Offset and length."""
        return self.offset, self.length


@dataclass(frozen=True, slots=True)
class Clause:
    """One ``KEYWORD(value)``, not yet checked."""

    keyword: Keyword
    offset: int
    """Offset of the keyword in the text of the entry."""
    value: str | None
    """Folded to upper case, or without its quotes; None if the syntax was wrong."""
    raw: str = ""
    """The value in the text, with quotes."""
    value_offset: int = 0
    argument: str = ""
    """The argument before the value and a comma."""
    alternatives: tuple[Alternative, ...] = ()
    """DIALECT(KAFKA): the value of a pattern."""
    is_negated: bool = False
    """DIALECT(KAFKA): whether NOT precedes the alternatives."""

    @property
    def name(self) -> str:
        """What an entry can have only once: the keyword, with its argument if it has one."""
        return field_name(self.keyword, self.argument)


BARE_IN_KAFKA: Final = re.compile(r"[^\s'(),|&<>=]+")
"""A text that needs no quotes in DIALECT(KAFKA), unless it begins with a slash."""

_SEPARATORS: Final = re.compile(r"[ \t,]*")
_BLANKS: Final = re.compile(r"[ \t]*")
# A keyword is letters only; more is matched so that a misspelt one is shown as a whole.
_WORD: Final = re.compile(r"[A-Za-z][A-Za-z0-9_.]*")
_QUOTED: Final = re.compile(r"'((?:[^']|'')*)'")
_BARE: Final = re.compile(r"[A-Za-z0-9./_%*?&]+")
_REGEX: Final = re.compile(r"/((?:[^/\\]|\\.)*)/")
_COMPARISON: Final = re.compile(r">=|<=|>|<|=")
# As a text, these three letters are followed by nothing or a bar.
_NOT: Final = re.compile(r"NOT(?:[ \t]*(?=\()|[ \t]+(?=[^ \t)|]))", re.IGNORECASE)
_ARGUMENT: Final = re.compile(r"[ \t]*(?:'((?:[^']|'')*)'|([^\s'(),|]+))[ \t]*,[ \t]*")
_CLAUSE_START: Final = re.compile(r"([A-Za-z]+)[ \t]*\(")
_NEXT_CLAUSE: Final = re.compile(r"(?<=[ \t,)])[A-Za-z]+[ \t]*\(")
_SEPARATED: Final = re.compile(r"[ \t,]|$")
_VERBATIM: Final = {
    Value.TOPIC: re.compile(r"[^\s'(),|<>=]+"),
    Value.LABEL: re.compile(r"[^\s'(),|<>=]+"),
    Value.BACKOFF: re.compile(r"[^\s'(),|&<>=]+(?:[ \t]*,[ \t]*[^\s'(),|&<>=]+)*"),
}
"""Values without quotes whose letters are not folded."""
_QUOTES: Final = "\u2018\u2019\u201a\u201b\u201c\u201d\u201e\u201f\u00b4\u0060\u00ab\u00bb"
_COMMENTS: Final = "*#;/!"
"""Characters that begin comments in other languages."""
_KNOWN_WISHES: Final = {
    "CONVERT": "bodies are never converted; no platform has such a keyword",
    "CORRELID": "no keyword looks at message or correlation identifiers",
    "MSGID": "no keyword looks at message or correlation identifiers",
    "PRIORITY": "no keyword looks at the priority",
    "PUT": "to put the message on another queue write ACTION(FWD) FWDQ(queue)",
    "QUEUE": "the original destination is DESTQ, the target of ACTION(FWD) is FWDQ",
}
_EXAMPLES: Final = {"path": "$.order.id", "name": "x-tenant"}
_CLOSE_THE_VALUE: Final = (
    "close the value with '; write a quote inside a value twice; end a continued line in + or -"
)
_CLOSE_THE_EXPRESSION: Final = (
    r"close the expression with /; write a slash inside it as \/, "
    "and quote a text that starts with a slash"
)
_WRITE_PARENTHESES: Final = (
    "write the value between parentheses; a line that continues in the next one ends in + or -"
)


class _UnreadableError(Exception):
    """A value is not in the grammar; it is reported, and reading continues after it."""


class ClauseReader:
    """Reads the clauses of one entry and continues after every error.

    Each syntax error has one finding. Then reading continues from the next plausible place. If
    ``strict``, clauses must be separated.
    """

    def __init__(
        self, entry: Entry, report: Reporter, vocabulary: Vocabulary, *, strict: bool
    ) -> None:
        self._text = entry.text
        self._report = partial(report.error, entry, code="SYNTAX")
        self._vocabulary = vocabulary
        self._strict = strict
        self._at = 0
        self._keyword: Keyword
        self.lost = False
        """Whether some text did not become a clause."""

    def clauses(self) -> Iterator[Clause]:
        """Yield the clauses in order, including those with an invalid value."""
        separated = True
        while True:
            start = self._at
            self._match(_SEPARATORS)
            if self._at == len(self._text):
                break
            separated = separated or self._at > start
            if not separated and self._strict and _WORD.match(self._text, self._at):
                self._report(
                    self._at,
                    "two clauses without a separator",
                    "a blank or a comma",
                    "separate the clauses; z/OS alone reads them without",
                )
            clause = self._clause()
            # After an error the place to continue is a guess: no second finding for it.
            separated = clause is None or clause.value is None
            if clause is not None:
                yield clause
        if not self._text.strip(" \t,"):
            self._report(0, "there is nothing but commas here", "a keyword")
            self.lost = True

    def _clause(self) -> Clause | None:
        word = _WORD.match(self._text, self._at)
        if word is None:
            character = self._text[self._at]
            message = f"{character!r} cannot start a clause"
            self._report(self._at, message, "a keyword", _character_hint(character))
            self.lost = True
            if character in _COMMENTS:
                self._at = len(self._text)  # the rest is meant as a comment
            self._resume()
            return None
        name = word.group().upper()
        plain = self._vocabulary.keywords.get(name)
        other = self._vocabulary.with_argument.get(name)
        opened = _CLAUSE_START.match(self._text, word.start())
        # Of two keywords with the same name, the text shows which one is meant.
        is_other = plain is None or (opened and _ARGUMENT.match(self._text, opened.end()))
        keyword = other if other is not None and is_other else plain
        self._at = word.end()
        if keyword is None:
            self._unknown(word)
            return None
        self._keyword = keyword
        if not self._takes("("):
            message, hint = f"{name} stands without a value", f"write {name}(value)"
            self._report(word.end(), message, "(", hint, subject=name)
            self.lost = True
            if _WORD.match(self._text, self._at) is None:
                self._resume()
            return None
        self._match(_BLANKS)
        return self._value(keyword, word.start())

    def _unknown(self, word: re.Match[str]) -> None:
        known = self._vocabulary
        name = word.group().upper()
        # Only control data, or only keywords of rules, may stand beside the others of the entry.
        allowed = [*known.keywords.values(), *known.with_argument.values()]
        words = {clause[1].upper() for clause in _CLAUSE_START.finditer(self._text)}
        are_control = {
            keyword.role is KeywordRole.CONTROL for keyword in allowed if keyword.name in words
        }
        if are_control:
            is_control = are_control == {True}
            allowed = [
                keyword
                for keyword in allowed
                if (keyword.role is KeywordRole.CONTROL) == is_control
            ]
        are_rules = any(keyword.role is KeywordRole.ACTION for keyword in allowed)
        role, what = (
            (KeywordRole.ACTION, "a pattern keyword or ")
            if are_rules
            else (KeywordRole.CONTROL, "")
        )
        listed = ", ".join(keyword.name for keyword in allowed if keyword.role is role)
        hint = _keyword_hint(name, known)
        self._report(
            word.start(),
            f"{word.group()} is not a keyword",
            f"{what}one of {listed}",
            hint or did_you_mean(name, [keyword.name for keyword in allowed]),
            subject=name,
            length=len(name),
            code="UNKNOWN_KEYWORD",
        )
        self.lost = True
        if self._takes("("):
            self._match(_BLANKS)
            quoted = _QUOTED.match(self._text, self._at)
            self._skip_to_closing(quoted.end() if quoted else self._at)
            return
        self._at = word.end()
        if _SEPARATED.match(self._text, self._at) is None:
            self._resume()

    def _value(self, keyword: Keyword, offset: int) -> Clause:
        argument, start = "", self._at
        try:
            if keyword.value in {Value.TEXTS, Value.NUMBERS}:
                argument = self._argument() if keyword.argument else ""
                self._match(_BLANKS)
                is_negated = self._match(_NOT) is not None
                alternatives = self._alternatives(is_negated=is_negated)
                start, last = alternatives[0].offset, alternatives[-1]
                raw = self._text[start : last.offset + last.length]
                more = argument, tuple(alternatives), is_negated
                return Clause(keyword, offset, raw, raw, start, *more)
            value, raw = self._quoted_value() if self._peek() == "'" else self._bare_value()
        except _UnreadableError:
            return Clause(keyword, offset, None, argument=argument)
        return Clause(keyword, offset, value, raw, start)

    def _quoted_value(self) -> tuple[str, str]:
        start = self._at
        value = self._quoted()
        raw = self._text[start : self._at]
        self._close("after the quoted value")
        if not value:
            raise self._empty(start, len(raw))
        return value, raw

    def _bare_value(self) -> tuple[str, str]:
        keyword, start = self._keyword, self._at
        if self._takes(")"):
            opened = self._text.rindex("(", 0, start)
            raise self._empty(opened, start + 1 - opened)
        bare = self._match(_VERBATIM.get(keyword.value, _BARE))
        raw = bare.group() if bare else ""
        self._close("in a value without quotes", raw)
        if keyword.value in _VERBATIM:
            return raw, raw
        misplaced = raw.find("&", 1 if keyword.references else 0)
        if misplaced >= 0:
            raise self._unreadable(
                start + misplaced,
                "& can only start one of the special names of FWDQ and FWDQM",
                " or ".join(keyword.references) or "a value without &",
                f"if & belongs to the value, quote it: {keyword.name}('{raw}')",
            )
        return raw.upper(), raw

    def _argument(self) -> str:
        argument = self._match(_ARGUMENT)
        if argument is None:
            at, (name, what) = self._at, (self._keyword.name, self._keyword.argument)
            self._resume()
            message = f"{name} takes a {what}, a comma and a value"
            hint = f"for example {name}('{_EXAMPLES[what]}',value)"
            raise self._unreadable(at, message, f"a {what}", hint)
        quoted, bare = argument.groups()
        return str(bare if quoted is None else quoted.replace("''", "'"))

    def _alternatives(self, *, is_negated: bool) -> list[Alternative]:
        name = self._keyword.name
        is_enclosed = self._takes("(")
        alternatives = [self._alternative()]
        while self._takes("|"):
            if is_negated and not is_enclosed:
                at = self._at - 1
                self._skip_to_closing(at)
                message = f"{name}: NOT without parentheses stands for one alternative"
                raise self._unreadable(at, message, ")", f"write {name}(NOT (a|b))")
            alternatives.append(self._alternative())
        for _ in range(1 + is_enclosed):
            if self._takes(")"):
                continue
            at, character = self._at, self._peek()
            self._skip_to_closing(at)
            if not character:
                raise self._not_closed(at)
            message = f"{name}: {character!r} cannot stand in or behind a value"
            hint = "put a text with blanks, commas or parentheses in single quotes"
            raise self._unreadable(at, message, ") or |", hint)
        return alternatives

    def _alternative(self) -> Alternative:
        self._match(_BLANKS)
        start = self._at
        if self._peek() == "'":
            text = self._quoted()
            if not text:
                self._skip_to_closing(start)
                raise self._empty(start, 2)
            return Alternative(text, start, self._at - start)
        if self._peek() == "/":
            return Alternative(self._regex(), start, self._at - start, is_regex=True)
        comparison = self._match(_COMPARISON)
        operator = comparison.group() if comparison else ""
        if operator:
            self._match(_BLANKS)
        bare = self._match(BARE_IN_KAFKA)
        if bare is not None:
            return Alternative(bare.group(), start, self._at - start, operator)
        at, character, name = self._at, self._peek(), self._keyword.name
        self._skip_to_closing(at)
        if operator:
            raise self._unreadable(at, f"{name}: no number follows {operator}", "a number")
        if character in {"", ")", "|"}:
            raise self._empty(at, 1)
        expected = "a text, a number, a comparison or an expression"
        hint = "put a text with such characters in single quotes"
        raise self._unreadable(at, f"{name}: {character!r} cannot start a value", expected, hint)

    def _quoted(self) -> str:
        quoted = self._match(_QUOTED)
        if quoted is None:
            raise self._open("the quoted value has no end", "a single quote", _CLOSE_THE_VALUE)
        return quoted[1].replace("''", "'")

    def _regex(self) -> str:
        start, name = self._at, self._keyword.name
        expression = self._match(_REGEX)
        if expression is None:
            raise self._open(f"{name}: the expression has no end", "a slash", _CLOSE_THE_EXPRESSION)
        if not expression[1]:
            self._skip_to_closing(start)
            message = f"{name}: there is nothing between the slashes"
            about = message, "an expression", "* matches anything"
            raise self._unreadable(start, *about, code="EMPTY_VALUE", length=2)
        return expression[1].replace(r"\/", "/")

    def _open(self, message: str, expected: str, hint: str) -> _UnreadableError:
        """Report a value that is never closed; it extends to the end of the entry."""
        at, self._at = self._at, len(self._text)
        self.lost = True
        return self._unreadable(at, message, expected, hint, length=self._at - at)

    def _empty(self, offset: int, length: int) -> _UnreadableError:
        name = self._keyword.name
        blank = self._keyword.value in {Value.STRING, Value.TEXTS}
        blank = blank or name in {"FWDQM", "INPUTQ", "INPUTQM"}
        hint = f"a blank value is written {name}(' ')" if blank else ""
        about = f"{name} has an empty value", "at least one character", hint
        return self._unreadable(offset, *about, code="EMPTY_VALUE", length=length)

    def _close(self, where: str, raw: str | None = None) -> None:
        """Read the closing parenthesis, or report what is in its place.

        ``where`` describes the place; ``raw`` is a value without quotes, None after a quoted one.
        """
        end = self._at
        if self._takes(")"):
            return
        following = _CLAUSE_START.match(self._text, self._at)
        known = self._vocabulary.names
        is_next = raw != "" and self._at > end and following and following[1].upper() in known
        if is_next or self._at == len(self._text):
            raise self._not_closed(end)
        at = self._at
        closing = _closing_of(self._text, at)
        self._at = closing + 1 if closing >= 0 else len(self._text)
        is_blank = bool(raw) and self._text[at - 1] in BLANKS
        message = f"{'a blank' if is_blank else repr(self._text[at])} cannot stand {where}"
        raise self._unreadable(at - is_blank, message, ")", self._quoting_hint(raw, at, closing))

    def _quoting_hint(self, raw: str | None, at: int, closing: int) -> str:
        if raw is None:
            return "a quote inside a quoted value is written twice"
        keyword = self._keyword
        known = _value_hint(keyword, self._text, at)
        if known or keyword.value not in {Value.STRING, Value.NAME, Value.TOPIC} or closing < 0:
            return known
        start = self._text.rindex("(", 0, at) + 1
        quoted = self._text[start:closing].strip(BLANKS).replace("'", "''")
        return f"put the value in single quotes: {keyword.name}('{quoted}')"

    def _not_closed(self, at: int) -> _UnreadableError:
        message = f"the value of {self._keyword.name} is not closed"
        return self._unreadable(at, message, ")", _WRITE_PARENTHESES)

    def _unreadable(
        self, offset: int, *about: str, code: str = "SYNTAX", length: int = 1
    ) -> _UnreadableError:
        """Report what makes a value unreadable; the caller has skipped the value."""
        self._report(offset, *about, subject=self._keyword.name, code=code, length=length)
        return _UnreadableError()

    def _skip_to_closing(self, start: int) -> None:
        closing = self._text.find(")", start)
        self._at = closing + 1 if closing >= 0 else len(self._text)

    def _resume(self) -> None:
        following = _NEXT_CLAUSE.search(self._text, self._at + 1)
        self._at = following.start() if following else len(self._text)

    def _takes(self, character: str) -> bool:
        self._match(_BLANKS)
        is_there = self._peek() == character
        self._at += is_there
        return is_there

    def _peek(self) -> str:
        return self._text[self._at : self._at + 1]

    def _match(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        """Read what an expression matches here; nothing is read if it does not match."""
        match = pattern.match(self._text, self._at)
        self._at = match.end() if match else self._at
        return match


def _keyword_hint(name: str, known: Vocabulary) -> str:
    """The keyword that an unknown upper-case word probably means; empty if unknown."""
    if name in known.keywords["ACTION"].words:
        return f"write ACTION({name})"
    if known is IBM and name == "DIALECT":
        return "DIALECT(KAFKA) has to be the first clause of the table"
    if known is IBM and name in KAFKA.names:
        return f"{name} is for tables whose first clause is DIALECT(KAFKA)"
    return _KNOWN_WISHES.get(name, "")


def _character_hint(character: str) -> str:
    """What a character that cannot start a clause probably means; empty if unknown."""
    if character == "$":
        return "variables of a shell are not replaced here"
    if character == "*":
        return "a comment needs its own line, which starts with *"
    if character in _COMMENTS:
        return "a comment is a line that starts with *"
    return _look_alike(character)


def _value_hint(keyword: Keyword, text: str, at: int) -> str:
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


def _closing_of(text: str, start: int) -> int:
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
