"""The result of a message that the job is given, by its decisions alone."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass

import orjson
from tests.conformance.decided_network import REMAINING, DecidedNetwork
from tests.conformance.mq_notation import bind_option
from tests.conformance.traffic_networks import InexpressibleError, Numbered
from tests.topology.mq.routes import End, PutMessage, follow_route
from tests.topology.mqe import notation
from tests.topology.mqe.vector_put import carry_out

from redrive.engine.attempts import LOOP
from redrive.engine.commands import states_of
from redrive.engine.message import seed_of
from redrive.engine.outcome import Result
from redrive.messages import Headers, OutputRecord
from redrive.messages.own_headers import read_own
from redrive.topology.layout import TopicRole, Topology, topics_of
from redrive.topology.mq.results import Call, OpenRequest, Persistence
from redrive.topology.mqe.objects import StoreAndForwardQueue
from redrive.topology.mqe.results import Conditions, Delivered, Failed, PutFailure, Stored
from redrive.topology.mqe.results import End as MqeEnd
from redrive.topology.names import Names, put_topic, topic_name, transmission_topic

PUT_AT = time.time_ns() // 1_000_000
"""Milliseconds since 1970 at which every message is put: PutDate and PutTime tell it."""


@dataclass(frozen=True, kw_only=True)
class MessageTrace:
    records: tuple[OutputRecord, ...]
    """Where it comes to lie after the intake, in order."""
    results: list[str]
    """Of its puts, in order."""
    reason: int
    """Why the last one failed; 0 if it did not."""
    discovered: frozenset[tuple[str, str, str]]
    """Definitions that come into being: manager, queue and the queue's manager."""
    running: Mapping[tuple[str, str], bool]
    """States of the channels with which it ends so."""


def put_of(case: Numbered) -> OutputRecord:
    """The record that an application writes."""
    put = case.vector["put"]
    texts = {
        "vector": case.id,
        "redrive.oq": case.queue,
        "redrive.oqm": case.queue_manager,
        "JMS_IBM_MQMD_Persistence": None
        if case.persistence is None
        else str(int(case.persistence)),
        "JMS_IBM_MQMD_ReplyToQ": put.get("replyq"),
        "JMS_IBM_MQMD_ReplyToQMgr": put.get("replyqm"),
        "JMS_IBM_MQMD_Report": put.get("report"),
        "redrive.bind": put.get("open"),
    }
    headers: Headers = [(name, text.encode()) for name, text in texts.items() if text]
    return OutputRecord(put_topic(case.at), case.id.encode(), case.body, headers, PUT_AT)


def message_trace(case: Numbered, topology: Topology) -> MessageTrace:
    """What the job's decisions make of a put.

    Args:
        one: The put.
        topology: Its definitions, as the job reads them.

    Raises:
        InexpressibleError: The put ends where the job has no message, or depends on something
            that definitions do not say.
    """
    if case.network is None:
        _check_that_the_call_does_not_matter(case, topology)
        return _decided(case, topology, {})
    stores = {
        topic.topic: topic.channel
        for topic in topics_of(topology)
        if topic.role is TopicRole.TRANSMISSION and topic.is_read
    }
    end = _end_of_vector(case)
    rests = isinstance(end, Stored) and (
        end.refused is None or end.refused.failure is PutFailure.LINK_DOWN
    )
    # A vector says when something happens; a running channel moves a message at once. Both come to
    # the same end if just the channel is stopped on whose store the vector's message rests.
    stopped = stores.get(_topic(end)) if rests else None
    running = {channel: channel != stopped for channel in stores.values()}
    trace = _decided(case, topology, running)
    is_refused = trace.results[0] != Result.ROUTED
    if is_refused != isinstance(end, Failed) or (
        not is_refused and trace.records[-1].topic != _topic(end)
    ):
        raise InexpressibleError(f"conditions that no definition states decide: {end}")
    return trace


def _decided(
    case: Numbered, topology: Topology, running: Mapping[tuple[str, str], bool]
) -> MessageTrace:
    network = DecidedNetwork(topology, running)
    put = put_of(case)
    network.run([put])
    message = f"{put.topic}:0:0"
    outcomes = [outcome for outcome in network.outcomes if outcome["message"] == message]
    reason = outcomes[-1]["reason"]
    if reason == LOOP:
        raise InexpressibleError("a message that circulates forever")
    entries = {
        (state.key or b"").decode(): orjson.loads(state.value or b"") for state in network.states
    }
    return MessageTrace(
        records=tuple(
            record
            for record in network.put
            if read_own(record.headers or []).identity == message
            and record.topic != REMAINING
            and not record.topic.endswith("-retry")
        ),
        results=[outcome["result"] for outcome in outcomes],
        reason=reason,
        discovered=frozenset(states_of(entries).discovered),
        running=running,
    )


def _check_that_the_call_does_not_matter(case: Numbered, topology: Topology) -> None:
    put = case.vector["put"]
    reply_to = Names(queue=put.get("replyq") or "", queue_manager=put.get("replyqm") or "")
    message = PutMessage(
        length=len(case.body),
        persistence=case.persistence or Persistence.NOT_PERSISTENT,
        reply_to=reply_to,
    )
    ends = set()
    for call in (Call.MQPUT1,) if put.get("call") == Call.MQPUT1 else Call:
        request = OpenRequest(
            queue=case.queue,
            queue_manager=case.queue_manager,
            call=call,
            bind=bind_option(put.get("bind", "ON_OPEN")),
            seed=seed_of(put.get("open") or f"{put_topic(case.at)}:0:0"),
        )
        route = follow_route(topology.mq, case.at, request, message)
        if route.end is End.OUTSIDE:
            raise InexpressibleError(f"the job has no such end: {route.end}")
        ends.add((route.end, route.final, route.reason))
    if len(ends) > 1:
        raise InexpressibleError("it asks about MQOPEN, and the job puts as MQPUT1 does")


def _end_of_vector(case: Numbered) -> MqeEnd:
    """The end with what the vector says happens afterwards, and with its links down."""
    assert case.network is not None
    said = notation.Topology(case.network, Conditions(down=case.down), case.at)
    return carry_out(said, {**case.vector["put"], "length": len(case.body)}).end


def _topic(end: MqeEnd) -> str:
    """Where a message lies at an end: store-and-forward queues have a topic for each target."""
    match end:
        case Delivered(names):
            return topic_name(queue=names.queue, queue_manager=names.queue_manager)
        case Stored(queue=queue, queue_manager=at):
            of_target = isinstance(queue, StoreAndForwardQueue)
            to = end.names.queue_manager if of_target else queue.queue_manager
            return transmission_topic(queue=queue.name, queue_manager=at, to=to)
    return ""
