"""Strategies: rules of DIALECT(KAFKA), messages that come close to them, and ways to write them."""

from __future__ import annotations

import re

from hypothesis import strategies as st
from tests.rules.dialect.reference import (
    Alternative,
    Comparison,
    Expression,
    PlainRule,
    Text,
)

TEXTS = ("SCHEME", "TOPIC", "GROUP", "ERRMSG", "KEY", "HEADER(x-a)", "HEADER(b c)", "JSON($.a[0])")
NUMBERS = ("PARTITION", "ATTEMPTS", "AGE", "SIZE")
UNITS = {"AGE": {"s": 1, "m": 60, "h": 3600, "d": 86400}, "SIZE": {"k": 1024, "m": 1 << 20}}

_LETTERS = "ab. "
_ATOMS = ("a", "b", ".", "[ab]", "\\.", "(a|b)", "^a", "b$", "a*", "b+", "a?b", "a{2}", "/", "'")


def texts() -> st.SearchStrategy[str]:
    """Values of a text field."""
    return st.text(_LETTERS + "'/|", max_size=5).map(lambda it: it.rstrip(" "))


def numbers() -> st.SearchStrategy[int]:
    """Values of a number field: near the bounds that rules have."""
    return st.sampled_from([0, 1, 2, 3, 59, 60, 61, 1023, 1024, 3600, 86_401, 1 << 20, 10**9])


def text_alternatives() -> st.SearchStrategy[Alternative]:
    """A text with wildcards, or an expression."""
    plain = st.text(_LETTERS + "*?'/|", min_size=1, max_size=5).map(Text)
    expression = (
        st.lists(st.sampled_from(_ATOMS), min_size=1, max_size=4).map("".join).filter(_is_read)
    )
    return plain | expression.map(Expression)


def _is_read(expression: str) -> bool:
    """Whether Python reads it, and RE2 too: RE2 repeats nothing that is repeated already."""
    try:
        re.compile(expression)
    except re.error:
        return False
    return re.search(r"[*+?}][*+?{]", expression) is None


def number_alternatives(keyword: str) -> st.SearchStrategy[Alternative]:
    """A number, a comparison or all numbers."""
    signs = st.sampled_from([">", ">=", "<", "<="] + ([] if keyword == "AGE" else ["", "="]))
    compared = st.builds(Comparison, signs, st.sampled_from([0, 1, 2, 60, 1024, 3600]))
    return compared | st.just(Comparison("", None))


def rules() -> st.SearchStrategy[PlainRule]:
    """One rule: few fields, so that rules overlap."""
    names = st.lists(st.sampled_from([*TEXTS, *NUMBERS]), max_size=3, unique=True)
    patterns = names.flatmap(
        lambda chosen: st.fixed_dictionaries(
            {
                name: st.lists(
                    text_alternatives() if name in TEXTS else number_alternatives(name),
                    min_size=1,
                    max_size=3,
                )
                for name in chosen
            }
        )
    )
    return st.builds(PlainRule, patterns, st.sampled_from(["QUARANTINE", "RETRY", "DISCARD"]))


def messages() -> st.SearchStrategy[dict[str, str | int]]:
    """The fields of one message; some are missing."""
    return st.fixed_dictionaries(
        {}, optional={**{it: texts() for it in TEXTS}, **{it: numbers() for it in NUMBERS}}
    )


_blanks = st.sampled_from(["", "", " ", "\t"])


@st.composite
def alternative_texts(draw: st.DrawFn, keyword: str, alternative: Alternative) -> str:
    """One alternative, spelt in one of the ways that mean the same."""
    if isinstance(alternative, Expression):
        return "/{}/".format(alternative.text.replace("/", "\\/"))
    if isinstance(alternative, Text):
        quoted = "'{}'".format(alternative.text.replace("'", "''"))
        is_bare = re.fullmatch(r"[ab.*?][ab.*?/]*", alternative.text)
        return draw(st.sampled_from([alternative.text, quoted])) if is_bare else quoted
    if alternative.number is None:
        return "*"
    written = [str(alternative.number), f"0{alternative.number}"]
    for unit, factor in UNITS.get(keyword, {}).items():
        if alternative.number % factor == 0:
            written.append(f"{alternative.number // factor}{unit}")
    sign = alternative.sign
    return sign + (draw(_blanks) if sign else "") + draw(st.sampled_from(written))


@st.composite
def clause_texts(draw: st.DrawFn, name: str, alternatives: list[Alternative]) -> str:
    """One clause."""
    keyword, _, argument = name.partition("(")
    written = [draw(alternative_texts(keyword, one)) for one in alternatives]
    value = f"{draw(_blanks)}|{draw(_blanks)}".join(written)
    if draw(st.booleans()):
        value = f"({draw(_blanks)}{value}{draw(_blanks)})"
    if argument:
        value = f"'{argument.removesuffix(')')}'{draw(_blanks)},{draw(_blanks)}{value}"
    return f"{draw(st.sampled_from([keyword, keyword.lower()]))}({draw(_blanks)}{value})"


@st.composite
def table_texts(draw: st.DrawFn, plain: list[PlainRule]) -> str:
    """A table."""
    lines = ["DIALECT(KAFKA)"]
    for rule in plain:
        names = draw(st.permutations(list(rule.patterns)))
        clauses = [draw(clause_texts(name, list(rule.patterns[name]))) for name in names]
        clauses.insert(draw(st.integers(0, len(clauses))), f"ACTION({rule.action})")
        lines.append(" ".join(clauses))
    return "".join(f"{line}\n" for line in lines)
