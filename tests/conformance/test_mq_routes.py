"""The vectors of ``mq_routes``: the way of a message over several queue managers of IBM MQ."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from tests.conformance.mq_notation import (
    check_answers,
    depths_at,
    message_of,
    read_topology,
    request_of,
)
from tests.conformance.vectors import Vector

from redrive.topology.mq.results import Persistence
from redrive.topology.mq.routes import End, Route, RoutedMessage, follow_route


def answers_of(route: Route) -> dict[str, tuple[Any, ...]]:
    """What a vector can ask about a route, with every value that answers it."""
    final = str(route.final)
    discarded = route.end is End.DISCARDED
    arrived = {End.QUEUE: final, End.TOPIC: final, End.OUTSIDE: str(route.destination)}
    is_dead_letter = route.end is End.DEAD_LETTER
    held = (route.final.queue, final) if route.end is End.HELD else (None,)
    return {
        "rc": (int(route.reason),),
        "fail": (route.end is End.REFUSED,),
        "hops": ([str(hop) for hop in route.hops],),
        "final": (arrived.get(route.end),),
        "dlq": (final if is_dead_letter else None,),
        "dlq_reason": (int(route.reason) if is_dead_letter else None,),
        "dlh_dest": (str(route.destination),),
        "stays_on": held,
        "discarded": (discarded, "expired" if discarded and not route.reason else discarded),
        "expired": (discarded and not route.reason,),
        "dropped": (discarded,),
        "loop": (route.end is End.LOOP,),
        "persistent": (route.puts[-1].is_persistent,),
        "replyq": (route.puts[0].reply_to.queue,),
        "replyqm": (route.puts[0].reply_to.queue_manager,),
    }


def route_of(vector: Vector) -> Route:
    """Carry out the vector's put and follow the message."""
    put: Mapping[str, Any] = vector["put"]
    topology = read_topology(vector["topology"])
    at = put.get("at") or next(iter(topology.managers))
    topology.manager(at)
    network = topology.network()
    request = request_of(put)
    # A message about which nothing is said must not be lost on the way.
    message = message_of(put, Persistence.PERSISTENT)
    routed = RoutedMessage(put=message, expiry=put.get("expiry_tenths"))
    depths = depths_at(put.get("depth"), at)
    return follow_route(network, at, request, routed, depths=depths)


@pytest.mark.vectors("mq_routes")
def test_route(vector: Vector) -> None:
    """The message takes the hops of the vector and ends where the vector says."""
    check_answers(vector["expect"], answers_of(route_of(vector)))
