"""A job on topics of its own, and outcome records of all kinds."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from kafka.admin import NewTopic
from tests.configurations import write_settings
from tests.conftest import KafkaClient
from tests.outcomes.projected_job import Job
from tests.outcomes.projection_process import make_configuration
from tests.outcomes.small_job import SmallJob

from redrive.settings import read_settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_numbers = itertools.count(1)

RULES = """\
RETRYINT(60)
REASON(MQRC_Q_FULL) ACTION(RETRY) RETRY(3)
REASON(MQRC_UNKNOWN_OBJECT_NAME) ACTION(FWD) FWDQ('{target}') HEADER(YES)
REASON(MQRC_PUT_INHIBITED) ACTION(DISCARD)
"""

KEPT = {"retention.ms": "-1"}
"""As the job makes its topics: the broker would delete records of the past half a minute later."""
COMPACTED = {"cleanup.policy": "compact"}


@pytest.fixture
def now() -> int:
    """This moment in milliseconds."""
    return int(time.time() * 1000)


@pytest.fixture
def small_job(kafka: KafkaClient, tmp_path: Path) -> Iterator[SmallJob]:
    """A handler ``orders`` with two partitions and a target topic, ready to step."""
    application = f"ledger{next(_numbers)}"
    # Names that FWDQ takes: 48 characters, no hyphen.
    topic, target = f"{application}.orders.dlq", f"{application}.target"
    config = write_settings(
        tmp_path, handlers={"orders": topic}, rules=RULES.format(target=target),
        application=application, directory=Path("state"), servers=kafka.bootstrap_servers,
    )  # fmt: skip
    configuration = read_settings(config).job
    identity = configuration.handlers[0].identity
    kafka.admin.create_topics(
        [
            NewTopic(topic, 2, 1, topic_configs=KEPT),
            NewTopic(target, 1, 1, topic_configs=KEPT),
            NewTopic(identity.retry_topic, 2, 1, topic_configs=KEPT),
            NewTopic(identity.remaining_topic, 2, 1, topic_configs=COMPACTED),
            NewTopic(configuration.outcomes_topic, 3, 1, topic_configs=KEPT),
            NewTopic(configuration.control_topic, 1, 1, topic_configs=COMPACTED),
            NewTopic(configuration.tables_topic, 1, 1, topic_configs=COMPACTED),
        ],
        wait_for_metadata=True,
    )
    job = SmallJob(configuration, target, str(config), kafka)
    yield job
    job.close()


@pytest.fixture
def job(kafka: KafkaClient, spark: SparkSession, tmp_path: Path) -> Job:
    """A job whose outcomes topic exists and is empty."""
    application = kafka.topic("app").removesuffix(".app")
    configuration = make_configuration(tmp_path, kafka.bootstrap_servers, application)
    kafka.create(configuration.outcomes_topic, partitions=3, config=KEPT)
    return Job(spark, configuration, kafka)
