"""Single points of the procedure: limits, rules, discovery, what moves and what stays."""

from __future__ import annotations

import sys
import types
from collections.abc import Sequence
from dataclasses import replace

import pytest
from tests.topology.mqe.notation import read_topology

from redrive.topology.mqe import (
    ADVICE,
    NORMAL,
    CodeBase,
    Conditions,
    Delivered,
    Discovery,
    ExpireAfter,
    Expired,
    Failed,
    Failure,
    FollowUp,
    LocalQueue,
    Message,
    Mode,
    MqeResolver,
    Network,
    Options,
    Pull,
    Push,
    QueueManager,
    QueueManagerRule,
    QueueRule,
    RemoteQueue,
    Resolution,
    Rules,
    Security,
    Stored,
    TriggerTransmission,
    load_rules,
)
from redrive.topology.names import Names


def put(
    topology: Sequence[str],
    at: str,
    to: str,
    *follow_ups: FollowUp,
    message: Message = Message(),  # noqa: B008  a value
    conditions: Conditions = NORMAL,
    options: Options = Options(),  # noqa: B008  a value
) -> Resolution:
    """The way of a put to ``queue@manager`` and what follows it."""
    read = read_topology(topology)
    conditions = replace(conditions, down=read.conditions.down)
    resolver = MqeResolver(replace(read.network, options=options))
    queue, _, queue_manager = to.partition("@")
    resolution = resolver.resolve(
        at, Names(queue=queue, queue_manager=queue_manager), message, conditions
    )
    for follow_up in follow_ups:
        resolution = resolver.follow(resolution, follow_up, message, conditions)
    return resolution


def failure(resolution: Resolution) -> Failure:
    """The failure of a put."""
    assert isinstance(resolution.end, Failed)
    assert not resolution.accepted
    return resolution.end.failure


def undeliverable(resolution: Resolution) -> tuple[str, Failure | None]:
    """Where a message waits, and why it could not be passed on."""
    assert isinstance(resolution.end, Stored)
    assert resolution.accepted
    return str(resolution.end), resolution.end.undeliverable


# Limits

LIMITED = ("QM: LQ(Q) MAXMSG(10) MAXCOUNT(2)",)


@pytest.mark.parametrize(
    ("length", "depth", "expected"),
    [(10, 1, None), (11, 1, Failure.MESSAGE_TOO_BIG), (10, 2, Failure.QUEUE_FULL)],
)
def test_a_local_queue_refuses_what_is_beyond_its_limits(
    length: int, depth: int, expected: Failure | None
) -> None:
    """A message as long as the limit is taken; a queue at its number of messages is full."""
    conditions = Conditions(depths={("QM", Names(queue="Q", queue_manager="QM")): depth})
    taken = put(LIMITED, "QM", "Q@QM", message=Message(length=length), conditions=conditions)
    assert (failure(taken) if expected else None) == expected


ASYNCHRONOUS = ("QM: RQD(Q@Far) MODE(async) MAXMSG(100)", "QM: CONN(Far)", "Far: LQ(Q) MAXMSG(10)")


def test_what_the_real_queue_refuses_stays_on_the_asynchronous_definition() -> None:
    """Accepted here, refused there: neither lost nor deliverable."""
    resolution = put(ASYNCHRONOUS, "QM", "Q@Far", TriggerTransmission(), message=Message(length=50))
    assert undeliverable(resolution) == ("RQD Q@Far on QM", Failure.MESSAGE_TOO_BIG)


def test_a_push_moves_nothing_from_an_asynchronous_definition() -> None:
    """Only store-and-forward queues push; the definition waits for transmission."""
    resolution = put(ASYNCHRONOUS, "QM", "Q@Far", Push())
    assert undeliverable(resolution) == ("RQD Q@Far on QM", None)


def test_an_asynchronous_definition_without_a_connection_keeps_its_messages() -> None:
    """Transmission is tried and the reason is known."""
    resolution = put(ASYNCHRONOUS[:1], "QM", "Q@Far", TriggerTransmission("QM"))
    assert undeliverable(resolution) == ("RQD Q@Far on QM", Failure.NO_CONNECTION)


