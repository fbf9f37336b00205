"""What the library says becomes of a message that the job is given.

The definitions tell its way, and the job's own deciders, in memory, what becomes of it at the end.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from tests.conformance.decided_network import NOW, put_deciders
from tests.conformance.mq_notation import bind_option
from tests.conformance.traffic_networks import InexpressibleError, Numbered
from tests.engine.known_cluster import OPEN
from tests.topology.mqe import notation
from tests.topology.mqe.vector_put import carry_out

from redrive.engine.facts import Facts
from redrive.engine.message import seed_of
from redrive.engine.outcome import Result
from redrive.engine.walk import Hop, walk
from redrive.messages import OutputRecord, decode_dead_letter
from redrive.topology import mqe
from redrive.topology.files import Topology
from redrive.topology.layout import QueueTopic, TopicRole, topics_of
from redrive.topology.mq.results import (
    Call,
    OpenRequest,
    Persistence,
    PutMessage,
    PutResult,
    Target,
)
from redrive.topology.mq.routes import End, follow_route
from redrive.topology.names import NO_NAMES, Names, put_topic, topic_name, transmission_topic

_CLOSEST: Final[Mapping[mqe.Failure, int]] = {
    mqe.Failure.NO_QUEUE_ACCEPTS: 2085,
    mqe.Failure.MESSAGE_TOO_BIG: 2030,
    mqe.Failure.QUEUE_FULL: 2053,
    mqe.Failure.RULE_VETO: 2051,
}
"""Reason codes closest to failures of MQ Everyplace, which have no numbers."""
_UNREACHABLE: Final = 2087
"""The reason code for all others."""


class Lying(NamedTuple):
    """A message on a topic."""

    topic: str
    names: Names | None
    """The destination that is kept with it while it is on its way."""


@dataclass(frozen=True, kw_only=True)
class MessageTrace:
    """What becomes of a message."""

    lies: tuple[Lying, ...]
    """Where it comes to lie after the intake, in order."""
    result: Result = Result.ROUTED
    """What the last put gives."""
    reason: int = 0
    """Why that failed."""
    letter: Names = NO_NAMES
    """Names that its dead-letter header records."""
    fields: Mapping[str, str] = field(default_factory=dict)
    """Fields of its descriptor that the first put settles."""
    discovered: frozenset[tuple[str, str, str]] = frozenset()
    """Definitions that come into being: manager, queue and the queue's manager."""
    running: Mapping[tuple[str, str], bool] = field(default_factory=dict)
    """States of the channels with which it ends so."""
    retries: int = 0
    """How often a receiver tries the last put again."""

    @property
    def results(self) -> list[str]:
        """The result of each put, in order."""
        is_written = self.result in {Result.ROUTED, Result.DEAD_LETTERED}
        earlier = len(self.lies) - 1 if is_written else len(self.lies)
        parked = [Result.PARKED.value] * self.retries
        return [Result.ROUTED.value] * earlier + parked + [self.result.value]


def message_trace(one: Numbered, topology: Topology) -> MessageTrace:
    """The library's answer.

    Args:
        one: The put.
        topology: Its definitions, as the job reads them.

    Raises:
        InexpressibleError: The put ends where the job has no message, or depends on something
            that definitions do not say.
    """
    return _trace_in_mq(one, topology) if one.network is None else _Journey(one, topology).trace()


# IBM MQ


def _trace_in_mq(one: Numbered, topology: Topology) -> MessageTrace:
    network, put = topology.mq, one.vector["put"]
    message = PutMessage(
        length=len(one.body),
        persistence=one.persistence or Persistence.NOT_PERSISTENT,
        reply_to=Names(queue=put.get("replyq") or "", queue_manager=put.get("replyqm") or ""),
    )
    request = OpenRequest(
        queue=one.queue,
        queue_manager=one.queue_manager,
        call=Call.MQPUT1,
        bind=bind_option(put.get("bind", "ON_OPEN")),
        seed=seed_of(put.get("open") or f"{put_topic(one.at)}:0:0"),
    )
    route = follow_route(network, one.at, request, message)
    if put.get("call") != Call.MQPUT1:
        opened = replace(request, call=Call.MQOPEN)
        other = follow_route(network, one.at, opened, message)
        if (other.end, other.final, other.reason) != (route.end, route.final, route.reason):
            raise InexpressibleError("it asks about MQOPEN, and the job puts as MQPUT1 does")
    if route.end in {End.TOPIC, End.OUTSIDE, End.LOOP}:
        raise InexpressibleError(f"the job has no such end: {route.end}")
    lies = tuple(_lying(result) for result in route.puts if not result.is_failed)
    ended = _ended(one, topology, lies) if route.reason else MessageTrace(lies=lies)
    return replace(ended, fields=_settled(route.puts[0]))


