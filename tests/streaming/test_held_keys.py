"""The topic of held keys, and the consumer of the page on Kafka that keeps the order of keys."""

from __future__ import annotations

import random
from collections import defaultdict
from pathlib import Path
from threading import Thread
from typing import Any, Final

import pytest
from tests.configurations import write_settings
from tests.conftest import eventually
from tests.operations.test_kafka_page import blocks
from tests.streaming.conftest import Jobs

from redrive.settings import read_settings
from redrive.streaming.held_keys import changes

TABLE: Final = """\
DIALECT(KAFKA) ORDER(KEY) RETRYINT(60) WAIT(YES)
ROOTCLASS(KeyIsHeld) ACTION(RETRY) RETRY(1) BACKOFF(1s,1,1s)
ACTION(RETRY) RETRY(5) BACKOFF(1s,2,2s)
"""
KEYS, MESSAGES = 4, 30


class _OverError(BaseException):
    """The consumer is to end; its ``except Exception`` does not take it."""


class Service:
    """Processes numbers. Every seventh fails twice; a negative one ends the consumer once."""

    def __init__(self) -> None:
        self.done: defaultdict[bytes, list[int]] = defaultdict(list)
        self.failed: defaultdict[int, int] = defaultdict(int)
        self.parked = 0

    def process(self, record: Any) -> None:
        number = int(record.value())
        if number < 0:
            self.failed[number] += 1
            if self.failed[number] == 1:
                raise _OverError
            return
        if number % 7 == 0 and self.failed[number] < 2:
            self.failed[number] += 1
            raise ValueError(number)
        self.done[record.key()].append(number)

    def run(self, program: str) -> None:
        """Runs the page's consumer until it ends."""
        space: dict[str, Any] = {"process": self.process}
        with pytest.raises(_OverError):
            exec(compile(program, "kafka.md", "exec"), space)  # noqa: S102 - the page's own
        for client in (space["consumer"], space["keys"], space["ends"]):
            client.close()
        self.parked += len(space["parked"])


def test_the_consumer_of_the_page_processes_each_key_in_order(folder: Path, jobs: Jobs) -> None:
    main, letters = jobs.topic("orders", partitions=2), jobs.topic("dlq", partitions=2)
    application = main.replace(".", "")
    scheme = next(block for block in blocks("toml") if "[schemes.billing]" in block)
    write_settings(
        folder, letters, rules=TABLE, application=application, servers=jobs.bootstrap_servers,
        more=f"held_keys = true\n[ledger]\nenabled = false\n{scheme}",
    )  # fmt: skip
    (program,) = [block for block in blocks("python") if "must_wait" in block]
    program = program.replace("redrive-orders-held-keys", f"redrive-{application}-held-keys")
    program = program.replace('"orders.dlq', f'"{letters}').replace('["orders"]', f'["{main}"]')
    program = program.replace("localhost:9092", jobs.bootstrap_servers).replace(
        "billing", application
    )
    job = jobs.start(read_settings(Path("redrive.toml")).job)
    chosen, service = random.Random(7), Service()
    wanted: defaultdict[bytes, list[int]] = defaultdict(list)
    records: list[dict[str, Any]] = []
    for number in range(MESSAGES):
        key = b"k%d" % chosen.randrange(KEYS)
        wanted[key].append(number)
        records.append({"key": key, "value": b"%d" % number, "partition": key[1] % 2})
        if number == MESSAGES // 2:
            records.append({"value": b"-1", "partition": 0})
    jobs.produce(main, records)
    service.run(program)
    second = Thread(target=service.run, args=(program,))
    second.start()
    eventually(
        lambda: {key: sorted(some) for key, some in service.done.items()} == wanted,
        "all are processed",
    )
    jobs.produce(main, [{"value": b"-2", "partition": 0}])
    second.join()
    assert service.done == wanted
    assert service.parked > 0, "some waited behind others"
    job.stop()


def test_positions_are_written_behind_the_keys_that_they_cover() -> None:
    written = {b"q/a": b"1", b"q/b": b"1", b"q:0": b"7", b"q:1": b"4"}
    entries = {b"q:0": b"9", b"q/b": b"1", b"q/0:1": b"2", b"q:1": b"4"}
    assert [*changes(written, entries)] == [(b"q/a", None), (b"q/0:1", b"2"), (b"q:0", b"9")]
    assert not [*changes(entries, entries)]
