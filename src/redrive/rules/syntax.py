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

from redrive.rules.diagnosis import Reporter, did_you_mean
from redrive.rules.hints import character_hint, closing_of, value_hint
from redrive.rules.keywords import ACTION_KEYWORDS, KEYWORDS, Keyword, Value
from redrive.rules.source import BLANKS, Entry

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

_KNOWN_WISHES: Final = {
    "CONVERT": "bodies are never converted; no platform has such a keyword",
    "CORRELID": "no keyword looks at message or correlation identifiers",
    "MSGID": "no keyword looks at message or correlation identifiers",
    "PRIORITY": "no keyword looks at the priority",
    "PUT": "to put the message on another queue write ACTION(FWD) FWDQ(queue)",
    "QUEUE": "the original destination is DESTQ, the target of ACTION(FWD) is FWDQ",
}


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
    """

    def __init__(self, entry: Entry, report: Reporter, *, strict: bool) -> None:
        self._entry = entry
        self._text = entry.text
        self._report = report
        self._strict = strict
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
            if not separated and self._strict and self._peek().isalpha():
                self._missing_separator()
            clause = self._clause()
            # After an error the place to read on is a guess: no second finding for it.
            separated = clause is None or clause.value is None
            if clause is not None:
                yield clause
        if not self._entry.text.strip(" \t,"):
            self._error("SYNTAX", "there is nothing but commas here", 0, expected="a keyword")
            self.lost = True

    def _clause(self) -> Clause | None:
        word = _WORD.match(self._text, self._at)
        if word is None:
            self._unexpected()
            return None
        keyword = KEYWORDS.get(word.group().upper())
        if keyword is None:
            self._unknown(word)
            return None
        self._at = word.end()
        self._skip(_BLANKS)
        if not self._text.startswith("(", self._at):
            self._without_value(keyword, word)
            return None
        self._at += 1
        self._skip(_BLANKS)
        return self._value(keyword, word.start())

    def _value(self, keyword: Keyword, offset: int) -> Clause:
        start = self._at
        value, raw = self._quoted(keyword) if self._peek() == "'" else self._bare(keyword)
        return Clause(keyword, offset, value, raw, start)

    def _quoted(self, keyword: Keyword) -> tuple[str | None, str]:
        start = self._at
        found = _QUOTED.match(self._text, start)
        if found is None:
            self._error(
                "SYNTAX",
                "the quoted value has no end",
                start,
                len(self._text) - start,
                subject=keyword.name,
                expected="a single quote",
                hint="close the value with '; a quote inside a value is written twice; "
                "a line that goes on ends in + or -",
            )
            self._at = len(self._text)
            self.lost = True  # the rest of the entry may be in the value
            return None, ""
        self._at = found.end()
        value = found.group(1).replace("''", "'")
        if not self._close(keyword, "after the quoted value"):
            return None, ""
        if not value:
            self._empty(keyword, start, 2)
            return None, ""
        return value, found.group()

    def _bare(self, keyword: Keyword) -> tuple[str | None, str]:
        start = self._at
        if self._peek() == ")":
            opened = self._text.rindex("(", 0, start)
            self._empty(keyword, opened, start + 1 - opened)
            self._at += 1
            return None, ""
        found = _BARE.match(self._text, start)
        raw = found.group() if found else ""
        self._at += len(raw)
        if not self._close(keyword, "in a value without quotes", raw):
            return None, ""
        misplaced = self._misplaced_ampersand(keyword, raw)
        if misplaced >= 0:
            self._error(
                "SYNTAX",
                "& can only start one of the special names of FWDQ and FWDQM",
                start + misplaced,
                subject=keyword.name,
                expected=" or ".join(keyword.references) or "a value without &",
                hint=f"if & belongs to the value, quote it: {keyword.name}('{raw}')",
            )
            return None, ""
        return raw.upper(), raw

    @staticmethod
    def _misplaced_ampersand(keyword: Keyword, raw: str) -> int:
        """Index of an ampersand that may not stand there (question Q-08), or -1."""
        return raw.find("&", 1 if keyword.references else 0)

    def _close(self, keyword: Keyword, where: str, raw: str | None = None) -> bool:
        """Read the closing parenthesis; report what stands in its place."""
        end = self._at
        self._skip(_BLANKS)
        if self._peek() == ")":
            self._at += 1
            return True
        is_next = raw != "" and self._at > end and self._starts_known_clause()
        if is_next or self._at == len(self._text):
            self._missing_parenthesis(keyword, end)
        else:
            self._wrong_character(keyword, where, raw)
        return False

    def _starts_known_clause(self) -> bool:
        found = _CLAUSE_START.match(self._text, self._at)
        return found is not None and found.group()[:-1].rstrip().upper() in KEYWORDS

    def _missing_parenthesis(self, keyword: Keyword, end: int) -> None:
        self._error(
            "SYNTAX",
            f"the value of {keyword.name} is not closed",
            end,
            subject=keyword.name,
            expected=")",
            hint="write the value between parentheses; a rule that goes on in the next line "
            "ends in + or -",
        )

    def _wrong_character(self, keyword: Keyword, where: str, raw: str | None) -> None:
        at = self._at
        closing = closing_of(self._text, at)
        blank = bool(raw) and self._text[at - 1] in BLANKS
        what = "a blank" if blank else repr(self._text[at])
        self._error(
            "SYNTAX",
            f"{what} cannot stand {where}",
            at - 1 if blank else at,
            subject=keyword.name,
            expected=")",
            hint=self._quoting_hint(keyword, raw, closing),
        )
        self._at = closing + 1 if closing >= 0 else len(self._text)

    def _quoting_hint(self, keyword: Keyword, raw: str | None, closing: int) -> str:
        if raw is None:
            return "a quote inside a quoted value is written twice"
        known = value_hint(keyword, self._text, self._at)
        if known or keyword.value not in {Value.STRING, Value.NAME} or closing < 0:
            return known
        start = self._text.rindex("(", 0, self._at) + 1
        quoted = self._text[start:closing].strip(BLANKS).replace("'", "''")
        return f"put the value in single quotes: {keyword.name}('{quoted}')"

    def _empty(self, keyword: Keyword, offset: int, length: int) -> None:
        blank = keyword.value is Value.STRING or keyword.name in {"FWDQM", "INPUTQ", "INPUTQM"}
        self._error(
            "EMPTY_VALUE",
            f"{keyword.name} has an empty value",
            offset,
            length,
            subject=keyword.name,
            expected="at least one character",
            hint=f"a blank value is written {keyword.name}(' ')" if blank else "",
        )

    def _without_value(self, keyword: Keyword, word: re.Match[str]) -> None:
        self._error(
            "SYNTAX",
            f"{keyword.name} stands without a value",
            word.end(),
            subject=keyword.name,
            expected="(",
            hint=f"write {keyword.name}(value)",
        )
        self.lost = True
        if _WORD.match(self._text, self._at) is None:
            self._resume()

    def _unknown(self, word: re.Match[str]) -> None:
        name = word.group().upper()
        action = KEYWORDS["ACTION"].words
        if name in action:
            hint = f"write ACTION({name})"
        else:
            hint = _KNOWN_WISHES.get(name) or did_you_mean(name, KEYWORDS)
        self._error(
            "UNKNOWN_KEYWORD",
            f"{word.group()} is not a keyword",
            word.start(),
            len(word.group()),
            subject=name,
            expected=f"a pattern keyword or one of {', '.join(ACTION_KEYWORDS)}",
            hint=hint,
        )
        self.lost = True
        self._at = word.end()
        self._skip_unknown_value()

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
        closing = self._text.find(")", quoted.end() if quoted else self._at)
        self._at = closing + 1 if closing >= 0 else len(self._text)

    def _unexpected(self) -> None:
        character = self._text[self._at]
        self._error(
            "SYNTAX",
            f"{character!r} cannot start a clause",
            self._at,
            expected="a keyword",
            hint=character_hint(self._text, self._at),
        )
        self.lost = True
        self._resume()

    def _missing_separator(self) -> None:
        self._error(
            "SYNTAX",
            "two clauses stand together without a separator",
            self._at,
            expected="a blank or a comma",
            hint="separate the clauses; z/OS alone reads them without",
        )

    def _resume(self) -> None:
        """Go on where the next clause seems to start."""
        found = _NEXT_CLAUSE.search(self._text, self._at + 1)
        self._at = found.start() if found else len(self._text)

    def _peek(self) -> str:
        return self._text[self._at : self._at + 1]

    def _skip(self, what: re.Pattern[str]) -> None:
        found = what.match(self._text, self._at)
        assert found is not None, "these expressions match the empty text"  # noqa: S101
        self._at = found.end()

    def _error(
        self,
        code: str,
        message: str,
        offset: int,
        length: int = 1,
        *,
        subject: str = "",
        expected: str = "",
        hint: str = "",
    ) -> None:
        self._report.error(
            code,
            message,
            self._entry,
            offset,
            length,
            subject=subject,
            expected=expected,
            hint=hint,
        )
