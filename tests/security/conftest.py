"""One secure broker for all tests, and the fixtures of the job's own tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.security.secure_broker import SecureBroker, secure_broker
from tests.streaming.conftest import spark, start_job

__all__ = ["secure", "spark", "start_job"]


@pytest.fixture(scope="session")
def secure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureBroker]:
    with secure_broker(tmp_path_factory.mktemp("secure")) as broker:
        yield broker
