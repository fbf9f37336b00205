"""Copies of a put message: for a streaming queue (STREAMQ), and for each subscription.

They are written in the transaction of the message. A publication's copy goes to the intake of the
publishing manager, with the names of the subscription's queue. From there it is a put like any
other, with its own outcome, dead letter and reports.
"""

from __future__ import annotations

from typing import Final

from redrive.engine.context import Entry
from redrive.engine.message import Message
from redrive.engine.put_descriptor import PRIORITY, PutDescriptor
from redrive.engine.putter import Effect, Putter
from redrive.messages import OutputRecord, mqmd_headers, with_mqmd_headers
from redrive.messages import own_headers as own
from redrive.messages.fields import DEADLINE, unique_identifier
from redrive.topology.mq.resolver import QUEUE_HEADER
from redrive.topology.put import Publication, Refusal, Stream, SubscriberCopy

_UNLIMITED: Final = -1
"""MQEI_UNLIMITED."""


def make_stream_copy(
    stream: Stream, entry: int, put: OutputRecord, descriptor: PutDescriptor, putter: Putter
) -> Entry | Refusal:
    """The copy of a put message for a streaming queue, or why there is none.

    The copy equals the message, but never expires, asks for no reports, and is not copied again
    (streaming queues configuration). The entry and the descriptor are those of the message.
    """
    changes = {"Expiry": _UNLIMITED, "Report": descriptor.report.without_reports}
    plain = [pair for pair in own.without_own(put.headers or []) if pair[0] != DEADLINE]
    headers = with_mqmd_headers(plain, mqmd_headers(changes))
    headers.append((QUEUE_HEADER, stream.queue.encode()))
    copy = Message(put.key, put.value, headers, put.timestamp, "", "", 0)
    number = Effect.COPY.entry(entry)
    written = putter.put_by_names(number, copy, putter.descriptor(dict(headers)))
    if isinstance(written, Refusal):
        return Refusal(written.reason, f"STREAMQ {stream.queue}: {written.detail}")
    return number, written


def make_publications(
    publication: Publication,
    entry: int,
    message: Message,
    descriptor: PutDescriptor,
    *,
    queue_manager: str,
    putter: Putter,
) -> list[Entry] | Refusal:
    """The copies of a publication, or why it fails; then no subscription gets one.

    The entry and the descriptor are those of the message; the queue manager publishes it.
    """
    number = Effect.PUBLICATION.entry(entry)
    copies: list[Entry] = []
    for one in publication.copies:
        copy = _subscriber_copy(one, message, descriptor, queue_manager)
        about = putter.descriptor(dict(copy.headers))
        record = putter.put(number, copy, about, one.destination)
        if isinstance(record, Refusal):
            return record
        copies.append((number, record))
    return copies


def _subscriber_copy(
    one: SubscriberCopy, message: Message, descriptor: PutDescriptor, queue_manager: str
) -> Message:
    """The copy for one subscription (MQMD of a publication).

    It has its own MsgId, the CorrelId of the subscription, and an explicit Persistence and
    Priority, for which the intake would otherwise use the queue's defaults.
    """
    intake = one.destination
    source = f"{message.identity} {message.hops} {one.subscription}"
    fields: dict[str, str | int] = {
        "MsgId": unique_identifier(queue_manager, source),
        "Persistence": descriptor.persistence_at(intake),
        "Priority": descriptor.priority_at(intake) if one.priority is None else one.priority,
    }
    if one.correlation:
        fields["CorrelId"] = one.correlation
    own_fields = mqmd_headers(fields)
    headers = [pair for pair in message.headers if pair[0] not in own_fields]
    if one.priority is not None and one.priority < 0:
        del own_fields[PRIORITY]
    return message._replace(headers=[*headers, *own_fields.items()])
