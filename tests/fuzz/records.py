"""A fuzz target for records: whatever a record holds, deciding about it gives one outcome.

    python -m tests.fuzz.records --records 100000 --seed 1

Dead letters of every scheme are cut, stretched, overwritten and given wrong headers, null keys and
values, and names that are not UTF-8; Redrive's own headers are forged. A record that breaks
something is printed with its seed.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import orjson
import yaml
from tests.engine.known_cluster import OPEN
from tests.engine.samples import handler_of

from redrive.engine.facts import Facts
from redrive.engine.rules_decider import RulesDecider
from redrive.engine.slice import Slice, SliceSettings
from redrive.engine.sources import PartitionRecords, SourceKind
from redrive.messages import (
    DeadLetterDecoder,
    DeadLetterHeader,
    Headers,
    Records,
    TopicPartition,
    encode_header,
)
from redrive.messages import own_headers as own

Record = tuple[bytes | None, bytes | None, Headers]
"""Key, value and headers."""

VECTORS: Final = Path(__file__).parents[1] / "vectors" / "schemes.yaml"
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
ROWS: Final = 100
"""Records that are decided together."""


def corpus() -> list[Record]:
    """The dead letters of the test vectors, and binary ones."""
    vectors = yaml.safe_load(VECTORS.read_text(encoding="utf-8"))
    found: list[Record] = [
        (
            _bytes(one.get("key")),
            _bytes(one.get("value")),
            [(name, _bytes(value)) for name, value in one.get("headers", ())],
        )
        for one in vectors
    ]
    for reason in (2053, 2035, 2085, 0, -1):
        for queue in ("target", "nowhere", "", "x/y%z"):
            header = DeadLetterHeader(reason=reason, dest_q_name=queue, format="MQSTR")
            found.append((b"k", encode_header(header) + b"body", []))
    return found


def _bytes(value: Any) -> bytes | None:
    if value is None or "hex" in value:
        return None if value is None else bytes.fromhex(value["hex"])
    if "text" in value:
        return str(value["text"]).encode()
    [(kind, number)] = value.items()
    return int(number).to_bytes(4 if kind == "int32be" else 8, "big", signed=True)


def mutated(source: random.Random, samples: Sequence[Record]) -> Record:
    """One damaged record."""
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


def check(records: Sequence[Record], handler: RulesDecider, kind: SourceKind) -> None:
    """Decide about some records, which must give one outcome each.

    Raises:
        AssertionError: It did not.
    """
    rows = Records(
        [key for key, _, _ in records],
        [value for _, value, _ in records],
        [headers for _, _, headers in records],
        [5] * len(records),
        list(range(len(records))),
    )
    part = PartitionRecords(TopicPartition("DLQ", 0), handler, kind, rows)
    settings = SliceSettings(outcomes_topic="OUT", now=90_000)
    work = Slice([part], DeadLetterDecoder(), Facts(lambda: 0.0), settings)
    told = [record.value or b"" for _, record in OPEN.decided(work) if record.topic == "OUT"]
    offsets = sorted(orjson.loads(value)["offset"] for value in told)
    assert offsets == list(range(len(records))), offsets


def run(seed: int, records: int) -> int:
    """Check damaged records.

    Args:
        seed: Of the damage; the same seed makes the same records.
        records: How many, at least.

    Returns:
        How many were checked.
    """
    source, samples = random.Random(seed), corpus()
    handlers = [handler_of(table) for table in TABLES]
    done = 0
    while done < records:
        some = [mutated(source, samples) for _ in range(ROWS)]
        kind = source.choice((SourceKind.DEAD_LETTERS, SourceKind.DEAD_LETTERS, SourceKind.RETRIES))
        handler = source.choice(handlers)
        try:
            check(some, handler, kind)
        except Exception:
            sys.stderr.write(f"seed {seed}, records {done} and on, as {kind}: {some!r}\n")
            raise
        done += len(some)
    return done


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description="Fuzz the decision about records.")
    parser.add_argument("--records", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=None)
    options = parser.parse_args()
    seed = random.SystemRandom().randrange(1 << 31) if options.seed is None else options.seed
    sys.stdout.write(f"seed {seed}\n")
    sys.stdout.write(f"{run(seed, options.records)} records, one outcome each\n")


if __name__ == "__main__":
    main()
