"""Hypothesis strategies: rules, messages that come close to them, and ways to write them."""

from __future__ import annotations

import re
from typing import Any

from hypothesis import strategies as st
from tests.rules.reference import LENGTHS, NUMBERS, PlainRule

from redrive.rules import RulesTable, parse
from redrive.rules.keywords import KEYWORDS

# Few characters, so that patterns and values meet often; blanks and wildcards are the hard part.
LETTERS = "AB. &"
SYMBOLS: dict[str, dict[int, tuple[str, ...]]] = {
    "APPLTYPE": {6: ("MQAT_AIX", "MQAT_UNIX"), -1: ("MQAT_UNKNOWN",)},
    "FEEDBACK": {259: ("MQFB_COA",), 2053: ("MQRC_Q_FULL",)},
    "MSGTYPE": {1: ("MQMT_REQUEST",), 8: ("MQMT_DATAGRAM",)},
    "PERSIST": {0: ("MQPER_NOT_PERSISTENT",), -1: ("MQPER_PERSISTENCE_AS_PARENT",)},
    "REASON": {2053: ("MQRC_Q_FULL",), 265: ("MQFB_APPL_CANNOT_BE_STARTED",)},
}
"""Keyword -> number -> names that the specification gives it."""


def text_values(keyword: str) -> st.SearchStrategy[str]:
    """Values of a text field, sometimes as long as the field and once in a while longer."""
    longest = LENGTHS[keyword] + 1
    short = st.text(LETTERS + "a", max_size=6)
    full = st.integers(longest - 3, longest).map(lambda size: ("AB" * longest)[:size])
    return (short | full).map(lambda value: value.rstrip(" "))


def text_patterns(keyword: str) -> st.SearchStrategy[str]:
    """Patterns of a text field that the language allows."""
    length = LENGTHS[keyword]
    short = st.text(LETTERS + "a*?", min_size=1, max_size=7)
    full = st.integers(length - 1, length).map(lambda size: ("AB" * length)[:size])
    return (short | full | full.map(lambda text: f"*{text[1:]}")).filter(
        lambda text: len(text.replace("*", "")) <= length
    )


def number_patterns(keyword: str) -> st.SearchStrategy[int | str]:
    """Numbers that are usual for the field, with ``*``."""
    return st.sampled_from([*SYMBOLS[keyword], 0, 7, 999_999_999, "*"])


def patterns(keyword: str) -> st.SearchStrategy[Any]:
    return text_patterns(keyword) if keyword in LENGTHS else number_patterns(keyword)


def pattern_sets() -> st.SearchStrategy[dict[str, Any]]:
    """The patterns of one rule: few fields, so that rules overlap."""
    some = st.lists(st.sampled_from([*LENGTHS, *NUMBERS]), max_size=3, unique=True)
    return some.flatmap(
        lambda names: st.fixed_dictionaries({name: patterns(name) for name in names})
    )


def plain_rules() -> st.SearchStrategy[PlainRule]:
    return st.builds(
        PlainRule,
        patterns=pattern_sets(),
        action=st.sampled_from(["DISCARD", "IGNORE", "RETRY", "RETRY", "RETRY"]),
        retry=st.integers(1, 4),
    )


@st.composite
def messages(draw: st.DrawFn) -> dict[str, str | int]:
    """The match fields of one message; some are missing."""
    fields: dict[str, str | int] = {}
    for keyword in LENGTHS:
        if draw(st.booleans()):
            fields[keyword] = draw(text_values(keyword))
    for keyword in NUMBERS:
        if draw(st.booleans()):
            fields[keyword] = draw(st.sampled_from([*SYMBOLS[keyword], 0, 7]))
    return fields


_BARE = re.compile(r"[A-Z0-9./_%*?]+|&(DEST|REPLY)QM?")
_blanks = st.sampled_from(["", "", "", " ", "  ", "\t"])
_separators = st.sampled_from([" ", " ", "  ", ",", " , ", "\t", " +\n", "  +\n   ", " -\n"])
_between_entries = st.sampled_from(["\n", "\n", "\r\n", "\n\n", "\n* a comment (\n", "\n   \n"])