def _lying(result: PutResult) -> Lying:
    opened = result.resolution
    at, queue, to = opened.opened_at, opened.put_queue, opened.next_queue_manager
    topic = (
        transmission_topic(queue=queue, queue_manager=at, to=to)
        if to
        else topic_name(queue=queue, queue_manager=at)
    )
    return Lying(topic, opened.destination if opened.target is Target.REMOTE else None)


def _settled(first: PutResult) -> dict[str, str]:
    if first.is_failed:
        return {}
    fields = {"Persistence": str(int(first.is_persistent))}
    if first.resolution.cap_expiry is not None:
        fields["Expiry"] = str(first.resolution.cap_expiry)
    if first.reply_to.queue:
        fields |= {
            "ReplyToQ": first.reply_to.queue,
            "ReplyToQMgr": first.reply_to.queue_manager,
        }
    return fields


def _ended(one: Numbered, topology: Topology, lies: tuple[Lying, ...]) -> MessageTrace:
    """What the last put gives, by the deciders of the job."""
    hops = _walked(one, topology)
    last, reason = hops[-1], int(hops[-1].outcome["reason"])
    parked = next((hop for hop in hops if hop.result is Result.PARKED), None)
    retries = _retries(topology, parked.record.topic) if parked else 0
    if last.message is None:
        return MessageTrace(lies=lies, result=last.result, reason=reason, retries=retries)
    record = last.message.record
    header = decode_dead_letter(record.value, record.headers or []).header
    assert header is not None
    return MessageTrace(
        lies=(*lies, Lying(record.topic, None)),
        result=last.result,
        reason=reason,
        letter=Names(queue=header.dest_q_name, queue_manager=header.dest_q_mgr_name),
        retries=retries,
    )


def _walked(one: Numbered, topology: Topology) -> tuple[Hop, ...]:
    put = one.vector["put"]
    persistence = None if one.persistence is None else str(int(one.persistence))
    texts = {
        "redrive.oqm": one.queue_manager,
        "redrive.oq": one.queue,
        "redrive.bind": put.get("open"),
        "JMS_IBM_MQMD_Persistence": persistence,
        "JMS_IBM_MQMD_Report": put.get("report"),
    }
    headers = [(name, text.encode()) for name, text in texts.items() if text]
    record = OutputRecord(put_topic(one.at), one.id.encode(), one.body, headers, NOW)
    deciders = put_deciders(topology)
    return walk(record, deciders, Facts(lambda: 0.0), OPEN.answers, now=NOW).way()


def _retries(topology: Topology, topic: str) -> int:
    return next(one.message_retries for one in topics_of(topology) if one.topic == topic)


# MQ Everyplace


