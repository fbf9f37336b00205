"""The ledger in Spark: for queries that are too large for one process, and as a frame."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import reduce
from typing import TYPE_CHECKING

from redrive.configuration import JobConfiguration, LedgerFolder
from redrive.engine.outcome import COLUMNS
from redrive.errors import EnvironmentFault
from redrive.outcomes.inventory import Engine
from redrive.outcomes.ledger import Ledger
from redrive.outcomes.rows import Values
from redrive.outcomes.storage import is_remote, local_path
from redrive.outcomes.table import arrow_of
from redrive.streaming.session import start_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@contextmanager
def spark_engine(
    configuration: JobConfiguration, tables: Mapping[str, LedgerFolder]
) -> Iterator[Engine]:
    """Spark SQL over Delta tables, while the context is open.

    Args:
        configuration: The job, whose master and Spark properties are used.
        tables: Folder of each table, by its name in queries.

    Yields:
        A function from a query to its rows; the driver holds one partition of them at a time.

    Raises:
        EnvironmentFault: Java is missing, jars are missing or wrong, or Spark does not answer.
    """
    session = start_session(configuration, with_delta=True)
    from delta.tables import DeltaTable  # noqa: PLC0415 - imports pyspark
    from pyspark.errors import PySparkException  # noqa: PLC0415 - as above

    def answered(query: str) -> Iterator[Values]:
        for row in session.sql(query).toLocalIterator():
            yield row.asDict()

    try:
        for name, path in tables.items():
            table = DeltaTable.forPath(session, str(local_path(path).absolute()))
            table.toDF().createOrReplaceTempView(name)
        yield answered
    except PySparkException as error:
        cause = str(error).partition("\n")[0]
        raise EnvironmentFault(
            f"Spark could not read the ledger: {cause}",
            hint="--no-spark reads it in this process",
        ) from error
    finally:
        session.stop()


def ledger_frame(session: SparkSession, ledger: Ledger) -> DataFrame:
    """All outcomes of a ledger, with the columns of its table.

    Executors read the files of a table in a folder, so the session needs no Delta. The rows of a
    table in an object store, whose credentials Spark may lack, pass through the driver.
    """
    schema = ", ".join(f"{column.name} {column.kind}" for column in COLUMNS)
    frames = [session.createDataFrame(arrow_of(ledger.tail))] if ledger.tail else []
    if ledger.table is not None and is_remote(ledger.table.path):
        frames.append(
            session.createDataFrame(ledger.table.stream("SELECT * FROM ledger").read_all())
        )
    elif ledger.table is not None and (files := ledger.table.delta.file_uris()):
        folder = str(local_path(ledger.table.path).absolute())
        frames.append(session.read.option("basePath", folder).schema(schema).parquet(*files))
    names = [column.name for column in COLUMNS]
    empty = session.createDataFrame([], schema)
    return reduce(lambda frame, other: frame.unionByName(other.select(*names)), frames, empty)
