"""A projection in a process of its own, to be killed.

Arguments: directory, bootstrap servers, application, and ``spark`` for Spark's Delta sink.
"""

from __future__ import annotations

import sys
from pathlib import Path

from redrive.configuration import JobConfiguration, LedgerConfiguration
from redrive.kafka.connection import Connection
from redrive.outcomes.table import LedgerTable
from redrive.streaming import projection
from redrive.streaming.projection import start_projection
from redrive.streaming.session import start_session


def make_configuration(
    directory: Path, bootstrap_servers: str, application: str
) -> JobConfiguration:
    """A job without handlers: the projection needs none."""
    return JobConfiguration(
        application=application,
        connection=Connection(bootstrap_servers=bootstrap_servers),
        handlers=(),
        directory=directory,
        ledger=LedgerConfiguration(path=directory / "ledger", interval=0.2),
    )


def main() -> None:
    """Projects until killed."""
    directory, servers, application, *writer = sys.argv[1:]
    configuration = make_configuration(Path(directory), servers, application)
    session = start_session(configuration, with_delta=bool(writer))
    if writer:
        LedgerTable.create(configuration.ledger.path)
        by_spark = projection._SparkWriter(session, configuration.ledger.path)
        projection._writer = lambda *_: by_spark
    query = start_projection(session, configuration)
    assert query is not None
    query.awaitTermination()


if __name__ == "__main__":
    main()
