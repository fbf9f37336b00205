"""Spark queries for a ledger that is too large for one process."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from redrive.configuration import JobConfiguration, LedgerFolder
from redrive.errors import EnvironmentFault
from redrive.outcomes.inventory import Engine
from redrive.outcomes.rows import Values
from redrive.outcomes.storage import local_path
from redrive.streaming.session import start_session


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
