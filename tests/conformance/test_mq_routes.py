"""The vectors of ``mq_routes``: the way of a message over several queue managers of IBM MQ.

The definitions tell the way (``follow_route``), and the job's own deciders, walked in memory, tell
the result of the message on it. Where both answer, both have to be right.
"""

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
from tests.conformance.vectors import FURTHER_ROUTES, Vector
from tests.engine.walks import MqWalk
from tests.topology.mq.routes import End, PutMessage, Route, follow_route

from redrive.engine.outcome import Result
from redrive.messages import decode_dead_letter
from redrive.messages.fields import mqmd_fields
from redrive.topology.layout import TopicRole
from redrive.topology.mq.results import Persistence
from redrive.topology.names import Names


def answers_of(route: Route) -> dict[str, tuple[Any, ...]]:
    """What a vector can ask about a way, with every value that answers it."""
    sent = [put.resolution.destination for put in route.puts if not put.is_failed]
    outside = str(sent[-1]) if sent else None
    arrived = {End.QUEUE: str(route.final), End.OUTSIDE: outside}
    held = (route.final.queue, str(route.final)) if route.end is End.HELD else (None,)
    return {
        "rc": (int(route.reason),),
        "fail": (route.end is End.REFUSED,),
        "hops": ([str(hop) for hop in route.hops],),
        "final": (arrived.get(route.end),),
        "dlq": (None,),
        "dlq_reason": (None,),
        "stays_on": held,
        "discarded": (False,),
        "expired": (False,),
        "dropped": (False,),
        "loop": (route.end is End.LOOP,),
        "persistent": (route.puts[-1].is_persistent,),
        "replyq": (route.puts[0].reply_to.queue,),
        "replyqm": (route.puts[0].reply_to.queue_manager,),
    }


def answers_of_walk(way: MqWalk) -> dict[str, tuple[Any, ...]]:
    """The result of the message, likewise."""
    last = way.hops[-1]
    written = [hop.message.record for hop in way.hops if hop.message is not None]
    lying = [way.places[record.topic] for record in written if record.topic in way.places]
    sent = [topic for topic in lying if topic.role is TopicRole.TRANSMISSION]
    rests = lying[-1].place if lying else ""
    is_letter = last.result is Result.DEAD_LETTERED
    is_final = last.result is Result.ROUTED and lying[-1].role is TopicRole.QUEUE
    is_held = last.result is Result.REMAINS or (last.result is Result.ROUTED and not is_final)
    letter = decode_dead_letter(written[-1].value, written[-1].headers or []) if is_letter else None
    header = letter.header if letter else None
    is_expired = last.result is Result.EXPIRED
    is_discarded = is_expired or last.result is Result.DISCARDED
    return {
        "hops": ([f"{topic.queue_manager} xmitq {topic.queue}" for topic in sent],),
        "final": (rests if is_final else None,),
        "dlq": (rests if is_letter else None,),
        "dlq_reason": (last.outcome["reason"] if is_letter else None,),
        "dlh_dest": (
            str(Names(queue=header.dest_q_name, queue_manager=header.dest_q_mgr_name))
            if header
            else None,
        ),
        "stays_on": (lying[-1].queue, rests) if is_held else (None,),
        "discarded": (is_discarded, "expired" if is_expired else is_discarded),
        "expired": (is_expired,),
        "dropped": (is_discarded,),
        "persistent": (mqmd_fields(written[-1].headers or [])["Persistence"] == 1,),
    }


def carried_out(vector: Vector) -> tuple[Route, MqWalk]:
    """Follow the vector's put by the definitions, and by the job's deciders."""
    put: Mapping[str, Any] = vector["put"]
    topology = read_topology(vector["topology"])
    at = put.get("at") or next(iter(topology.managers))
    topology.manager(at)
    request = request_of(put)
    # A message about which nothing is said must not be lost on the way.
    message: PutMessage = message_of(put, Persistence.PERSISTENT)
    depths = depths_at(put.get("depth"), at)
    way = MqWalk(topology, depths)
    way.put(at, request, message, expiry=put.get("expiry_tenths"))
    return follow_route(topology.network(), at, request, message, depths=depths), way


@pytest.mark.parametrize("vector", FURTHER_ROUTES, ids=lambda vector: vector["id"])
def test_further_route(vector: Vector) -> None:
    """What receivers, channels and dead-letter queues do that no vector tells."""
    test_route(vector)


@pytest.mark.vectors("mq_routes")
def test_route(vector: Vector) -> None:
    """The message takes the hops of the vector and ends where the vector says."""
    route, way = carried_out(vector)
    answers = answers_of(route)
    is_told = way.hops[0].result is not Result.ROUTED  # an application gets the code instead
    if not (is_told or way.is_left or route.end is End.LOOP):
        answers |= answers_of_walk(way)
    check_answers(vector["expect"], answers)