class _Journey:
    """A message on its way through a network whose connections move what is stored.

    A vector says when something happens; a running channel moves a message at once. Both come to
    the same end if just the channel is stopped on whose store the vector's message rests.
    """

    def __init__(self, one: Numbered, topology: Topology) -> None:
        if one.network is None or topology.mqe is None:
            raise InexpressibleError("no network of MQ Everyplace")
        self._one = one
        self._message = mqe.Message(length=len(one.body))
        self._network = topology.mqe
        self._resolver = mqe.MqeResolver(self._network)
        self._stores = {
            topic.topic: topic
            for topic in topics_of(topology)
            if topic.role is TopicRole.TRANSMISSION and topic.is_read
        }
        self._lies: list[Lying] = []
        self._discovered: set[tuple[str, str, str]] = set()

    def trace(self) -> MessageTrace:
        """From the put to the end."""
        wanted = self._wanted()
        stopped = self._stopped(wanted)
        names = Names(queue=self._one.queue, queue_manager=self._one.queue_manager)
        end = self._noted(self._resolver.resolve(self._one.at, names, self._message))
        while isinstance(end, mqe.Stored) and end.undeliverable is None:
            topic = _store(end)
            if any(topic == lying.topic for lying in self._lies):
                raise InexpressibleError("a message that circulates for ever")
            self._lies.append(
                Lying(topic, Names(queue=end.names.queue, queue_manager=end.names.queue_manager))
            )
            source = self._stores.get(topic)
            if source is None or source.channel in stopped:
                break
            end = self._noted(self._moved(end, source))
        if _place(end) != _place(wanted):
            raise InexpressibleError(f"conditions that no definition states decide: {wanted}")
        trace = self._ended(end)
        running = {one.channel: one.channel not in stopped for one in self._stores.values()}
        return replace(trace, running=running, discovered=frozenset(self._discovered))

    def _wanted(self) -> mqe.End:
        """The end with what the vector says happens afterwards, and with its links down."""
        conditions = mqe.Conditions(down=self._one.down)
        said = notation.Topology(self._network, conditions, self._one.at)
        put = {**self._one.vector["put"], "length": self._message.length}
        return carry_out(said, put).end

    def _stopped(self, wanted: mqe.End) -> set[tuple[str, str]]:
        if not isinstance(wanted, mqe.Stored):
            return set()
        rests = wanted.undeliverable in {None, mqe.Failure.LINK_DOWN}
        source = self._stores.get(_store(wanted))
        return {source.channel} if rests and source is not None else set()

    def _moved(self, stored: mqe.Stored, source: QueueTopic) -> mqe.Resolution:
        if source.is_pulled:
            return self._resolver.pull(stored, source.to, self._message)
        return self._resolver.transmit(stored, self._message)

    def _noted(self, resolution: mqe.Resolution) -> mqe.End:
        for one in resolution.discovered:
            self._discovered.add((one.queue_manager, one.names.queue, one.names.queue_manager))
        return resolution.end

    def _ended(self, end: mqe.End) -> MessageTrace:
        lies = tuple(self._lies)
        match end:
            case mqe.Delivered(names, _, dead_letter):
                place = Lying(
                    topic_name(queue=names.queue, queue_manager=names.queue_manager), None
                )
                return (
                    self._dead_letter(place) if dead_letter else MessageTrace(lies=(*lies, place))
                )
            case mqe.Stored(undeliverable=mqe.Failure() as failure):
                reason = _CLOSEST.get(failure, _UNREACHABLE)
                return MessageTrace(lies=lies, result=Result.REMAINS, reason=reason)
            case mqe.Failed(failure):
                return self._refused(_CLOSEST.get(failure, _UNREACHABLE))
        return MessageTrace(lies=lies)

    def _dead_letter(self, place: Lying) -> MessageTrace:
        """Dead letters of the manager that pulled: why is what its own put would be told."""
        names = self._lies[-1].names or NO_NAMES
        put = Names(queue=names.queue, queue_manager=names.queue_manager)
        end = self._resolver.resolve(names.queue_manager, put, self._message).end
        failure = end.failure if isinstance(end, mqe.Failed) else None
        return MessageTrace(
            lies=(*self._lies, place),
            result=Result.DEAD_LETTERED,
            reason=_UNREACHABLE if failure is None else _CLOSEST.get(failure, _UNREACHABLE),
            letter=names,
        )

    def _refused(self, reason: int) -> MessageTrace:
        """Dead letters of the manager on which the put is made; else the message remains."""
        at = self._one.at
        for queue in self._dead_letter_queues(at):
            return MessageTrace(
                lies=(Lying(topic_name(queue=queue, queue_manager=at), None),),
                result=Result.DEAD_LETTERED,
                reason=reason,
                letter=Names(queue=self._one.queue, queue_manager=self._one.queue_manager or at),
            )
        return MessageTrace(lies=(), result=Result.REMAINS, reason=reason)

    def _dead_letter_queues(self, at: str) -> Iterator[str]:
        manager = self._network.queue_manager(at)
        for queue in manager.queues if manager else ():
            if isinstance(queue, mqe.LocalQueue) and queue.role is mqe.Role.DEAD_LETTER:
                yield queue.name


def _store(end: mqe.Stored) -> str:
    """The topic of what is stored: store-and-forward queues have one for each target."""
    of_target = isinstance(end.queue, mqe.StoreAndForwardQueue)
    to = end.names.queue_manager if of_target else end.queue.queue_manager
    return transmission_topic(queue=end.queue.name, queue_manager=end.queue_manager, to=to)


def _place(end: mqe.End) -> tuple[type, str]:
    return type(end), str(end)
