"""Resolutions for display: every step, for queue managers of all kinds.

``explain`` lists the steps of one put by the job, ``trace_open`` resolves the names of an
application's open, and ``trace_moves`` follows a stored message of MQ Everyplace over given moves.
``redrive.engine.walk`` has what the job does with the message.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Final

from redrive.messages.reasons import ADVICE, Reason
from redrive.topology.layout import Topology
from redrive.topology.mq.queue_manager import ClusterRoute
from redrive.topology.mq.resolution import open_queue
from redrive.topology.mq.resolver import topic_of_put
from redrive.topology.mq.results import (
    OpenRequest,
    Resolution,
    Target,
    job_request,
    location_of,
)
from redrive.topology.mq.results import Step as MqStep
from redrive.topology.mqe.message import Message
from redrive.topology.mqe.resolver import FollowUp, MqeResolver, Pull, Push, TriggerTransmission
from redrive.topology.mqe.results import Delivered, End, Failed, Stored
from redrive.topology.mqe.results import Resolution as MqeResolution
from redrive.topology.mqe.results import Step as MqeStep
from redrive.topology.names import Names, transmission_topic
from redrive.topology.receiving import MqeReceivingQueueManager, MqReceivingQueueManager


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceStep:
    """One step: a definition that was used."""

    rule: str
    """Row of the table (``R8``) or step of the procedure (``exact``)."""
    what: str
    definition: str = ""
    """The definition, in the queue manager's own words; empty if none was used."""
    location: str = ""
    before: str = ""
    """Names before, as ``queue@manager``."""
    after: str = ""


