"""How fast the rule that applies to a dead letter is found, with 10 to 10,000 rules, on one core.

    python -m benchmarks.matcher [--runs 5] [--json]

Nine match fields. A rule asks for one to four of them; a fifth of its texts have wildcards; the
last rule matches everything. There are 20,000 messages, no two alike, each matched by 3 percent of
the rules: the worst case, because the job asks once for all dead letters with equal fields. In
tables of another kind a rule asks for three to five fields, so that of 10,000 rules four match, and
three of four messages have no match among the first 1,000.

The same with 1,000 rules in DIALECT(KAFKA), of which 200 have a regular expression for the text of
the error and 100 a comparison; some of the expressions stand alone, most beside other patterns. No
two texts are alike.

What is measured is the way from the fields of a message to the first rule that matches, and to all
of them. Times are CPU times, and a speed is that of the fastest of several runs, so that other work
on the machine counts little. A run before them fills the memory of the matcher.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from benchmarks.command_line import parser, show

from redrive.rules import Matcher, RulesTable, parse

RULES: Final = (10, 100, 1_000, 10_000)
MESSAGES: Final = 20_000
WITH_WILDCARDS: Final = 0.2

VALUES: Final[Mapping[str, Sequence[str | int]]] = {
    "DESTQ": [f"APP{n % 40:02}.{('ORDERS', 'PAY', 'STOCK')[n % 3]}.Q{n}" for n in range(2_000)],
    "DESTQM": [f"QM{n:02}" for n in range(20)],
    "REASON": range(2_001, 2_061),
    "FORMAT": ["MQSTR", "MQHRF2", "", "MQCICS", "MQIMS", "MQADMIN", "MQEVENT", "MQXMIT"],
    "PERSIST": [0, 1],
    "REPLYQ": ["", *(f"REPLY.{n % 25}.Q{n}" for n in range(500))],
    "USERID": [f"user{n}" for n in range(300)],
    "APPLNAME": [f"bin/app{n % 50}/{n}" for n in range(200)],
    "APPLTYPE": [2, 4, 6, 7, 9, 11, 26, 28],
}
"""Field -> the values that rules and messages have there."""


def table_of(rules: int, fewest: int = 1, most: int = 4) -> RulesTable:
    """A table with so many rules, which ask for so many fields."""
    source = random.Random(rules)
    lines = [_rule(source, source.randint(fewest, most)) for _ in range(rules - 1)]
    return parse("\n".join([*lines, "ACTION(DISCARD)", ""])).required()


def _rule(source: random.Random, asked: int) -> str:
    names = source.sample(list(VALUES), asked)
    return " ".join([*(_clause(source, name, VALUES) for name in names), "ACTION(RETRY)"])


def _clause(source: random.Random, name: str, values: Mapping[str, Sequence[str | int]]) -> str:
    value = source.choice(values[name])
    if isinstance(value, str) and source.random() < WITH_WILDCARDS:
        value = _with_wildcards(source, value)
    return f"{name}('{value or ' '}')" if isinstance(value, str) else f"{name}({value})"


def _with_wildcards(source: random.Random, value: str) -> str:
    cut = source.randint(0, max(0, len(value) - 1))
    middle = f"{value[:cut]}?{value[cut + 1 :]}"
    return source.choice(
        [f"{value[:cut]}*", f"*{value[cut:]}", f"{value[:1]}*{value[-1:]}", middle]
    )


def messages() -> list[dict[str, str | int]]:
    """Fields drawn at random."""
    source = random.Random(1)
    return [
        {name: source.choice(values) for name, values in VALUES.items()} for _ in range(MESSAGES)
    ]


KAFKA_VALUES: Final[Mapping[str, Sequence[str | int]]] = {
    "SCHEME": ["connect", "spring-dlt", "spring-retry-topic", "kafka-streams", "share-group"],
    "TOPIC": [f"{('orders', 'pay', 'stock')[n % 3]}.{n % 40:02}.q{n}" for n in range(2_000)],
    "PARTITION": range(24),
    "GROUP": [f"group-{n}" for n in range(300)],
    "CONNECTOR": [f"sink-{n % 25}-{n}" for n in range(200)],
    "STAGE": ["KEY_CONVERTER", "VALUE_CONVERTER", "TRANSFORMATION", "TASK_PUT"],
    "ROOTCLASS": [f"org.acme.{'abc'[n % 3]}.{n}Exception" for n in range(60)],
    "ATTEMPTS": range(1, 11),
}
"""The same for tables in the dialect."""

WORDS: Final = (
    "timed out", "connection refused", "duplicate key", "not found", "deadlock", "null value",
    "schema", "registry", "field", "order", "account", "violates constraint", "retries exhausted",
)  # fmt: skip
"""What the texts of errors are made of."""

EXPRESSIONS: Final = 200
COMPARISONS: Final = 100


def kafka_table() -> RulesTable:
    """The table in the dialect."""
    source = random.Random(7)
    rules = [_kafka_rule(source, number) for number in range(RULES[2] - 1)]
    source.shuffle(rules)
    return parse("\n".join(["DIALECT(KAFKA)", *rules, "ACTION(DISCARD)", ""])).required()


def _kafka_rule(source: random.Random, number: int) -> str:
    has_expression = number < EXPRESSIONS
    fewest = 0 if number < EXPRESSIONS // 10 else 1
    names = source.sample(list(KAFKA_VALUES), source.randint(fewest, 3 if has_expression else 4))
    clauses = [_clause(source, name, KAFKA_VALUES) for name in names]
    if has_expression:
        clauses.append(f"ERRMSG(/{_expression(source)}/)")
    elif number < EXPRESSIONS + COMPARISONS:
        clauses.append(source.choice(["AGE(>2h)", "AGE(<30m)", "SIZE(>1m)", "SIZE(<=2k)"]))
    return " ".join([*clauses, "ACTION(RETRY)"])


def _expression(source: random.Random) -> str:
    first, two, number = source.choice(WORDS), source.choice(WORDS), source.randint(10, 99)
    return source.choice(
        [f"{first}.*{two}", f"^{first}", f"(?i){first} [a-z]+ {number}",
         f"{first} ({two}|{number})", rf"\b{number}[0-9]* {first}$"]
    )  # fmt: skip


def kafka_messages() -> list[dict[str, str | int]]:
    """Fields drawn at random; each message has a text, an age and a size of its own."""
    source = random.Random(2)
    return [
        {
            **{name: source.choice(values) for name, values in KAFKA_VALUES.items()},
            "ERRMSG": f"{' '.join(source.choices(WORDS, k=6))} {number} {source.choice(WORDS)}",
            "AGE": source.randint(0, 20_000),
            "SIZE": source.randint(0, 2_000_000),
        }
        for number in range(MESSAGES)
    ]


def measure(runs: int) -> list[dict[str, Any]]:
    """One result for each table."""
    fields = messages()
    return [
        *(_result("IBM", table_of(rules), fields, runs) for rules in RULES),
        *(_result("IBM, few match", table_of(rules, 3, 5), fields, runs) for rules in RULES[2:]),
        _result("KAFKA", kafka_table(), kafka_messages(), runs),
    ]


def _result(
    name: str, table: RulesTable, fields: Sequence[Mapping[str, str | int]], runs: int
) -> dict[str, Any]:
    matcher = Matcher(table)
    seconds, lines = _timed(matcher.first_of, fields)
    _check(table, fields, lines)
    return {
        "table": name,
        "rules": len(table.rules),
        "first_per_second": _speed(matcher.first_of, fields, runs),
        "all_per_second": _speed(matcher.candidates_of, fields, runs),
        "first_run_s": seconds,
    }


_Asked = Callable[[Mapping[str, str | int]], int | None]


def _speed(asked: _Asked, fields: Sequence[Mapping[str, str | int]], runs: int) -> float:
    return len(fields) / min(_timed(asked, fields)[0] for _ in range(runs + 1))


def _timed(
    asked: _Asked, fields: Sequence[Mapping[str, str | int]]
) -> tuple[float, list[int | None]]:
    began = time.process_time()
    lines = [asked(message) for message in fields]
    return time.process_time() - began, lines


def _check(
    table: RulesTable, fields: Sequence[Mapping[str, str | int]], lines: Sequence[int | None]
) -> None:
    """Compare some messages with rules that are asked one after the other."""
    for row in range(0, len(lines), len(lines) // 20):
        matching = (
            index
            for index, rule in enumerate(table.rules)
            if all(pattern.matches(fields[row][name]) for name, pattern in rule.patterns.items())
        )
        assert lines[row] == next(matching)


def main() -> None:
    """The command line."""
    options = parser(__doc__, runs=5).parse_args()
    results = measure(options.runs)
    if options.json:
        show(results)
        return
    print(f"{'table':14} {'rules':>8} {'first/s':>12} {'all/s':>12} {'first run, s':>13}")
    for result in results:
        first, every = result["first_per_second"], result["all_per_second"]
        speeds = f"{first:12,.0f} {every:12,.0f}"
        print(f"{result['table']:14} {result['rules']:8,} {speeds} {result['first_run_s']:13.2f}")


if __name__ == "__main__":
    main()
