"""A fuzz target for the parser of rules tables.

Tables of the corpus are cut, joined and altered at random. Whatever comes of it, reading it must
not raise, must not take long, must give either a table or errors whose places exist, and a table
must survive being written and read again.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Final

from redrive.diagnostics import Severity
from redrive.rules import parse
from redrive.rules.keywords import KEYWORDS

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


@cache
def corpus() -> tuple[str, ...]:
    """The tables above and those of the test vectors."""
    vectors = json.loads(VECTORS.read_text(encoding="utf-8"))
    return *CORPUS, *(vector["table"] for vector in vectors if "table" in vector)


def mutated(source: random.Random) -> str:
    """A table of the corpus with some random changes."""
    text = source.choice(corpus())
    for _ in range(source.randint(1, 8)):
        start = source.randint(0, len(text))
        end = min(len(text), start + source.choice((0, 1, 1, 3, 20)))
        change = source.choice(_CHANGES)
        text = text[:start] + change(source, text[start:end]) + text[end:]
    return text[:20_000]


_CHANGES: Final[Sequence[Callable[[random.Random, str], str]]] = (
    lambda _source, _part: "",
    lambda _source, part: part * 2,
    lambda _source, part: part.swapcase(),
    lambda source, part: part + source.choice(PIECES),
    lambda source, _part: source.choice(PIECES),
    lambda source, _part: chr(source.randrange(0x250)),
    lambda source, part: part + source.choice(corpus())[source.randrange(50) :],
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