def test_an_asynchronous_definition_has_limits_of_its_own() -> None:
    """What the definition itself does not take fails to the caller."""
    resolution = put(ASYNCHRONOUS, "QM", "Q@Far", message=Message(length=101))
    assert failure(resolution) is Failure.MESSAGE_TOO_BIG


def test_a_synchronous_put_fails_to_the_caller_with_the_far_reason() -> None:
    """There is no store in between: the far queue's refusal is the caller's."""
    topology = ("QM: RQD(Q@Far)", "QM: CONN(Far)", "Far: LQ(Q) MAXMSG(10)")
    resolution = put(topology, "QM", "Q@Far", message=Message(length=11))
    assert failure(resolution) is Failure.MESSAGE_TOO_BIG
    assert isinstance(resolution.end, Failed)
    assert resolution.end.queue_manager == "Far"


# Links


@pytest.mark.parametrize(
    ("topology", "expected"),
    [
        (("QM: RQD(Q@Far)",), Failure.NO_CONNECTION),
        (("QM: RQD(Q@Far)", "QM: CONN(Far) NULL"), Failure.NO_QUEUE_ACCEPTS),
        (("QM: RQD(Q@Far)", "QM: CONN(Far) VIA(Hub)"), Failure.NO_CONNECTION),
        (("QM: RQD(Q@Far)", "QM: CONN(Far)", "QM: DOWN(Far)"), Failure.LINK_DOWN),
        (
            ("QM: RQD(Q@Far)", "QM: CONN(Far) VIA(Hub)", "QM: CONN(Hub)", "QM: DOWN(Hub)"),
            Failure.LINK_DOWN,
        ),
        (
            ("QM: RQD(Q@Far)", "QM: CONN(Far) VIA(Hub)", "QM: CONN(Hub) VIA(Far)"),
            Failure.VIA_LOOP,
        ),
        (("QM: RQD(Q@Far)", "QM: CONN(Far)", "Far: LQ(Other)"), Failure.NO_QUEUE_ACCEPTS),
        (
            (
                "QM: RQD(Q@T)",
                "QM: CONN(T) VIA(Far)",
                "QM: CONN(Far)",
                "Far: RQD(Q@T)",
                "Far: CONN(T) VIA(QM)",
                "Far: CONN(QM)",
            ),
            Failure.ROUTE_LOOP,
        ),
    ],
)
def test_a_synchronous_put_that_cannot_get_there_fails(
    topology: Sequence[str], expected: Failure
) -> None:
    """Each way in which the route can end has its own symbol, and an advice."""
    target = "T" if expected is Failure.ROUTE_LOOP else "Far"
    assert failure(put(topology, "QM", f"Q@{target}")) is expected
    assert ADVICE[expected]


def test_a_connection_to_a_manager_outside_the_network_is_reported() -> None:
    """A direct connection must lead to a manager that is described."""
    topology = read_topology(["QM: RQD(Q@Far)", "QM: CONN(Far)"]).network
    alone = Network(queue_managers=topology.queue_managers[:1])
    end = MqeResolver(alone).resolve("QM", Names(queue="Q", queue_manager="Far")).end
    assert isinstance(end, Failed)
    assert end.failure is Failure.UNKNOWN_QUEUE_MANAGER


def test_a_direct_connection_ends_on_the_only_manager_that_answers_to_its_name() -> None:
    """If two managers answer to the name, nothing says which is meant."""
    caller = ("QM: RQD(Q@Service)", "QM: CONN(Service)")
    first = ("S1: CONN(Service) NULL", "S1: LQ(Q)")
    second = ("S2: QMALIAS(Service) IS(S2)", "S2: LQ(Q)")
    assert str(put((*caller, *first), "QM", "Q@Service").end) == "Q@S1"
    both = put((*caller, *first, *second), "QM", "Q@Service")
    assert failure(both) is Failure.UNKNOWN_QUEUE_MANAGER


