"""Matching alone: the first rule of a table that takes a message, without broker and records.

    python -m benchmarks.peers.matchers [--seconds 1.5] [--patience 60] [--report FILE]

Messages have nine fields; a rule asks for three to five of them, so that few rules take a message,
and some rules have a text with one ``*``. Nine of ten messages are made of a rule. Redrive's
matcher, one regular expression of alternatives, and the ordered loop get fields; event-ruler gets
JSON, as is its way, and finds all rules, of which the first is taken. One thread each,
wall time, behind a first pass over all messages or as many as the time allows.
"""

from __future__ import annotations

import json
import os
import random
import re
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from benchmarks.command_line import parser
from benchmarks.matcher import VALUES
from benchmarks.peers.contestants import HERE, jar_version, jars_of, java
from benchmarks.peers.matching import Router

from redrive.rules import Matcher, parse

RESULTS: Final = HERE.parent / "results" / "matching.json"
RULES: Final = (10, 100, 1_000, 10_000)
WILDCARDS: Final = (0, 10, 100)
"""Percent of the rules that have one."""
MESSAGES: Final = 20_000
_CHECKED: Final = 500
"""Messages whose rule is compared with that of the ordered loop."""
_AT_ONCE: Final = 100
"""Messages between two looks at the clock."""
_TEXTS: Final = ("DESTQ", "REPLYQ", "USERID", "APPLNAME")
"""Fields in which wildcards are."""
_FIELDS: Final = {
    name: [str(value) for value in values if value != ""] for name, values in VALUES.items()
}

Message = dict[str, str]
Result = tuple[float, list[int]]
"""Messages a second, and the index of the rule of the first messages."""


def rules_of(count: int, percent: int) -> list[Message]:
    """Rules as field -> text; the last one takes every message."""
    chance = random.Random(count * 1_000 + percent)
    return [*(_rule(chance, percent) for _ in range(count - 1)), {}]


def _rule(chance: random.Random, percent: int) -> Message:
    names = chance.sample(list(_FIELDS), chance.randint(3, 5))
    rule = {name: chance.choice(_FIELDS[name]) for name in names}
    if chance.random() * 100 < percent:
        name = chance.choice(_TEXTS)
        text = chance.choice(_FIELDS[name])
        cut = chance.randint(1, len(text) - 1)
        rule[name] = chance.choice([f"{text[:cut]}*", f"*{text[cut:]}", f"{text[0]}*{text[-1]}"])
    return rule


def messages_of(rules: Sequence[Message]) -> list[Message]:
    """Messages with every field."""
    chance = random.Random(len(rules))
    made = []
    for _ in range(MESSAGES):
        message = {name: chance.choice(values) for name, values in _FIELDS.items()}
        if chance.random() < 0.9:
            asked = chance.choice(rules)
            message |= {name: text.replace("*", "x") for name, text in asked.items()}
        made.append(message)
    return made


def timed(first: Callable[[Any], int], messages: Sequence[Any], seconds: float) -> Result:
    """Asks about messages again and again.

    Args:
        first: The index of the rule of a message.
        messages: In the form that it takes.
        seconds: How long; a first pass takes as long at most.
    """
    checked = [first(message) for message in messages[:_CHECKED]]
    _asked(first, messages, time.perf_counter() + seconds)
    done, began = 0, time.perf_counter()
    while (now := time.perf_counter()) < began + seconds:
        done += _asked(first, messages, began + seconds)
    return done / (now - began), checked


def _asked(first: Callable[[Any], int], messages: Sequence[Any], end: float) -> int:
    for begin in range(0, len(messages), _AT_ONCE):
        if time.perf_counter() > end:
            return begin
        for message in messages[begin : begin + _AT_ONCE]:
            first(message)
    return len(messages)


def redrive(rules: Sequence[Message], messages: Sequence[Message], seconds: float) -> Result:
    """Redrive's matcher."""
    lines = []
    for rule in rules[:-1]:
        clauses = (f"{name}({_quoted(name, text)})" for name, text in rule.items())
        lines.append(" ".join([*clauses, "ACTION(RETRY)"]))
    matcher = Matcher(parse("\n".join([*lines, "ACTION(DISCARD)", ""])).required())
    typed = [
        {name: text if _is_text(name) else int(text) for name, text in message.items()}
        for message in messages
    ]

    def first(message: Mapping[str, str | int]) -> int:
        index = matcher.first_of(message)
        assert index is not None
        return index

    return timed(first, typed, seconds)


def _quoted(name: str, text: str) -> str:
    return f"'{text}'" if _is_text(name) else text


