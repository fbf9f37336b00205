"""Fuzz target: whatever bytes a script holds, reading it ends with commands and findings."""

from __future__ import annotations

import random

from redrive.diagnostics import Diagnostic
from redrive.topology.mq.reader import read_mqsc
from redrive.topology.mq.script import decode_script

SEEDS = (
    "DEFINE QLOCAL('A') +\n*  ALTDATE(2024-01-01) +\n  DESCR('it''s') MAXDEPTH(5) +\n  REPLACE\n",
    "def qr(b) rname(c) rqmname(' ') xmitq(x) ; DEF QA(d) TARGQ(b) TARGTYPE(QUEUE)\n",
    "ALTER QMGR DEADQ(DLQ) DEFXMITQ('X') FORCE\nDEF QM(M) DEFTYPE(PERMDYN) LIKE(N)\n",
    "DEF CHL(A.B) CHLTYPE(SDR) CONNAME('h(1414),g(1)') XMITQ(X) USEDLQ(NO)\nEND\n",
    "DEF NL(N) NAMES(A, 'b', C-\n   D) ; SUSPEND QMGR CLUSNL(N)\n* Queue manager name: Q\n",
    "SET CHLAUTH('*') TYPE(ADDRESSMAP) ADDRESS('*')\n DEL QL(A) PURGE\nDEF QL(A) SHARE NOSHARE\n",
)
TOKENS = (
    *("'", "''", "(", ")", "()", "(' ')", "+", "+\n", "-\n", ";", ",", " ", "\n", "\r", "*", "\t"),
    *("DEF ", "ALTER ", "DELETE ", "QL", "QR", "QA", "QM", "CHL", "NL", "QMGR", "(A)", "END\n"),
    *("LIKE(A)", "REPLACE", "MAXDEPTH(9)", "CLUSTER(C)", "\0", "é", "\u2018", "9" * 5000),
)


def check(data: bytes) -> None:
    """Read a script and hold what always holds.

    Args:
        data: The bytes of a file.

    Raises:
        AssertionError: A finding lies outside the text.
    """
    text = decode_script(data, file="fuzz.mqsc")
    if isinstance(text, Diagnostic):
        assert text.message
        return
    result = read_mqsc(text, queue_manager="FUZZ")
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    for finding in result.diagnostics:
        assert finding.source_line == lines[finding.line - 1]
        assert 1 <= finding.column <= len(finding.source_line) + 1
        assert finding.render()


def mutated(source: random.Random) -> bytes:
    """A script made from pieces of good ones, with tokens put in, taken out and turned over."""
    text = "".join(source.choices(SEEDS, k=source.randint(1, 3)))
    for _ in range(source.randint(0, 8)):
        at = source.randrange(len(text) + 1)
        end = min(len(text), at + source.choice((0, 0, 1, 3, 20)))
        text = text[:at] + source.choice(TOKENS) + text[end:]
    data = bytearray(text.encode())
    if source.random() < 0.05:
        data[source.randrange(len(data))] = source.randrange(256)
    return bytes(data)
