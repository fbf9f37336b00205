"""The trace of a put as a person sees it: every step, for queue managers of all kinds.

``trace_put`` follows a put through a topology, ``trace_open`` resolves the names of another
kind of open; both give a ``ResolutionTrace``, which ``redrive resolve`` shows as a tree, as JSON
or as a picture.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from redrive.topology import mqe
from redrive.topology.files import Topology
from redrive.topology.mq.queue_manager import ClusterRoute
from redrive.topology.mq.resolution import open_queue
from redrive.topology.mq.results import OpenRequest, Resolution, Target
from redrive.topology.mq.results import Step as MqStep
from redrive.topology.mq.routes import End, Route, RoutedMessage, follow_route
from redrive.topology.names import Names, transmission_topic
from redrive.topology.reasons import ADVICE, Reason


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
    """File and line of the definition."""
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


@dataclass(slots=True)
class _Steps:
    """Steps of several managers, one visit after the other."""

    visits: list[Visit] = field(default_factory=list)

    def add(self, queue_manager: str, names: str, steps: Sequence[TraceStep]) -> None:
        self.visits.append(Visit(queue_manager, names, tuple(steps)))


def trace_put(
    topology: Topology, at: str, request: OpenRequest, message: RoutedMessage
) -> ResolutionTrace:
    """Follow a put.

    Args:
        topology: All definitions.
        at: Name of the manager on which the message is put.
        request: Its names, and what decides among cluster queues.
        message: The message.

    Returns:
        The steps to where the message ends.

    Raises:
        KeyError: The topology has no manager ``at``.
    """
    if at not in topology.mq:
        return _trace_in_mqe(topology, at, request, message.put.length)
    route = follow_route(topology.mq, at, request, message)
    visits = [
        Visit(
            put.resolution.opened_at,
            _arrival(number, request, route.puts[number - 1].resolution),
            tuple(map(_mq_step, put.resolution.steps)),
        )
        for number, put in enumerate(route.puts)
    ]
    return _trace_of_route(topology, tuple(visits), route)


def trace_open(topology: Topology, at: str, request: OpenRequest) -> ResolutionTrace:
    """Resolve the names of one open at one queue manager of kind ``mq``.

    Args:
        topology: All definitions.
        at: Name of the manager.
        request: The arguments of the open.

    Returns:
        The steps and what the names led to.

    Raises:
        KeyError: The topology has no manager ``at``.
    """
    opened = open_queue(topology.mq, at, request)
    names = Names(queue=request.queue, queue_manager=request.queue_manager)
    visit = Visit(at, str(names), tuple(map(_mq_step, opened.steps)))
    end = "the open fails" if opened.is_failed else f"opens a {opened.target}"
    return ResolutionTrace(
        visits=(visit,),
        end=end,
        is_good=not opened.is_failed,
        final="" if opened.is_failed else str(opened.destination),
        topic=_topic_of_open(topology, opened),
        problem=_problem(opened),
    )


def _topic_of_open(topology: Topology, opened: Resolution) -> str:
    if opened.target in {Target.LOCAL, Target.REMOTE}:
        return topology.bindings.topic(queue=opened.put_queue, queue_manager=opened.opened_at)
    return ""


def _arrival(number: int, request: OpenRequest, before: Resolution) -> str:
    names = (
        before.destination
        if number
        else Names(queue=request.queue, queue_manager=request.queue_manager)
    )
    return str(names)


def _trace_of_route(topology: Topology, visits: tuple[Visit, ...], route: Route) -> ResolutionTrace:
    final = route.final
    has_topic = route.end in {End.QUEUE, End.DEAD_LETTER, End.HELD}
    return ResolutionTrace(
        visits=visits,
        end=str(route.end),
        is_good=route.end in {End.QUEUE, End.TOPIC},
        final=str(final) if final.queue else "",
        topic=topology.bindings.topic(queue=final.queue, queue_manager=final.queue_manager)
        if has_topic
        else "",
        problem=_problem(route),
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
        advice=ADVICE.get(reason, ""),
    )


def _mq_step(step: MqStep) -> TraceStep:
    definition = step.definition
    if isinstance(definition, ClusterRoute):
        name = f"cluster queue manager {definition.queue_manager}"
    else:
        name = str(definition) if definition is not None else ""
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
    topology: Topology, at: str, request: OpenRequest, length: int
) -> ResolutionTrace:
    if topology.mqe is None or topology.mqe.queue_manager(at) is None:
        raise KeyError(at)
    names = Names(queue=request.queue, queue_manager=request.queue_manager)
    resolver = mqe.MqeResolver(topology.mqe, rules=mqe.load_rules(topology.mqe)[0])
    resolution = resolver.resolve(at, names, mqe.Message(length=length))
    found = _Steps()
    for manager, steps in _by_manager(resolution.steps):
        found.add(manager, str(steps[0].before), [_mqe_step(step) for step in steps])
    if not found.visits:
        found.add(
            at, str(Names(queue=request.queue, queue_manager=request.queue_manager or at)), ()
        )
    return _trace_to_end(topology, tuple(found.visits), resolution.end)


def _by_manager(steps: Sequence[mqe.Step]) -> list[tuple[str, list[mqe.Step]]]:
    found: list[tuple[str, list[mqe.Step]]] = []
    for step in steps:
        if not found or found[-1][0] != step.queue_manager:
            found.append((step.queue_manager, []))
        found[-1][1].append(step)
    return found


def _mqe_step(step: mqe.Step) -> TraceStep:
    return TraceStep(
        rule=str(step.kind),
        what=str(step),
        definition=step.definition.name,
        location=str(step.definition.location) if step.definition.location.line else "",
        before=str(step.before),
        after=str(step.after),
    )


def _trace_to_end(topology: Topology, visits: tuple[Visit, ...], end: mqe.End) -> ResolutionTrace:
    match end:
        case mqe.Delivered(names=names, dead_letter=dead_letter):
            topic = topology.bindings.topic(queue=names.queue, queue_manager=names.queue_manager)
            on = "on a dead-letter queue" if dead_letter else "on a queue"
            final = str(names)
            return ResolutionTrace(
                visits=visits, end=on, is_good=not dead_letter, final=final, topic=topic
            )
        case mqe.Stored():
            topic = transmission_topic(
                queue=end.queue.name, queue_manager=end.queue_manager, to=end.to
            )
            final = f"{end.queue.name}@{end.queue_manager}"
            return ResolutionTrace(
                visits=visits, end=f"stored: {end}", is_good=True, final=final, topic=topic
            )
        case mqe.Failed(failure=failure):
            advice = mqe.ADVICE.get(failure, "")
            problem = Problem(name=str(failure), detail=end.detail, advice=advice)
            return ResolutionTrace(
                visits=visits, end="the put fails", is_good=False, problem=problem
            )
        case _:
            return ResolutionTrace(visits=visits, end=str(end), is_good=False)
