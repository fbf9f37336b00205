"""How fast rules are matched over columns, on one core, with 10 to 10,000 rules.

    python benchmarks/matcher.py [--runs 7] [--json]

Nine match fields. A rule asks for one to four of them; a fifth of its texts have wildcards; the
last rule matches everything. There are two workloads, because the cost has two parts: one for each
row, and one for each different row, which alone depends on the rules.

    backlog    1,000,000 rows of 2,000 different messages, as dead letters come: a consumer that
               has stopped gives hundreds of them the same reason, queue and application
    different  200,000 rows, no two alike, each matched by 3 percent of the rules: the worst case,
               in which nothing can be shared

What is measured is the way from columns to the rule that applies to each row: all the rules that
match, and the first of them. Goals: a backlog at 1,000,000 rows/s or more with 1,000 rules, and
flat within 20 percent from 10 to 10,000 rules. Times are CPU times, so that other work on the
machine counts little; a speed is the median of several runs, after one that fills the memory of the
matcher, and flatness is that of the best runs, which were disturbed least.
"""

from __future__ import annotations

import argparse
import functools
import json
import random
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from redrive.rules import Matcher, RulesTable, parse, select_rule

RULES: Final = (10, 100, 1_000, 10_000)
GOAL: Final = 1_000_000
FLAT: Final = 0.20

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
    if isinstance(value, str) and source.random() < FLAT:
        value = _with_wildcards(source, value)
    return f"{name}('{value or ' '}')" if isinstance(value, str) else f"{name}({value})"


def _with_wildcards(source: random.Random, value: str) -> str:
    cut = source.randint(0, max(0, len(value) - 1))
    middle = f"{value[:cut]}?{value[cut + 1 :]}"
    return source.choice(
        [f"{value[:cut]}*", f"*{value[cut:]}", f"{value[:1]}*{value[-1:]}", middle]
    )


def different(rows: int) -> dict[str, Any]:
    """Columns with values drawn at random."""
    source = np.random.default_rng(rows)
    return {
        name: pa.DictionaryArray.from_arrays(
            pa.array(source.integers(0, len(values), rows, dtype=np.int32)), pa.array(values)
        )
        for name, values in VALUES.items()
    }


def backlog(rows: int, messages: int) -> dict[str, Any]:
    """Columns in which few different messages repeat."""
    picked = pa.array(np.random.default_rng(rows).integers(0, messages, rows))
    return {name: column.take(picked) for name, column in different(messages).items()}


def first_rules(
    table: RulesTable, matcher: Matcher, columns: Mapping[str, Any], rows: int
) -> npt.NDArray[np.int64]:
    """The index of the rule that applies to each row, -1 for none."""
    codes, sets = matcher.groups(columns, rows)
    chosen = [select_rule(table, rules, 0) for rules in sets]
    return np.array([-1 if index is None else index for index in chosen])[codes]


class Case:
    """One workload with so many rules."""

    def __init__(self, name: str, columns: Mapping[str, Any], rows: int, table: RulesTable) -> None:
        self.name = name
        self.rules = len(table.rules)
        self._rows = rows
        self._times: list[float] = []
        self._match = functools.partial(first_rules, table, Matcher(table), columns, rows)
        self._first, found = _timed(self._match)
        _check(table, columns, found)

    def run(self) -> None:
        """Match all rows once more."""
        self._times.append(_timed(self._match)[0])

    def result(self) -> dict[str, Any]:
        """The median speed, and the time of the first run in seconds."""
        return {
            "workload": self.name,
            "rules": self.rules,
            "rows_per_second": self._rows / statistics.median(self._times),
            "best_rows_per_second": self._rows / min(self._times),
            "first_run_s": self._first,
        }


def _timed(match: Callable[[], npt.NDArray[np.int64]]) -> tuple[float, npt.NDArray[np.int64]]:
    began = time.process_time()
    found = match()
    return time.process_time() - began, found


def measure(runs: int) -> list[dict[str, Any]]:
    """One result for each workload and number of rules.

    The cases take turns, so that what else goes on in the machine meets all of them alike.
    """
    workloads = {
        "backlog": (backlog(1_000_000, 2_000), 1_000_000),
        "different": (different(200_000), 200_000),
    }
    tables = [table_of(rules) for rules in RULES]
    cases = [Case(name, *rows, table) for table in tables for name, rows in workloads.items()]
    for _ in range(runs):
        for case in cases:
            case.run()
    return [case.result() for case in cases]


def _check(table: RulesTable, columns: Mapping[str, Any], found: npt.NDArray[np.int64]) -> None:
    """Compare some rows with rules that are asked one after the other."""
    for row in range(0, len(found), len(found) // 20):
        fields = {name: column[row].as_py() for name, column in columns.items()}
        matching = (
            index
            for index, rule in enumerate(table.rules)
            if all(pattern.matches(fields[name]) for name, pattern in rule.patterns.items())
        )
        assert found[row] == next(matching)


def verdict(results: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Whether the goals are met: speed by the median, flatness by the run least disturbed."""
    backlogs = [it for it in results if it["workload"] == "backlog"]
    fast = all(it["rows_per_second"] >= GOAL for it in backlogs if it["rules"] == 1_000)
    best = [it["best_rows_per_second"] for it in backlogs]
    spread = 1 - min(best) / max(best)
    return {"fast": fast, "spread": spread, "flat": spread <= FLAT}


def show(results: Sequence[Mapping[str, Any]], goals: Mapping[str, Any]) -> None:
    """Print a table and what became of the goals."""
    print(f"{'rules':>8} {'workload':>10} {'rows/s':>12} {'best':>12} {'first run, s':>13}")
    for it in results:
        print(
            f"{it['rules']:8,} {it['workload']:>10} {it['rows_per_second']:12,.0f} "
            f"{it['best_rows_per_second']:12,.0f} {it['first_run_s']:13.2f}"
        )
    met = {True: "met", False: "MISSED"}
    print(f"backlog with 1,000 rules at {GOAL:,} rows/s: {met[goals['fast']]}")
    print(f"backlog flat within {FLAT:.0%}: {met[goals['flat']]}, spread {goals['spread']:.0%}")


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description="Measure the matcher over columns.")
    parser.add_argument("--runs", type=int, default=7)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    results = measure(options.runs)
    goals = verdict(results)
    if options.json:
        print(json.dumps({"results": results, "goals": goals}, indent=2))
    else:
        show(results, goals)


if __name__ == "__main__":
    main()
