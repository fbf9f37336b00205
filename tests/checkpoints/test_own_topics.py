"""Own topics made beforehand are safe, or refused with what to change."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from tests.cases import cases_beside
from tests.kafka.known_topics import KnownTopics

from redrive.checkpoints.own_topics import (
    outcomes_topic,
    remaining_topic,
    state_topic,
    waiting_topic,
)
from redrive.errors import ConfigurationError
from redrive.streaming.topics import check_own_topics

in_table = cases_beside(__file__)
RETRY, REMAINING = waiting_topic("retry", 3), remaining_topic("remaining", 3)
OUTCOMES, CONTROL = outcomes_topic("outcomes"), state_topic("control")


@in_table
def test_an_own_topic_that_would_delete_or_stamp_what_it_holds_is_corrected(
    topic: str, existing: dict[str, str], corrections: dict[str, str]
) -> None:
    (own,) = (known for known in (RETRY, REMAINING, OUTCOMES, CONTROL) if known.name == topic)
    made = {"cleanup.policy": "delete", **own.settings}
    assert own.corrections({**made, **existing}) == corrections
    assert own.corrections(made) == {}


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
