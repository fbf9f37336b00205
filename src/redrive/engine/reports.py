"""Reports: messages to the reply-to queue of a message, put in its transaction like any other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from redrive.engine.decision import Decision, Put
from redrive.engine.message import Message
from redrive.engine.outcome import Result
from redrive.engine.put_descriptor import PutDescriptor
from redrive.engine.putter import Effect, Putter
from redrive.messages import MQMD
from redrive.messages.dead_letters import DEAD_LETTER_FORMAT
from redrive.messages.fields import read_text
from redrive.messages.reports import ReportKind, report_message
from redrive.topology.mq.resolver import QUEUE_HEADER, QUEUE_MANAGER_HEADER
from redrive.topology.put import Refusal
from redrive.topology.receiving import ReceivingQueueManager

if TYPE_CHECKING:
    from redrive.engine.context import Entry, SliceContext
    from redrive.engine.put_decider import PutDecider

_FORMAT: Final = MQMD["Format"].header


@dataclass(frozen=True, slots=True)
class MadeReport:
    """The result of a report that is due."""

    entries: tuple[Entry, ...] = ()
    """What to write; empty if no queue accepted it."""
    detail: str = ""
    """Its destination, or why there is none, for the outcome of the message."""


def due_report(
    decision: Decision, message: Message, descriptor: PutDescriptor
) -> ReportKind | None:
    """The report that a message requests and its fate triggers; None if there is none.

    An exception is reported once the message is dead-lettered or discarded: while it stays, its
    fate is open. A message on a dead-letter queue has not arrived (MQMD, field Report).
    """
    kind = None
    match decision.result:
        case Result.ROUTED if isinstance(decision, Put) and decision.destination.is_arrival:
            is_letter = read_text(dict(message.headers).get(_FORMAT)) == DEAD_LETTER_FORMAT
            kind = None if is_letter else ReportKind.ARRIVAL
        case Result.DEAD_LETTERED | Result.DISCARDED if decision.reason:
            kind = ReportKind.EXCEPTION
        case Result.EXPIRED:
            kind = ReportKind.EXPIRATION
    return kind if kind is not None and descriptor.report.asks_for(kind) else None


def report_arrival(
    entry: int, message: Message, decider: PutDecider, facts: SliceContext
) -> MadeReport:
    """Put the report of arrival (COA) of a message that a rules table puts on its queue.

    ``decider`` is that of puts at the manager of the queue, ``message`` is as it was put.
    """
    putter = Putter.of(decider, facts)
    return make_report(
        ReportKind.ARRIVAL,
        entry,
        message,
        putter.descriptor(dict(message.headers)),
        reason=0,
        putter=putter,
        receiver=decider.receiver,
        now=facts.now,
    )


def make_report(
    kind: ReportKind,
    entry: int,
    message: Message,
    descriptor: PutDescriptor,
    *,
    reason: int,
    putter: Putter,
    receiver: ReceivingQueueManager,
    now: int,
) -> MadeReport:
    """Put a report at the manager that makes it; if that fails, dead-letter it there.

    ``entry`` and ``descriptor`` are those of its message, which is as the open of its put left it.
    ``reason`` says why the
    message could not be put, 0 if it could; ``now`` is in milliseconds since 1970.
    """
    reply_to = (
        receiver.reply_to(descriptor.reply_to) if descriptor.reply_to.queue else descriptor.reply_to
    )
    if not reply_to.queue:
        return MadeReport(detail=f"no report of {kind}: the message has no ReplyToQ")
    value, headers = report_message(
        kind,
        message.value,
        message.headers,
        feedback=reason,
        queue_manager=receiver.queue_manager,
        identity=f"{message.identity} {message.hops}",
        timestamp=message.timestamp,
        now=now,
    )
    headers.append((QUEUE_MANAGER_HEADER, reply_to.queue_manager.encode()))
    headers.append((QUEUE_HEADER, reply_to.queue.encode()))
    report = Message(message.key, value, headers, now, "", "", 0)
    about = putter.descriptor(dict(headers))
    number = Effect.REPORT.entry(entry)
    put = putter.put_by_names(number, report, about)
    if not isinstance(put, Refusal):
        return MadeReport(((number, put),), f"report of {kind} to {reply_to}")
    number = Effect.DEAD_REPORT.entry(entry)
    dead = putter.dead_letter(number, report, about, put)
    if isinstance(dead, Refusal):
        why = f"{put.detail}; no dead letter, because {dead.detail}"
        return MadeReport(detail=f"no report of {kind}: {why}")
    place, written = dead
    where = f"report of {kind} on {place.queue}@{place.queue_manager}"
    return MadeReport(((number, written),), f"{where}: {put.reason} {put.detail}")
