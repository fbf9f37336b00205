"""How fast the rule that applies to a dead letter is found, with 10 to 10,000 rules, on one core.

    python -m benchmarks.matcher [--runs 5] [--json]

Nine match fields. A rule asks for one to four of them; a fifth of its texts have wildcards; the
last rule matches everything. There are 20,000 messages, no two alike, each matched by 3 percent of
the rules: the worst case, because the job asks once for all dead letters with equal fields.

What is measured is the way from the fields of a message to its first rule: all the rules that
match, and the choice among them. Times are CPU times, so that other work on the machine counts
little; a speed is the median of several runs, after one that fills the memory of the matcher.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

from redrive.rules import Matcher, RulesTable, parse, select_rule

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


def table_of(rules: int) -> RulesTable:
    """A table with so many rules."""
    source = random.Random(rules)
    lines = [_rule(source) for _ in range(rules - 1)]
    return parse("\n".join([*lines, "ACTION(DISCARD)", ""])).required()


def _rule(source: random.Random) -> str:
    names = source.sample(list(VALUES), source.randint(1, 4))
    return " ".join([*(_clause(source, name) for name in names), "ACTION(RETRY)"])


def _clause(source: random.Random, name: str) -> str:
    value = source.choice(VALUES[name])
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


def first_rules(
    table: RulesTable, matcher: Matcher, fields: Sequence[Mapping[str, str | int]]
) -> list[int | None]:
    """The index of the rule that applies to each message."""
    return [select_rule(table, matcher.candidates_of(one), 0) for one in fields]


def measure(runs: int) -> list[dict[str, Any]]:
    """One result for each number of rules."""
    fields = messages()
    return [_result(table_of(rules), fields, runs) for rules in RULES]


def _result(
    table: RulesTable, fields: Sequence[Mapping[str, str | int]], runs: int
) -> dict[str, Any]:
    matcher = Matcher(table)
    first, found = _timed(table, matcher, fields)
    _check(table, fields, found)
    speed = statistics.median(len(fields) / _timed(table, matcher, fields)[0] for _ in range(runs))
    return {"rules": len(table.rules), "messages_per_second": speed, "first_run_s": first}


def _timed(
    table: RulesTable, matcher: Matcher, fields: Sequence[Mapping[str, str | int]]
) -> tuple[float, list[int | None]]:
    began = time.process_time()
    found = first_rules(table, matcher, fields)
    return time.process_time() - began, found


def _check(
    table: RulesTable, fields: Sequence[Mapping[str, str | int]], found: Sequence[int | None]
) -> None:
    """Compare some messages with rules that are asked one after the other."""
    for row in range(0, len(found), len(found) // 20):
        matching = (
            index
            for index, rule in enumerate(table.rules)
            if all(pattern.matches(fields[row][name]) for name, pattern in rule.patterns.items())
        )
        assert found[row] == next(matching)


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description="Measure the matcher.")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    results = measure(options.runs)
    if options.json:
        print(json.dumps(results, indent=2))
        return
    print(f"{'rules':>8} {'messages/s':>12} {'first run, s':>13}")
    for it in results:
        print(f"{it['rules']:8,} {it['messages_per_second']:12,.0f} {it['first_run_s']:13.2f}")


if __name__ == "__main__":
    main()
