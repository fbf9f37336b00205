"""One secure broker for all tests, and the fixtures of the job's own tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from kafka import KafkaAdminClient
from pyspark.sql import SparkSession
from tests.security.secure_broker import SecureBroker, secure_broker
from tests.streaming.conftest import start_job

from redrive.kafka.access import check_access
from redrive.kafka.connection import Connection
from redrive.streaming.kafka_options import kafka_options

__all__ = ["secure", "start_job"]


@pytest.fixture(scope="session")
def secure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureBroker]:
    with secure_broker(tmp_path_factory.mktemp("secure")) as broker:
        yield broker


def assert_every_client_is_let_in(connection: Connection, spark: SparkSession) -> None:
    """librdkafka, kafka-python and Java."""
    check_access(connection)
    admin = KafkaAdminClient(**connection.kafka_python())
    assert isinstance(admin.list_topics(), list)
    admin.close()
    options = {**kafka_options(spark, connection), "subscribePattern": ".*"}
    assert spark.read.format("kafka").options(**options).load().count() >= 0
