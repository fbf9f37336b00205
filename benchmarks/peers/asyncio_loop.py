"""A loop of aiokafka in transactions. Arguments: broker, name, source, rules, folder."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Final

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from benchmarks.peers.matching import Router

_AT_ONCE: Final = 10_000


async def run(servers: str, name: str, source: str, rules: Path) -> None:
    """Routes until the process is stopped."""
    router = Router(rules)
    consumer = AIOKafkaConsumer(
        source,
        bootstrap_servers=servers,
        group_id=name,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
        max_partition_fetch_bytes=8 << 20,
    )
    producer = AIOKafkaProducer(
        bootstrap_servers=servers,
        transactional_id=name,
        compression_type="lz4",
        linger_ms=20,
        max_batch_size=256 * 1024,
    )
    async with consumer, producer:
        while True:
            batches = await consumer.getmany(timeout_ms=500, max_records=_AT_ONCE)
            if not batches:
                continue
            async with producer.transaction():
                for lane, records in batches.items():
                    for record in records:
                        place = source, lane.partition, record.offset
                        target, headers = router.forwarded(place, record.value, record.headers)
                        await producer.send(target, record.value, record.key, headers=headers)
                positions = {lane: records[-1].offset + 1 for lane, records in batches.items()}
                await producer.send_offsets_to_transaction(positions, name)


if __name__ == "__main__":
    _servers, _name, _source, _rules, _ = sys.argv[1:]
    asyncio.run(run(_servers, _name, _source, Path(_rules)))
