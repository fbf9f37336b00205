"""PyFlink's Table API with the exactly-once sink of Flink's Kafka connector, on a local cluster.

Its DataStream API reads values only: headers, keys and offsets are to be had as columns of a table.

Arguments: broker, name, source, rules, folder, jars separated by colons.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from benchmarks.peers.matching import Router
from pyflink.table import DataTypes, EnvironmentSettings, TableEnvironment, TableFunction
from pyflink.table.udf import FunctionContext, udtf

_SETTINGS: Final = {
    "parallelism.default": "2",
    "pipeline.object-reuse": "true",
    "execution.checkpointing.interval": "1 s",
    "execution.checkpointing.storage": "filesystem",
}
_PRODUCER: Final = {
    "transaction.timeout.ms": "600000",
    "linger.ms": "20",
    "batch.size": "262144",
    "buffer.memory": "67108864",
    "compression.type": "lz4",
}
_BYTES: Final = {
    "connector": "kafka",
    "key.format": "raw",
    "key.fields": "key",
    "value.format": "raw",
    "value.fields-include": "EXCEPT_KEY",
}
_MAP: Final = DataTypes.MAP(DataTypes.STRING(), DataTypes.BYTES())


class Routing(TableFunction):  # type: ignore[misc] # PyFlink is in another environment
    """Topic and headers of the record to write."""

    def __init__(self, source: str, rules: str) -> None:
        self._source, self._file = source, rules

    def open(self, _context: FunctionContext) -> None:
        """Reads the rules, in the process that uses them."""
        self._router = Router(Path(self._file))

    def eval(
        self, value: bytes, headers: dict[str, bytes], partition: int, offset: int
    ) -> Iterator[tuple[str, dict[str, Any]]]:
        """One row for each record."""
        place = self._source, partition, offset
        target, kept = self._router.forwarded(place, value, headers.items())
        yield target, dict(kept)


def main() -> None:
    """Routes until the process is stopped."""
    servers, name, source, rules, folder, jars = sys.argv[1:]
    tables = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
    settings = _SETTINGS | {
        "execution.checkpointing.dir": Path(folder, "checkpoints").as_uri(),
        "pipeline.jars": ";".join(Path(jar).as_uri() for jar in jars.split(os.pathsep)),
        "python.executable": sys.executable,
        "python.client.executable": sys.executable,
    }
    for key, value in settings.items():
        tables.get_config().set(key, value)
    routing = udtf(Routing(source, rules), result_types=[DataTypes.STRING(), _MAP])
    tables.create_temporary_function("routed", routing)
    broker = {"properties.bootstrap.servers": servers}
    read = {
        "topic": source,
        "scan.startup.mode": "earliest-offset",
        "properties.group.id": name,
        "properties.isolation.level": "read_committed",
        "properties.max.poll.records": "5000",
    }
    tables.execute_sql(f"""CREATE TABLE letters (
        `key` BYTES, `value` BYTES, `headers` MAP<STRING, BYTES> METADATA,
        `partition` INT METADATA VIRTUAL, `offset` BIGINT METADATA VIRTUAL
    ) WITH ({_options(_BYTES | broker | read)})""")
    written = {
        "topic": ";".join(Router(Path(rules)).targets),
        "sink.delivery-guarantee": "exactly-once",
        "sink.transactional-id-prefix": name,
        **{f"properties.{key}": value for key, value in _PRODUCER.items()},
    }
    tables.execute_sql(f"""CREATE TABLE forwarded (
        `key` BYTES, `value` BYTES, `topic` STRING METADATA, `headers` MAP<STRING, BYTES> METADATA
    ) WITH ({_options(_BYTES | broker | written)})""")
    tables.execute_sql("""INSERT INTO forwarded
        SELECT letters.`key`, letters.`value`, chosen.topic, chosen.kept
        FROM letters, LATERAL TABLE(
            routed(letters.`value`, letters.headers, letters.`partition`, letters.`offset`)
        ) AS chosen(topic, kept)
    """).wait()


def _options(options: dict[str, str]) -> str:
    return ", ".join(f"'{key}' = '{value}'" for key, value in options.items())


if __name__ == "__main__":
    main()
