"""A fuzz target for records: whatever a record holds, deciding about it gives one outcome.

Dead letters of every scheme are cut, stretched, overwritten and given wrong headers, null keys and
values, and names that are not UTF-8; Redrive's own headers are forged.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Final

import orjson
from tests.conformance.vectors import load, octets
from tests.engine.known_cluster import OPEN
from tests.engine.samples import handler_of, slice_of, written

from redrive.engine.rules_decider import RulesDecider
from redrive.engine.sources import SourceKind
from redrive.messages import DeadLetterHeader, Headers, Records, encode_header
from redrive.messages import own_headers as own

Record = tuple[bytes | None, bytes | None, Headers]
"""Key, value and headers."""
Decision = tuple[list[Record], RulesDecider, SourceKind]
"""Records, and what decides about them."""

VECTORS: Final = Path(__file__).parents[1] / "vectors"
TABLES: Final = (
    """RETRYINT(1)
REASON(2053) ACTION(RETRY) RETRY(2)
REASON(2035) ACTION(FWD) FWDQ('target') HEADER(NO)
DESTQ(?*) REPLYQ('A*') ACTION(FWD) FWDQ(&REPLYQ) FWDQM(&DESTQM)
MSGTYPE(8) ACTION(DISCARD)
""",
    """DIALECT(KAFKA) RETRYINT(1)
SCHEME(connect) ERRCLASS('*Exception') ACTION(RETRY) RETRY(3) BACKOFF(1s,2,8s)
HEADER('x',/a+/) ACTION(FWD) FWDT('t.&TOPIC') HEADER(NO)
JSON('$.a[0].b',*) ACTION(DISCARD)
SIZE(>100) AGE(>1s) ACTION(QUARANTINE)
ACTION(RETRY)
""",
)
NUMBERS: Final = (b"", b"8", b"-1", b"2053", b"9" * 400, b"\0\0\0\1", b"\xff" * 8, b"1e9", None)
_HANDLERS: Final = [handler_of(table) for table in TABLES]
ROWS: Final = 100
"""Records that are decided together."""


@cache
def corpus() -> list[Record]:
    """The dead letters of the test vectors, and binary ones."""
    records: list[Record] = [
        (
            octets(vector["key"]),
            octets(vector["value"]),
            [(name, octets(value)) for name, value in vector["headers"]],
        )
        for vector in load(VECTORS, "schemes")
    ]
    for reason in (2053, 2035, 2085, 0, -1):
        for queue in ("target", "nowhere", "", "x/y%z"):
            header = DeadLetterHeader(reason=reason, dest_q_name=queue, format="MQSTR")
            records.append((b"k", encode_header(header) + b"body", []))
    return records


def mutated(source: random.Random) -> Decision:
    """Some damaged records, and who decides about them."""
    some = [_mutated(source, corpus()) for _ in range(ROWS)]
    kind = source.choice((SourceKind.DEAD_LETTERS, SourceKind.DEAD_LETTERS, SourceKind.RETRIES))
    return some, source.choice(_HANDLERS), kind


def _mutated(source: random.Random, samples: Sequence[Record]) -> Record:
    key, value, headers = source.choice(samples)
    damaged = bytearray(value or b"")
    for _ in range(source.choice((0, 1, 1, 2, 8))):
        damage(damaged, source)
    pairs = list(headers)
    for _ in range(source.choice((0, 0, 1, 3, 9))):
        _mix(pairs, source, samples)
    if source.random() < 0.1:
        _unreadable(pairs, source)
    chosen = source.choice((key, key, None, b"", source.randbytes(20)))
    return chosen, None if source.random() < 0.05 else bytes(damaged), pairs


def damage(value: bytearray, source: random.Random) -> None:
    """Cuts, stretches or overwrites some bytes."""
    at = source.randrange(len(value) + 1)
    change = source.randrange(4)
    if change == 0:
        del value[at:]
    elif change == 1 and at < len(value):
        value[at] = source.randrange(256)
    elif change == 2:
        value[at:at] = source.randbytes(source.randrange(20))
    else:
        del value[: source.randrange(20)]


def _mix(pairs: Headers, source: random.Random, samples: Sequence[Record]) -> None:
    """Takes a header out, doubles one, gives one another value, or adds one of elsewhere."""
    change = source.randrange(4)
    if change == 0 or not pairs:
        others = source.choice(samples)[2] or [("", b"")]
        names = (source.choice(others)[0], source.choice(sorted(own.WAITING)), own.HOPS, "\u2603")
        pairs.append((source.choice(names), source.choice(NUMBERS)))
        return
    at = source.randrange(len(pairs))
    name, value = pairs[at]
    if change == 1:
        del pairs[at]
    elif change == 2:
        pairs.insert(source.randrange(len(pairs)), (name, value))
    else:
        text = bytearray(value or b"")
        damage(text, source)
        pairs[at] = name, source.choice((bytes(text), *NUMBERS))


def _unreadable(pairs: Headers, source: random.Random) -> None:
    """Makes a name one that is not UTF-8, as the reader hands on such a record."""
    name = (source.randbytes(3) + b"\xff").decode(errors="replace")
    pairs.insert(source.randrange(len(pairs) + 1), (name, source.choice(NUMBERS)))
    pairs.append((own.UNREADABLE, source.choice((b"the name of header 1", *NUMBERS))))


def check(decision: Decision) -> None:
    """Decide about some records, which must give one outcome each.

    Raises:
        AssertionError: It did not.
    """
    records, handler, kind = decision
    rows = Records(
        [key for key, _, _ in records],
        [value for _, value, _ in records],
        [headers for _, _, headers in records],
        [5] * len(records),
        list(range(len(records))),
    )
    entries = OPEN.decided(slice_of(rows, handler, kind=kind, topic="DLQ", partition=0))
    outcomes = [record.value or b"" for record in written(entries, "OUT")]
    offsets = sorted(orjson.loads(value)["offset"] for value in outcomes)
    assert offsets == list(range(len(records))), offsets
