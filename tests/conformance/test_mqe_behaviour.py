"""The vectors of ``mqe_behaviour``: prose, so each id has a hand-written test.

An id of another set for which nothing is written is reported as skipped; an id of the project's
own set must have its test.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from tests.conformance.mqe_administration import (
    Operation,
    Polling,
    add_queue_alias,
    operations,
)
from tests.conformance.vectors import Vector, load
from tests.topology.mqe.notation import read_topology

from redrive.topology.mqe.objects import (
    BridgeQueue,
    DirectConnection,
    Mode,
    MqeLocalQueue,
    MqeNetwork,
    MqeQueueManager,
    MqeRemoteQueue,
    StoreAndForwardQueue,
)
from redrive.topology.mqe.reader import read_network
from redrive.topology.mqe.resolver import Move, MqeResolver
from redrive.topology.mqe.results import (
    Conditions,
    Delivered,
    ExpireAfter,
    ExpireAt,
    Expired,
    Failed,
    PutFailure,
    PutMessage,
    is_expired,
)
from redrive.topology.names import Names

OWN_VECTORS = Path(__file__).parents[1] / "vectors"
Q = Names(queue="Q", queue_manager="QM")
LATE = PutMessage(expire_time=ExpireAfter(1000))


@dataclass
class Veto:
    """A rule of a queue or of its manager, which says whether it transmits."""

    transmits: bool
    asked: int = 0

    def ask(self) -> bool:
        """Whether it transmits; the question is counted."""
        self.asked += 1
        return self.transmits


def expires() -> bool:
    """Whether a queue with a longer expiry lets the late message go."""
    queue = MqeLocalQueue(name="Q", expiry=60_000)
    network = MqeNetwork(queue_managers=(MqeQueueManager(name="QM", queues=(queue,)),))
    end = MqeResolver(network).resolve("QM", Q, LATE, Conditions(now=2000)).end
    return isinstance(end, Expired)


def transmitting(manager_rule: Veto, *queue_rules: Veto) -> list[str]:
    """Which of the asynchronous definitions Q1 and Q2 transmit under rules.

    Rules are not part of the product, which transmits what waits; their order is modelled here.
    """
    names = [f"Q{number}" for number, _ in enumerate(queue_rules, 1)]
    queues = [MqeRemoteQueue(name=name, queue_manager="Far", mode=Mode.ASYNC) for name in names]
    far = MqeQueueManager(name="Far", queues=tuple(MqeLocalQueue(name=name) for name in names))
    near = MqeQueueManager(
        name="QM", queues=tuple(queues), connections=(DirectConnection(name="Far"),)
    )
    resolver = MqeResolver(MqeNetwork(queue_managers=(near, far)))
    if not manager_rule.ask():
        return []
    allowed = [name for name, rule in zip(names, queue_rules, strict=True) if rule.ask()]
    stored = [resolver.resolve("QM", Names(queue=name, queue_manager="Far")) for name in allowed]
    moved = [resolver.follow(message, Move.TRIGGER, "QM").end for message in stored]
    assert all(isinstance(end, Delivered) for end in moved)
    return allowed


def mb_001_a_messages_expiry_overrides_the_queues() -> None:
    assert expires()
    assert not is_expired(replace(LATE, expire_time=None), 60_000, 2000)


def mb_002_a_long_expiry_is_an_absolute_time() -> None:
    message = PutMessage(created=500, expire_time=ExpireAt(7000))
    assert not is_expired(message, 1, 6999)
    assert is_expired(message, 1, 7001)


def mb_004_an_expiry_rule_cannot_keep_the_message() -> None:
    assert expires(), "no hook can keep it"


def mb_007_the_managers_rule_vetoes_all_transmission() -> None:
    rules = Veto(transmits=True), Veto(transmits=True)
    assert transmitting(Veto(transmits=False), *rules) == []
    assert [rule.asked for rule in rules] == [0, 0]


def mb_008_a_queues_rule_vetoes_its_own_transmission() -> None:
    rules = Veto(transmits=False), Veto(transmits=True)
    assert transmitting(Veto(transmits=True), *rules) == ["Q2"]


def mb_009_polling_stops_after_a_failed_connect() -> None:
    polling = Polling(interval=1000).after_poll(0)
    assert not polling.is_due(999)
    assert polling.is_due(1000)
    stopped = polling.after_poll(1000, connected=False)
    assert not any(stopped.is_due(now) for now in range(1000, 20_000, 500))
    triggered = stopped.after_poll(20_000)
    assert not triggered.is_due(20_999)
    assert triggered.is_due(21_000)


def mb_010_interval_0_polls_only_when_triggered() -> None:
    assert not Polling(interval=0).is_due(10**9)
    assert not Polling(interval=0).after_poll(5).is_due(10**9)


def mb_011_bad_names_are_rejected() -> None:
    good = "kind: mqe\nqueue_managers:\n- {name: 'QM', queues: [{kind: local, name: 'Q'}]}\n"
    assert read_network(good).network is not None
    for character in "{}[]#():;,'\"=":
        quoted = {"'": "''"}.get(character, character)
        for name in ("'QM'", "'Q'"):
            result = read_network(good.replace(name, f"{name[:-1]}{quoted}'"))
            assert result.network is None
            assert [finding.code for finding in result.diagnostics] == ["BAD_NAME"]


def mb_013_a_second_alias_of_the_same_name_changes_nothing() -> None:
    queue = MqeLocalQueue(name="Q", aliases=("Nick",))
    answer, same = add_queue_alias(queue, "Nick")
    assert (str(answer), same) == ("MQERETURN_NOTHING_TO_DO, MQEREASON_DUPLICATE", queue)
    assert add_queue_alias(queue, "Other")[1].aliases == ("Nick", "Other")


def mb_014_a_bridge_queue_has_no_browse_and_lock() -> None:
    offered = operations(BridgeQueue(name="Q", queue_manager="MQ"))
    assert offered == {Operation.PUT, Operation.GET, Operation.BROWSE}


def mb_015_applications_cannot_read_a_store_and_forward_queue() -> None:
    queue = StoreAndForwardQueue(name="S", queue_manager="Hub", targets=("QM2",))
    assert operations(queue) == frozenset()


def mb_016_an_asynchronous_definition_offers_put_only() -> None:
    queue = MqeRemoteQueue(name="Q", queue_manager="QM2", mode=Mode.ASYNC)
    assert operations(queue) == {Operation.PUT}
    assert Operation.GET in operations(replace(queue, mode=Mode.SYNC))


TESTS = {f"MB-{name[3:6]}": test for name, test in globals().items() if name.startswith("mb_")}
"""The hand-written test of each id."""


@pytest.mark.vectors("mqe_behaviour")
def test_behaviour(vector: Vector) -> None:
    """What the vector says in prose holds."""
    if vector["id"] not in TESTS:
        pytest.skip(f"no test is written for {vector['id']}: {vector.get('title', '')}")
    TESTS[vector["id"]]()


def test_every_vector_of_our_own_has_its_test() -> None:
    assert {vector["id"] for vector in load(OWN_VECTORS, "mqe_behaviour")} == TESTS.keys()


# Behaviour of the same kind that no vector of ours tells


@pytest.mark.parametrize(("resend", "failure"), [(False, PutFailure.DUPLICATE), (True, None)])
def test_a_message_that_was_put_before_is_refused_unless_it_is_resent(
    *, resend: bool, failure: PutFailure | None
) -> None:
    resolver = MqeResolver(read_topology(["QM: LQ(Q)"]).network)
    message = PutMessage(identity="QM 1", resend=resend)
    end = resolver.resolve("QM", Q, message, Conditions(received={("QM", "QM 1")})).end
    assert (end.failure if isinstance(end, Failed) else None) is failure
