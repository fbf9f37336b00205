"""The trace of a put as a person sees it: every step, for queue managers of all kinds.

``trace_put`` follows a put as the job makes it, ``trace_open`` resolves the names of an
application's open; both give a ``ResolutionTrace``, which ``redrive resolve`` shows as a tree, as
JSON or as a flowchart.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Final

from redrive.messages.reasons import Reason
from redrive.topology import mqe
from redrive.topology.caused import Caused, IntakeEnd, by_the_job, caused_by, topic_of_end
from redrive.topology.files import Topology
from redrive.topology.mq.queue_manager import ClusterRoute
from redrive.topology.mq.resolution import open_queue
from redrive.topology.mq.resolver import topic_of_put
from redrive.topology.mq.results import OpenRequest, Resolution, Target, job_request
from redrive.topology.mq.results import Step as MqStep
from redrive.topology.mq.routes import End, Route, RoutedMessage, follow_route
from redrive.topology.names import Names, transmission_topic


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceStep:
    """One step: a definition that was used."""

    rule: str
    """Row of the table (``R8``) or step of the procedure (``exact``)."""
    what: str
    """What was done."""
    definition: str = ""
    """The definition, as its kind of queue manager writes it; empty if none was used."""
    location: str = ""
    before: str = ""
    """Names before, as ``queue@manager``."""
    after: str = ""
    """Names after."""


@dataclass(frozen=True, slots=True)
class Visit:
    """What one queue manager did."""

    queue_manager: str
    """Its name."""
    names: str
    """Names with which the message arrived, as ``queue@manager``."""
    steps: tuple[TraceStep, ...]
    """Its steps in order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """Why a put ends badly."""

    code: int | None = None
    """Reason code, where the product has numbers."""
    name: str = ""
    """Name of the reason."""
    detail: str = ""
    """One sentence: which name or object, and what is wrong with it."""
    location: str = ""
    """File and line of the definition to look at, as far as one can be named."""
    advice: str = ""
    """What to change."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolutionTrace:
    """A put followed through the queue managers: every step, and the end."""

    visits: tuple[Visit, ...]
    """The managers in the order of the trace."""
    end: str
    """How it ends, in words."""
    is_good: bool
    """Whether the message gets where it was meant to go, or the open succeeds."""
    final: str = ""
    """Queue and manager where the message is, as ``queue@manager``; empty if nowhere."""
    topic: str = ""
    """Kafka topic of that queue; empty if there is none."""
    problem: Problem | None = None
    """What went wrong, if anything did."""
    intake: IntakeEnd | None = None
    """What the job does with a put that an application would be refused."""
    tries: str = ""
    """How often a receiving end tries again before it ends so; empty if none does."""
    caused: tuple[Caused, ...] = ()
    """What is put besides: copies and reports."""
    moves: tuple[str, ...] = ()
    """What lets a stored message of MQ Everyplace go on: ``push``, ``pull``, ``trigger``."""


MOVES: Final = ("push", "pull", "trigger")
"""What can happen to a message that is stored in MQ Everyplace."""


def trace_put(
    topology: Topology,
    at: str,
    request: OpenRequest,
    message: RoutedMessage,
    *,
    then: Sequence[str] = (),
) -> ResolutionTrace:
    """Follow a put.

    Args:
        topology: All definitions.
        at: Name of the manager on which the message is put.
        request: Its names, and what decides among cluster queues; for a put that the job makes,
            a ``job_request``.
        message: The message.
        then: In MQ Everyplace, what happens to the message once it is stored, in order; some of
            ``MOVES``.

    Returns:
        The steps to where the message ends.

    Raises:
        KeyError: The topology has no manager ``at``.
    """
    if at not in topology.mq:
        return _trace_in_mqe(topology, at, request, message, then)
    route = follow_route(topology.mq, at, request, message)
    opened = [put.resolution for put in route.puts]
    put_names = Names(queue=request.queue, queue_manager=request.queue_manager)
    arrivals = [put_names, *(one.destination for one in opened[:-1])]
    intake = by_the_job(topology, at, message) if route.end is End.REFUSED else None
    return ResolutionTrace(
        visits=tuple(
            Visit(one.opened_at, str(names), tuple(map(_mq_step, one.steps)))
            for one, names in zip(opened, arrivals, strict=True)
        ),
        end=str(route.end),
        is_good=route.end in {End.QUEUE, End.TOPIC},
        final=str(route.final) if route.final.queue else "",
        topic=topic_of_end(topology, route),
        problem=_problem(route),
        intake=intake,
        tries=_tries(route),
        caused=tuple(caused_by(topology, at, message, route, intake)),
    )


def _tries(route: Route) -> str:
    """How often the receiving end tries again, in words."""
    channel = route.retried_by
    if channel is None:
        return ""
    retries, interval = channel.message_retries, channel.message_retry_interval
    times = f"{retries} more times, {interval} ms apart" if retries > 1 else "once more"
    return f"the receiving end of {channel.name} tries it {times}, before it ends so (MRRTY)"


def trace_open(topology: Topology, at: str, request: OpenRequest) -> ResolutionTrace:
    """Resolve the names of one open at one queue manager of kind ``mq``.

    Returns:
        The steps and what the names led to.

    Raises:
        KeyError: The topology has no manager ``at``.
    """
    opened = open_queue(topology.mq, at, request)
    names = Names(queue=request.queue, queue_manager=request.queue_manager)
    visit = Visit(at, str(names), tuple(map(_mq_step, opened.steps)))
    on_topics = {Target.LOCAL, Target.REMOTE}
    end = "the open fails" if opened.is_failed else f"opens a {opened.target}"
    return ResolutionTrace(
        visits=(visit,),
        end=end,
        is_good=not opened.is_failed,
        final="" if opened.is_failed else str(opened.destination),
        topic=topic_of_put(opened, topology.bindings) if opened.target in on_topics else "",
        problem=_problem(opened),
    )


def _problem(result: Resolution | Route) -> Problem | None:
    reason, detail = result.reason, result.detail
    if reason is Reason.NONE:
        return Problem(detail=detail) if detail else None
    location = result.at_fault.location if result.at_fault else None
    return Problem(
        code=int(reason),
        name=f"MQRC_{reason.name}",
        detail=detail,
        location=str(location) if location and location.line else "",
        advice=result.advice,
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


def _trace_in_mqe(
    topology: Topology,
    at: str,
    request: OpenRequest,
    message: RoutedMessage,
    then: Sequence[str],
) -> ResolutionTrace:
    if topology.mqe is None or topology.mqe.queue_manager(at) is None:
        raise KeyError(at)
    names = Names(queue=request.queue, queue_manager=request.queue_manager)
    resolver = mqe.MqeResolver(topology.mqe, rules=mqe.load_rules(topology.mqe)[0])
    content = mqe.Message(length=message.put.length)
    resolution = resolver.resolve(at, names, content)
    for move in then:
        resolution = _moved(resolver, resolution, move, content)
    visits = [
        Visit(manager, str(steps[0].before), tuple(map(_mqe_step, steps)))
        for manager, steps in _by_manager(resolution.steps)
    ] or [Visit(at, str(replace(names, queue_manager=names.queue_manager or at)), ())]
    trace = _trace_to_end(topology, tuple(visits), resolution.end, message)
    if isinstance(resolution.end, mqe.Stored):
        moves = [
            move for move in MOVES if _moved(resolver, resolution, move, content) != resolution
        ]
        return replace(trace, moves=tuple(moves))
    if isinstance(resolution.end, mqe.Failed) or trace.end == End.REFUSED:
        return replace(trace, intake=by_the_job(topology, at, message))
    return trace


def _moved(
    resolver: mqe.MqeResolver, resolution: mqe.Resolution, move: str, message: mqe.Message
) -> mqe.Resolution:
    """The way with what one push, one pull by its target, or triggerTransmission adds to it."""
    end = resolution.end
    if not isinstance(end, mqe.Stored):
        return resolution
    moves: Mapping[str, mqe.FollowUp] = {
        "push": mqe.Push(),
        "pull": mqe.Pull(end.names.queue_manager),
        "trigger": mqe.TriggerTransmission(),
    }
    return resolver.follow(resolution, moves[move], message)


def _by_manager(steps: Sequence[mqe.Step]) -> list[tuple[str, list[mqe.Step]]]:
    return [
        (manager, list(found))
        for manager, found in groupby(steps, key=lambda one: one.queue_manager)
    ]


def _mqe_step(step: mqe.Step) -> TraceStep:
    return TraceStep(
        rule=str(step.kind),
        what=str(step),
        definition=step.definition.name,
        location=str(step.definition.location) if step.definition.location.line else "",
        before=str(step.before),
        after=str(step.after),
    )


def _trace_to_end(
    topology: Topology, visits: tuple[Visit, ...], end: mqe.End, message: RoutedMessage
) -> ResolutionTrace:
    match end:
        case mqe.Delivered(over_bridge=True, names=names) if names.queue_manager in topology.mq:
            # The bridge puts as an application of the IBM MQ queue manager does.
            far = trace_put(topology, names.queue_manager, job_request(names.queue), message)
            return replace(far, visits=(*visits, *far.visits), intake=None)
        case mqe.Delivered(names=names, dead_letter=dead_letter):
            return ResolutionTrace(
                visits=visits,
                end=str(End.DEAD_LETTER if dead_letter else End.QUEUE),
                is_good=not dead_letter,
                final=str(names),
                topic=topology.bindings.topic(queue=names.queue, queue_manager=names.queue_manager),
            )
        case mqe.Stored():
            return _trace_to_store(visits, end)
        case mqe.Failed(failure=failure):
            problem = _failure(failure, end.detail)
            return ResolutionTrace(
                visits=visits, end="the put fails", is_good=False, problem=problem
            )
        case _:
            return ResolutionTrace(visits=visits, end=str(end), is_good=False)


def _trace_to_store(visits: tuple[Visit, ...], end: mqe.Stored) -> ResolutionTrace:
    stays = end.undeliverable
    detail = f"it cannot be passed on to {end.queue.queue_manager} for {end.names}"
    return ResolutionTrace(
        visits=visits,
        end=f"stored: {end}" if stays is None else f"stays: {end}",
        is_good=stays is None,
        final=f"{end.queue.name}@{end.queue_manager}",
        topic=transmission_topic(queue=end.queue.name, queue_manager=end.queue_manager, to=end.to),
        problem=None if stays is None else _failure(stays, detail),
    )


def _failure(failure: mqe.Failure, detail: str) -> Problem:
    return Problem(name=str(failure), detail=detail, advice=mqe.ADVICE.get(failure, ""))
