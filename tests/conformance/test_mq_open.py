"""The vectors of ``mq_open``: which queue the names of one open or put lead to in IBM MQ."""

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
from tests.topology.mq.routes import PutResult, put_message

from redrive.topology.mq.objects import CLUSTER_TRANSMISSION_QUEUE
from redrive.topology.mq.resolution import open_queue
from redrive.topology.mq.results import Persistence, Resolution, TargetKind


def transmission_queue(opened: Resolution) -> str:
    """The transmission queue as the notation writes it."""
    if opened.target is TargetKind.PER_MESSAGE:
        return "per message"
    return opened.transmission_queue or "-"


def answers_of_open(opened: Resolution) -> dict[str, tuple[Any, ...]]:
    """What a vector can ask about an open, with every value that answers it."""
    queue = transmission_queue(opened)
    clustered = opened.next_queue_manager and opened.transmission_queue
    return {
        "rc": (int(opened.reason),),
        "fail": (opened.is_failed,),
        "rqm": (opened.resolved_queue_manager,),
        "rq": (opened.resolved_queue,),
        "xmitq": (queue, CLUSTER_TRANSMISSION_QUEUE) if clustered else (queue,),
    }


def answers_of_put(result: PutResult, opened: Resolution) -> dict[str, tuple[Any, ...]]:
    """As ``answers_of_open``, with what a put adds; names may be those of open or put."""
    answers = answers_of_open(opened)
    if opened.target is TargetKind.PER_MESSAGE:
        chosen = answers_of_open(result.resolution)
        answers = {key: (*value, *chosen[key]) for key, value in answers.items()}
    return answers | {
        "rc": (int(result.reason),),
        "fail": (result.is_failed,),
        "put": ("ok" if not result.is_failed else "failed",),
        "persistent": (result.is_persistent,),
        "priority": (result.resolution.default_priority,),
        "replyq": (result.reply_to.queue,),
        "replyqm": (result.reply_to.queue_manager,),
    }


def answers_to(vector: Vector) -> dict[str, tuple[Any, ...]]:
    """Carry out the vector's put."""
    put: Mapping[str, Any] = vector["put"]
    topology = read_topology(vector["topology"])
    at = put.get("at") or next(iter(topology.managers))
    topology.manager(at)
    network = topology.network()
    call = put.get("call", "MQOPEN")
    request = request_of(put)
    opened = open_queue(network, at, request)
    if call == "MQOPEN":
        return answers_of_open(opened)
    message = message_of(put, Persistence.AS_Q_DEF)
    depths = depths_at(put.get("depth"), at)[at]
    return answers_of_put(put_message(network, at, request, message, depths=depths), opened)


@pytest.mark.vectors("mq_open")
def test_open(vector: Vector) -> None:
    """The names lead where the vector says, or end with its reason code."""
    answers = answers_to(vector)
    expect: dict[str, Any] = vector["expect"]
    if "rc" not in expect and not expect.get("fail"):
        assert answers["rc"] == (0,)
    check_answers(expect, answers)
