"""The path of a put, for display: what the job would do with it, and why.

``PutTracer`` shows what the job's deciders do with a put, walked by ``redrive.engine.walk``.
``trace_open`` resolves the names of an application's open, and ``trace_moves`` follows a stored
message of MQ Everyplace over given moves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import Final

from redrive.configuration import JobConfiguration, LedgerConfiguration
from redrive.configuration.deciders import DeciderFactory, in_states
from redrive.engine.commands import NO_STATES, States
from redrive.engine.context import Decider
from redrive.engine.facts import Answers, Facts, Questions
from redrive.engine.message import seed_of
from redrive.engine.outcome import Result
from redrive.engine.put_decider import Effect, PutDecider
from redrive.engine.sources import SourceKind
from redrive.engine.walk import AssumedCluster, Hop, Walk, walk
from redrive.errors import UsageError
from redrive.kafka.cluster import Cluster
from redrive.kafka.connection import Connection
from redrive.kafka.facts import ClusterFacts
from redrive.messages import MQMD, OutputRecord
from redrive.messages import own_headers as own
from redrive.messages.constants import reason_name
from redrive.messages.fields import read_text
from redrive.messages.reasons import ADVICE, Reason
from redrive.messages.reports import ReportKind, ReportOptions, kind_of_report
from redrive.operations.channel import is_moving, why_held
from redrive.operations.network import Network
from redrive.operations.put import NewMessage, names_of
from redrive.operations.states import read_states
from redrive.topology.layout import TopicRole, Topology, topics_of
from redrive.topology.mq.queue_manager import ClusterRoute
from redrive.topology.mq.resolution import open_queue
from redrive.topology.mq.resolver import BIND_HEADER, topic_of_put
from redrive.topology.mq.results import (
    OpenRequest,
    Resolution,
    Step,
    TargetKind,
    job_request,
    location_of,
)
from redrive.topology.mqe.resolver import Move, MqeResolver
from redrive.topology.mqe.results import (
    Delivered,
    End,
    Failed,
    MqeResolution,
    MqeStep,
    PutMessage,
    Stored,
)
from redrive.topology.names import Names, put_topic, transmission_topic


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


def _explained(opened: Resolution, names: Names, reason: int) -> tuple[Visit, Problem]:
    """The steps of names at their manager, and what to check and change about a reason."""
    location = location_of(opened.fault, reason) if reason and opened.fault else None
    problem = Problem(
        location=str(location) if location and location.line else "",
        advice=opened.advice or ADVICE.get(reason, ""),
    )
    return Visit(opened.opened_at, str(names), tuple(map(_mq_step, opened.steps))), problem


def trace_open(topology: Topology, at: str, request: OpenRequest) -> ResolutionTrace:
    """Resolve the names of one open at a queue manager of kind ``mq``."""
    opened = open_queue(topology.mq, at, request)
    names = Names(queue=request.queue, queue_manager=request.queue_manager)
    on_topics = {TargetKind.LOCAL, TargetKind.REMOTE}
    visit, explained = _explained(opened, names, opened.reason)
    problem = replace(
        explained,
        code=int(opened.reason),
        name=reason_name(opened.reason),
        detail=opened.detail,
    )
    return ResolutionTrace(
        visits=(visit,),
        end="the open fails" if opened.is_failed else f"opens a {opened.target}",
        is_good=not opened.is_failed,
        final="" if opened.is_failed else str(opened.destination),
        topic=topic_of_put(opened, topology.mq.queue_managers[at], topology.bindings)
        if opened.target in on_topics
        else "",
        problem=problem if opened.reason is not Reason.NONE else None,
    )


def _mq_step(step: Step) -> TraceStep:
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
    """Follow a put of ``length`` bytes in MQ Everyplace over some moves, in order.

    Raises:
        KeyError: No network of MQ Everyplace has a manager ``at``.
    """
    if topology.mqe.queue_manager(at) is None:
        raise KeyError(at)
    resolver = MqeResolver(topology.mqe)
    message = PutMessage(length=length)
    resolution = resolver.resolve(at, names, message)
    for move in moves:
        resolution = _follow_move(resolver, resolution, move, message)
    trace = _trace_to_end(topology, _visits(resolution, at, names), resolution.end)
    helpful = [
        move for move in Move if _follow_move(resolver, resolution, move, message) != resolution
    ]
    return replace(trace, moves=tuple(helpful))


def _follow_move(
    resolver: MqeResolver, resolution: MqeResolution, move: str, message: PutMessage
) -> MqeResolution:
    end = resolution.end
    if not isinstance(end, Stored):
        return resolution
    at = end.names.queue_manager if move == Move.PULL else ""
    return resolver.follow(resolution, Move(move), at, message)


def _visits(resolution: MqeResolution, at: str, names: Names) -> tuple[Visit, ...]:
    """One visit for each manager of the steps, at least that of the put."""
    grouped = groupby(resolution.steps, key=lambda step: step.queue_manager)
    visits = [
        Visit(manager, steps_there[0].before, steps_there)
        for manager, steps in grouped
        if (steps_there := tuple(map(_mqe_step, steps)))
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


_ON_A_QUEUE: Final = "on a queue"
_DEAD_LETTER: Final = "on a dead-letter queue"
_HELD: Final = "stays on a transmission queue"
"""Descriptions of ends; others have the name of the job's result."""

