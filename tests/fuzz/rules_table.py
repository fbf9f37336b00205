"""A fuzz target for the parser of rules tables.

    python tests/fuzz/rules_table.py --seconds 60 --seed 1

Tables of the corpus are cut, joined and altered at random. Whatever comes of it, reading it must
not raise, must not take long, must give either a table or errors whose places exist, and a table
must survive being written and read again. A text that breaks this is printed with its seed.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from redrive.diagnostics import Severity
from redrive.rules import KEYWORDS, parse

VECTORS: Final = Path(__file__).parents[1] / "vectors" / "rules.json"

# The shapes that people write, after the tables that are published: continued rules, disabled
# ones, shell variables, invented keywords, control data on several lines.
CORPUS: Final = (
    (
        "inputqm(' ') inputq(' ')\nREASON(MQRC_Q_FULL) ACTION(RETRY) RETRY(5)\n"
        "MSGTYPE(MQMT_REQUEST) REPLYQM(AAAA.*) +\nACTION(FWD) FWDQ(DEADQ) FWDQM(&REPLYQM)\n"
        "DESTQM(bbbb.1) +\n  action(fwd) fwdq(&DESTQ) fwdqm(bbbb.2) header(no)\n"
    ),
    (
        "RETRYINT(60) WAIT(60)\n*DESTQ(APP.*) ACTION (FWD)  FWDQ(APP.DEADQ)\n"
        "ACTION (FWD) FWDQ(SYSTEM.DEAD.LETTER.QUEUE) HEADER(YES)"
    ),
    "DESTQ(EP*) ACTION (FWD) FWDQ ($QMGR.DLQ.PAYMENTS) HEADER (YES)\n\nDESTQ(*) ACTION(IGNORE)\n",
    "\nINPUTQ('DLQ') INPUTQM('$QM') +\nWAIT(YES) RETRYINT(20)\nREASON(*) ACTION(RETRY) +\nRETRY(5)",
    "INPUTQ(Q)\nINPUTQM(QM)\nRETRYINT(60)\nRETRY(3)\nREASON(2085) DISCARD\nREASON(*) PUT(R.Q)\n",
    "APPLNAME('ABC-\n D''E') FORMAT('A*C?') PERSIST(MQPER_PERSISTENT) ACTION(DISCARD)\r\n",
)
PIECES: Final = (
    *KEYWORDS,
    *"()'',+-*?&=\t \0\r\x1aé",
    *("\n", "\r\n", "+\n", "-\n", "\n* ", "''", "' '", "&DESTQ", "MQRC_", "999999999", "1" * 5000),
)
SLOWEST: Final = 5.0
"""Seconds of processor time that reading one text may take, which has a few thousand characters."""


def mutated(source: random.Random, corpus: Sequence[str]) -> str:
    """A table of the corpus with some random changes."""
    text = source.choice(corpus)
    for _ in range(source.randint(1, 8)):
        start = source.randint(0, len(text))
        end = min(len(text), start + source.choice((0, 1, 1, 3, 20)))
        change = source.choice(_CHANGES)
        text = text[:start] + change(source, text[start:end], corpus) + text[end:]
    return text[:20_000]


_CHANGES: Final[Sequence[Callable[[random.Random, str, Sequence[str]], str]]] = (
    lambda _source, _part, _corpus: "",
    lambda _source, part, _corpus: part * 2,
    lambda _source, part, _corpus: part.swapcase(),
    lambda source, part, _corpus: part + source.choice(PIECES),
    lambda source, _part, _corpus: source.choice(PIECES),
    lambda source, _part, _corpus: chr(source.randrange(0x250)),
    lambda source, part, corpus: part + source.choice(corpus)[source.randrange(50) :],
)


def check(text: str) -> None:
    """What holds for any text.

    Raises:
        AssertionError: It does not hold for this one.
    """
    began = time.process_time()
    for strict in (True, False):
        result = parse(text, strict=strict)
        lines = text.removeprefix("\ufeff").split("\n")
        for finding in result.diagnostics:
            assert 0 <= finding.line <= len(lines), finding
            assert 0 <= finding.column <= len(finding.source_line) + 1, finding
            assert finding.render(), finding
        wrong = any(finding.severity is Severity.ERROR for finding in result.diagnostics)
        assert (result.table is None) is wrong
        if result.table is not None:
            again = parse(result.table.canonical()).table
            assert again == result.table
            assert again.hash == result.table.hash
    assert time.process_time() - began < SLOWEST


def corpus() -> list[str]:
    """The tables above and those of the test vectors."""
    vectors = json.loads(VECTORS.read_text(encoding="utf-8"))
    return [*CORPUS, *(vector["table"] for vector in vectors if "table" in vector)]


def run(seed: int, *, seconds: float = float("inf"), texts: float = float("inf")) -> int:
    """Check mutated tables until the time is up or there were enough.

    Args:
        seed: Of the random changes; the same seed makes the same texts.
        seconds: How long.
        texts: How many.

    Returns:
        How many texts were checked.
    """
    source, tables = random.Random(seed), corpus()
    end, count = time.monotonic() + seconds, 0
    while count < texts and time.monotonic() < end:
        text = mutated(source, tables)
        try:
            check(text)
        except Exception:
            sys.stderr.write(f"seed {seed}, text {count}: {text!r}\n")
            raise
        count += 1
    return count


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description="Fuzz the parser of rules tables.")
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--seed", type=int, default=random.randrange(2**32))
    options = parser.parse_args()
    sys.stdout.write(f"seed {options.seed}\n")
    count = run(options.seed, seconds=options.seconds)
    sys.stdout.write(f"{count} texts, nothing found\n")


if __name__ == "__main__":
    main()