@pytest.mark.parametrize("own_name", ["QM: CONN(Hop) NULL", "QM: QMALIAS(Hop) IS(QM)"])
def test_a_further_name_of_the_own_manager_is_no_connection(own_name: str) -> None:
    """A store-and-forward queue with such a next hop waits to be pulled from."""
    resolution = put(("QM: SAF(S@Hop) QME(Far)", own_name), "QM", "Q@Far", Push())
    assert undeliverable(resolution) == ("SAF S on QM", None)


def test_a_put_on_an_unknown_manager_fails() -> None:
    """The manager of the put itself must exist."""
    assert failure(put(("QM: LQ(Q)",), "Elsewhere", "Q")) is Failure.UNKNOWN_QUEUE_MANAGER


# Names


def test_a_queue_alias_of_a_definition_sends_the_real_name() -> None:
    """Far never sees the alias."""
    topology = ("QM: RQD(Q@Far) ALIAS(Nick)", "QM: CONN(Far)", "Far: LQ(Q)")
    steps = [str(step) for step in put(topology, "QM", "Nick@Far").steps]
    assert steps == ["QM queue-alias RQD Q@Far sync", "QM conn Far direct", "Far exact LQ Q"]


def test_an_exact_match_comes_before_a_queue_alias() -> None:
    """A queue of the name beats an alias of the name."""
    assert str(put(("QM: LQ(A) ALIAS(B)", "QM: LQ(B)"), "QM", "B@QM").end) == "B@QM"


def test_a_manager_can_stand_for_another_by_an_alias_of_its_own_name() -> None:
    """The missing manager name and the manager's own name are both replaced."""
    topology = ("QM: QMALIAS(QM) IS(Far)", "QM: RQD(Q@Far)", "QM: CONN(Far)", "Far: LQ(Q)")
    for to in ("Q", "Q@QM"):
        assert str(put(topology, "QM", to).end) == "Q@Far"


CHAIN = ("QM: QMALIAS(A) IS(B)", "QM: QMALIAS(B) IS(QM)", "QM: LQ(Q)")


@pytest.mark.parametrize(
    ("topology", "options"),
    [((*CHAIN, "QM: CODE(c)"), Options()), (CHAIN, Options(alias_chains=False))],
)
def test_an_alias_is_substituted_once_in_c_and_in_the_strict_reading(
    topology: Sequence[str], options: Options
) -> None:
    """The second alias is not followed, so no queue accepts."""
    resolution = put(topology, "QM", "Q@A", options=options)
    assert [str(step) for step in resolution.steps] == ["QM qm-alias A->B"]
    assert failure(resolution) is Failure.NO_QUEUE_ACCEPTS


def test_an_alias_loop_ends_the_put() -> None:
    """Also in a network that its check refuses."""
    topology = ("QM: QMALIAS(A) IS(B)", "QM: QMALIAS(B) IS(A)")
    assert failure(put(topology, "QM", "Q@A")) is Failure.ALIAS_LOOP


def test_the_c_code_base_has_no_store_and_forward_and_no_bridge_queues() -> None:
    """Such definitions count as not there."""
    topology = ("QM: CODE(c)", "QM: SAF(S@Far) QME(Far)", "QM: BRIDGE(Q@MQ)")
    for to in ("Q@Far", "Q@MQ"):
        assert failure(put(topology, "QM", to)) is Failure.NO_QUEUE_ACCEPTS


def test_a_store_and_forward_queue_is_no_exact_match() -> None:
    """Naming it stores a message for a queue of its name; nobody can address it."""
    topology = ("QM: SAF(S@Far) QME(Far)", "QM: CONN(Far)", "Far: LQ(S)")
    assert str(put(topology, "QM", "S@Far", Push()).end) == "S@Far"


# Discovery

DISCOVERABLE = ("QM: CONN(Far)", "Far: LQ(Q)")


