"""A job that nothing runs yet."""

from __future__ import annotations

from pathlib import Path

import pytest

from redrive.configuration import JobConfiguration, LedgerConfiguration
from redrive.kafka.connection import Connection


@pytest.fixture
def job(tmp_path: Path) -> JobConfiguration:
    """A job without queues, whose folder is there and whose broker is not."""
    return JobConfiguration(
        application="orders",
        connection=Connection(bootstrap_servers="localhost:1"),
        handlers=(),
        directory=tmp_path,
        ledger=LedgerConfiguration(path=tmp_path / "ledger"),
    )
