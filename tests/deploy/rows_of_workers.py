"""A Spark job on a cluster: which executor handled each record of a topic.

``python rows_of_workers.py MASTER BOOTSTRAP_SERVERS TOPIC`` prints one line of JSON for each
partition: the number of its records and the work folder of its executor.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql import SparkSession

from redrive.java import JarGroup, find_java, jar_files


def count(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The rows of one partition, counted where they lie."""
    rows = sum(batch.num_rows for batch in batches)
    yield pa.RecordBatch.from_pylist([{"rows": rows, "folder": os.getcwd()}])  # noqa: PTH109 - str


def main(master: str, bootstrap_servers: str, topic: str) -> None:
    """Runs the job.

    Args:
        master: Spark's URL of it.
        bootstrap_servers: The broker.
        topic: What to read.
    """
    os.environ["JAVA_HOME"] = str(find_java().home)
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    session = (
        SparkSession.builder.master(master)
        .config("spark.jars", ",".join(map(str, jar_files(JarGroup.SPARK))))
        .config("spark.ui.enabled", "false")
        # Wait for both executors, so that each gets its partition.
        .config("spark.cores.max", "2")
        .config("spark.scheduler.minRegisteredResourcesRatio", "1")
        .config("spark.scheduler.maxRegisteredResourcesWaitingTime", "120s")
        .getOrCreate()
    )
    records = (
        session.read.format("kafka")
        .option("kafka.bootstrap.servers", bootstrap_servers)
        .option("subscribe", topic)
        .load()
    )
    for row in records.mapInArrow(count, "rows long, folder string").collect():
        print(json.dumps(row.asDict()))  # noqa: T201 - its output
    session.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