def _is_text(name: str) -> bool:
    return isinstance(VALUES[name][0], str)


def expression(rules: Sequence[Message], messages: Sequence[Message], seconds: float) -> Result:
    """One regular expression of alternatives, over the fields one behind the other."""
    parts = {"*": "[^\0]*"}
    alternatives = [
        "\0".join(
            "".join(
                parts.get(character) or re.escape(character) for character in rule.get(name, "*")
            )
            for name in _FIELDS
        )
        for rule in rules
    ]
    search = re.compile("|".join(f"({alternative})" for alternative in alternatives)).fullmatch

    def first(message: Message) -> int:
        match = search("\0".join([message[name] for name in _FIELDS]))
        assert match is not None
        assert match.lastindex is not None
        return match.lastindex - 1

    return timed(first, messages, seconds)


def loop(rules: Sequence[Message], messages: Sequence[Message], seconds: float) -> Result:
    """An ordered loop over the rules, with compiled expressions for wildcards."""
    with TemporaryDirectory(prefix="redrive-bench-") as folder:
        router = Router(_written(rules, [], Path(folder)))

    def first(message: Message) -> int:
        return int(router.first([message[name] for name in _FIELDS]).rule)

    return timed(first, messages, seconds)


def _written(rules: Sequence[Message], messages: Sequence[Message], folder: Path) -> Path:
    """A file for those that do not run in this process."""
    numbered = [{"line": number, "when": rule, "target": ""} for number, rule in enumerate(rules)]
    whole = {"form": "", "fields": [*_FIELDS], "rules": numbered, "messages": messages}
    file = folder / "rules.json"
    file.write_text(json.dumps(whole), encoding="utf-8")
    return file


def outside(program: Callable[[], list[str]], patience: float) -> Callable[..., Result]:
    """One that runs in a process of its own, and prints its result as JSON.

    Args:
        program: Gives the command, which takes the file of rules and messages, and seconds.
        patience: Seconds for all that it does.
    """

    def result(rules: Sequence[Message], messages: Sequence[Message], seconds: float) -> Result:
        with TemporaryDirectory(prefix="redrive-bench-") as folder:
            file = _written(rules, messages, Path(folder))
            given = [*program(), str(file), str(seconds)]
            done = subprocess.run(
                given, capture_output=True, text=True, timeout=patience, check=True
            )
        document = json.loads(done.stdout)
        return document["per_second"], document["first"][:_CHECKED]

    return result


def _ruler() -> list[str]:
    return java("MatchRules", jars_of("matchers"))


def contestants(patience: float) -> dict[str, tuple[str, Callable[..., Result]]]:
    """Version and matcher by name."""
    python = f"Python {sys.version.split()[0]}"
    return {
        "redrive": ("this version", redrive),
        "one expression": (f"re of {python}", expression),
        "ordered loop": (python, loop),
        "event-ruler": (jar_version("event-ruler"), outside(_ruler, patience)),
    }


def main() -> int:
    """The command line."""
    asked = parser(__doc__, seconds=1.5, patience=60.0)
    asked.add_argument("--report", type=Path, default=RESULTS)
    options = asked.parse_args()
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:2])
    results: list[dict[str, Any]] = []
    for percent in WILDCARDS:
        for count in RULES:
            rules = rules_of(count, percent)
            messages = messages_of(rules)
            _, right = loop(rules, messages[:_CHECKED], 0.0)
            for name, (version, first) in contestants(options.patience).items():
                result = {"name": name, "version": version, "rules": count, "wildcards": percent}
                result |= _result(first, rules, messages, options.seconds, right)
                results.append(result)
                print(result, flush=True)
                options.report.parent.mkdir(parents=True, exist_ok=True)
                options.report.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    return int(any("disagrees" in result.get("failed", "") for result in results))


def _result(
    first: Callable[..., Result],
    rules: Sequence[Message],
    messages: Sequence[Message],
    seconds: float,
    right: Sequence[int],
) -> dict[str, Any]:
    try:
        speed, answers = first(rules, messages, seconds)
    except subprocess.TimeoutExpired as error:
        return {"failed": f"not within {error.timeout:.0f} s"}
    except subprocess.CalledProcessError as error:
        return {"failed": (error.stderr or str(error)).strip().splitlines()[0]}
    except OSError as error:
        return {"failed": str(error)}
    if answers != right:
        return {"failed": "disagrees with the ordered loop"}
    return {"per_second": round(speed)}


if __name__ == "__main__":
    sys.exit(main())
