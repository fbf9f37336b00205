"""A projection in a process of its own, to be killed: directory, bootstrap servers, application."""

from __future__ import annotations

import sys
from pathlib import Path

from redrive.configuration import JobConfiguration, LedgerConfiguration
from redrive.kafka.connection import Connection
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
    configuration = make_configuration(Path(sys.argv[1]), *sys.argv[2:])
    session = start_session(configuration)
    query = start_projection(session, configuration)
    assert query is not None
    query.awaitTermination()


if __name__ == "__main__":
    main()
