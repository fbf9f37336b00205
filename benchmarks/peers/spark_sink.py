"""Spark's own Kafka source and sink, at least once, with the rules as one CASE or as a UDF."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

from benchmarks.peers.dlq_route import Form
from benchmarks.peers.matching import HEADERS, PLACES, REASON, STACK_TRACE, router_of
from pyspark.sql import SparkSession
from pyspark.sql.functions import udf

from redrive.configuration import JobConfiguration, LedgerConfiguration
from redrive.kafka.connection import Connection
from redrive.streaming.session import start_session

_BATCH: Final = 200_000
_KEPT: Final = ("key", "value", "headers", "partition", "offset")


def fields_of(form: Form) -> list[str]:
    """A column for each field of a record."""
    return [f"{text} AS `{name}`" for name, text in _expressions(form).items()]


def _expressions(form: Form) -> dict[str, str]:
    if form is Form.SPRING:
        return {
            name: f"decode(filter(headers, it -> it.key = '{header}')[0].value, 'UTF-8')"
            for name, header in HEADERS.items()
        }
    texts = {
        name: f"rtrim(decode(substring(value, {begin + 1}, {end - begin}), 'UTF-8'))"
        for name, (begin, end) in PLACES.items()
    }
    begin, end = REASON
    reason = f"hex(reverse(substring(value, {begin + 1}, {end - begin})))"
    return texts | {"REASON": f"conv({reason}, 16, 10)"}


def _route(spark: SparkSession, form: Form, rules: str) -> str:
    """The expression for target, blank, line of the rule, found by an ordered loop in Python."""

    def chosen(*fields: str) -> str:
        route = router_of(rules).first(fields)
        return f"{route.target} {route.rule.decode()}"

    spark.udf.register("chosen", udf(chosen, "string", useArrow=True))
    return f"chosen({', '.join(f'`{name}`' for name in _expressions(form))})"


def main() -> None:
    """Arguments: broker, name, source, form, folder with ``case.sql``, rules for a UDF."""
    servers, name, source, form, directory, *rules = sys.argv[1:]
    folder = Path(directory)
    configuration = JobConfiguration(
        application=name,
        connection=Connection(bootstrap_servers=servers),
        handlers=(),
        directory=folder / "job",
        ledger=LedgerConfiguration(path=folder / "ledger", enabled=False),
        driver_memory="4g",
    )
    configuration.directory.mkdir(parents=True, exist_ok=True)
    # The job's options suit the planning of many batches; many rows want the best code.
    spark = start_session(configuration, java_options=["-XX:+UseParallelGC"])
    case = (folder / "case.sql").read_text(encoding="utf-8")
    route = _route(spark, Form(form), *rules) if rules else case
    identity = f"concat('{source}:', partition, ':', offset)"
    added = [
        f"struct('{header}' AS key, encode({text}, 'UTF-8') AS value)"
        for header, text in (
            ("redrive.id", identity),
            ("redrive.rule", "substring_index(route, ' ', -1)"),
        )
    ]
    kept = f"filter(headers, it -> it.key <> '{STACK_TRACE}')"
    query = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", source)
        .option("startingOffsets", "earliest")
        .option("includeHeaders", "true")
        .option("maxOffsetsPerTrigger", str(_BATCH))
        .load()
        .selectExpr(*_KEPT, *fields_of(Form(form)))
        .selectExpr("*", f"{route} AS route")
        .selectExpr(
            "substring_index(route, ' ', 1) AS topic", "key", "value",
            f"concat({kept}, array({', '.join(added)})) AS headers",
        )
        .writeStream.format("kafka")
        .option("kafka.bootstrap.servers", servers)
        .option("kafka.batch.size", "262144")
        .option("kafka.linger.ms", "20")
        .option("kafka.compression.type", "lz4")
        .option("checkpointLocation", (folder / "checkpoint").as_uri())
        .start()
    )  # fmt: skip
    query.awaitTermination()


if __name__ == "__main__":
    main()
