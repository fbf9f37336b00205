"""What holds of the resolver on every network."""

from __future__ import annotations

import itertools
from dataclasses import replace

from hypothesis import event, given
from hypothesis import strategies as st
from tests.topology.mqe.networks import MANAGERS, PUTS, links, networks

from redrive.topology.mqe.objects import MqeNetwork
from redrive.topology.mqe.resolver import Move, MqeResolver
from redrive.topology.mqe.results import Conditions, Delivered, Failed, StepKind, Stored
from redrive.topology.names import Names


@given(network=networks())
def test_a_second_put_finds_what_the_first_discovered(network: MqeNetwork) -> None:
    resolver = MqeResolver(network)
    for at, queue, queue_manager in PUTS:
        names = Names(queue=queue, queue_manager=queue_manager)
        first = resolver.resolve(at, names)
        kept = network.with_discovered(first.discovered)
        second = MqeResolver(kept).resolve(at, names)
        assert not second.discovered
        assert str(second.end) == str(first.end)
        assert kept.with_discovered(first.discovered) == kept


_MOVES = (
    (Move.PUSH, ""),
    *((Move.TRIGGER, manager) for manager in ("", *MANAGERS)),
    *((Move.PULL, manager) for manager in MANAGERS),
)


@given(network=networks(), moves=st.lists(st.sampled_from(_MOVES), max_size=4))
def test_a_message_is_never_lost_once_its_put_succeeded(
    network: MqeNetwork, moves: list[tuple[Move, str]]
) -> None:
    resolver = MqeResolver(network)
    for at, queue, queue_manager in PUTS:
        resolution = resolver.resolve(at, Names(queue=queue, queue_manager=queue_manager))
        accepted = not isinstance(resolution.end, Failed)
        assert resolution.accepted is accepted
        for move, by in moves:
            before = resolution
            resolution = resolver.follow(before, move, by)
            assert resolution.steps[: len(before.steps)] == before.steps
            assert isinstance(resolution.end, Failed) is not accepted
            assert resolution.accepted is accepted
            if isinstance(before.end, Delivered | Failed):
                assert resolution == before


@given(network=networks())
def test_a_forgotten_name_is_never_seen_again(network: MqeNetwork) -> None:
    resolver = MqeResolver(network)
    for at, queue, queue_manager in PUTS:
        taken = resolver.resolve(at, Names(queue=queue, queue_manager=queue_manager or at))
        for before, after in itertools.pairwise(taken.steps):
            assert after.before == before.after


@given(network=networks(), down=links())
def test_what_is_passed_on_is_a_fresh_put_at_the_receiver(
    network: MqeNetwork, down: frozenset[tuple[str, str]]
) -> None:
    resolver, conditions = MqeResolver(network), Conditions(down=down)
    for at, queue, queue_manager in PUTS:
        stored = resolver.resolve(
            at, Names(queue=queue, queue_manager=queue_manager), conditions=conditions
        ).end
        if not isinstance(stored, Stored):
            continue
        passed = resolver.transmit(stored, conditions=conditions)
        on_the_way = itertools.takewhile(
            lambda step: step.kind is StepKind.CONNECTION, passed.steps
        )
        put = passed.steps[len(list(on_the_way)) :]
        taken = (
            resolver.resolve(put[0].queue_manager, stored.names, conditions=conditions)
            if put
            else None
        )
        event("moves" if put else "stays")
        assert taken is None or taken.steps == put
        if taken is None or isinstance(taken.end, Failed) or taken.end == stored:
            assert isinstance(passed.end, Stored)
            assert replace(passed.end, refused=None) == stored
        else:
            assert passed.end == taken.end
