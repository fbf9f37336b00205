"""Users' conditions: SQL over masked columns, and on bodies; with errors in our own words.

A condition in SQL is parsed, and what the engine gets is written from what was checked. So it has
the operators and functions listed here and no others: it reads one row, needs little time and
memory, and cannot reach another table. Text columns appear in it as ``[mask]`` shows them.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import accumulate
from typing import TYPE_CHECKING, Any, ClassVar, Final, Self

import orjson

from redrive.diagnostics import did_you_mean
from redrive.engine.outcome import COLUMNS, MASKED, Kind
from redrive.errors import UsageError
from redrive.masking import ERROR_MESSAGE, MASK, NO_MASK, Mask
from redrive.messages.json_patch import JsonPath
from redrive.rules.patterns import ComparisonPattern

if TYPE_CHECKING:
    from sqlglot import exp

LONGEST: Final = 16 * 1024
"""Maximum characters of a condition."""
_DEEPEST: Final = 100
"""Maximum depth of nested expressions; a chain of AND or OR counts once for each operator."""
_HINT: Final = (
    "write SQL over the columns of the ledger, such as"
    " \"field_destq LIKE 'orders.%' AND attempt > 2\"; docs/ledger.md lists them"
)
_KINDS: Final = {column.name: column.kind for column in COLUMNS}
_NAMES: Final = (*_KINDS, "first_time")
_FUNCTIONS: Final = frozenset(
    {
        *("abs", "ceil", "coalesce", "contains", "date_part", "date_trunc", "ends_with", "floor"),
        *("left", "length", "lower", "ltrim", "now", "nullif", "octet_length", "regexp_like"),
        *("right", "round", "rtrim", "starts_with", "strpos", "substr", "trim", "upper"),
    }
)
"""Functions whose results are not longer than their arguments."""
_FUNCTIONS_HINT: Final = f"functions: {', '.join(sorted(_FUNCTIONS))}"
_OPERATORS: Final = frozenset(
    {
        *("Add", "And", "Anonymous", "Between", "Boolean", "Case", "Cast", "Column", "DPipe"),
        *("DataType", "DataTypeParam", "Div", "EQ", "Escape", "Extract", "GT", "GTE", "HexString"),
        *("ILike", "Identifier", "If", "In", "Interval", "Is", "LT", "LTE", "Like", "Literal"),
        *("Mod", "Mul", "NEQ", "Neg", "Not", "Null", "NullSafeEQ", "NullSafeNEQ", "Or", "Paren"),
        *("RegexpILike", "RegexpLike", "Sub", "TryCast", "Tuple", "Var"),
    }
)
"""Names of the kinds of expressions that a condition may have."""

_CAUSES: Final = (
    (
        r"(?i)\bcast\b",
        "a value cannot be converted to the type that it is compared with",
    ),
    (r"(?i)divi", "it divides by zero"),
    (r"(?i)regex|regular", "it has a regular expression that the engine does not know"),
    (r"(?i)coerc|type|signature|argument", "the types of its values do not fit an operator"),
)
"""Patterns of the engine's errors, with our own texts: the engine's may have values of messages."""

_CLASSES: Final = {"d": "0-9", "w": "0-9A-Za-z_", "s": r"\t\n\f\r "}
_ESCAPE: Final = r"\\(?:x\{[0-9A-Fa-f]+\}|x[0-9A-Fa-f]{2}|[pP](?:\{\^?\w+\}|\w)|.)"
_OUTSIDE: Final = re.compile(rf"{_ESCAPE}|\[\^?\]?|.", re.DOTALL)
_IN_CLASS: Final = re.compile(rf"{_ESCAPE}|\[:\^?\w+:\]|&&|--|~~|.", re.DOTALL)
_SET_OPERATORS: Final = frozenset({"[", "&&", "--", "~~"})
"""What has a meaning in a class of the engine, and none in RE2."""


def engine_condition(condition: str, mask: Mask = NO_MASK) -> str:
    """A condition as SQL of the engine, in which columns have their masked values.

    Raises:
        UsageError: It is not a valid condition.
    """
    return _translated(condition, mask) if condition else ""


def condition_error(problem: str) -> UsageError:
    """The error of a condition that the engine refuses, by the engine's message."""
    causes = (text for pattern, text in _CAUSES if re.search(pattern, problem))
    return _error(next(causes, "the engine cannot evaluate it"), _HINT)


@lru_cache(maxsize=64)
def _translated(condition: str, mask: Mask) -> str:
    if len(condition) > LONGEST:
        raise _error(f"it has more than {LONGEST:,} characters", "shorten it")
    from sqlglot import exp  # noqa: PLC0415 - slow to import, and few conditions are asked for

    tree = _parsed(condition)
    for node in [*tree.walk()]:
        _check(node, condition)
        if isinstance(node, exp.Anonymous):
            node.set("this", node.name.lower())
        elif isinstance(node, exp.Column) and _is_masked(node.name, mask):
            masked = exp.Var(this=_masked(node.name, mask))
            node.replace(masked)
            tree = masked if node is tree else tree
    return str(tree.sql(dialect=_dialect(), comments=False, normalize_functions=False))