@pytest.mark.parametrize(
    ("topology", "options"),
    [
        pytest.param((*DISCOVERABLE, "QM: CODE(c)"), Options(), id="D3-c"),
        pytest.param(DISCOVERABLE, Options(discovery=Discovery.OFF), id="D3-off"),
        pytest.param((*DISCOVERABLE, "QM: DOWN(Far)"), Options(), id="D4"),
        pytest.param(("QM: LQ(Other)", "Far: LQ(Q)"), Options(), id="D5-none"),
        pytest.param(("QM: CONN(Far) VIA(Hub)", "Far: LQ(Q)"), Options(), id="D5-via-nothing"),
        pytest.param(("QM: CONN(Far)", "Far: LQ(Other)"), Options(), id="D6"),
        pytest.param(
            ("QM: CONN(T) VIA(Far)", "QM: CONN(Far)", "Far: CONN(T) VIA(QM)", "Far: CONN(QM)"),
            Options(),
            id="D6-each-asks-the-other",
        ),
    ],
)
def test_discovery_needs_every_one_of_its_conditions(
    topology: Sequence[str], options: Options
) -> None:
    """With one condition missing no queue accepts, and nothing is created."""
    target = "T" if any("(T)" in line for line in topology) else "Far"
    resolution = put(topology, "QM", f"Q@{target}", options=options)
    assert failure(resolution) is Failure.NO_QUEUE_ACCEPTS
    assert resolution.discovered == ()
    assert resolution.steps == ()


def test_the_own_manager_is_never_discovered() -> None:
    """D2: not even with a connection of the manager's own name."""
    assert failure(put(("QM: CONN(QM)",), "QM", "Q@QM")) is Failure.NO_QUEUE_ACCEPTS


def test_discovery_goes_through_managers_that_discover_themselves() -> None:
    """Each manager on the way creates its definition; all of them are in the result."""
    topology = ("QM: CONN(T) VIA(Hub)", "QM: CONN(Hub)", "Hub: CONN(T)", "T: LQ(Q)")
    resolution = put(topology, "QM", "Q@T")
    assert str(resolution.end) == "Q@T"
    assert [one.queue_manager for one in resolution.discovered] == ["QM", "Hub"]


def test_a_discovered_definition_has_the_far_queues_security_and_is_synchronous() -> None:
    """Authentication, encryption and compression are obtained from the far queue."""
    security = Security(authenticator="A", cryptor="C", compressor="Z")
    network = read_topology(["QM: CONN(Far)"]).network
    far = QueueManager(name="Far", queues=(LocalQueue(name="Q", security=security),))
    network = Network(queue_managers=(network.queue_managers[0], far))
    (discovered,) = (
        MqeResolver(network).resolve("QM", Names(queue="Q", queue_manager="Far")).discovered
    )
    assert discovered.definition.security == security
    assert discovered.definition.mode is Mode.SYNC


def test_a_definition_lasts_even_if_the_put_that_made_it_fails() -> None:
    """The far queue exists but is full: the definition is in the result of the failed put."""
    topology = ("QM: CONN(Far)", "Far: LQ(Q) MAXCOUNT(0)")
    resolution = put(topology, "QM", "Q@Far")
    assert failure(resolution) is Failure.QUEUE_FULL
    assert [one.names for one in resolution.discovered] == [Names(queue="Q", queue_manager="Far")]


# Push, transmission and pull


def test_without_a_connection_a_store_and_forward_queue_waits_to_be_pulled_from() -> None:
    """A push does nothing at all, so nothing is undeliverable."""
    resolution = put(("QM: SAF(S@Nowhere) QME(Far)",), "QM", "Q@Far", Push())
    assert undeliverable(resolution) == ("SAF S on QM", None)
    assert len(resolution.steps) == 1


def test_a_push_over_a_link_that_is_down_leaves_the_message_where_it_is() -> None:
    """With the reason."""
    topology = ("QM: SAF(S@Far) QME(Far)", "QM: CONN(Far)", "QM: DOWN(Far)", "Far: LQ(Q)")
    assert undeliverable(put(topology, "QM", "Q@Far", Push())) == (
        "SAF S on QM",
        Failure.LINK_DOWN,
    )


