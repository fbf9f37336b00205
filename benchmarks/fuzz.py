"""Mutated records through the running job: every one an outcome, and the job alive.

Dead letters are cut, stretched, overwritten and given wrong headers, null keys and values, bodies
of nearly a megabyte; Redrive's own headers are forged. The job runs to the end of them and a
kafka-python reader looks for the one outcome of each.

    python -m benchmarks.fuzz --records 100000 [--seed N]
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from typing import Final, TypeAlias

from benchmarks.clients import Pairs, Sent, create, produce, read_committed
from benchmarks.command_line import broker, parser
from kafka.admin import NewTopic

from redrive.messages import DeadLetterHeader, encode_header

QUEUE: Final = "fuzz.dlq"
OUTCOMES: Final = "redrive-fuzz-outcomes"
PARTITIONS: Final = 3
LARGEST: Final = 16_000_000
"""Bytes of a record that the queue takes: more than any other topic does."""
TABLE: Final = """WAIT(NO) RETRYINT(1)
REASON(2053) ACTION(RETRY) RETRY(2)
REASON(2035) ACTION(FWD) FWDQ(target) HEADER(NO)
DESTQ(?*) REPLYQ('A*') ACTION(FWD) FWDQ(&REPLYQ) FWDQM(&DESTQM)
MSGTYPE(8) ACTION(DISCARD)
""".replace("(target)", "('target')")

NAMES: Final = (
    "JMS_IBM_MQMD_Format", "JMS_IBM_MQMD_MsgType", "JMS_IBM_MQMD_ReplyToQ",
    "JMS_IBM_MQMD_CodedCharSetId", "mqdlh.Reason", "mqdlh.DestQName", "mqdlh.Encoding",
    "redrive.id", "redrive.hops", "redrive.failures", "redrive.origin", "redrive.table",
    "redrive.timestamp", "redrive.null", "redrive.key", "", "\N{SNOWMAN}",
    "__connect.errors.topic", "kafka_dlt-original-topic",
)  # fmt: skip


Mutated: TypeAlias = Callable[[random.Random], tuple[bytes | None, bytes | None, Pairs]]
"""Makes key, value and headers of one damaged record."""


def mutated(chance: random.Random) -> tuple[bytes | None, bytes | None, Pairs]:
    """Key, value and headers of one damaged record."""
    header = DeadLetterHeader(
        reason=chance.choice([2053, 2035, 2085, 0, -1]),
        dest_q_name=chance.choice(["target", "nowhere", "", "x/y%z"]),
        format=chance.choice(["MQSTR", ""]),
    )
    value = bytearray(encode_header(header) + chance.randbytes(chance.choice([0, 10, 300])))
    _damage(value, chance)
    if chance.random() < 0.001:
        value += bytes(980_000 - len(value))
    pairs: Pairs = [
        (chance.choice(NAMES), chance.choice([None, b"", b"8", b"2053", chance.randbytes(9)]))
        for _ in range(chance.choice([0, 0, 1, 3, 9]))
    ]
    key = chance.choice([None, b"", b"k", chance.randbytes(20)])
    return key, None if chance.random() < 0.05 else bytes(value), pairs


def _damage(value: bytearray, chance: random.Random) -> None:
    for _ in range(chance.choice([0, 1, 1, 2, 8])):
        match chance.randrange(4):
            case 0:
                del value[chance.randrange(len(value) + 1) :]
            case 1 if value:
                value[chance.randrange(len(value))] = chance.randrange(256)
            case 2:
                at = chance.randrange(len(value) + 1)
                value[at:at] = chance.randbytes(chance.randrange(20))
            case _:
                del value[: chance.randrange(20)]


def run(records: int, seed: int, *, table: str = TABLE, mutated: Mutated = mutated) -> str:
    """Runs the job over the fuzz; returns what is wrong, or an empty text.

    Args:
        records: How many.
        seed: Of everything random.
        table: The rules.
        mutated: Makes one damaged record.
    """
    with broker() as (folder, servers):
        create(servers, NewTopic("target", 1, 1))
        prepare(servers, QUEUE, records, seed, mutated)
        rules = folder / "fuzz.rul"
        rules.write_text(table)
        done = subprocess.run(
            [
                sys.executable, "-m", "redrive", "run", "--bootstrap-server", servers,
                "--dlq", QUEUE, "--rules", str(rules), "--application", "fuzz",
                "--directory", str(folder / "job"),
            ],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        if done.returncode:
            return f"the job ended with exit code {done.returncode}:\n{done.stderr[-3000:]}"
        return judge(servers, QUEUE, OUTCOMES, records)


def prepare(servers: str, queue: str, records: int, seed: int, mutated: Mutated = mutated) -> None:
    """Makes a queue with damaged records; arguments as those of ``run``."""
    room, chance = {"max.message.bytes": str(LARGEST)}, random.Random(seed)
    create(servers, NewTopic(queue, PARTITIONS, 1, topic_configs=room))
    made = (mutated(chance) for _ in range(records))
    sent = (
        Sent(queue, number % PARTITIONS, value, pairs, key)
        for number, (key, value, pairs) in enumerate(made)
    )
    produce(servers, sent, message_max_bytes=LARGEST)


def judge(servers: str, queue: str, outcomes: str, records: int) -> str:
    """What is wrong with the outcomes of a queue's records, or an empty text."""
    first: Counter[str] = Counter()
    results: Counter[str] = Counter()
    for record in read_committed(servers, [outcomes]):
        outcome = json.loads(record.value)
        results[outcome["result"]] += 1
        if outcome["topic"] == queue:
            first[outcome["outcome"]] += 1
    print(f"{records} in, {len(first)} with an outcome: {dict(results)}")
    twice = [name for name, count in first.items() if count > 1]
    if len(first) != records or twice:
        return f"{records - len(first)} without an outcome, {len(twice)} with two"
    return ""


def main(run: Callable[[int, int], str] = run, description: str | None = __doc__) -> int:
    """The command line.

    Args:
        run: Takes the number of records and a seed, and says what is wrong.
        description: The docstring of its module.
    """
    arguments = parser(description, records=100_000, seed=-1).parse_args()
    seed = random.SystemRandom().randrange(1 << 31) if arguments.seed < 0 else arguments.seed
    print(f"seed {seed}", flush=True)
    problem = run(arguments.records, seed)
    if problem:
        print(problem)
    return 1 if problem else 0


if __name__ == "__main__":
    sys.exit(main())