def _parsed(condition: str) -> exp.Expr:
    from sqlglot.errors import ParseError, SqlglotError  # noqa: PLC0415 - as in _translated

    try:
        # Not after parsing: a parser that recurses takes longer, the deeper it gets.
        depths = accumulate((text == "(") - (text == ")") for text in condition)
        is_deep = max(depths, default=0) > _DEEPEST
        trees = [] if is_deep else _dialect()().parse(condition)
    except ParseError as error:
        raise _error(_place(error.errors[0], condition), _HINT) from None
    except SqlglotError:
        raise _error("a quotation mark is not closed", _HINT) from None
    except RecursionError:
        trees = []
    nodes = [node for tree in trees if tree is not None for node in tree.walk()]
    if not trees or any(node.depth > _DEEPEST for node in nodes):
        problem = f"it is nested more than {_DEEPEST} deep"
        raise _error(problem, "use IN for lists of values")
    if len(trees) != 1 or trees[0] is None:
        raise _error("it is not one expression", _HINT)
    tree: exp.Expr = trees[0]
    return tree


@cache
def _dialect() -> Any:  # noqa: ANN401 - a class made when it is first needed
    from sqlglot.dialects.postgres import Postgres  # noqa: PLC0415 - as in _translated
    from sqlglot.parsers.postgres import PostgresParser  # noqa: PLC0415 - as in _translated

    class Engine(Postgres):
        """The engine's SQL: functions are written as they were read."""

        class Parser(PostgresParser):
            FUNCTIONS: ClassVar = {}
            FUNCTION_PARSERS: ClassVar = {
                name: PostgresParser.FUNCTION_PARSERS[name]
                for name in ("CAST", "EXTRACT", "TRY_CAST")
            }
            NO_PAREN_FUNCTIONS: ClassVar = {}

    return Engine


def _check(node: exp.Expr, condition: str) -> None:
    from sqlglot import exp  # noqa: PLC0415 - as in _translated

    if isinstance(node, exp.Column):
        if node.table or node.name not in _NAMES:
            raise _unknown_column(node.sql(dialect=_dialect()), condition)
    elif isinstance(node, exp.Anonymous):
        if node.name.lower() not in _FUNCTIONS:
            raise _error(f"{node.name} is not a function of conditions", _FUNCTIONS_HINT)
    elif type(node).__name__ not in _OPERATORS:
        kind = type(node).__name__.upper()
        raise _error(f"{kind} cannot be part of a condition", _HINT)


def _place(error: dict[str, Any], condition: str) -> str:
    highlight, line, column = error["highlight"], error["line"], error["col"]
    start = column - len(highlight) + 1
    where = f"character {start}" if "\n" not in condition else f"line {line}, character {start}"
    return f"an expression is missing or does not fit at {highlight!r}, {where}"


def _is_masked(column: str, mask: Mask) -> bool:
    if column == ERROR_MESSAGE and mask.silent_schemes:
        return True
    return bool(mask.patterns) and column in MASKED


def _masked(column: str, mask: Mask) -> str:
    """The masked value of a column, in SQL."""
    if _KINDS[column] is Kind.BYTES:
        raise _error(f"{column} is hidden by [mask]", "select by --key")
    masked = column
    for pattern in mask.patterns:
        quoted = _engine_pattern(pattern).replace("'", "''")
        masked = f"regexp_replace({masked}, '{quoted}', '{MASK}', 'g')"
    if column == ERROR_MESSAGE and mask.silent_schemes:
        silent = ", ".join(f"'{name}'" for name in mask.silent_schemes)
        masked = (
            f"CASE WHEN {column} IS NOT NULL AND form IN ({silent}) THEN '{MASK}' ELSE {masked} END"
        )
    return masked


def _engine_pattern(pattern: str) -> str:
    """An expression of RE2 in the engine's dialect of it, which matches the same.

    Both descend from the same syntax. They differ in Perl's classes, which are ASCII in RE2, and in
    brackets within brackets.

    Raises:
        UsageError: The engine has nothing that matches the same.
    """
    parts: list[str] = []
    in_class = is_quoted = False
    position = 0
    while match := (_IN_CLASS if in_class else _OUTSIDE).match(pattern, position):
        part, position = match[0], match.end()
        if is_quoted or part == r"\Q":
            is_quoted = part != r"\E"
            parts.append("" if part in {r"\Q", r"\E"} else _literal(part))
        elif re.fullmatch(r"\\.", part, re.DOTALL):
            parts.append(_escape(part[1], pattern, in_class=in_class))
        elif in_class and part in _SET_OPERATORS:
            parts.append(_literal(part))
        elif in_class:
            in_class = part != "]"
            parts.append(part)
        else:
            in_class = part.startswith("[")
            parts.append(part.replace("]", r"\]") if in_class else part)
    return "".join(parts)


