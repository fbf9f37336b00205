"""Copies for streaming queues (STREAMQ): each is a separate put in the same transaction."""

from __future__ import annotations

from typing import Final

from redrive.engine.context import Entry
from redrive.engine.message import Message
from redrive.engine.put_descriptor import PutDescriptor
from redrive.engine.putter import Effect, Putter
from redrive.messages import OutputRecord, mqmd_headers, with_mqmd_headers
from redrive.messages import own_headers as own
from redrive.messages.fields import DEADLINE
from redrive.topology.mq.resolver import QUEUE_HEADER
from redrive.topology.put import Refusal, Stream

_UNLIMITED: Final = -1
"""MQEI_UNLIMITED."""


def make_copy(
    stream: Stream, entry: int, put: OutputRecord, descriptor: PutDescriptor, putter: Putter
) -> Entry | Refusal:
    """The copy of a put message, or why there is none.

    The copy equals the message, but never expires, asks for no reports, and is not copied again
    (streaming queues configuration).

    Args:
        stream: The streaming queue.
        entry: Entry number of the message.
        put: The message as it is put.
        descriptor: What the put reads from it.
        putter: Puts at the manager that takes the message.
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
