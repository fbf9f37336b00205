"""The resolver against a naive reading of Table 1, on generated topologies."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.topology.mq.table_one import (
    CLUSTER_QUEUE,
    GROUP_QUEUE,
    Error,
    Found,
    PerMessage,
    Question,
    Thing,
    World,
    ask,
)

from redrive.topology.mq import (
    AliasQueue,
    Bind,
    Call,
    ChannelState,
    ClusterInstance,
    ClusterRoute,
    Link,
    LocalQueue,
    ModelQueue,
    Network,
    OpenOption,
    OpenRequest,
    Queue,
    QueueManager,
    QueueManagerAttributes,
    QueueSharingGroup,
    RemoteQueue,
    Resolution,
    Target,
    Usage,
    UseQueue,
    follow_route,
    open_queue,
)
from redrive.topology.names import Names

MANAGERS = ["QM1", "QM2", "QM3", "QM4"]
QUEUES = ["A", "B", "C", "D"]
NAMES = st.sampled_from([*QUEUES, *MANAGERS, "SQ1"])
BLANK_OR_NAME = st.just("") | NAMES
SMALL = st.integers(0, 2)


def things() -> st.SearchStrategy[Thing]:
    cluster = st.sampled_from(["", "C1"])
    return st.one_of(
        st.fixed_dictionaries(
            {"kind": st.just("QL")},
            optional={
                "usage": st.sampled_from(["NORMAL", "XMITQ", "XMITQ"]),
                "cluster": cluster,
                "clwluseq": st.sampled_from(["ANY", "LOCAL", "QMGR"]),
                "put": st.booleans(),
                "qrank": SMALL,
                "qprty": SMALL,
                "awake": st.just(1),
            },
        ),
        st.fixed_dictionaries({"kind": st.just("QA"), "target": NAMES, "cluster": cluster}),
        st.fixed_dictionaries(
            {
                "kind": st.just("QR"),
                "rname": st.just("") | st.sampled_from(QUEUES),
                "rqmname": BLANK_OR_NAME,
                "xmitq": st.just("") | BLANK_OR_NAME,
            }
        ),
        st.just({"kind": "QM"}),
    ).map(lambda thing: {"awake": 1, **thing} if thing["kind"] == "QL" else thing)


def instances() -> st.SearchStrategy[Thing]:
    return st.fixed_dictionaries(
        {
            "queue": st.sampled_from(QUEUES),
            "manager": st.sampled_from(MANAGERS[1:]),
            "put": st.booleans(),
            "chrank": SMALL,
            "qrank": SMALL,
            "awake": st.integers(0, 1),
            "state": st.integers(-3, 0),
            "netprty": SMALL,
            "chprty": SMALL,
            "qprty": SMALL,
        }
    )


def worlds() -> st.SearchStrategy[World]:
    plain = {
        "things": st.dictionaries(NAMES, things(), min_size=3, max_size=9),
        "instances": st.lists(
            instances(), max_size=5, unique_by=lambda one: (one["queue"], one["manager"])
        ),
        "managers": st.sets(st.sampled_from(MANAGERS[1:]), max_size=2),
        "default": st.sampled_from(["", "A", "B", "QM2", "X", CLUSTER_QUEUE]),
        "use": st.sampled_from(["LOCAL", "ANY"]),
    }
    group = {
        "group": st.just("SQ1"),
        "members": st.sets(st.sampled_from(["QM2", "QM4"])),
        "shared": st.sets(st.sampled_from(QUEUES), max_size=2),
        "group_queuing": st.booleans(),
    }
    return st.builds(World, **plain) | st.builds(World, **plain, **group)


@st.composite
def opens(draw: st.DrawFn) -> Question:
    """A world and two names, which it mostly knows."""
    world = draw(worlds())
    queues = [*world.things, *(one["queue"] for one in world.instances)]
    others = [name for name in world.things if name != world.name]
    oqm = draw(st.sampled_from(["", "", world.name, *others, *others, *MANAGERS, "SQ1"]))
    oq = draw(st.sampled_from([*queues, *queues, *QUEUES, ""]))
    return Question(world, oqm, oq, bound=draw(st.booleans()), put1=draw(st.booleans()))


def request_of(question: Question, seed: int = 0) -> OpenRequest:
    return OpenRequest(
        queue=question.oq,
        queue_manager=question.oqm,
        call=Call.MQPUT1 if question.put1 else Call.MQOPEN,
        bind=Bind.ON_OPEN if question.bound else Bind.NOT_FIXED,
        seed=seed,
    )


SEEDS = st.integers(0, 3)


def queue_of(name: str, thing: Thing) -> Queue:
    attributes: dict[str, Any] = {"name": name, "cluster": thing.get("cluster", "")}
    match thing["kind"]:
        case "QL":
            return LocalQueue(
                usage=Usage(thing.get("usage", "NORMAL")),
                cluster_use=UseQueue(thing.get("clwluseq", "QMGR")),
                put_enabled=thing.get("put", True),
                cluster_rank=thing.get("qrank", 0),
                cluster_priority=thing.get("qprty", 0),
                **attributes,
            )
        case "QA":
            return AliasQueue(target=thing["target"], **attributes)
        case "QR":
            return RemoteQueue(
                remote_queue=thing["rname"],
                remote_queue_manager=thing["rqmname"],
                transmission_queue=thing["xmitq"],
                **attributes,
            )
        case _:
            return ModelQueue(name=name)


def instance_of(thing: Thing) -> ClusterInstance:
    route = ClusterRoute(
        queue_manager=thing["manager"],
        cluster="C1",
        channel=f"{thing['queue']}.{thing['manager']}",
        rank=thing["chrank"],
        priority=thing["chprty"],
        network_priority=thing["netprty"],
        state=ChannelState(-thing["state"]),
        suspended=not thing["awake"],
    )
    return ClusterInstance(
        name=thing["queue"],
        route=route,
        put_enabled=thing["put"],
        rank=thing["qrank"],
        priority=thing["qprty"],
    )


def network_of(world: World) -> Network:
    group = QueueSharingGroup(name=world.group, members=(world.name, *sorted(world.members)))
    shared = {name: LocalQueue(name=name) for name in world.shared}
    manager = QueueManager(
        attributes=QueueManagerAttributes(
            name=world.name,
            default_transmission_queue=world.default,
            cluster_use=UseQueue(world.use),
            intra_group_queuing=world.group_queuing,
        ),
        queues={name: queue_of(name, thing) for name, thing in world.things.items()},
        shared_queues=shared if world.group else {},
        queue_sharing_group=group if world.group else None,
        known_instances=tuple(map(instance_of, world.instances)),
        known_routes=tuple(
            ClusterRoute(queue_manager=name, cluster="C1") for name in sorted(world.managers)
        ),
    )
    return Network([manager])


def check(expected: Found | PerMessage | Error, opened: Resolution) -> None:
    """Whether the library answers as the table."""
    match expected:
        case Error(code):
            assert int(opened.reason) == code, opened.detail
        case PerMessage(queue):
            assert opened.target is Target.PER_MESSAGE
            assert (opened.resolved_queue_manager, opened.resolved_queue) == ("", queue)
        case Found(managers, queue, transmission_queue):
            assert not opened.is_failed, opened.detail
            assert opened.resolved_queue_manager in managers
            if queue == "(generated)":
                assert opened.target is Target.DYNAMIC
            else:
                assert opened.resolved_queue == queue
            # Which of several equal instances is chosen, the seed decides.
            local = opened.resolved_queue_manager == "QM1" and len(managers) > 1
            grouped = opened.transmission_queue == GROUP_QUEUE and len(managers) > 1
            if not local and not grouped:
                assert opened.transmission_queue == transmission_queue


@settings(max_examples=400)
@given(opens(), SEEDS)
def test_every_open_ends_as_the_table_says(question: Question, seed: int) -> None:
    """Resolved names and transmission queue, or the reason code, are those of Table 1."""
    opened = open_queue(network_of(question.world), "QM1", request_of(question, seed))
    check(ask(question), opened)


@settings(max_examples=200)
@given(opens())
def test_input_needs_a_local_queue_in_the_end(question: Question) -> None:
    """An open for input fails where output leads away, and else leads to the same local queue."""
    network = network_of(question.world)
    request = request_of(question)
    output = open_queue(network, "QM1", request)
    opened = open_queue(network, "QM1", replace(request, options=OpenOption.INPUT))
    if opened.is_failed:
        return
    assert opened.target in {Target.LOCAL, Target.DYNAMIC}
    assert opened.resolved_queue_manager == "QM1"
    if output.target is Target.LOCAL:
        assert opened.destination == output.destination
    elif output.target is Target.REMOTE:
        # A clustered queue with a local instance, of which output took another one.
        assert opened.destination.queue == output.destination.queue
        assert isinstance(opened.path[-1], LocalQueue)
        assert opened.path[-1].is_clustered


@settings(max_examples=100)
@given(opens(), SEEDS)
def test_the_same_seed_decides_alike(question: Question, seed: int) -> None:
    """Two resolutions of one request are equal, steps and all."""
    request = replace(request_of(question, seed), bind=Bind.AS_Q_DEF)
    first, second = (open_queue(network_of(question.world), "QM1", request) for _ in range(2))
    assert first == second


@settings(max_examples=150)
@given(st.lists(worlds(), min_size=3, max_size=3), opens(), SEEDS)
def test_every_message_comes_to_an_end(others: list[World], question: Question, seed: int) -> None:
    """Routes over several managers terminate, whatever loops their definitions make."""
    managers: list[QueueManager] = []
    for name, world in zip(MANAGERS, [question.world, *others], strict=True):
        world.name = name
        world.instances = [one for one in world.instances if one["manager"] != name]
        managers += network_of(world).queue_managers.values()
    links = {
        Names(queue=to, queue_manager=name): Link(queue_manager=to)
        for name in MANAGERS
        for to in MANAGERS
    }
    route = follow_route(Network(managers, links=links), "QM1", request_of(question, seed))
    assert route.puts
    assert len(route.hops) <= len(MANAGERS) * (len(QUEUES) + 1) * (len(MANAGERS) + 3)