def _escape(letter: str, pattern: str, *, in_class: bool) -> str:
    if letter.lower() in _CLASSES:
        members, negated = _CLASSES[letter.lower()], letter.isupper()
        return f"[{'^' * negated}{members}]" if negated or not in_class else members
    if letter == "b" and not in_class:
        return r"(?-u:\b)"
    if letter in "aftnrvAz":
        return f"\\{letter}"
    if letter.isalnum():
        raise _error(
            f"text columns are hidden by [mask], whose pattern {pattern!r} has \\{letter}",
            "use other columns, or write the pattern without it",
        )
    return _literal(letter)


def _literal(text: str) -> str:
    return "".join(f"\\x{{{ord(character):x}}}" for character in text)


def _unknown_column(name: str, condition: str) -> UsageError:
    plain = name.strip('"')
    known = next(
        (column for column in (f"field_{plain.lower()}", plain.lower()) if column in _NAMES), ""
    )
    hint = f"did you mean {known}?" if known else did_you_mean(plain, _NAMES)
    if not known and f'"{plain}"' in condition:
        hint = f"put text in single quotes: '{plain}'"
    return _error(f"there is no column {plain}", hint or _HINT)


def _error(what: str, hint: str) -> UsageError:
    return UsageError(f"--where is not a valid condition: {what}", hint=hint)


# -- bodies --------------------------------------------------------------------------------------

_COMPARISON: Final = re.compile(
    r"""(\$(?:[^\s'"=!<>]|'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")*)"""
    r"""\s*(==|!=|<=|>=|<|>|contains\b)\s*(.+)""",
    re.DOTALL,
)
_VALUE: Final = re.compile(
    r"""(?P<number>-?[0-9]+(?:\.[0-9]+)?)|'(?P<single>[^']*)'|"(?P<double>[^"]*)"|"""
    r"""(?P<word>true|false|null)"""
)
_BODY_HINT: Final = "write a path, an operator and a value: '$.order.id == 17', '$.name == \"Ann\"'"


@dataclass(frozen=True, slots=True)
class BodyFilter:
    """Conditions on a body, which must all hold."""

    text: str
    """Is in the body, ignoring case; empty for any body."""
    path: JsonPath | None
    """The JSON value that is compared; None for any body."""
    _holds: Callable[[str | None], bool]
    """Whether the comparison holds for the value as text; None stands for no value or null."""

    @classmethod
    def of(cls, comparison: str, text: str) -> Self:
        """The filter of ``--body`` and ``--body-text``, each of which may be empty.

        Raises:
            UsageError: The comparison is not valid.
        """
        if not comparison:
            return cls(text.lower(), None, bool)
        match = _COMPARISON.fullmatch(comparison.strip())
        if match is None:
            hint = "--body-text searches for a text" if comparison[0] != "$" else _BODY_HINT
            raise UsageError(f"--body {comparison} is not a comparison of a JSON value", hint=hint)
        path, operator, value = match.groups()
        try:
            return cls(text.lower(), JsonPath.of(path), _comparison(operator, value))
        except ValueError as problem:
            raise UsageError(f"--body {comparison}: {problem}", hint=_BODY_HINT) from None

    def matches(self, body: bytes | None) -> bool | None:
        """Whether a body matches; None if it is not the JSON that a comparison needs."""
        data = body or b""
        if self.text and self.text not in data.decode("utf-8", "replace").lower():
            return False
        if self.path is None:
            return True
        try:
            return self._holds(self.path.find(orjson.loads(data)))
        except orjson.JSONDecodeError:
            return None


def _comparison(operator: str, value: str) -> Callable[[str | None], bool]:
    """What holds for a value's text; as in rules tables, a number equals the text of its digits.

    Raises:
        ValueError: The value is not valid, or does not fit the operator.
    """
    match = _VALUE.fullmatch(value)
    if match is None:
        raise ValueError(f"{value} is neither a number nor a text in quotes")
    literal = match[0] if match["single"] is match["double"] is None else match[0][1:-1]
    if operator == "contains":
        return lambda text: text is not None and literal.lower() in text.lower()
    if operator == "!=":
        equals = _comparison("==", value)
        return lambda text: not equals(text)
    if match["number"]:
        pattern = ComparisonPattern(operator.replace("==", "="), literal)
        return lambda text: text is not None and pattern.matches(text)
    if operator != "==":
        raise ValueError(f"{operator} compares numbers, and {value} is not one")
    return lambda text: text == (None if match["word"] == "null" else literal)
