"""What holds of every open and of every route, on generated topologies."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from redrive.topology.mq import objects as mq
from redrive.topology.mq.checks import check_topology
from redrive.topology.mq.network import Link, MqNetwork
from redrive.topology.mq.queue_manager import (
    ChannelState,
    ClusterInstance,
    ClusterRoute,
    QueueManager,
    QueueSharingGroup,
)
from redrive.topology.mq.resolution import open_queue
from redrive.topology.mq.results import Bind, Call, OpenOption, OpenRequest, TargetKind
from redrive.topology.names import Names

MANAGERS = ["QM1", "QM2", "QM3", "QM4"]
QUEUES = ["A", "B", "C", "D"]
NAMES = st.sampled_from([*QUEUES, *MANAGERS, "SQ1"])
BLANK_OR_NAME = st.just("") | NAMES
CLUSTERS = st.sampled_from(["", "C1"])
SMALL = st.integers(0, 2)


QUEUE: st.SearchStrategy[mq.Queue] = st.one_of(
    st.builds(
        mq.LocalQueue,
        name=NAMES,
        is_transmission_queue=st.sampled_from([False, True, True]),
        cluster=CLUSTERS,
        cluster_use=st.sampled_from(mq.UseQueue),
        put_enabled=st.booleans(),
        cluster_rank=SMALL,
        cluster_priority=SMALL,
    ),
    st.builds(mq.AliasQueue, name=NAMES, target=NAMES, cluster=CLUSTERS),
    st.builds(
        mq.RemoteQueue,
        name=NAMES,
        remote_queue=st.just("") | st.sampled_from(QUEUES),
        remote_queue_manager=BLANK_OR_NAME,
        transmission_queue=st.just("") | BLANK_OR_NAME,
    ),
    st.builds(mq.ModelQueue, name=NAMES),
)
ROUTE = st.builds(
    ClusterRoute,
    queue_manager=st.sampled_from(MANAGERS),
    cluster=st.just("C1"),
    rank=SMALL,
    priority=SMALL,
    network_priority=SMALL,
    state=st.sampled_from(ChannelState),
    suspended=st.booleans(),
)
INSTANCE = st.builds(
    ClusterInstance,
    name=st.sampled_from(QUEUES),
    route=ROUTE,
    put_enabled=st.booleans(),
    rank=SMALL,
    priority=SMALL,
)


@st.composite
def managers(draw: st.DrawFn, name: str = "QM1") -> QueueManager:
    """A manager, which may be in a cluster and in a queue-sharing group."""
    group = QueueSharingGroup(name="SQ1", members=(name, *draw(st.sampled_from([(), ("QM2",)]))))
    shared: dict[str, Any] = {
        "queue_sharing_group": group,
        "shared_queues": {
            name_of_queue: mq.LocalQueue(name=name_of_queue)
            for name_of_queue in draw(st.sets(NAMES, max_size=2))
        },
    }
    attributes = mq.QueueManagerAttributes(
        name=name,
        default_transmission_queue=draw(st.sampled_from(["", "A", "B", "QM2", "X"])),
        cluster_use=draw(st.sampled_from([mq.UseQueue.LOCAL, mq.UseQueue.ANY])),
        intra_group_queuing=draw(st.booleans()),
    )
    away = st.lists(
        INSTANCE.filter(lambda instance: instance.route.queue_manager != name), max_size=5
    )
    return QueueManager(
        attributes=attributes,
        queues={queue.name: queue for queue in draw(st.lists(QUEUE, min_size=3, max_size=9))},
        known_instances=tuple(draw(away)),
        known_routes=tuple(draw(st.lists(ROUTE, max_size=2))),
        **(shared if draw(st.booleans()) else {}),
    )


@st.composite
def opens(draw: st.DrawFn) -> tuple[QueueManager, OpenRequest]:
    """A manager and two names, which it mostly knows."""
    manager = draw(managers())
    queues = [*manager.queues, *(instance.name for instance in manager.known_instances)]
    return manager, OpenRequest(
        queue_manager=draw(st.sampled_from(["", "", "QM1", *manager.queues, *MANAGERS, "SQ1"])),
        queue=draw(st.sampled_from([*queues, *queues, *QUEUES, ""])),
        call=draw(st.sampled_from(Call)),
        bind=draw(st.sampled_from(Bind)),
        seed=draw(st.integers(0, 3)),
    )


@given(opens())
def test_input_needs_a_local_queue_in_the_end(question: tuple[QueueManager, OpenRequest]) -> None:
    manager, request = question
    network = MqNetwork([manager])
    output = open_queue(network, "QM1", request)
    opened = open_queue(network, "QM1", replace(request, options=OpenOption.INPUT))
    if opened.is_failed:
        return
    assert opened.target in {TargetKind.LOCAL, TargetKind.DYNAMIC}
    assert opened.resolved_queue_manager == "QM1"
    if output.target is TargetKind.LOCAL:
        assert opened.destination == output.destination
    elif output.target is TargetKind.REMOTE:
        # A clustered queue with a local instance, of which output took another one.
        assert opened.destination.queue == output.destination.queue
        assert isinstance(opened.path[-1], mq.LocalQueue)
        assert opened.path[-1].is_clustered


@given(opens())
def test_an_open_is_decided_alike_by_the_same_seed_and_names_why_it_fails(
    question: tuple[QueueManager, OpenRequest],
) -> None:
    manager, request = question
    first, second = (open_queue(MqNetwork([manager]), "QM1", request) for _ in range(2))
    assert first == second
    assert first.is_failed == (first.target is TargetKind.NOTHING) == bool(first.detail)
    assert first.is_failed == (first.resolved_queue == "")


@given(st.tuples(*map(managers, MANAGERS[1:])), opens())
def test_every_message_comes_to_an_end(
    others: tuple[QueueManager, ...], question: tuple[QueueManager, OpenRequest]
) -> None:
    manager, _ = question
    links = {
        Names(queue=to, queue_manager=name): Link(queue_manager=to)
        for name in MANAGERS
        for to in MANAGERS
    }
    findings = check_topology(MqNetwork([manager, *others], links=links))
    assert all(finding.message for finding in findings)
