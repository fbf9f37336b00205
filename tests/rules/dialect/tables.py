"""Strategies: rules of DIALECT(KAFKA), messages that come close to them, and ways to write them."""

from __future__ import annotations

import re
from decimal import Decimal

from hypothesis import strategies as st
from tests.rules.dialect.reference import (
    Alternative,
    Comparison,
    Expression,
    Not,
    PlainPattern,
    PlainRule,
    Text,
)

TEXTS = ("SCHEME", "TOPIC", "GROUP", "ERRMSG", "KEY", "HEADER(x-a)", "HEADER(b c)", "JSON($.a[0])")
NUMBERS = ("PARTITION", "ATTEMPTS", "AGE", "SIZE")
UNITS = {"AGE": {"s": 1, "m": 60, "h": 3600, "d": 86400}, "SIZE": {"k": 1024, "m": 1 << 20}}

BOUNDS = [
    Decimal(digits) for digits in ("-3", "-0.5", "0", "2.50", "100", "99999999999999999999.1")
]
"""Numbers with which texts are compared."""

_NUMERALS = ["0", "-0", "-0.5", "1", "2.5", "25e-1", "1e2", "100.0", "007", "1e99", "+1", "1.", "e"]
_LETTERS = "ab. "
_ATOMS = ("a", "b", ".", "[ab]", "\\.", "(a|b)", "^a", "b$", "a*", "b+", "a?b", "a{2}", "/", "'")


def texts() -> st.SearchStrategy[str]:
    """Values of a text field, numbers among them."""
    plain = st.text(_LETTERS + "'/|", max_size=5).map(lambda text: text.rstrip(" "))
    return plain | st.sampled_from([*_NUMERALS, *map(str, BOUNDS)])


def numbers() -> st.SearchStrategy[int]:
    """Values of a number field: near the bounds that rules have."""
    return st.sampled_from([0, 1, 2, 3, 59, 60, 61, 1023, 1024, 3600, 86_401, 1 << 20, 10**9])


def text_alternatives(name: str) -> st.SearchStrategy[Alternative]:
    """A text with wildcards, an expression, or in a header or in JSON a comparison."""
    plain = st.text(_LETTERS + "*?'/|", min_size=1, max_size=5).map(Text)
    expression = (
        st.lists(st.sampled_from(_ATOMS), min_size=1, max_size=4).map("".join).filter(_is_read)
    )
    alternatives = plain | expression.map(Expression)
    if "(" not in name:
        return alternatives
    signs = st.sampled_from([">", ">=", "<", "<=", "="])
    return alternatives | st.builds(Comparison, signs, st.sampled_from(BOUNDS))


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


def patterns(name: str) -> st.SearchStrategy[PlainPattern]:
    """Some alternatives, or NOT in front of them."""
    alternatives = text_alternatives(name) if name in TEXTS else number_alternatives(name)
    some = st.lists(alternatives, min_size=1, max_size=3)
    return some | some.filter(lambda members: not any(map(_matches_anything, members))).map(Not)


def _matches_anything(alternative: Alternative) -> bool:
    return alternative == Comparison("", None) or (
        isinstance(alternative, Text) and set(alternative.text.rstrip(" ")) == {"*"}
    )


def rules() -> st.SearchStrategy[PlainRule]:
    """One rule: few fields, so that rules overlap."""
    names = st.lists(st.sampled_from([*TEXTS, *NUMBERS]), max_size=3, unique=True)
    chosen = names.flatmap(
        lambda picked: st.fixed_dictionaries({name: patterns(name) for name in picked})
    )
    return st.builds(PlainRule, chosen, st.sampled_from(["QUARANTINE", "RETRY", "DISCARD"]))


def messages() -> st.SearchStrategy[dict[str, str | int]]:
    """The fields of one message; some are missing."""
    return st.fixed_dictionaries(
        {}, optional={**{name: texts() for name in TEXTS}, **{name: numbers() for name in NUMBERS}}
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
    sign, digits = alternative.sign, str(alternative.number)
    written = [digits, re.sub("[0-9]", r"0\g<0>", digits, count=1)]
    if "." in digits:
        written.append(f"{digits}00")
    for unit, factor in UNITS.get(keyword, {}).items():
        if alternative.number % factor == 0:
            written.append(f"{alternative.number // factor}{unit}")
    return sign + (draw(_blanks) if sign else "") + draw(st.sampled_from(written))


@st.composite
def clause_texts(draw: st.DrawFn, name: str, pattern: PlainPattern) -> str:
    keyword, _, argument = name.partition("(")
    is_negated = isinstance(pattern, Not)
    alternatives = pattern.alternatives if isinstance(pattern, Not) else pattern
    written = [draw(alternative_texts(keyword, alternative)) for alternative in alternatives]
    value = f"{draw(_blanks)}|{draw(_blanks)}".join(written)
    if draw(st.booleans()) or (is_negated and len(written) > 1):
        value = f"({draw(_blanks)}{value}{draw(_blanks)})"
    if is_negated:
        value = draw(st.sampled_from(["NOT ", "not\t"])) + value
    if argument:
        value = f"'{argument.removesuffix(')')}'{draw(_blanks)},{draw(_blanks)}{value}"
    return f"{draw(st.sampled_from([keyword, keyword.lower()]))}({draw(_blanks)}{value})"


@st.composite
def table_texts(draw: st.DrawFn, plain: list[PlainRule]) -> str:
    lines = ["DIALECT(KAFKA)"]
    for rule in plain:
        names = draw(st.permutations(list(rule.patterns)))
        clauses = [draw(clause_texts(name, rule.patterns[name])) for name in names]
        clauses.insert(draw(st.integers(0, len(clauses))), f"ACTION({rule.action})")
        lines.append(" ".join(clauses))
    return "".join(f"{line}\n" for line in lines)