@dataclass(frozen=True, slots=True)
class Visit:
    """The part of a trace at one queue manager."""

    queue_manager: str
    names: str
    """Names with which the message arrived, as ``queue@manager``."""
    steps: tuple[TraceStep, ...]
    decision: str = ""
    """What the job then does with the message; empty if it continues at once, or for an open."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """Why a put fails."""

    code: int | None = None
    name: str = ""
    detail: str = ""
    location: str = ""
    """File and line of the definition to check, if any."""
    advice: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Caused:
    """A further message that a put causes."""

    what: str
    """Such as ``a report of arrival``."""
    end: str
    final: str = ""
    """Queue and manager where it is; empty if nowhere."""
    topic: str = ""
    detail: str = ""
    """Why it did not reach its queue."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolutionTrace:
    """A put followed through the queue managers: every step, and the end."""

    visits: tuple[Visit, ...]
    end: str
    is_good: bool
    """Whether the message reaches its queue, or the open succeeds."""
    final: str = ""
    """Queue and manager where the message is, as ``queue@manager``; empty if nowhere."""
    topic: str = ""
    """Kafka topic of that queue; empty if there is none."""
    problem: Problem | None = None
    caused: tuple[Caused, ...] = ()
    """Further puts: copies and reports."""
    assumed: tuple[str, ...] = ()
    """Assumptions about the cluster, as sentences."""
    moves: tuple[str, ...] = ()
    """How a stored message of MQ Everyplace can move: ``push``, ``pull``, ``trigger``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """The steps of one put by a receiving queue manager."""

    visits: tuple[Visit, ...]
    """The managers that its names reach directly."""
    failure: str = ""
    """The failure, if the product has a name instead of a number."""
    location: str = ""
    advice: str = ""


MOVES: Final = ("push", "pull", "trigger")
"""What can happen to a message that is stored in MQ Everyplace."""


def explain(
    topology: Topology,
    receiver: MqReceivingQueueManager | MqeReceivingQueueManager,
    names: Names,
    *,
    reason: int,
    seed: int,
) -> Explanation:
    """Explain one put of a receiver; ``reason`` is why it failed, or 0."""
    opened = receiver.opened(queue=names.queue, queue_manager=names.queue_manager, seed=seed)
    if isinstance(opened, Resolution):
        return _explanation(opened, names, reason)
    visits = _visits(opened, receiver.queue_manager, names)
    match opened.end:
        case Delivered(over_bridge=True, names=far) if far.queue_manager in topology.mq:
            # The bridge puts as an application of the IBM MQ queue manager does.
            put = open_queue(topology.mq, far.queue_manager, job_request(far.queue))
            bridged = _explanation(put, Names(queue=far.queue), reason)
            return replace(bridged, visits=(*visits, *bridged.visits))
        case (Failed() as failed) | Stored(refused=Failed() as failed):
            return Explanation(visits=visits, failure=str(failed), advice=failed.advice)
    return Explanation(visits=visits, advice=ADVICE.get(reason, ""))


def _explanation(opened: Resolution, names: Names, reason: int) -> Explanation:
    visit = Visit(opened.opened_at, str(names), tuple(map(_mq_step, opened.steps)))
    fault = opened.fault
    location = location_of(fault, reason) if reason and fault else None
    return Explanation(
        visits=(visit,),
        location=str(location) if location and location.line else "",
        advice=opened.advice or ADVICE.get(reason, ""),
    )


def trace_open(topology: Topology, at: str, request: OpenRequest) -> ResolutionTrace:
    """Resolve the names of one open at a queue manager of kind ``mq``."""
    opened = open_queue(topology.mq, at, request)
    names = Names(queue=request.queue, queue_manager=request.queue_manager)
    on_topics = {Target.LOCAL, Target.REMOTE}
    explanation = _explanation(opened, names, opened.reason)
    problem = Problem(
        code=int(opened.reason),
        name=f"MQRC_{opened.reason.name}",
        detail=opened.detail,
        location=explanation.location,
        advice=explanation.advice,
    )
    return ResolutionTrace(
        visits=explanation.visits,
        end="the open fails" if opened.is_failed else f"opens a {opened.target}",
        is_good=not opened.is_failed,
        final="" if opened.is_failed else str(opened.destination),
        topic=topic_of_put(opened, topology.mq.queue_managers[at], topology.bindings)
        if opened.target in on_topics
        else "",
        problem=problem if opened.reason is not Reason.NONE else None,
    )


def _mq_step(step: MqStep) -> TraceStep:
    definition = step.definition
    name = str(definition or "")
    if isinstance(definition, ClusterRoute):
        name = f"cluster queue manager {definition.queue_manager}"
    return TraceStep(
        rule=step.row,
        what=step.rule,
        definition=name,
        location=str(step.location) if step.location else "",
        before=str(step.before),
        after=str(step.after),
    )


# MQ Everyplace


def trace_moves(
    topology: Topology, at: str, names: Names, *, length: int, moves: Sequence[str]
) -> ResolutionTrace:
    """Follow a put of ``length`` bytes in MQ Everyplace over moves of stored messages.

    ``moves`` are the moves of the stored message in order, from ``MOVES``.

    Raises:
        KeyError: No network of MQ Everyplace has a manager ``at``.
    """
    network = topology.mqe
    if network is None or network.queue_manager(at) is None:
        raise KeyError(at)
    resolver = MqeResolver(network)
    message = Message(length=length)
    resolution = resolver.resolve(at, names, message)
    for move in moves:
        resolution = _follow_move(resolver, resolution, move, message)
    trace = _trace_to_end(topology, _visits(resolution, at, names), resolution.end)
    helpful = [
        move for move in MOVES if _follow_move(resolver, resolution, move, message) != resolution
    ]
    return replace(trace, moves=tuple(helpful))


def _follow_move(
    resolver: MqeResolver, resolution: MqeResolution, move: str, message: Message
) -> MqeResolution:
    end = resolution.end
    if not isinstance(end, Stored):
        return resolution
    moves: Mapping[str, FollowUp] = {
        "push": Push(),
        "pull": Pull(end.names.queue_manager),
        "trigger": TriggerTransmission(),
    }
    return resolver.follow(resolution, moves[move], message)


def _visits(resolution: MqeResolution, at: str, names: Names) -> tuple[Visit, ...]:
    """One visit for each manager of the steps, at least that of the put."""
    grouped = groupby(resolution.steps, key=lambda one: one.queue_manager)
    visits = [
        Visit(manager, str(found[0].before), tuple(map(_mqe_step, found)))
        for manager, steps in grouped
        if (found := list(steps))
    ]
    alone = Visit(at, str(replace(names, queue_manager=names.queue_manager or at)), ())
    return tuple(visits or [alone])


def _mqe_step(step: MqeStep) -> TraceStep:
    return TraceStep(
        rule=str(step.kind),
        what=str(step),
        definition=step.definition.name,
        location=str(step.definition.location) if step.definition.location.line else "",
        before=str(step.before),
        after=str(step.after),
    )


def _trace_to_end(topology: Topology, visits: tuple[Visit, ...], end: End) -> ResolutionTrace:
    match end:
        case Delivered(over_bridge=True, names=names) if names.queue_manager in topology.mq:
            # The bridge puts as an application of the IBM MQ queue manager does.
            put = trace_open(topology, names.queue_manager, job_request(names.queue))
            return replace(put, visits=(*visits, *put.visits))
        case Delivered(names=names, dead_letter=dead_letter):
            words = "on a dead-letter queue" if dead_letter else "on a queue"
            topic = topology.bindings.topic(queue=names.queue, queue_manager=names.queue_manager)
            return ResolutionTrace(
                visits=visits, end=words, is_good=not dead_letter, final=str(names), topic=topic
            )
        case Stored(queue_manager=queue_manager, queue=queue, refused=failed):
            detail = f"it cannot be passed on to {queue.queue_manager} for {end.names}"
            return ResolutionTrace(
                visits=visits,
                end=f"stays: {end}" if failed else f"stored: {end}",
                is_good=failed is None,
                final=f"{queue.name}@{queue_manager}",
                topic=transmission_topic(queue=queue.name, queue_manager=queue_manager, to=end.to),
                problem=_problem(failed, detail) if failed else None,
            )
        case Failed():
            problem = _problem(end, end.detail)
            return ResolutionTrace(
                visits=visits, end="the put fails", is_good=False, problem=problem
            )
    return ResolutionTrace(visits=visits, end=str(end), is_good=False)


def _problem(failed: Failed, detail: str) -> Problem:
    return Problem(name=str(failed), detail=detail, advice=failed.advice)
