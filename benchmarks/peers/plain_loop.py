"""A loop of confluent-kafka in transactions, in one process or in several."""

from __future__ import annotations

import gc
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from benchmarks.peers.matching import Router
from confluent_kafka import Consumer, Producer, TopicPartition

PARTITIONS: Final = 8
_AT_ONCE: Final = 10_000


def run(servers: str, name: str, source: str, rules: Path, partitions: Sequence[int]) -> None:
    """Routes what some partitions hold, until the process is stopped."""
    router = Router(rules)
    consumer = Consumer(
        {
            "bootstrap.servers": servers, "group.id": name, "enable.auto.commit": False,
            "isolation.level": "read_committed", "queued.min.messages": 50_000,
        }
    )  # fmt: skip
    producer = Producer(
        {
            "bootstrap.servers": servers, "transactional.id": f"{name}-{partitions[0]}",
            "linger.ms": 20, "compression.type": "lz4", "batch.size": 512 * 1024,
            "queue.buffering.max.messages": 2 * _AT_ONCE, "delivery.report.only.error": True,
        }
    )  # fmt: skip
    producer.init_transactions(60)
    gc.collect()
    gc.freeze()
    gc.disable()  # a loop has no cycles to find, and the search costs a tenth
    consumer.assign([TopicPartition(source, number, 0) for number in partitions])
    while True:
        messages = consumer.consume(_AT_ONCE, 0.5)
        if not messages:
            continue
        producer.begin_transaction()
        position: dict[int, int] = {}
        message: Any  # its stub allows None where a consumed record has none
        for message in messages:
            if error := message.error():
                raise SystemExit(str(error))
            partition, offset, value = message.partition(), message.offset(), message.value()
            place = source, partition, offset
            target, headers = router.forwarded(place, value, message.headers())
            producer.produce(target, value, message.key(), headers=headers)
            position[partition] = offset + 1
        offsets = [TopicPartition(source, number, at) for number, at in position.items()]
        producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata())
        producer.commit_transaction()


def main() -> None:
    """Arguments: broker, name, source, rules, number of processes or ``p`` and partitions."""
    servers, name, source, rules, how, *chosen = sys.argv[1:]
    if how == "p":
        run(servers, name, source, Path(rules), [int(number) for number in chosen])
    if how == "1":
        run(servers, name, source, Path(rules), range(PARTITIONS))
    width = PARTITIONS // int(how)
    given = [sys.executable, "-m", "benchmarks.peers.plain_loop"]
    given += [servers, name, source, rules, "p"]
    processes = [
        subprocess.Popen([*given, *map(str, range(first, first + width))])
        for first in range(0, PARTITIONS, width)
    ]
    for process in processes:
        process.wait()


if __name__ == "__main__":
    main()
