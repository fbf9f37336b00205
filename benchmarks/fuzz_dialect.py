"""Mutated dead letters of every scheme under DIALECT(KAFKA): each an outcome, and the job alive.

First without a job: expressions from a fuzzer are read or refused, and never raise; patterns look
into JSON of 10 MB of every shape. Then the job itself, over the fixtures of all schemes: headers
renamed, repeated, cut and shuffled, keys and values replaced, a few values of 10 MB; its table has
expressions of the fuzzer too. A kafka-python reader looks for the one outcome of each.

    python -m benchmarks.fuzz_dialect --records 100000 [--seed N]
"""

from __future__ import annotations

import json
import random
import string
import sys
import time
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Final

import yaml
from benchmarks import fuzz
from benchmarks.clients import Pairs
from tests.conformance.vectors import octets

from redrive.rules import parse
from redrive.rules.patterns import FieldReader, RuleInput

FIXTURES: Final = Path(__file__).parents[1] / "tests" / "vectors" / "schemes.yaml"
EXPRESSIONS: Final = 20_000
LARGE: Final = 10_000_000
"""Bytes of a large JSON value."""
SLOWEST: Final = 5.0
"""Seconds that a large value, or an expression, may take at most."""

TABLE: Final = """DIALECT(KAFKA) WAIT(NO) RETRYINT(1)
SCHEME(share-group) PARTITION(<=2) ACTION(FWD) FWDT('target')
ERRMSG(/(a+)+$|time.?out|boom/) ACTION(RETRY) RETRY(2) BACKOFF(1s,2,2s)
JSON('$.order.items[0].sku',/^A/) ACTION(DISCARD)
JSON('$.order',1|2|3) TOPIC(/^(o|p)/) ACTION(FWD) FWDT('&TOPIC.dead')
HEADER('x-tenant',acme|globex) ACTION(QUARANTINE)
ATTEMPTS(>=3) AGE(>1h) ACTION(FWD) FWDT('target') HEADER(NO)
ROOTCLASS(*Exception) SIZE(>100) ACTION(DISCARD)
GROUP(/./) KEY(k*) ACTION(RETRY)
"""

FUZZED: Final = 20
"""Rules of the job's table whose expressions the fuzzer made."""
LARGE_VALUES: Final = 12
"""Records of a run with a large value, about."""

_MORE: Final[tuple[Pairs, ...]] = (
    [("delayed-retry-topic", b"t"), ("delayed-retry-count", b"1")],
    [("exception-type", b"a.B"), ("attempts", b"3"), ("failed-at", b"2026-01-01T00:00:00Z")],
    [("original_cluster", b"a")],
    [("x-death", b'[{"queue":"q","count":2,"time":1}]')],
    [("DeadLetterReason", b"MaxDeliveryCountExceeded")],
    [("mqdlh.Reason", b"2053"), ("mqdlh.DestQName", b"Q")],
)
"""Schemes that the fixtures don't have."""

_NAMES: Final = ("x-tenant", "", "redrive.id", "redrive.failures", "redrive.hops", "\N{SNOWMAN}")


def fixtures() -> list[Pairs]:
    """The headers of a dead letter of each scheme."""
    vectors = yaml.safe_load(FIXTURES.read_text(encoding="utf-8"))
    header_lists: list[Pairs] = [
        [(name, octets(content)) for name, content in vector["headers"]] for vector in vectors
    ]
    return [*header_lists, *_MORE]


def mutated(
    known: list[Pairs], large: Sequence[bytes], share: float, chance: random.Random
) -> tuple[bytes | None, bytes | None, Pairs]:
    """Key, value and headers of one damaged dead letter.

    Args:
        known: Headers of sound ones.
        large: Large values.
        share: The share of records that have one.
        chance: Decides.
    """
    pairs = list(chance.choice(known))
    if chance.random() < 0.2:
        pairs += chance.choice(known)
    for _ in range(chance.choice([0, 0, 1, 2, 5])):
        _damage(pairs, chance)
    value = chance.choice(
        [None, b"", b'{"order": 1}', b'{"order": {"items": [{"sku": "A"}]}}', b"[" * 3_000]
    )
    if chance.random() < 0.2:
        value = chance.randbytes(chance.choice([1, 50, 500]))
    if chance.random() < 0.1:
        value = _embedded(pairs) + (value or b"")
    if chance.random() < share:
        value = chance.choice(large)
    return chance.choice([None, b"k1", b"", chance.randbytes(20)]), value, pairs