def test_messages_that_are_pushed_in_a_circle_come_to_rest() -> None:
    """Two managers that push to each other: the message stays, as a route loop."""
    topology = (
        "QM1: SAF(S@QM2) QME(Far)",
        "QM1: CONN(QM2)",
        "QM2: SAF(S@QM1) QME(Far)",
        "QM2: CONN(QM1)",
    )
    resolution = put(topology, "QM1", "Q@Far", Push())
    where, why = undeliverable(resolution)
    assert where in ("SAF S on QM1", "SAF S on QM2")
    assert why in (None, Failure.ROUTE_LOOP)


PULLED = (
    "Server: SAF(Store@Nowhere) QME(Client)",
    "Client: HSQ(H@Server)",
    "Client: CONN(Server)",
    "Client: LQ(Q) ALIAS(Nick)",
)


def test_a_pulled_message_is_put_and_its_queue_alias_applies() -> None:
    """The pull presents the stored names to an ordinary put."""
    assert str(put(PULLED, "Server", "Nick@Client", Pull("Client")).end) == "Q@Client"


def test_a_home_server_queue_collects_from_a_pushing_queue_too() -> None:
    """Whether a connection makes the queue push does not matter to a pull."""
    topology = (*PULLED[1:], "Server: SAF(Store@Client) QME(Client)", "Server: CONN(Client)")
    assert str(put(topology, "Server", "Q@Client", Pull("Client")).end) == "Q@Client"


def test_without_a_dead_letter_queue_an_undeliverable_message_stays_on_the_server() -> None:
    """It is neither lost nor on the client."""
    resolution = put(PULLED, "Server", "Nope@Client", Pull("Client"))
    assert undeliverable(resolution) == ("SAF Store on Server", Failure.NO_QUEUE_ACCEPTS)


@pytest.mark.parametrize(
    "change",
    [
        ("Client: CONN(Server)", "Client: CONN(Server) VIA(Hub)", "Client: CONN(Hub)"),
        ("Client: CONN(Server)",),
        ("Client: HSQ(H@Server)",),
    ],
)
def test_a_pull_needs_a_home_server_queue_and_one_direct_hop(change: Sequence[str]) -> None:
    """A via connection, no connection or no home-server queue: nothing is pulled."""
    topology = [line for line in PULLED if line != change[0]] + list(change[1:])
    resolution = put(topology, "Server", "Q@Client", Pull("Client"))
    assert undeliverable(resolution) == ("SAF Store on Server", None)
    assert len(resolution.steps) == 1


def test_nothing_is_pulled_from_an_asynchronous_definition() -> None:
    """Home-server queues collect from store-and-forward queues only."""
    topology = (*PULLED[1:], "Server: RQD(Q@Client) MODE(async)")
    resolution = put(topology, "Server", "Q@Client", Pull("Client"))
    assert undeliverable(resolution) == ("RQD Q@Client on Server", None)


def test_a_manager_behind_the_server_is_not_the_server() -> None:
    """A home-server queue for Other, reached via Server, takes nothing that Server stores."""
    topology = (
        *(line for line in PULLED if "HSQ" not in line),
        "Client: HSQ(H@Other)",
        "Client: CONN(Other) VIA(Server)",
    )
    resolution = put(topology, "Server", "Q@Client", Pull("Client"))
    assert undeliverable(resolution) == ("SAF Store on Server", None)


def test_in_the_strict_reading_the_two_queues_must_have_one_name() -> None:
    """H does not pull from Store; a queue called Store does."""
    strict = Options(home_server_names=True)
    other = [line.replace("HSQ(H", "HSQ(Store") for line in PULLED]
    ends = [
        put(t, "Server", "Q@Client", Pull("Client"), options=strict).end for t in (PULLED, other)
    ]
    assert [str(end) for end in ends] == ["SAF Store on Server", "Q@Client"]


