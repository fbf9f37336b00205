"""Fuzzing with random changes of good inputs. What breaks something is printed with its seed.

python -m tests.fuzz.random_inputs records --count 100000 --seed 1
python -m tests.fuzz.random_inputs rules --seconds 60
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from tests.fuzz import mqsc, records, rules_table


class Target(NamedTuple):
    """What takes random inputs."""

    mutated: Callable[[random.Random], Any]
    check: Callable[[Any], None]
    size: int = 1
    """How many an input counts for."""


TARGETS: Final[Mapping[str, Target]] = {
    "records": Target(records.mutated, records.check, records.ROWS),
    "rules": Target(rules_table.mutated, rules_table.check),
    "mqsc": Target(mqsc.mutated, mqsc.check),
}


def run(name: str, seed: int, *, count: float = float("inf"), seconds: float = float("inf")) -> int:
    """Check mutated inputs until the time is up or there were enough.

    Args:
        name: Of the target.
        seed: Of the random changes; the same seed makes the same inputs.
        count: How many, at least.
        seconds: How long.

    Returns:
        How many were checked.
    """
    target, source = TARGETS[name], random.Random(seed)
    end, done = time.monotonic() + seconds, 0
    while done < count and time.monotonic() < end:
        text = target.mutated(source)
        try:
            target.check(text)
        except BaseException:
            sys.stderr.write(f"{name}, seed {seed}, input {done}: {text!r}\n")
            raise
        done += target.size
    return done


def main() -> None:
    parser = argparse.ArgumentParser(description="Fuzz readers and decisions with random changes.")
    parser.add_argument("target", choices=TARGETS)
    parser.add_argument("--count", type=float, default=float("inf"))
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 31))
    given = parser.parse_args()
    sys.stdout.write(f"seed {given.seed}\n")
    done = run(given.target, given.seed, count=given.count, seconds=given.seconds)
    sys.stdout.write(f"{done} {given.target}, nothing found\n")


if __name__ == "__main__":
    main()
