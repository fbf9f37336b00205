"""What is said where the text of an entry leaves the grammar: the words, not the reading."""

from __future__ import annotations

import re
from typing import Final

from redrive.rules.diagnosis import Reporter, did_you_mean
from redrive.rules.dialect.expressions import Malformed
from redrive.rules.dialect.keywords import KAFKA_VOCABULARY, Vocabulary
from redrive.rules.hints import character_hint, closing_of, value_hint
from redrive.rules.keywords import Dialect, Keyword, Value
from redrive.rules.source import BLANKS, Entry

__all__ = ["SyntaxFindings"]

_KNOWN_WISHES: Final = {
    "CONVERT": "bodies are never converted; no platform has such a keyword",
    "CORRELID": "no keyword looks at message or correlation identifiers",
    "MSGID": "no keyword looks at message or correlation identifiers",
    "PRIORITY": "no keyword looks at the priority",
    "PUT": "to put the message on another queue write ACTION(FWD) FWDQ(queue)",
    "QUEUE": "the original destination is DESTQ, the target of ACTION(FWD) is FWDQ",
}
_EXAMPLES: Final = {"path": "$.order.id", "name": "x-tenant"}


class SyntaxFindings:
    """Reports the syntax errors of one entry.

    Args:
        entry: The entry.
        report: Takes the findings.
        vocabulary: The keywords of the table's dialect.
    """

    def __init__(self, entry: Entry, report: Reporter, vocabulary: Vocabulary) -> None:
        self._entry = entry
        self._text = entry.text
        self._report = report
        self._vocabulary = vocabulary

    def only_commas(self) -> None:
        """The entry has no clause."""
        self._error("SYNTAX", "there is nothing but commas here", 0, expected="a keyword")

    def not_separated(self, at: int) -> None:
        """A clause begins at once behind another one."""
        self._error(
            "SYNTAX",
            "two clauses stand together without a separator",
            at,
            expected="a blank or a comma",
            hint="separate the clauses; z/OS alone reads them without",
        )

    def no_clause(self, at: int) -> None:
        """No clause begins with this character."""
        character = self._text[at]
        self._error(
            "SYNTAX",
            f"{character!r} cannot start a clause",
            at,
            expected="a keyword",
            hint=character_hint(self._text, at),
        )

    def unknown(self, word: re.Match[str]) -> None:
        """A word is no keyword of the dialect."""
        name = word.group().upper()
        known = self._vocabulary
        if name in known.keywords["ACTION"].words:
            hint = f"write ACTION({name})"
        else:
            hint = _KNOWN_WISHES.get(name) or self._of_dialect(name)
            hint = hint or did_you_mean(name, known.names)
        self._error(
            "UNKNOWN_KEYWORD",
            f"{word.group()} is not a keyword",
            word.start(),
            len(word.group()),
            subject=name,
            expected=f"a pattern keyword or one of {', '.join(known.actions)}",
            hint=hint,
        )

    def _of_dialect(self, name: str) -> str:
        """What to do about a word of DIALECT(KAFKA) in a table of IBM's."""
        if self._vocabulary.dialect is not Dialect.IBM or name not in KAFKA_VOCABULARY.names:
            return ""
        if name == "DIALECT":
            return "DIALECT(KAFKA) has to be the first clause of the table"
        return f"{name} is for tables whose first clause is DIALECT(KAFKA)"

    def without_value(self, keyword: Keyword, at: int) -> None:
        """No parenthesis follows a keyword."""
        self._error(
            "SYNTAX",
            f"{keyword.name} stands without a value",
            at,
            subject=keyword.name,
            expected="(",
            hint=f"write {keyword.name}(value)",
        )

    def without_argument(self, keyword: Keyword, at: int) -> None:
        """A keyword that takes an argument and a value has only one of them."""
        self._error(
            "SYNTAX",
            f"{keyword.name} takes a {keyword.argument}, a comma and a value",
            at,
            subject=keyword.name,
            expected=f"a {keyword.argument}",
            hint=f"for example {keyword.name}('{_EXAMPLES[keyword.argument]}',value)",
        )

    def malformed(self, keyword: Keyword, problem: Malformed) -> None:
        """A value of DIALECT(KAFKA) leaves its grammar."""
        self._error(
            problem.code,
            f"{keyword.name}: {problem.message}",
            problem.offset,
            problem.length,
            subject=keyword.name,
            expected=problem.expected,
            hint=problem.hint,
        )

    def empty(self, keyword: Keyword, offset: int, length: int) -> None:
        """There is nothing between the parentheses or quotes."""
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

    def open_quote(self, keyword: Keyword, at: int) -> None:
        """A quoted value goes on to the end of the entry."""
        self._error(
            "SYNTAX",
            "the quoted value has no end",
            at,
            len(self._text) - at,
            subject=keyword.name,
            expected="a single quote",
            hint="close the value with '; a quote inside a value is written twice; "
            "a line that goes on ends in + or -",
        )

    def not_closed(self, keyword: Keyword, at: int) -> None:
        """The parenthesis behind a value is missing."""
        self._error(
            "SYNTAX",
            f"the value of {keyword.name} is not closed",
            at,
            subject=keyword.name,
            expected=")",
            hint="write the value between parentheses; a rule that goes on in the next line "
            "ends in + or -",
        )

    def wrong_character(self, keyword: Keyword, where: str, raw: str | None, at: int) -> None:
        """Something else stands in the place of the closing parenthesis.

        Args:
            keyword: The keyword.
            where: Where that is, in words.
            raw: The value without quotes up to there; None behind a quoted value.
            at: The character, behind blanks.
        """
        blank = bool(raw) and self._text[at - 1] in BLANKS
        what = "a blank" if blank else repr(self._text[at])
        self._error(
            "SYNTAX",
            f"{what} cannot stand {where}",
            at - 1 if blank else at,
            subject=keyword.name,
            expected=")",
            hint=self._quoting_hint(keyword, raw, at),
        )

    def _quoting_hint(self, keyword: Keyword, raw: str | None, at: int) -> str:
        if raw is None:
            return "a quote inside a quoted value is written twice"
        known = value_hint(keyword, self._text, at)
        closing = closing_of(self._text, at)
        if known or keyword.value not in {Value.STRING, Value.NAME, Value.TOPIC} or closing < 0:
            return known
        start = self._text.rindex("(", 0, at) + 1
        quoted = self._text[start:closing].strip(BLANKS).replace("'", "''")
        return f"put the value in single quotes: {keyword.name}('{quoted}')"

    def misplaced_ampersand(self, keyword: Keyword, raw: str, at: int) -> None:
        """An ampersand stands where no special name begins (question Q-08)."""
        self._error(
            "SYNTAX",
            "& can only start one of the special names of FWDQ and FWDQM",
            at,
            subject=keyword.name,
            expected=" or ".join(keyword.references) or "a value without &",
            hint=f"if & belongs to the value, quote it: {keyword.name}('{raw}')",
        )

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
