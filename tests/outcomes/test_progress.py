"""Where lanes stood, found in their outcomes: in those of the topic that there is, and no other."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.configurations import job_of
from tests.kafka.known_topics import KnownTopics
from tests.outcomes.samples import START, append, outcome

from redrive.configuration import JobConfiguration
from redrive.errors import ConfigurationError
from redrive.messages import TopicPartition
from redrive.outcomes.ledger import positions_from_outcomes
from redrive.outcomes.rows import row_of

Place = tuple[str, int, int, int]
"""Topic, incarnation, partition and offset of a source record."""
PARTITIONS = 2
"""Of the outcomes topic."""


def outcomes_topic(topic: str, values: list[bytes], first: int = 0) -> KnownTopics:
    """A cluster with an outcomes topic, whose first records may be deleted."""
    rows = [(START, value) for value in values]
    logs = {
        TopicPartition(topic, partition): rows[partition::PARTITIONS]
        for partition in range(PARTITIONS)
    }
    return KnownTopics(logs, first=first)


def value_of(place: Place, *, by_this_version: bool) -> bytes:
    """The outcome of a source record; an earlier version had the incarnation in the name only."""
    topic, incarnation, partition, offset = place
    name = f"{topic}~{incarnation}" if incarnation > 1 else topic
    members = outcome(
        offset, topic=topic, partition=partition, outcome=f"{name}:{partition}:{offset}"
    )
    return orjson.dumps({**members, "incarnation": incarnation} if by_this_version else members)


PLACES = st.tuples(
    st.sampled_from(["dlq", "dlq.b"]), st.integers(1, 3), st.integers(0, 1), st.integers(0, 9)
)


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.tuples(PLACES, st.booleans()), max_size=12),
    st.integers(0, 12),
    st.dictionaries(st.sampled_from(["dlq", "dlq.b"]), st.integers(1, 3), min_size=1),
)
def test_a_lane_stands_behind_its_last_outcome_whichever_version_wrote_it(
    tmp_path_factory: pytest.TempPathFactory,
    places: list[tuple[Place, bool]],
    in_ledger: int,
    incarnations: dict[str, int],
) -> None:
    configuration = job_of(directory=tmp_path_factory.mktemp("job"))
    values = [value_of(place, by_this_version=version) for place, version in places]
    rows = [
        row_of(value, START, number % PARTITIONS, number // PARTITIONS)
        for number, value in enumerate(values[:in_ledger])
    ]
    for number, (row, (_, by_this_version)) in enumerate(zip(rows, places, strict=False)):
        if not by_this_version:
            rows[number] = row._replace(source_incarnation=None)
    if rows:
        append(configuration.ledger.path, rows)
    lanes = {
        TopicPartition(topic, number): incarnation
        for topic, incarnation in incarnations.items()
        for number in (0, 1)
    }
    cluster: Any = outcomes_topic(configuration.outcomes_topic, values)
    expected: dict[TopicPartition, int] = {}
    for (topic, incarnation, partition, offset), _ in places:
        lane = TopicPartition(topic, partition)
        if lanes.get(lane) == incarnation:
            expected[lane] = max(offset + 1, expected.get(lane, 0))
    assert positions_from_outcomes(configuration, cluster, lanes) == expected


Cut = Callable[[JobConfiguration, list[bytes]], Any]


def _cut(configuration: JobConfiguration, values: list[bytes]) -> Any:
    return outcomes_topic(configuration.outcomes_topic, values, first=3)


def _made_anew(configuration: JobConfiguration, values: list[bytes]) -> Any:
    return outcomes_topic(configuration.outcomes_topic, values[:1])


@pytest.mark.parametrize(
    ("cluster", "why"), [(_cut, "outcomes 2 to 2 of"), (_made_anew, "up to 1 of")]
)
def test_positions_are_refused_where_outcomes_are_gone(
    tmp_path: Path, cluster: Cut, why: str
) -> None:
    configuration = job_of(directory=tmp_path)
    values = [value_of(("dlq", 1, 0, number), by_this_version=True) for number in range(8)]
    rows = [row_of(values[number], START, number % 2, number // 2) for number in range(4)]
    append(configuration.ledger.path, rows)
    with pytest.raises(ConfigurationError, match=why) as refused:
        positions_from_outcomes(
            configuration, cluster(configuration, values), {TopicPartition("dlq", 0): 1}
        )
    assert "--reset-offsets" in str(refused.value.hint)
