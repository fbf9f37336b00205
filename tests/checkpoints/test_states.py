"""States of channels and queues as entries of the control topic."""

from __future__ import annotations

import time
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from kafka import KafkaAdminClient
from kafka.admin import NewTopic

from redrive.checkpoints.control import ControlTopic
from redrive.checkpoints.states import StatesFollower
from redrive.kafka.connection import Connection
from redrive.messages import TopicPartition
from redrive.topology.states import (
    NO_STATES,
    channel_entry,
    discovered_entry,
    queue_entry,
    release_entry,
    states_of,
)

NAMES = st.text("ABC.%_", min_size=1, max_size=8)


@given(NAMES, NAMES, st.booleans(), st.integers(0, 1 << 40), st.integers(0, 99))
def test_what_is_written_is_read(
    manager: str,
    name: str,
    state: bool,  # noqa: FBT001 - Hypothesis gives it
    offset: int,
    number: int,
) -> None:
    """Every kind of entry says what it was made from."""
    lane = TopicPartition(f"{manager}--redrive-to-{name}".replace("%", "-"), number)
    entries = dict(
        [
            channel_entry(manager, name, is_running=state),
            queue_entry(queue=name, queue_manager=manager, put_enabled=state),
            release_entry(lane, offset),
            discovered_entry(manager, name, "FAR"),
        ]
    )
    states = states_of(entries)
    assert states.running == {(manager, name): state}
    assert states.put_enabled == {(manager, name): state}
    assert states.releases == {lane: offset}
    assert states.discovered == {(manager, name, "FAR")}


@given(
    st.dictionaries(
        st.sampled_from(["channel/A/B", "queue/A", "release/t/x", "table/t/0", "discovered/", ""]),
        st.dictionaries(
            st.sampled_from(["running", "put", "offset", "at", "queue"]),
            st.none() | st.text(max_size=3) | st.integers(),
        ),
    )
)
def test_entries_of_another_form_are_left_out(entries: dict[str, dict[str, Any]]) -> None:
    """Whoever may write to the topic cannot stop the job with it."""
    assert states_of(entries) == NO_STATES


def test_a_follower_sees_what_was_written_before_and_after_it_began(
    bootstrap_servers: str, admin: KafkaAdminClient
) -> None:
    """The first look waits for everything that is there, later ones take what is new."""
    topic = f"states-{time.time_ns()}"
    settings = {"cleanup.policy": "compact"}
    admin.create_topics([NewTopic(topic, 1, 1, topic_configs=settings)], wait_for_metadata=True)
    connection = Connection(bootstrap_servers=bootstrap_servers)
    stopped, running = (channel_entry("A", "A.TO.B", is_running=one) for one in (False, True))
    with ControlTopic(connection, topic) as control:
        control.write(dict([stopped]))
    follower = StatesFollower(connection, topic)
    try:
        assert follower.states().running == {("A", "A.TO.B"): False}
        assert follower.states() is follower.states()
        with ControlTopic(connection, topic) as control:
            control.write(dict([running]))
        deadline = time.monotonic() + 60
        while not follower.states().running["A", "A.TO.B"]:
            assert time.monotonic() < deadline
            time.sleep(0.01)
    finally:
        follower.close()
