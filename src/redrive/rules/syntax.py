"""From the text of an entry to its clauses, with every syntax error on the way.

The grammar of rules-table specification 5.2:

    entry  = sep* clause { sep+ clause } sep*          sep = " " | TAB | ","
    clause = KEYWORD ws* "(" ws* value ws* ")"         ws  = " " | TAB
    value  = quoted | bare
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from redrive.rules.diagnosis import Reporter
from redrive.rules.dialect.expressions import Alternative, Malformed, read_argument, read_value
from redrive.rules.dialect.keywords import (
    IBM_VOCABULARY,
    Vocabulary,
    field_name,
)
from redrive.rules.hints import closing_of, is_comment
from redrive.rules.keywords import Keyword, Value
from redrive.rules.source import Entry
from redrive.rules.syntax_findings import SyntaxFindings

__all__ = ["Clause", "ClauseReader"]


@dataclass(frozen=True, slots=True)
class Clause:
    """One ``KEYWORD(value)``, not yet checked."""

    keyword: Keyword
    offset: int
    """Where the keyword starts in the text of the entry."""
    value: str | None
    """Folded to upper case, or without its quotes; None if the syntax was wrong."""
    raw: str = ""
    """The value as it stands in the text, quotes included."""
    value_offset: int = 0
    argument: str = ""
    """What stands in front of the value and a comma."""
    alternatives: tuple[Alternative, ...] = ()
    """DIALECT(KAFKA): the value of a pattern."""

    @property
    def name(self) -> str:
        """What an entry can have once: the keyword, with its argument if it takes one."""
        return field_name(self.keyword, self.argument)

    @property
    def is_quoted(self) -> bool:
        """Whether the value stands in quotes."""
        return self.raw.startswith("'")


_SEPARATORS: Final = re.compile(r"[ \t,]*")
_BLANKS: Final = re.compile(r"[ \t]*")
# A keyword is letters only; more is taken along so that a misspelt one is shown as a whole.
_WORD: Final = re.compile(r"[A-Za-z][A-Za-z0-9_.]*")
_QUOTED: Final = re.compile(r"'((?:[^']|'')*)'")
_BARE: Final = re.compile(r"[A-Za-z0-9./_%*?&]+")
_CLAUSE_START: Final = re.compile(r"[A-Za-z]+[ \t]*\(")
_NEXT_CLAUSE: Final = re.compile(r"(?<=[ \t,)])[A-Za-z]+[ \t]*\(")
_SEPARATED: Final = re.compile(r"[ \t,]|$")
_EXPRESSIONS: Final = frozenset({Value.TEXTS, Value.NUMBERS})
_VERBATIM: Final = {
    Value.TOPIC: re.compile(r"[^\s'(),|<>=]+"),
    Value.BACKOFF: re.compile(r"[^\s'(),|&<>=]+(?:[ \t]*,[ \t]*[^\s'(),|&<>=]+)*"),
}
"""Values without quotes whose letters are not folded."""


class ClauseReader:
    """Reads the clauses of one entry and goes on after every error.

    This class is responsible for:
        - telling keywords, parentheses, values and separators apart;
        - one finding for each place where the text leaves the grammar;
        - the next place from which it makes sense to read on.

    Args:
        entry: The entry to read.
        report: Takes the findings.
        strict: Whether clauses must be separated (question Q-06).
        vocabulary: The keywords of the table's dialect.
    """

    def __init__(
        self,
        entry: Entry,
        report: Reporter,
        *,
        strict: bool,
        vocabulary: Vocabulary = IBM_VOCABULARY,
    ) -> None:
        self._text = entry.text
        self._findings = SyntaxFindings(entry, report, vocabulary)
        self._strict = strict
        self._vocabulary = vocabulary
        self._at = 0
        self.lost = False
        """Whether something was read that became no clause."""

    def clauses(self) -> Iterator[Clause]:
        """Yield the clauses in order, those with a wrong value included."""
        separated = True
        while True:
            start = self._at
            self._skip(_SEPARATORS)
            if self._at == len(self._text):
                break
            separated = separated or self._at > start
            if not separated and self._strict and _WORD.match(self._text, self._at):
                self._findings.not_separated(self._at)
            clause = self._clause()
            # After an error the place to read on is a guess: no second finding for it.
            separated = clause is None or clause.value is None
            if clause is not None:
                yield clause
        if not self._text.strip(" \t,"):
            self._findings.only_commas()
            self.lost = True

    def _clause(self) -> Clause | None:
        word = _WORD.match(self._text, self._at)
        if word is None:
            self._findings.no_clause(self._at)
            self.lost = True
            if is_comment(self._text[self._at]):
                self._at = len(self._text)  # what follows is meant for people
            self._resume()
            return None
        keyword = self._keyword(word)
        if keyword is None:
            self._findings.unknown(word)
            self.lost = True
            self._at = word.end()
            self._skip_unknown_value()
            return None
        self._at = word.end()
        self._skip(_BLANKS)
        if not self._text.startswith("(", self._at):
            self._findings.without_value(keyword, word.end())
            self.lost = True
            if _WORD.match(self._text, self._at) is None:
                self._resume()
            return None
        self._at += 1
        self._skip(_BLANKS)
        return self._value(keyword, word.start())

    def _keyword(self, word: re.Match[str]) -> Keyword | None:
        """The keyword that a word is; of two of that name the one that the text has the form of."""
        name = word.group().upper()
        plain = self._vocabulary.keywords.get(name)
        other = self._vocabulary.with_argument.get(name)
        opened = _CLAUSE_START.match(self._text, word.start())
        is_other = plain is None or (opened and read_argument(self._text, opened.end()))
        return other if other is not None and is_other else plain

    def _value(self, keyword: Keyword, offset: int) -> Clause:
        start = self._at
        if keyword.value in _EXPRESSIONS:
            return self._expression(keyword, offset)
        value, raw = self._quoted(keyword) if self._peek() == "'" else self._bare(keyword)
        return Clause(keyword, offset, value, raw, start)

    def _expression(self, keyword: Keyword, offset: int) -> Clause:
        """A value of the dialect, with an argument in front of it if the keyword takes one."""
        argument = ""
        if keyword.argument:
            found = read_argument(self._text, self._at)
            if found is None:
                self._findings.without_argument(keyword, self._at)
                self._resume()
                return Clause(keyword, offset, None)
            argument, self._at = found
        start = self._at
        value = read_value(self._text, start)
        if isinstance(value, Malformed):
            self._findings.malformed(keyword, value)
            self.lost = self.lost or value.is_open
            self._skip_to_closing(len(self._text) if value.is_open else value.offset)
            return Clause(keyword, offset, None, argument=argument)
        self._at = value.end
        first, last = value.alternatives[0], value.alternatives[-1]
        raw = self._text[first.offset : last.offset + last.length]
        return Clause(keyword, offset, raw, raw, first.offset, argument, value.alternatives)

    def _quoted(self, keyword: Keyword) -> tuple[str | None, str]:
        start = self._at
        found = _QUOTED.match(self._text, start)
        if found is None:
            self._findings.open_quote(keyword, start)
            self._at = len(self._text)
            self.lost = True  # the rest of the entry may be in the value
            return None, ""
        self._at = found.end()
        value = found.group(1).replace("''", "'")
        if not self._close(keyword, "after the quoted value"):
            return None, ""
        if not value:
            self._findings.empty(keyword, start, 2)
            return None, ""
        return value, found.group()

    def _bare(self, keyword: Keyword) -> tuple[str | None, str]:
        start = self._at
        if self._peek() == ")":
            opened = self._text.rindex("(", 0, start)
            self._findings.empty(keyword, opened, start + 1 - opened)
            self._at += 1
            return None, ""
        found = _VERBATIM.get(keyword.value, _BARE).match(self._text, start)
        raw = found.group() if found else ""
        self._at += len(raw)
        if not self._close(keyword, "in a value without quotes", raw):
            return None, ""
        if keyword.value in _VERBATIM:
            return raw, raw
        misplaced = raw.find("&", 1 if keyword.references else 0)
        if misplaced >= 0:
            self._findings.misplaced_ampersand(keyword, raw, start + misplaced)
            return None, ""
        return raw.upper(), raw

    def _close(self, keyword: Keyword, where: str, raw: str | None = None) -> bool:
        """Read the closing parenthesis; report what stands in its place."""
        end = self._at
        self._skip(_BLANKS)
        if self._peek() == ")":
            self._at += 1
            return True
        is_next = raw != "" and self._at > end and self._starts_known_clause()
        if is_next or self._at == len(self._text):
            self._findings.not_closed(keyword, end)
        else:
            self._findings.wrong_character(keyword, where, raw, self._at)
            closing = closing_of(self._text, self._at)
            self._at = closing + 1 if closing >= 0 else len(self._text)
        return False

    def _starts_known_clause(self) -> bool:
        found = _CLAUSE_START.match(self._text, self._at)
        name = found.group()[:-1].rstrip().upper() if found else ""
        return name in self._vocabulary.keywords or name in self._vocabulary.with_argument

    def _skip_to_closing(self, start: int) -> None:
        """Go on behind the next closing parenthesis."""
        closing = self._text.find(")", start)
        self._at = closing + 1 if closing >= 0 else len(self._text)

    def _skip_unknown_value(self) -> None:
        end = self._at
        self._skip(_BLANKS)
        if self._peek() != "(":
            self._at = end
            if _SEPARATED.match(self._text, end) is None:
                self._resume()
            return
        self._at += 1
        self._skip(_BLANKS)
        quoted = _QUOTED.match(self._text, self._at)
        self._skip_to_closing(quoted.end() if quoted else self._at)

    def _resume(self) -> None:
        """Go on where the next clause seems to start."""
        found = _NEXT_CLAUSE.search(self._text, self._at + 1)
        self._at = found.start() if found else len(self._text)

    def _peek(self) -> str:
        return self._text[self._at : self._at + 1]

    def _skip(self, what: re.Pattern[str]) -> None:
        found = what.match(self._text, self._at)
        assert found is not None, "these expressions match the empty text"
        self._at = found.end()
