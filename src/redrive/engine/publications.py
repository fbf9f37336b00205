"""Publications: a copy of a message for each subscription, in the transaction of the message.

Each copy goes to the intake of the manager that publishes, with the names of the subscription's
queue. From there it is a put like any other, with its own outcome, dead letter and reports.
"""

from __future__ import annotations

from redrive.engine.context import Entry
from redrive.engine.message import Message
from redrive.engine.put_descriptor import PRIORITY, PutDescriptor
from redrive.engine.putter import Effect, Putter
from redrive.messages import mqmd_headers
from redrive.messages.fields import unique_identifier
from redrive.topology.put import Publication, Refusal, SubscriberCopy


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

    Args:
        publication: The subscriptions that match.
        entry: Entry number of the message.
        message: The message.
        descriptor: What the put reads from it.
        queue_manager: The manager that publishes.
        putter: Puts there.
    """
    number = Effect.PUBLICATION.entry(entry)
    copies: list[Entry] = []
    for one in publication.copies:
        copy = _copy(one, message, descriptor, queue_manager)
        about = putter.descriptor(dict(copy.headers))
        record = putter.put(number, copy, about, one.destination)
        if isinstance(record, Refusal):
            return record
        copies.append((number, record))
    return copies


def _copy(
    one: SubscriberCopy, message: Message, descriptor: PutDescriptor, queue_manager: str
) -> Message:
    """The copy for one subscription (MQMD of a publication).

    It has a MsgId of its own, the CorrelId of the subscription, and says its Persistence and
    Priority, which the intake would else take from the queue.
    """
    intake = one.destination
    source = f"{message.identity} {message.hops} {one.subscription}"
    fields: dict[str, str | int] = {
        "MsgId": unique_identifier(queue_manager, source),
        "Persistence": descriptor.settled(intake),
        "Priority": descriptor.settled_priority(intake) if one.priority is None else one.priority,
    }
    if one.correlation:
        fields["CorrelId"] = one.correlation
    said = mqmd_headers(fields)
    headers = [pair for pair in message.headers if pair[0] not in said]
    if one.priority is not None and one.priority < 0:
        del said[PRIORITY]
    return message._replace(headers=[*headers, *said.items()])
