"""What operators decide, as entries of the tables topic."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import Mock, patch

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.conftest import KafkaClient, eventually

from redrive.checkpoints import own_topics, states
from redrive.checkpoints.control import FORMAT, FORMAT_KEY, ControlTopic, read_entries, register
from redrive.checkpoints.epoch import begin_run, fencer_of, operator_ids
from redrive.checkpoints.instances import Share
from redrive.checkpoints.states import StatesFollower, StatesWriter
from redrive.engine.commands import (
    NO_STATES,
    Entry,
    Replay,
    Span,
    channel_entry,
    discovered_entry,
    dynamic_entry,
    queue_entry,
    release_entry,
    removal,
    states_of,
)
from redrive.engine.names import control_topic, tables_topic
from redrive.errors import ConfigurationError, FencedFault
from redrive.kafka.administration import TopicAdministration
from redrive.kafka.cluster import Cluster, settled_ends
from redrive.kafka.connection import Connection
from redrive.kafka.producer import KafkaProducer
from redrive.messages import OutputRecord, TopicPartition
from redrive.topology.names import escape
from redrive.topology.put import DynamicQueue

NAMES = st.text("ABC.%_/", min_size=1, max_size=8)


@given(NAMES, NAMES, st.booleans(), st.integers(0, 1 << 40), st.integers(0, 99))
def test_what_is_written_is_read(
    manager: str,
    name: str,
    state: bool,  # noqa: FBT001 - Hypothesis gives it
    offset: int,
    number: int,
) -> None:
    lane = TopicPartition(f"{escape(manager)}--redrive-to-{escape(name)}", number)
    dynamic = DynamicQueue(manager, name, "MODEL", offset if state else None)
    entries = dict(
        [
            channel_entry(manager, name, is_running=state),
            queue_entry(queue=name, queue_manager=manager, put_enabled=state),
            release_entry(lane, offset),
            discovered_entry(manager, name, "FAR"),
            dynamic_entry(dynamic),
        ]
    )
    states = states_of(entries)
    assert states.running == {(manager, name): state}
    assert states.put_enabled == {(manager, name): state}
    assert states.releases == {lane: offset}
    assert states.discovered == {(manager, name, "FAR")}
    assert states.dynamic_queues == {dynamic}
    assert not states.as_of(offset).dynamic_queues if state else states.as_of(offset) == states
    assert removal(dynamic_entry(dynamic)) == (f"dynamic/{manager}/{name}", None)


@given(
    st.dictionaries(
        st.sampled_from(
            ["channel/A/B", "queue/A", "release/t/x", "table/t/0", "discovered/", "dynamic/A/B", ""]
        ),
        st.dictionaries(
            st.sampled_from(["running", "put", "offset", "at", "queue", "model"]),
            st.none() | st.text(max_size=3) | st.integers(),
        ),
    )
)
def test_entries_of_another_form_are_left_out(entries: dict[str, dict[str, Any]]) -> None:
    assert states_of(entries) == NO_STATES


STOPPED, RUNNING = (
    channel_entry("A", "A.TO.B", is_running=is_running) for is_running in (False, True)
)


@pytest.fixture
def application(bootstrap_servers: str) -> str:
    """An application whose job never ran, and whose topics exist."""
    name = f"states{time.time_ns()}"
    topics = [
        own_topics.state_topic(control_topic(name)),
        own_topics.state_topic(tables_topic(name)),
    ]
    TopicAdministration(Connection(bootstrap_servers=bootstrap_servers)).ensure(topics)
    return name


@pytest.fixture
def connection(bootstrap_servers: str) -> Connection:
    return Connection(bootstrap_servers=bootstrap_servers)


def write(connection: Connection, application: str, *entries: Entry, name: str = "writer") -> None:
    """What a command does."""
    with StatesWriter(Cluster(connection), application, name) as writer:
        writer.write(entries)


@contextmanager
def followed(connection: Connection, application: str) -> Iterator[StatesFollower]:
    """A follower that is closed at the end."""
    follower = StatesFollower(Cluster(connection), application)
    try:
        yield follower
    finally:
        follower.close()


def die(connection: Connection, application: str, *entries: Entry) -> str:
    """What a command leaves behind that dies before its commit; its transactional id."""
    writer = StatesWriter(Cluster(connection), application, "replay-dead")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(KafkaProducer, "commit", Mock(side_effect=InterruptedError))
        with pytest.raises(InterruptedError):
            writer.write(entries)
    return writer._id


def registered(connection: Connection, application: str) -> list[str]:
    """The ids of the commands that a start would fence."""
    entries = read_entries(Cluster(connection), control_topic(application), to_the_very_end=True)
    return list(operator_ids(entries).values())


def test_a_follower_sees_what_was_written_before_and_after_it_began(
    connection: Connection, application: str
) -> None:
    write(connection, application, STOPPED)
    with followed(connection, application) as follower:
        assert follower.states().running == {("A", "A.TO.B"): False}
        assert follower.states() is follower.states()
        write(connection, application, RUNNING)
        eventually(lambda: follower.states().running["A", "A.TO.B"], "the channel runs")
    assert registered(connection, application) == []


def test_a_follower_does_not_wait_for_a_transaction_that_is_open(
    connection: Connection, application: str
) -> None:
    write(connection, application, STOPPED)
    name = die(connection, application, RUNNING)
    assert registered(connection, application) == [name]
    with followed(connection, application) as follower:
        assert follower.states(to_the_end=True).running == {("A", "A.TO.B"): False}
        assert follower.states(to_the_end=True).put_enabled == {}
        write(connection, application, queue_entry(queue="Q", queue_manager="A", put_enabled=False))
        states = follower.states(to_the_end=True)
    assert (states.running, states.put_enabled) == ({("A", "A.TO.B"): False}, {("A", "Q"): False})
    assert registered(connection, application) == []


def test_a_start_does_not_wait_for_a_command_that_died_and_ends_its_transaction(
    connection: Connection, application: str
) -> None:
    die(connection, application, RUNNING)
    lane = TopicPartition(tables_topic(application), 0)
    cluster = Cluster(connection)
    assert cluster.ends([lane]) != cluster.ends([lane], committed_only=False)
    with ControlTopic(Cluster(connection), control_topic(application)) as control:
        begin_run(
            control, fencer_of(connection), application=application, share=Share(1, 2), details={}
        )
    settled_ends(cluster, [lane])
    assert registered(connection, application) == []


def test_instructions_count_when_their_plan_is_visible(
    kafka: KafkaClient, connection: Connection, application: str
) -> None:
    lane = TopicPartition(kafka.topic("replays"), 0)
    cluster = Cluster(connection)
    replay = Replay(plan="0123456789ab", spans={lane: Span(first=0, count=1)})
    instruction = OutputRecord(lane.topic, b"o", b"v", [], 1, 0)
    with followed(connection, application) as follower:
        assert follower.known_ends({lane: 0}) == {lane: 0}
        with StatesWriter(Cluster(connection), application, "replay-later", lanes=[lane]) as writer:
            dead = die(connection, application, STOPPED)
            writer.write([replay.entry()], [instruction])
            eventually(lambda: cluster.ends([lane])[lane] > 0, "the instruction is visible")
            ends = cluster.ends([lane])
            assert follower.known_ends(ends) == {lane: 0}
            assert follower.states(to_the_end=True).replays == {}
            fencer_of(connection)(dead)
            eventually(lambda: follower.known_ends(ends) == ends, "the plan is visible")
        assert follower.states().replays.keys() == {"0123456789ab"}


@pytest.mark.parametrize("is_alone", [True, False])
def test_a_commit_that_may_arrive_again_is_fenced_before_the_next_one(*, is_alone: bool) -> None:
    kept: dict[str, Any] = {}
    committed_by: list[Mock] = []

    def commit(producer: Mock, records: Any, _: str) -> None:
        committed_by.append(producer)
        kept.update({record.key.decode(): orjson.loads(record.value) for _, record in records})
        producer.may_arrive_late = True

    with patch.multiple(
        states,
        KafkaProducer=lambda *_: Mock(may_arrive_late=False),
        commit_records=commit,
        read_entries=lambda *_, **__: dict(kept),
        register=Mock(),
        settled_ends=Mock(),
    ):
        writer = StatesWriter(Mock(), "app", "replay-0123456789ab")
        writer.write([STOPPED])
        if is_alone:
            writer.write([RUNNING])
        else:
            kept.update([RUNNING])
            with pytest.raises(FencedFault):
                writer.write([STOPPED])
    first, *others = committed_by
    assert len(others) == is_alone
    assert first not in others
    first.close.assert_called_once()


def test_states_that_an_earlier_version_kept_on_the_control_topic_are_followed(
    connection: Connection, application: str
) -> None:
    other = channel_entry("A", "A.TO.C", is_running=False)
    with ControlTopic(Cluster(connection), control_topic(application)) as control:
        control.write({**dict([STOPPED, other]), FORMAT_KEY: {"format": 1, "version": "0.0"}})
    write(connection, application, RUNNING)
    with followed(connection, application) as follower:
        states = follower.states()
    assert states.running == {("A", "A.TO.B"): True, ("A", "A.TO.C"): False}
    entries = read_entries(Cluster(connection), control_topic(application))
    assert entries[FORMAT_KEY]["format"] == FORMAT


def test_a_command_refuses_what_a_later_version_has_written(
    connection: Connection, application: str
) -> None:
    entry = {"format": FORMAT + 1, "version": "99.0"}
    register(Cluster(connection), control_topic(application), FORMAT_KEY, entry)
    with pytest.raises(ConfigurationError, match=r"written by redrive 99\.0"):
        write(connection, application, STOPPED)
    assert registered(connection, application) == []
