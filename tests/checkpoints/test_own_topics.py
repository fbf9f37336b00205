"""Own topics made beforehand are safe, or refused with what to change."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from tests.kafka.known_topics import KnownTopics

from redrive.checkpoints.own_topics import (
    OwnTopic,
    outcomes_topic,
    remaining_topic,
    state_topic,
    waiting_topic,
)
from redrive.errors import ConfigurationError
from redrive.streaming.topics import check_own_topics

DAY = 86_400_000
RETRY, REMAINING = waiting_topic("retry", 3), remaining_topic("remaining", 3)
OUTCOMES, CONTROL = outcomes_topic("outcomes"), state_topic("control")


@pytest.mark.parametrize(
    ("topic", "existing", "corrections"),
    [
        (RETRY, {"retention.ms": "60000"}, {"retention.ms": "-1"}),
        (RETRY, {"retention.bytes": "1000000"}, {"retention.bytes": "-1"}),
        (
            RETRY,
            {"message.timestamp.type": "LogAppendTime"},
            {"message.timestamp.type": "CreateTime"},
        ),
        (RETRY, {"max.message.bytes": "500000"}, {"max.message.bytes": "67108864"}),
        (RETRY, {"max.message.bytes": "1000000"}, {}),  # larger copies refer to their originals
        (RETRY, {"cleanup.policy": "compact,delete"}, {"cleanup.policy": "delete"}),
        (REMAINING, {"cleanup.policy": "delete"}, {"cleanup.policy": "compact"}),
        (REMAINING, {"cleanup.policy": "compact", "retention.ms": "60000"}, {}),
        (REMAINING, {"max.message.bytes": "500000"}, {"max.message.bytes": "67108864"}),
        (OUTCOMES, {"retention.ms": "60000"}, {"retention.ms": "-1"}),
        (OUTCOMES, {"retention.ms": str(30 * DAY)}, {}),
        (OUTCOMES, {"message.timestamp.type": "LogAppendTime"}, {}),
        (OUTCOMES, {"max.message.bytes": "500000"}, {"max.message.bytes": "1048588"}),
        (CONTROL, {"max.message.bytes": "1000"}, {"max.message.bytes": "67108864"}),
        (CONTROL, {}, {}),
    ],
)
def test_an_own_topic_that_would_delete_or_stamp_what_it_holds_is_corrected(
    topic: OwnTopic, existing: dict[str, str], corrections: dict[str, str]
) -> None:
    made = {"cleanup.policy": "delete", **topic.settings}
    assert topic.corrections({**made, **existing}) == corrections
    assert topic.corrections(made) == {}


def test_every_unsafe_topic_is_refused_with_its_command() -> None:
    settings = {"retry": {"retention.ms": "5", "retention.bytes": "7"}, "control": {}}
    cluster: Any = KnownTopics({}, settings=settings)
    cluster.connection = SimpleNamespace(bootstrap_servers="one:9092")
    with pytest.raises(ConfigurationError) as raised:
        check_own_topics(cluster, [RETRY, CONTROL, REMAINING], {"retry", "control"})
    assert str(raised.value).endswith(
        "retry has retention.ms=5, not -1 and retention.bytes=7, not -1"
    )
    assert str(raised.value.hint).endswith(
        "\nkafka-configs.sh --bootstrap-server one:9092 --alter --entity-type topics"
        " --entity-name retry --add-config retention.ms=-1,retention.bytes=-1"
    )