def test_trigger_transmission_makes_home_server_queues_pull_on_its_own_manager_only() -> None:
    """Triggered on the client it pulls, on the server it does nothing."""
    on_client = put(PULLED, "Server", "Q@Client", TriggerTransmission("Client"))
    on_server = put(PULLED, "Server", "Q@Client", TriggerTransmission("Server"))
    assert str(on_client.end) == "Q@Client"
    assert undeliverable(on_server) == ("SAF Store on Server", None)


@pytest.mark.parametrize("message", [Message(lock_id="1"), Message(is_confirmed=False)])
def test_locked_and_unconfirmed_messages_do_not_move(message: Message) -> None:
    """Neither transmitted nor pulled."""
    transmitted = put(ASYNCHRONOUS, "QM", "Q@Far", TriggerTransmission(), message=message)
    pulled = put(PULLED, "Server", "Q@Client", Pull("Client"), message=message)
    assert str(transmitted.end) == "RQD Q@Far on QM"
    assert str(pulled.end) == "SAF Store on Server"


DEAD_LETTERS = (*PULLED, "Client: LQ(Dead) ROLE(deadletter) MAXMSG(20)")


def test_a_dead_letter_queue_takes_what_it_can() -> None:
    """A message that is too long even for it stays on the server."""
    short = put(DEAD_LETTERS, "Server", "Nope@Client", Pull("Client"), message=Message(length=20))
    long = put(DEAD_LETTERS, "Server", "Nope@Client", Pull("Client"), message=Message(length=21))
    assert str(short.end) == "Dead@Client (dead letter)"
    assert undeliverable(long) == ("SAF Store on Server", Failure.NO_QUEUE_ACCEPTS)


def test_a_duplicate_does_not_become_a_dead_letter() -> None:
    """The client has it already: a second copy must not come into being."""
    resolution = put(
        DEAD_LETTERS,
        "Server",
        "Q@Client",
        Pull("Client"),
        message=Message(identity="m"),
        conditions=Conditions(received={("Client", "m")}),
    )
    assert undeliverable(resolution) == ("SAF Store on Server", Failure.DUPLICATE)


def test_a_dead_letter_that_was_put_before_is_taken_again() -> None:
    """It is resent to the dead-letter queue, so duplicate protection lets it in."""
    resolution = put(
        DEAD_LETTERS,
        "Server",
        "Nope@Client",
        Pull("Client"),
        message=Message(identity="m"),
        conditions=Conditions(received={("Client", "m")}),
    )
    assert str(resolution.end) == "Dead@Client (dead letter)"


# Rules


class Stubborn(QueueRule, QueueManagerRule):
    """A rule that says the contrary of every default."""

    def put(self, queue: Names, message: Message) -> bool:
        return not super().put(queue, message)

    def duplicate_message(self, queue: Names, message: Message) -> bool:
        return not super().duplicate_message(queue, message)

    def transmit(self, queue: Names) -> bool:
        return not super().transmit(queue)

    def undeliverable(
        self, queue_manager: str, message: Message, names: Names, failure: Failure
    ) -> bool:
        return not super().undeliverable(queue_manager, message, names, failure)


class Broken(QueueRule, QueueManagerRule):
    """A rule whose every hook raises."""

    def put(self, queue: Names, message: Message) -> bool:
        raise KeyError(queue, message)

    duplicate_message = put

    def transmit(self, queue: Names) -> bool:
        raise KeyError(queue)

    def trigger_transmission(self, queue_manager: str, waiting: int) -> bool:
        raise KeyError(queue_manager, waiting)


def ruled(topology: Sequence[str], rule: Stubborn | Broken) -> MqeResolver:
    """A resolver in which every manager and queue has a rule."""
    managers = tuple(
        replace(
            manager,
            rule="t:R",
            queues=tuple(replace(queue, rule="t:R") for queue in manager.queues),
        )
        for manager in read_topology(topology).network.queue_managers
    )
    return MqeResolver(Network(queue_managers=managers), rules=Rules({"t:R": rule}, {"t:R": rule}))


