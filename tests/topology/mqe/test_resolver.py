"""Single points of the procedure: limits, rules, discovery, what moves and what stays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from tests.topology.mqe.notation import read_topology

from redrive.topology.layout import QueueTopic, TopicRole, Topology
from redrive.topology.mq.network import MqNetwork
from redrive.topology.mqe.objects import (
    CodeBase,
    Discovery,
    Mode,
    MqeLocalQueue,
    MqeNetwork,
    MqeQueueManager,
    MqeRemoteQueue,
    Options,
    Security,
)
from redrive.topology.mqe.resolver import Move, MqeResolver
from redrive.topology.mqe.results import (
    NORMAL,
    Conditions,
    Delivered,
    ExpireAfter,
    Expired,
    Failed,
    MqeResolution,
    PutFailure,
    PutMessage,
    StepKind,
    Stored,
)
from redrive.topology.names import Names
from redrive.topology.put import Refusal
from redrive.topology.receiving import receiving_queue_managers


def names(text: str) -> Names:
    """The names in ``queue@manager``."""
    queue, _, queue_manager = text.partition("@")
    return Names(queue=queue, queue_manager=queue_manager)


def put(
    topology: Sequence[str],
    at: str,
    to: str,
    *moves: tuple[Move, str],
    message: PutMessage = PutMessage(),  # noqa: B008  a value
    conditions: Conditions = NORMAL,
    options: Options = Options(),  # noqa: B008  a value
) -> MqeResolution:
    """The way of a put to ``queue@manager`` and what follows it."""
    read = read_topology(topology)
    conditions = replace(conditions, down=read.conditions.down)
    resolver = MqeResolver(replace(read.network, options=options))
    resolution = resolver.resolve(at, names(to), message, conditions)
    for move, at_manager in moves:
        resolution = resolver.follow(resolution, move, at_manager, message, conditions)
    return resolution


def failure(resolution: MqeResolution) -> PutFailure:
    assert isinstance(resolution.end, Failed)
    assert not resolution.accepted
    return resolution.end.failure


# Limits

LIMITED = ("QM: LQ(Q) MAXMSG(10) MAXCOUNT(2)",)


@pytest.mark.parametrize(
    ("length", "depth", "expected"),
    [(10, 1, None), (11, 1, PutFailure.MESSAGE_TOO_BIG), (10, 2, PutFailure.QUEUE_FULL)],
)
def test_a_local_queue_refuses_what_is_beyond_its_limits(
    length: int, depth: int, expected: PutFailure | None
) -> None:
    conditions = Conditions(depths={("QM", names("Q@QM")): depth})
    taken = put(LIMITED, "QM", "Q@QM", message=PutMessage(length=length), conditions=conditions)
    assert (failure(taken) if expected else None) == expected


ASYNCHRONOUS = ("QM: RQD(Q@Far) MODE(async) MAXMSG(100)", "QM: CONN(Far)", "Far: LQ(Q) MAXMSG(10)")


def test_every_failure_comes_with_advice() -> None:
    assert all(failure.advice for failure in PutFailure)


def test_a_connection_to_a_manager_outside_the_network_is_reported() -> None:
    topology = read_topology(["QM: RQD(Q@Far)", "QM: CONN(Far)"]).network
    alone = MqeNetwork(queue_managers=topology.queue_managers[:1])
    end = MqeResolver(alone).resolve("QM", names("Q@Far")).end
    assert isinstance(end, Failed)
    assert end.failure is PutFailure.UNKNOWN_QUEUE_MANAGER


# Readings that a network can choose

CHAIN = ("QM: QMALIAS(A) IS(B)", "QM: QMALIAS(B) IS(QM)", "QM: LQ(Q)")
DISCOVERABLE = ("QM: CONN(Far)", "Far: LQ(Q)")


@pytest.mark.parametrize(
    ("topology", "to", "options", "steps"),
    [
        (CHAIN, "Q@A", Options(alias_chains=False), ["QM qm-alias A->B"]),
        (DISCOVERABLE, "Q@Far", Options(discovery=Discovery.OFF), []),
    ],
)
def test_in_the_strict_reading_no_queue_accepts(
    topology: Sequence[str], to: str, options: Options, steps: list[str]
) -> None:
    resolution = put(topology, "QM", to, options=options)
    assert [str(step) for step in resolution.steps] == steps
    assert failure(resolution) is PutFailure.NO_QUEUE_ACCEPTS
    assert resolution.discovered == ()


@pytest.mark.parametrize(
    ("topology", "stopped"),
    [
        ((*DISCOVERABLE, "QM: DOWN(Far)"), ("QM", "Far")),
        (("QM: CONN(Hub)", "QM: CONN(Far) VIA(Hub)", "Hub: CONN(Far)", "Far: LQ(Q)",
          "QM: DOWN(Hub)"), ("QM", "Hub")),
        (("QM: CONN(Hub)", "QM: CONN(Far) VIA(Hub)", "Hub: CONN(Far)", "Far: LQ(Q)",
          "Hub: DOWN(Far)"), ("Hub", "Far")),
    ],
    ids=["its own", "the direct one of a way", "the next manager's"],
)  # fmt: skip
def test_a_stopped_connection_over_which_a_queue_is_not_discovered_is_named(
    topology: Sequence[str], stopped: tuple[str, str]
) -> None:
    end = put(topology, "QM", "Q@Far").end
    assert isinstance(end, Failed)
    assert end.failure is PutFailure.NO_QUEUE_ACCEPTS
    assert f"connection {stopped[1]!r} of {stopped[0]!r} is stopped" in end.detail
    assert f"redrive channel start {' '.join(stopped)}" in end.advice


def test_a_queue_that_is_nowhere_is_not_blamed_on_a_connection() -> None:
    end = put((*DISCOVERABLE, "QM: CONN(Else)", "QM: DOWN(Else)"), "QM", "None@Far").end
    assert isinstance(end, Failed)
    assert (end.stopped, "define the queue" in end.advice) == (None, True)


def test_a_store_says_once_why_the_next_manager_refuses_its_message() -> None:
    read = read_topology(["QM: RQD(None@Far) MODE(async)", "QM: CONN(Far)", "Far: LQ(Q)"])
    source = QueueTopic(
        topic="t", role=TopicRole.TRANSMISSION, queue="None", queue_manager="QM", to="Far"
    )
    topology = Topology(mq=MqNetwork(()), mqe=read.network)
    receiver = receiving_queue_managers(topology, {"t": source})["t"]
    refusal = receiver.resolve(queue="None", queue_manager="Far")
    assert isinstance(refusal, Refusal)
    assert refusal.detail == (
        "no queue of 'Far' accepts a message for None@Far; it stays on RQD None@Far on QM"
    )


def test_a_discovered_definition_has_the_far_queues_security_and_is_synchronous() -> None:
    security = Security(authenticator="A", cryptor="C", compressor="Z")
    network = read_topology(["QM: CONN(Far)"]).network
    far = MqeQueueManager(name="Far", queues=(MqeLocalQueue(name="Q", security=security),))
    network = MqeNetwork(queue_managers=(network.queue_managers[0], far))
    steps = MqeResolver(network).resolve("QM", names("Q@Far")).steps
    (definition,) = (step.definition for step in steps if step.kind is StepKind.DISCOVERY)
    assert isinstance(definition, MqeRemoteQueue)
    assert definition.security == security
    assert definition.mode is Mode.SYNC


def test_a_definition_lasts_even_if_the_put_that_made_it_fails() -> None:
    topology = ("QM: CONN(Far)", "Far: LQ(Q) MAXCOUNT(0)")
    resolution = put(topology, "QM", "Q@Far")
    assert failure(resolution) is PutFailure.QUEUE_FULL
    assert resolution.discovered == (("QM", "Q", "Far"),)


# Push, transmission and pull

PULLED = (
    "Server: SAF(Store@Nowhere) QME(Client)",
    "Client: HSQ(H@Server)",
    "Client: CONN(Server)",
    "Client: LQ(Q) ALIAS(Nick)",
)


def test_in_the_strict_reading_the_two_queues_must_have_one_name() -> None:
    strict = Options(home_server_names=True)
    other = [line.replace("HSQ(H", "HSQ(Store") for line in PULLED]
    ends = [
        put(t, "Server", "Q@Client", (Move.PULL, "Client"), options=strict).end
        for t in (PULLED, other)
    ]
    assert [str(end) for end in ends] == ["SAF Store on Server", "Q@Client"]


@pytest.mark.parametrize("message", [PutMessage(lock_id="1"), PutMessage(is_confirmed=False)])
def test_locked_and_unconfirmed_messages_do_not_move(message: PutMessage) -> None:
    transmitted = put(ASYNCHRONOUS, "QM", "Q@Far", (Move.TRIGGER, ""), message=message)
    pulled = put(PULLED, "Server", "Q@Client", (Move.PULL, "Client"), message=message)
    assert str(transmitted.end) == "RQD Q@Far on QM"
    assert str(pulled.end) == "SAF Store on Server"


DEAD_LETTERS = (*PULLED, "Client: LQ(Dead) ROLE(deadletter) MAXMSG(20)")


@pytest.mark.parametrize(
    ("queue", "end", "why"),
    [
        ("Q", "SAF Store on Server", PutFailure.DUPLICATE),
        # It is resent to the dead-letter queue, so duplicate protection lets it in.
        ("Nope", "Dead@Client (dead letter)", None),
    ],
)
def test_a_duplicate_does_not_become_a_dead_letter(
    queue: str, end: str, why: PutFailure | None
) -> None:
    message, seen = PutMessage(identity="m"), Conditions(received={("Client", "m")})
    put_to = f"{queue}@Client"
    moved = put(
        DEAD_LETTERS, "Server", put_to, (Move.PULL, "Client"), message=message, conditions=seen
    )
    assert moved.accepted
    assert str(moved.end) == end
    refused = moved.end.refused if isinstance(moved.end, Stored) else None
    assert (refused.failure if refused else None) is why


def test_a_message_without_identity_is_never_a_duplicate() -> None:
    end = put(("QM: LQ(Q)",), "QM", "Q", conditions=Conditions(received={("QM", "")})).end
    assert isinstance(end, Delivered)


# Expiry


def test_an_expired_message_is_gone_at_every_queue_that_keeps_messages() -> None:
    topology = ("QM: LQ(L)", "QM: RQD(R@Far) MODE(async)", "QM: SAF(S@Far) QME(Far)")
    late = Conditions(now=11)
    message = PutMessage(expire_time=ExpireAfter(10))
    for to in ("L@QM", "R@Far", "Any@Far"):
        resolution = put(topology, "QM", to, message=message, conditions=late)
        assert isinstance(resolution.end, Expired)
        assert resolution.accepted
        on_time = put(topology, "QM", to, message=message, conditions=Conditions(now=10))
        assert not isinstance(on_time.end, Expired)


@pytest.mark.parametrize(
    ("topology", "at", "to", "move", "by"),
    [
        (ASYNCHRONOUS, "QM", "Q@Far", Move.TRIGGER, "QM"),
        (DEAD_LETTERS, "Server", "Nope@Client", Move.PULL, "Client"),
    ],
)
def test_an_expired_message_neither_moves_nor_becomes_a_dead_letter(
    topology: Sequence[str], at: str, to: str, move: Move, by: str
) -> None:
    message = PutMessage(expire_time=ExpireAfter(10))
    resolver = MqeResolver(read_topology(topology).network)
    on_time, late = Conditions(now=10), Conditions(now=11)
    stored = resolver.resolve(at, names(to), message, on_time)
    assert isinstance(stored.end, Stored)
    moved = resolver.follow(stored, move, by, message, late)
    assert moved.end == Expired(at, stored.end.queue)
    assert moved.steps == stored.steps


def test_a_second_discovery_of_the_same_definition_adds_nothing() -> None:
    network = read_topology(DISCOVERABLE).network
    discovered = MqeResolver(network).resolve("QM", names("Q@Far")).discovered
    once = network.with_discovered(discovered)
    assert once.with_discovered(discovered) == once
    assert once.queue_managers[0].queues == (MqeRemoteQueue(name="Q", queue_manager="Far"),)
    assert once.queue_managers[0].code_base is CodeBase.JAVA