@st.composite
def clause_texts(draw: st.DrawFn, keyword: str, value: Any) -> str:
    """One clause, spelt in one of the ways that mean the same."""
    text = str(value)
    if isinstance(value, int) and value in SYMBOLS.get(keyword, {}):
        names = SYMBOLS[keyword][value]
        text = draw(st.sampled_from(names if value < 0 else (*names, f"00{value}", text)))
    name = draw(st.sampled_from([keyword, keyword.lower(), keyword.title()]))
    needs_quotes = not _BARE.fullmatch(text)
    if needs_quotes or draw(st.booleans()):
        text = text.replace("'", "''")
        text = f"'{text}'"
    else:
        text = draw(st.sampled_from([text, text.lower()]))
    a, b, c = draw(_blanks), draw(_blanks), draw(_blanks)
    return f"{name}{a}({b}{text}{c})"


@st.composite
def rule_texts(draw: st.DrawFn, clauses: dict[str, Any]) -> str:
    """One rule, its clauses in any order and layout."""
    names = draw(st.permutations(list(clauses)))
    texts = [draw(clause_texts(name, clauses[name])) for name in names]
    return draw(_blanks) + "".join(
        text + (draw(_separators) if index + 1 < len(texts) else "")
        for index, text in enumerate(texts)
    )


def clauses_of(rule: PlainRule) -> dict[str, Any]:
    return {**rule.patterns, "ACTION": rule.action, "RETRY": rule.retry}


@st.composite
def table_texts(draw: st.DrawFn, rules: list[PlainRule]) -> str:
    """A table in any layout."""
    texts = [draw(rule_texts(clauses_of(rule))) for rule in rules]
    return "".join(text + draw(_between_entries) for text in texts)


def table_of(rules: list[PlainRule], data: st.DataObject) -> RulesTable:
    """The table that some text for these rules is read as."""
    return parse(data.draw(table_texts(rules))).required()


def names() -> st.SearchStrategy[str]:
    return (
        st.text("ABab.-_'+ $", min_size=1, max_size=48)
        .map(lambda name: name.rstrip(" "))
        .filter(bool)
    )


@st.composite
def rich_table_texts(draw: st.DrawFn) -> str:
    """A table with control data and all keywords of actions."""
    control = draw(
        st.fixed_dictionaries(
            {},
            optional={
                "INPUTQ": names() | st.just(" "),
                "INPUTQM": names(),
                "RETRYINT": st.integers(0, 999_999_999),
                "WAIT": st.sampled_from(["YES", "NO", 0, 30]),
            },
        )
    )
    forward = st.fixed_dictionaries(
        {"ACTION": st.just("FWD"), "FWDQ": names() | st.sampled_from(["&DESTQ", "&REPLYQ"])},
        optional={
            "FWDQM": names() | st.sampled_from(["&DESTQM", "&REPLYQM", " "]),
            "HEADER": st.sampled_from(["YES", "NO"]),
            "PUTAUT": st.sampled_from(["DEF", "CTX"]),
            "RETRY": st.integers(1, 999_999_999),
        },
    )
    keep = st.fixed_dictionaries(
        {"ACTION": st.sampled_from(["DISCARD", "IGNORE", "RETRY"])},
        optional={"PUTAUT": st.sampled_from(["DEF", "CTX"]), "RETRY": st.integers(1, 9)},
    )
    lines = [draw(rule_texts(control))] if control else []
    lines += [
        draw(rule_texts({**draw(pattern_sets()), **draw(forward | keep)}))
        for _ in range(draw(st.integers(1, 4)))
    ]
    return "".join(line + draw(_between_entries) for line in lines)


assert set(LENGTHS) | set(NUMBERS) <= set(KEYWORDS)
