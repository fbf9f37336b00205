"""A job that nothing runs yet."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.configurations import job_of

from redrive.configuration import JobConfiguration


@pytest.fixture
def job(tmp_path: Path) -> JobConfiguration:
    """A job without queues, whose folder is there and whose broker is not."""
    return job_of(directory=tmp_path, application="orders")
