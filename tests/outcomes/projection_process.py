"""A projection in a process of its own, to be killed.

Arguments: directory, bootstrap servers, application, and ``spark`` for Spark's Delta sink, or the
URL of a ledger in an S3 and where that S3 is.
"""

from __future__ import annotations

import sys
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from threading import Event

from pyspark.sql import SparkSession

from redrive.configuration import JobConfiguration, LedgerConfiguration, RemoteFolder
from redrive.errors import RedriveError
from redrive.kafka.connection import Connection
from redrive.outcomes.storage import local_path
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
    session = start_session(configuration, with_delta=writer == ["spark"])
    if writer == ["spark"]:
        path = local_path(LedgerTable.create(configuration.ledger.path).path)
        by_spark = projection._SparkWriter(session, path)
        projection._writer = lambda *_: by_spark
    elif writer:
        _project_for_ever(session, configuration, *writer)
    query = start_projection(session, configuration)
    assert query is not None
    query.awaitTermination()


def _project_for_ever(
    session: SparkSession, configuration: JobConfiguration, url: str, endpoint: str
) -> None:
    """Projects into an S3, without standing by for others."""
    options = {"endpoint": endpoint, "region": "us-east-1", "allow_http": "true"}
    folder = RemoteFolder(url=url, beside=configuration.directory / "beside", options=options)
    remote = replace(configuration, ledger=replace(configuration.ledger, path=folder))
    while True:
        superseded = Event()
        with suppress(RedriveError):
            query = start_projection(session, remote, superseded=superseded.set)
            assert query is not None
            while query.isActive and not superseded.wait(0.1):
                pass
            query.stop()


if __name__ == "__main__":
    main()