@pytest.mark.parametrize(("rule", "expected"), [(Stubborn(), Failure.RULE_VETO), (Broken(), None)])
@pytest.mark.parametrize("topology", [("QM: LQ(Q)",), ("QM: RQD(Q@QM)", "QM: CONN(QM)")])
def test_a_put_rule_can_refuse_and_a_broken_one_is_not_heard(
    rule: Stubborn | Broken, expected: Failure | None, topology: Sequence[str]
) -> None:
    """The veto is False; an exception leaves the default."""
    end = ruled(topology, rule).resolve("QM", Names(queue="Q", queue_manager="QM")).end
    found = end.failure if isinstance(end, Failed) else None
    assert (found is Failure.RULE_VETO) is (expected is Failure.RULE_VETO)


def test_a_put_rule_is_asked_only_about_what_the_queue_could_take() -> None:
    """Limits come first: no rule hears of a message that is too long."""
    asked: list[int] = []

    class Noting(Stubborn):
        def put(self, queue: Names, message: Message) -> bool:  # noqa: ARG002  its form
            asked.append(message.length)
            return True

    resolver = ruled(("QM: LQ(Q) MAXMSG(10)",), Noting())
    for length in (11, 10):
        resolver.resolve("QM", Names(queue="Q", queue_manager="QM"), Message(length=length))
    assert asked == [10]


def test_a_message_without_identity_is_never_a_duplicate() -> None:
    """What cannot be told apart cannot have been put before."""
    end = put(("QM: LQ(Q)",), "QM", "Q", conditions=Conditions(received={("QM", "")})).end
    assert isinstance(end, Delivered)


def test_the_c_code_base_has_no_put_rule() -> None:
    """The rule is not asked, so it cannot refuse."""
    resolver = ruled(("QM: CODE(c)", "QM: LQ(Q)"), Stubborn())
    assert isinstance(resolver.resolve("QM", Names(queue="Q", queue_manager="QM")).end, Delivered)


def test_a_rule_can_let_a_duplicate_in_and_a_broken_one_cannot() -> None:
    """The default refuses."""
    message = Message(identity="m")
    conditions = Conditions(received={("QM", "m")})

    class Welcoming(Stubborn):
        def put(self, queue: Names, message: Message) -> bool:  # noqa: ARG002  its form
            return True

    ends = [
        ruled(("QM: LQ(Q)",), rule)
        .resolve("QM", Names(queue="Q", queue_manager="QM"), message, conditions)
        .end
        for rule in (Welcoming(), Broken())
    ]
    assert isinstance(ends[0], Delivered)
    assert isinstance(ends[1], Failed)


def test_an_undeliverable_rule_can_keep_a_message_from_the_dead_letters() -> None:
    """False leaves it on the home server."""
    managers = read_topology(DEAD_LETTERS).network.queue_managers
    ruled_managers = tuple(replace(manager, rule="t:R") for manager in managers)
    resolver = MqeResolver(
        Network(queue_managers=ruled_managers), rules=Rules(queue_managers={"t:R": Stubborn()})
    )
    stored = resolver.resolve("Server", Names(queue="Nope", queue_manager="Client"))
    end = resolver.follow(stored, Pull("Client")).end
    assert isinstance(end, Stored)
    assert end.undeliverable is Failure.NO_QUEUE_ACCEPTS


def test_a_managers_veto_on_transmission_stops_its_pulls_too() -> None:
    """Everything or nothing."""

    class Keeping(QueueManagerRule):
        def trigger_transmission(self, queue_manager: str, waiting: int) -> bool:  # noqa: ARG002
            return False

    managers = read_topology(PULLED).network.queue_managers
    network = Network(queue_managers=tuple(replace(one, rule="t:R") for one in managers))
    resolver = MqeResolver(network, rules=Rules(queue_managers={"t:R": Keeping()}))
    stored = resolver.resolve("Server", Names(queue="Q", queue_manager="Client"))
    assert resolver.follow(stored, TriggerTransmission("Client")) == stored
    assert str(resolver.follow(stored, Pull("Client")).end) == "Q@Client"


