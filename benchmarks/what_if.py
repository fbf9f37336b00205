"""How long ``redrive plan`` takes over a million messages with two tables of a thousand rules.

    python -m benchmarks.what_if [--records 1000000] [--json]

Dead letters of 500 bytes with eight headers in 4 partitions, of a thousand kinds. They lie unread
on a dead-letter queue, and as remaining copies on the topic where the job keeps them. The second
table differs from the first in its last rules. Timed is the whole process of the command, and what
it says of reading and deciding alone.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from benchmarks.clients import Pairs, Sent, create, produce
from benchmarks.command_line import broker, parser, show
from benchmarks.job import BODY, MD, PARTITIONS
from kafka.admin import NewTopic

from redrive.configuration import HandlerConfiguration
from redrive.messages import DeadLetterHeader, encode_header
from redrive.settings import read_settings

GOAL: Final = 10.0
"""Seconds for reading and deciding."""
RULES: Final = 1_000
QUEUES: Final = 200
REASONS: Final = (2053, 2085, 2035, 2051, 2030)
_CHANGES: Final = 2
"""The exit code of the command if anything changes."""

SETTINGS: Final = """[application]
name = "whatif"
directory = "job"
[kafka]
bootstrap_servers = "{servers}"
[[handlers]]
queue = "backlog"
name = "backlog"
rules = "old.rul"
"""


def main() -> int:
    """Measures, prints, and returns 1 if the goal is missed."""
    arguments = parser(__doc__, records=1_000_000).parse_args()
    with broker() as (folder, servers):
        settings = prepared(folder, servers, arguments.records)
        seconds = {over: timed(settings, over) for over in ("backlog", "remaining")}
    if arguments.json:
        show({"records": arguments.records, "seconds": seconds})
    else:
        for over, (whole, inner) in seconds.items():
            print(f"{over:<12}{inner:>6.1f} s, whole process {whole:.1f} s   goal {GOAL:g} s")
    return 0 if max(inner for _, inner in seconds.values()) < GOAL else 1


def prepared(folder: Path, servers: str, count: int) -> Path:
    """Settings, tables and messages."""
    settings = folder / "redrive.toml"
    settings.write_text(SETTINGS.format(servers=servers))
    rules = [
        f"DESTQ('Q{n % QUEUES}') REASON({REASONS[n % 5]}) USERID('u{n}*')"
        f" ACTION(FWD) FWDQ(T{n % 9})"
        for n in range(RULES - 2)
    ]
    (folder / "old.rul").write_text("\n".join([*rules, "REASON(2053) ACTION(RETRY)", ""]))
    end = ["REASON(2053) DESTQ('Q1*') ACTION(DISCARD)", "ACTION(FWD) FWDQ(REST)", ""]
    (folder / "new.rul").write_text("\n".join([*rules, *end]))
    [handler] = read_settings(settings).job.handlers
    compacted = {"cleanup.policy": "compact"}
    create(
        servers,
        NewTopic("backlog", PARTITIONS, 1),
        NewTopic(handler.identity.remaining_topic, PARTITIONS, 1, topic_configs=compacted),
        *(NewTopic(name, 1, 1) for name in ("REST", *(f"T{n}" for n in range(9)))),
    )
    fill(servers, "backlog", count, lambda _: [])
    fill(servers, handler.identity.remaining_topic, count, own_headers(handler))
    return settings


def own_headers(handler: HandlerConfiguration) -> Callable[[int], Pairs]:
    """What the job adds to a copy that remains."""

    def added(number: int) -> Pairs:
        place = f"{handler.identity.topic}:0:{number}".encode()
        return [
            ("redrive.id", place),
            ("redrive.origin", place),
            ("redrive.timestamp", b"1700000000000"),
            ("redrive.hops", b"0"),
            ("redrive.failures", b"1"),
            ("redrive.table", b"0123456789abcdef"),
        ]

    return added


def fill(servers: str, topic: str, count: int, more: Callable[[int], Pairs]) -> None:
    """Writes dead letters of a thousand kinds."""
    values = [
        encode_header(DeadLetterHeader(reason=reason, dest_q_name=f"Q{n}", format="MQSTR")) + BODY
        for n in range(QUEUES)
        for reason in REASONS
    ]
    produce(
        servers,
        (
            Sent(
                topic, number % PARTITIONS, values[number * 7919 % len(values)],
                [*MD, ("JMS_IBM_MQMD_MsgId", b"%048d" % number), *more(number)], b"k%d" % number,
            )
            for number in range(count)
        ),
    )  # fmt: skip


def timed(settings: Path, over: str) -> tuple[float, float]:
    """Seconds of the whole process, and of reading and deciding."""
    command = [sys.executable, "-m", "redrive", "plan", "new.rul", "--over", over, "--json"]
    begun = time.monotonic()
    done = subprocess.run(command, check=False, capture_output=True, cwd=settings.parent)
    seconds = time.monotonic() - begun
    assert done.returncode == _CHANGES, done.stderr.decode()
    return seconds, float(json.loads(done.stdout)["seconds"])


if __name__ == "__main__":
    sys.exit(main())