_NOW: Final = 1_000_000_000_000
"""Milliseconds since 1970; the put has the time of its decision, so any time will do."""
_MOVING: Final = {SourceKind.PUTS, SourceKind.RETRIES}
"""Kinds of topics that the job reads; remaining messages wait for an operator."""


@dataclass(frozen=True, slots=True)
class _End:
    words: str
    final: str = ""
    topic: str = ""
    detail: str = ""


class PutTracer:
    """Traces puts on a topology, by the deciders of a job with its definitions."""

    def __init__(
        self,
        topology: Topology,
        deciders: Mapping[str, tuple[Decider, SourceKind]],
        facts: Facts,
        answers: Callable[[Questions], Answers] | None = None,
        *,
        states: States = NO_STATES,
    ) -> None:
        """Create a tracer; without answers it assumes a healthy cluster that has all topics."""
        self._topology, self._states = topology, states
        self._topics = {topic.topic: topic for topic in topics_of(topology)}
        self._sources = {name: topic for name, topic in self._topics.items() if topic.is_read}
        resting = {name for name, topic in self._sources.items() if not is_moving(topic, states)}
        self._deciders = {
            name: (decider, kind)
            for name, (decider, kind) in deciders.items()
            if kind in _MOVING and name not in resting
        }
        self._facts = facts
        self._assumed = AssumedCluster({*deciders, *self._topics})
        self._answers = answers or self._assumed.answers

    def takes_puts(self, queue_manager: str) -> bool:
        """Whether a job with these definitions reads the puts to a queue manager."""
        return put_topic(queue_manager) in self._deciders

    def trace(
        self, at: str, message: NewMessage, body: bytes = b"", *, offset: int = 0
    ) -> ResolutionTrace:
        """Trace a put at a manager.

        ``offset`` is its offset on the intake, which chooses among equal cluster queues.

        Raises:
            UsageError: The job does not read the manager's intake; else as for
                ``NewMessage.headers``.
        """
        topic = put_topic(at)
        if not self.takes_puts(at):
            raise UsageError(
                f"this job does not read puts to {at}",
                hint="by the bindings, its topics are on another Kafka cluster",
            )
        put = OutputRecord(topic, None, body, message.headers(), _NOW)
        context = self._deciders, self._facts, self._answers
        resolution = self._trace(walk(put, *context, now=_NOW, offset=offset))
        if ReportOptions(message.report).asks_for(ReportKind.EXPIRATION):
            fields = [*message.headers(), (MQMD["Expiry"].header, own.number(1))]
            expired = put._replace(headers=fields, timestamp=0)
            late = walk(expired, *context, now=_NOW, offset=offset)
            caused = (*resolution.caused, *self._caused(late, ", if it is late"))
            resolution = replace(resolution, caused=caused)
        return replace(resolution, assumed=tuple(self._take_assumptions()))

    def _take_assumptions(self) -> Iterator[str]:
        assumed = self._assumed
        if assumed.present:
            names = ", ".join(sorted(assumed.present))
            yield f"these topics exist and accept messages: {names}"
        if assumed.missing:
            names = ", ".join(sorted(assumed.missing))
            yield f"these topics do not exist, as no definition needs them: {names}"
        if assumed.not_full:
            yield f"no queue is full: {', '.join(sorted(assumed.not_full))}"
        self._facts.doubt(assumed.present | assumed.missing)
        assumed.present, assumed.missing, assumed.not_full = set(), set(), set()

    # Texts about hops

    def _trace(self, way: Walk) -> ResolutionTrace:
        hops = way.way()
        visits, explained = self._visits(hops)
        end, last = self._end(hops), hops[-1].outcome
        problem = None
        if last["reason"]:
            problem = replace(
                explained,
                code=last["reason"],
                name=explained.name or reason_name(last["reason"]),
                detail=last["detail"],
            )
        elif end.detail:
            problem = Problem(detail=end.detail)
        return ResolutionTrace(
            visits=visits,
            end=end.words,
            is_good=end.words == _ON_A_QUEUE,
            final=end.final,
            topic=end.topic,
            problem=problem,
            caused=tuple(self._caused(way)),
        )

    def _visits(self, hops: tuple[Hop, ...]) -> tuple[tuple[Visit, ...], Problem]:
        """The managers in order, and what ``_explain`` says of the last put.

        If names reach a manager again they are explained once, as the rest repeats.
        """
        visits: list[Visit] = []
        explained = Problem()
        seen: set[tuple[str, Names]] = set()
        for hop in hops:
            decision = self._decision(hop)
            if hop.kind is SourceKind.RETRIES:
                visits[-1] = replace(visits[-1], decision=f"{visits[-1].decision}; then {decision}")
                continue
            place = hop.record.topic, names_of(hop.record.headers or [])
            if place in seen:
                decision = f"{visits[-1].decision}; and so on, {len(hops)} times in all"
                visits[-1] = replace(visits[-1], decision=decision)
                break
            seen.add(place)
            visits_of_hop, explained = self._explain(hop)
            visits += visits_of_hop
            visits[-1] = replace(visits[-1], decision=decision)
        return tuple(visits), explained

    def _explain(self, hop: Hop) -> tuple[tuple[Visit, ...], Problem]:
        """The managers that the names of a put reach directly, and what to check and change.

        The problem has a name only if the product has one instead of a number.
        """
        decider, _ = self._deciders[hop.record.topic]
        assert isinstance(decider, PutDecider), "topics of puts have no other deciders"
        headers, reason = hop.record.headers or [], hop.outcome["reason"]
        seed = seed_of(read_text(dict(headers).get(BIND_HEADER)) or hop.outcome["message"])
        receiver, names, managers = decider.receiver, names_of(headers), self._topology.mq
        opened = receiver.opened(queue=names.queue, queue_manager=names.queue_manager, seed=seed)
        if isinstance(opened, Resolution):
            visit, problem = _explained(opened, names, reason)
            return (visit,), problem
        visits = _visits(opened, receiver.queue_manager, names)
        match opened.end:
            case Delivered(over_bridge=True, names=far) if far.queue_manager in managers:
                # The bridge puts as an application of the IBM MQ queue manager does.
                put = open_queue(managers, far.queue_manager, job_request(far.queue))
                visit, problem = _explained(put, Names(queue=far.queue), reason)
                return (*visits, visit), problem
            case (Failed() as failed) | Stored(refused=Failed() as failed):
                return visits, Problem(name=str(failed), advice=failed.advice)
        return visits, Problem(advice=ADVICE.get(reason, ""))

    def _decision(self, hop: Hop) -> str:
        outcome, words = hop.outcome, str(hop.result)
        if hop.result is Result.PARKED:
            source = self._sources[hop.record.topic]
            times = f"{source.message_retries} times, {source.message_retry_interval} ms apart"
            words = f"tried again {times} (MRRTY)"
        elif outcome["target_topic"]:
            words = f"{words} to topic {outcome['target_topic']}"
        if outcome["reason"]:
            return f"{words}, {outcome['reason']} {outcome['reason_name']}"
        return f"{words}; {outcome['detail']}" if outcome["detail"] else words

    def _end(self, hops: tuple[Hop, ...]) -> _End:
        last = hops[-1]
        written, outcome = last.message, last.outcome
        if written is None:
            if last.result is not Result.REMAINS:
                return _End(str(last.result))
            read = [hop.record.topic for hop in hops if hop.kind is SourceKind.PUTS]
            source = self._sources[read[-1]]
            is_kept = source.role is TopicRole.TRANSMISSION
            return _End(str(last.result), source.place if is_kept else "")
        final = Names(queue=outcome["target_queue"], queue_manager=outcome["target_queue_manager"])
        if last.result is Result.DEAD_LETTERED:
            return _End(_DEAD_LETTER, str(final), written.record.topic)
        return self._end_on_topic(written.record.topic, str(final))

    def _end_on_topic(self, topic: str, final: str = "") -> _End:
        place = self._topics.get(topic)
        if place is not None and place.role is TopicRole.TRANSMISSION:
            return _End(_HELD, place.place, topic, why_held(self._topology, place, self._states))
        return _End(_ON_A_QUEUE, final or (place.place if place else ""), topic)

    def _caused(self, way: Walk, condition: str = "") -> Iterator[Caused]:
        for hop in way.way():
            for written in hop.written:
                if written.effect in {Effect.MESSAGE, Effect.DEAD_LETTER}:
                    continue
                what = f"a report of {kind_of_report(written.record.headers or [])}"
                end, outcome = self._end_on_topic(written.record.topic), hop.outcome
                if written.hop is not None:
                    hops = way.way(written.hop)
                    end, outcome = self._end(hops), hops[-1].outcome
                elif written.effect is Effect.DEAD_REPORT:
                    end = replace(end, words=_DEAD_LETTER, detail=outcome["detail"])
                detail = f"{outcome['reason']} {outcome['detail']}" if outcome["reason"] else ""
                yield Caused(
                    what=what + condition,
                    end=end.words,
                    final=end.final,
                    topic=end.topic,
                    detail=end.detail or (detail if written.hop is not None else ""),
                )