def test_broken_transmission_rules_let_everything_go() -> None:
    """The default of both vetoes is to transmit."""
    resolver = ruled(ASYNCHRONOUS, Broken())
    stored = resolver.resolve("QM", Names(queue="Q", queue_manager="Far"))
    assert str(resolver.follow(stored, TriggerTransmission("QM")).end) == "Q@Far"


def test_rules_are_imported_by_the_entry_points_that_definitions_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each kind gets an instance; what cannot be used is an error that names the definition."""
    module = types.ModuleType("rules_of_a_solution")
    module.__dict__.update(OfQueue=type("OfQueue", (QueueRule,), {}), Nothing=object)
    monkeypatch.setitem(sys.modules, module.__name__, module)
    queues = (
        LocalQueue(name="Q", rule="rules_of_a_solution:OfQueue"),
        LocalQueue(name="R", rule="rules_of_a_solution:Nothing"),
        LocalQueue(name="S", rule="no_such_module:X"),
    )
    manager = QueueManager(name="QM", queues=queues, rule="rules_of_a_solution:OfQueue")
    rules, findings = load_rules(Network(queue_managers=(manager,)))
    assert list(rules.queues) == ["rules_of_a_solution:OfQueue"]
    assert [(one.code, one.subject) for one in findings] == [
        ("RULE_UNUSABLE", "QM"),
        ("RULE_UNUSABLE", "R"),
        ("RULE_UNUSABLE", "S"),
    ]


# Expiry


def test_an_expired_message_is_gone_at_every_queue_that_keeps_messages() -> None:
    """On a local queue, an asynchronous definition and a store-and-forward queue alike."""
    topology = ("QM: LQ(L)", "QM: RQD(R@Far) MODE(async)", "QM: SAF(S@Far) QME(Far)")
    late = Conditions(now=11)
    message = Message(expire_time=ExpireAfter(10))
    for to in ("L@QM", "R@Far", "Any@Far"):
        resolution = put(topology, "QM", to, message=message, conditions=late)
        assert isinstance(resolution.end, Expired)
        assert resolution.accepted
        on_time = put(topology, "QM", to, message=message, conditions=Conditions(now=10))
        assert not isinstance(on_time.end, Expired)


@pytest.mark.parametrize(
    ("topology", "at", "to", "follow_up"),
    [
        (ASYNCHRONOUS, "QM", "Q@Far", TriggerTransmission("QM")),
        (DEAD_LETTERS, "Server", "Nope@Client", Pull("Client")),
    ],
)
def test_an_expired_message_neither_moves_nor_becomes_a_dead_letter(
    topology: Sequence[str], at: str, to: str, follow_up: FollowUp
) -> None:
    """Expiry is tested again when the message is removed from the queue that keeps it."""
    message = Message(expire_time=ExpireAfter(10))
    resolver = MqeResolver(read_topology(topology).network)
    queue, _, queue_manager = to.partition("@")
    on_time, late = Conditions(now=10), Conditions(now=11)
    stored = resolver.resolve(at, Names(queue=queue, queue_manager=queue_manager), message, on_time)
    assert isinstance(stored.end, Stored)
    moved = resolver.follow(stored, follow_up, message, late)
    assert moved.end == Expired(at, stored.end.queue)
    assert moved.steps == stored.steps


def test_a_second_discovery_of_the_same_definition_adds_nothing() -> None:
    """Two puts that discovered alike, kept one after the other, leave one definition."""
    network = read_topology(DISCOVERABLE).network
    discovered = (
        MqeResolver(network).resolve("QM", Names(queue="Q", queue_manager="Far")).discovered
    )
    once = network.with_discovered(discovered)
    assert once.with_discovered(discovered) == once
    assert once.queue_managers[0].queues == (RemoteQueue(name="Q", queue_manager="Far"),)
    assert once.queue_managers[0].code_base is CodeBase.JAVA