def _embedded(pairs: Pairs) -> bytes:
    """Headers in a value, as Spring Cloud Stream embeds them, as far as they are texts."""
    texts = {name[:60]: raw.decode("latin-1") for name, raw in pairs if isinstance(raw, bytes)}
    written = [b"\xff", bytes([len(texts)])]
    for name, text in texts.items():
        raw = json.dumps(text).encode()
        written += [bytes([len(name.encode())]), name.encode(), len(raw).to_bytes(4), raw]
    return b"".join(written)


def _damage(pairs: Pairs, chance: random.Random) -> None:
    at = chance.randrange(len(pairs) + 1)
    name, raw = chance.choice(pairs) if pairs else ("x", b"")
    match chance.randrange(6):
        case 0:
            pairs.insert(at, (name, chance.randbytes(chance.randrange(12))))
        case 1 if pairs:
            del pairs[at % len(pairs)]
        case 2 if pairs:
            pairs[at % len(pairs)] = (name, (raw or b"")[: chance.randrange(9)])
        case 3:
            chance.shuffle(pairs)
        case 4:
            pairs.insert(at, (chance.choice(_NAMES), chance.choice([None, b"acme", b"9" * 30])))
        case _:
            pairs.insert(at, (name.upper(), raw))


def expressions(chance: random.Random) -> Iterator[str]:
    """Expressions of a fuzzer, without an end; most are none."""
    alphabet = "ab.*+?|()[]{}^$\\dwsQE:<>=!-,0129 " + string.ascii_letters[:3]
    while True:
        yield "".join(chance.choices(alphabet, k=chance.randrange(1, 30)))


def fuzzed_table(chance: random.Random) -> str:
    """The table of the job, with rules of the fuzzer at its end."""
    rules = (f"ERRMSG(/{text}/) ACTION(DISCARD)\n" for text in expressions(chance))
    sound = (rule for rule in rules if parse(f"DIALECT(KAFKA)\n{rule}").table is not None)
    return TABLE + "".join(islice(sound, FUZZED))


def wrong_expressions(chance: random.Random) -> Iterator[str]:
    """Expressions that are neither read nor refused, or take long."""
    read = 0
    for text in islice(expressions(chance), EXPRESSIONS):
        began = time.monotonic()
        table = parse(f"DIALECT(KAFKA)\nERRMSG(/{text}/) ACTION(DISCARD)\n").table
        if table is not None:
            read += 1
            for value in ("", "a" * 5_000, "ab" * 2_000 + "c"):
                pattern = next(iter(table.rules[0].patterns.values()))
                pattern.matches(value)
        if time.monotonic() - began > SLOWEST:
            yield f"/{text}/ took {time.monotonic() - began:.1f} s"
    print(f"{EXPRESSIONS} expressions: {read} read, {EXPRESSIONS - read} refused")


def large_values() -> dict[str, bytes]:
    """JSON of 10 MB, by its shape."""
    return {
        "one text": b'{"a": "' + b"x" * LARGE + b'"}',
        "a long list": b"[" + b"1," * (LARGE // 2) + b"1]",
        "many members": b"{" + b",".join(b'"%d":%d' % (n, n) for n in range(LARGE // 16)) + b"}",
        "deep": b"[" * LARGE,
        "deep and closed": b'{"a":' * 100_000 + b"1" + b"}" * 100_000,
        "a large number": b'{"a": ' + b"9" * LARGE + b"}",
        "cut": b'{"a": "' + b"x" * LARGE,
        "no JSON": b"\xff" * LARGE,
    }


def wrong_paths() -> Iterator[str]:
    """Large JSON values that patterns can't look into, or that take long."""
    reader = FieldReader(["JSON($.a)", "JSON($.a.b[3].c)", "JSON($[9])"])
    for name, value in large_values().items():
        began = time.monotonic()
        try:
            reader.values(RuleInput(b"k", value, [], 0, 0))
        except Exception as error:  # noqa: BLE001 - any is wrong
            yield f"{name}: {type(error).__name__}: {error}"
        seconds = time.monotonic() - began
        print(f"JSON of {len(value) / 1e6:.0f} MB, {name}: {seconds:.2f} s")
        if seconds > SLOWEST:
            yield f"{name} took {seconds:.1f} s"


def run(records: int, seed: int) -> str:
    """Runs everything; returns what is wrong, or an empty text.

    Args:
        records: How many dead letters.
        seed: Of everything random.
    """
    chance = random.Random(seed)
    problems = [*wrong_paths(), *wrong_expressions(chance)]
    if problems:
        return "\n".join(problems)
    made = partial(mutated, fixtures(), [*large_values().values()], LARGE_VALUES / records)
    return fuzz.run(records, seed, table=fuzzed_table(chance), mutated=made)


if __name__ == "__main__":
    sys.exit(fuzz.main(run, __doc__))
