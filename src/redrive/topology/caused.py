"""What a put causes besides its message: dead letters of an intake, copies, reports.

The same decisions are made about every record by the job (``redrive.engine``); here they are
predicted for one put, each followed to its end.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

from redrive.messages import MQDLH_LENGTH
from redrive.messages.reports import ReportKind
from redrive.topology.files import Topology
from redrive.topology.mq.puts import reply_to_names, stream_of
from redrive.topology.mq.resolver import topic_of_put
from redrive.topology.mq.results import Persistence, PutMessage, job_request
from redrive.topology.mq.routes import End, Route, RoutedMessage, follow_route
from redrive.topology.names import Names
from redrive.topology.put import Destination, Refusal, check_limits
from redrive.topology.receiving import BINARY, intake_of

__all__ = ["Caused", "IntakeEnd", "by_the_job", "caused_by", "topic_of_end"]

_SEED: Final = 1
"""What chooses among cluster queues for messages that the job makes: they have no identity yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IntakeEnd:
    """How a put ends on the job's intake where an application would get a reason code."""

    end: str
    """How, in words."""
    final: str = ""
    """The dead-letter queue and its manager; empty if it is on none."""
    topic: str = ""
    detail: str = ""
    """Why it is on none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Caused:
    """One more message that a put causes, or why there is none."""

    what: str
    """``a copy for STREAMQ(COPIES)``, ``a report of arrival``."""
    end: str
    """How it ends, in words; ``not made`` if there is none."""
    final: str = ""
    """Queue and manager where it is; empty if nowhere."""
    topic: str = ""
    """Kafka topic of that queue."""
    detail: str = ""
    """Why it is not where it was to go."""


def by_the_job(topology: Topology, at: str, message: RoutedMessage) -> IntakeEnd:
    """What becomes of a put on an intake that fails at once: no application waits for an answer."""
    if message.discard_if_undeliverable:
        return IntakeEnd(end="discarded, as its report options ask")
    receiver = intake_of(topology, at)
    place = receiver.dead_letters
    if isinstance(place, Destination):
        header = MQDLH_LENGTH if receiver.dead_letter_form == BINARY else 0
        length = message.put.length + header
        refusal = check_limits(place.limits, length, None, message.put.persistence)
        if refusal is None:
            final = Names(queue=place.queue, queue_manager=place.queue_manager)
            return IntakeEnd(end=str(End.DEAD_LETTER), final=str(final), topic=place.topic)
        place = Refusal(refusal.reason, f"{place.queue}: {refusal.detail}")
    return IntakeEnd(end="remains", detail=place.detail)


def topic_of_end(topology: Topology, route: Route) -> str:
    """The topic on which a message is at the end of its way; empty if it is on none."""
    final = route.final
    if route.end in {End.QUEUE, End.DEAD_LETTER}:
        return topology.bindings.topic(queue=final.queue, queue_manager=final.queue_manager)
    if route.end in {End.HELD, End.OUTSIDE}:
        written = [put.resolution for put in route.puts if not put.is_failed]
        return topic_of_put(written[-1], topology.bindings)
    return ""


def caused_by(
    topology: Topology, at: str, message: RoutedMessage, route: Route, intake: IntakeEnd | None
) -> Iterator[Caused]:
    """What a put causes besides, on queue managers of IBM MQ.

    Args:
        topology: All definitions.
        at: The manager on which it is put.
        message: The message.
        route: Its way.
        intake: What the job does with it if it is refused; None if it is not.

    Yields:
        The copy of a queue with STREAMQ, then reports.
    """
    settled = _settled(message, route)
    if route.end is End.QUEUE:
        yield from _copies(topology, settled, route)
    if message.report.value:
        yield from _reports(topology, at, settled, route, intake)


def _settled(message: RoutedMessage, route: Route) -> RoutedMessage:
    """The message as it is at the end of its way, where its persistence is known."""
    first = route.puts[0]
    if first.is_failed:
        return message
    persistence = Persistence(int(first.is_persistent))
    return replace(message, put=replace(message.put, persistence=persistence))


def _copies(topology: Topology, message: RoutedMessage, route: Route) -> Iterator[Caused]:
    """The copy that STREAMQ asks for; with MUSTDUP the put fails without it (``put_message``)."""
    opened = route.puts[-1].resolution
    stream = stream_of(topology.mq.queue_managers[opened.opened_at], opened)
    if stream is None:
        return
    copy = follow_route(
        topology.mq,
        opened.opened_at,
        job_request(stream.queue, seed=_SEED),
        RoutedMessage(put=replace(message.put, reply_to=Names())),
    )
    what = f"a copy for STREAMQ({stream.queue})"
    if copy.end is End.REFUSED:
        detail = f"{int(copy.reason)} {copy.detail}; STRMQOS(BESTEF) does without"
        yield Caused(what=what, end="not made", detail=detail)
    else:
        yield _caused(topology, what, copy)


def _caused(topology: Topology, what: str, route: Route) -> Caused:
    return Caused(
        what=what,
        end=str(route.end),
        final=str(route.final) if route.final.queue else "",
        topic=topic_of_end(topology, route),
        detail=f"{int(route.reason)} {route.detail}" if route.reason else route.detail,
    )


def _reports(
    topology: Topology, at: str, message: RoutedMessage, route: Route, intake: IntakeEnd | None
) -> Iterator[Caused]:
    """The reports that the message asks for and that its end makes due, or may."""
    names = message.put.reply_to
    if names.queue:
        names = reply_to_names(topology.mq.queue_managers[at], names)
    for kind in _due(message, route, intake):
        what = f"a report of {kind}"
        if kind is ReportKind.EXPIRATION:
            what = f"{what}, if it is late"
        if kind is ReportKind.DELIVERY:
            yield Caused(what=what, end="not made", detail="Kafka does not tell who read a record")
        elif not names.queue:
            yield Caused(what=what, end="not made", detail="the message has no ReplyToQ")
        else:
            here = route.puts[-1].resolution.opened_at
            data = message.report.data(kind, bytes(message.put.length))
            put = PutMessage(length=len(data), persistence=message.put.persistence)
            yield _report(topology, here, what, names, put)


def _due(message: RoutedMessage, route: Route, intake: IntakeEnd | None) -> Iterator[ReportKind]:
    """See ``redrive.engine.reports.due_report``; while a message stays nothing is reported."""
    is_lost = route.end in {End.DEAD_LETTER, End.DISCARDED} and bool(route.reason)
    is_refused = intake is not None and intake.end != "remains"
    due = [ReportKind.EXPIRATION]
    if is_lost or is_refused:
        due.append(ReportKind.EXCEPTION)
    if route.end is End.QUEUE:
        due += [ReportKind.ARRIVAL, ReportKind.DELIVERY]
    return filter(message.report.asks_for, due)


def _report(topology: Topology, at: str, what: str, names: Names, put: PutMessage) -> Caused:
    """The way of a report; what cannot be put where it is made is a dead letter there."""
    report = RoutedMessage(put=put)
    request = job_request(names.queue, names.queue_manager, seed=_SEED)
    route = follow_route(topology.mq, at, request, report)
    if route.end is not End.REFUSED:
        return _caused(topology, what, route)
    end = by_the_job(topology, at, report)
    why = f"{int(route.reason)} {route.detail}"
    if not end.final:
        return Caused(what=what, end="not made", detail=f"{why}; {end.detail}")
    return Caused(what=what, end=end.end, final=end.final, topic=end.topic, detail=why)
