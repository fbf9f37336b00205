"""A dataflow of Bytewax, at least once. Arguments: broker, name, source, rules, folder."""

from __future__ import annotations

import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

from benchmarks.peers.matching import Router
from bytewax import operators
from bytewax.connectors.kafka import KafkaSinkMessage
from bytewax.connectors.kafka import operators as kafka
from bytewax.dataflow import Dataflow
from bytewax.recovery import RecoveryConfig, init_db_dir
from bytewax.run import cli_main


def main() -> None:
    """Routes until the process is stopped."""
    servers, name, source, rules, folder = sys.argv[1:]
    router = Router(Path(rules))
    database = Path(folder, "recovery")
    database.mkdir()
    init_db_dir(database, 1)

    def routed(record: Any) -> Any:  # noqa: ANN401 - Bytewax is in another environment
        place = source, record.partition, record.offset
        target, headers = router.forwarded(place, record.value, record.headers)
        return KafkaSinkMessage(record.key, record.value, topic=target, headers=headers)

    flow = Dataflow(name)
    read = kafka.input("read", flow, brokers=[servers], topics=[source], batch_size=10_000)
    written = {"linger.ms": "20", "compression.type": "lz4", "batch.size": "524288"}
    kafka.output(
        "write",
        operators.map("route", read.oks, routed),
        brokers=[servers],
        topic=router.targets[-1],
        add_config=written,
    )
    cli_main(
        flow,
        workers_per_process=1,
        epoch_interval=timedelta(seconds=1),
        recovery_config=RecoveryConfig(str(database)),
    )


if __name__ == "__main__":
    main()