def assuming_tracer(topology: Topology, states: States = NO_STATES) -> PutTracer:
    """A tracer that assumes a healthy cluster."""
    facts = Facts(lambda: 0.0)
    deciders = DeciderFactory(_job(topology), facts).deciders(states)
    return PutTracer(in_states(topology, states), deciders, facts, states=states)


def cluster_tracer(network: Network, cluster: Cluster) -> PutTracer:
    """A tracer that asks the cluster as the job would, as far as this user may."""
    job = network.job or _job(network.topology)
    states = read_states(network.job, cluster) if network.job else NO_STATES
    facts = Facts(lambda: 0.0)
    factory = DeciderFactory(replace(job, handlers=(), routes_puts=True), facts)
    cluster_facts = ClusterFacts(cluster)

    def answers(questions: Questions) -> Answers:
        reported = cluster_facts.answers(questions)
        # The job's rights count, not the user's.
        topics = {
            name: replace(facts_of_topic, may_write=True)
            for name, facts_of_topic in reported.topics.items()
        }
        return replace(reported, topics=topics)

    topology = in_states(network.topology, states)
    return PutTracer(topology, factory.deciders(states), facts, answers, states=states)


def _job(topology: Topology) -> JobConfiguration:
    return JobConfiguration(
        application="redrive",
        connection=Connection(bootstrap_servers=""),
        handlers=(),
        directory=Path(),
        ledger=LedgerConfiguration(path=Path(), enabled=False),
        topology=topology.sources,
    )
