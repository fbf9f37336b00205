"""Adding a message to a queue: the conditions, and the result for the message."""

from __future__ import annotations

from dataclasses import dataclass, field

from redrive.printable import counted
from redrive.topology.mqe import objects as mqe
from redrive.topology.mqe import results
from redrive.topology.mqe.message import Conditions, Message, is_expired
from redrive.topology.mqe.tables import Addressable, Tables
from redrive.topology.names import Names


@dataclass(slots=True)
class PutTrace:
    """One message on its way: what is known of it, and its steps so far."""

    message: Message
    conditions: Conditions
    steps: list[results.Step] = field(default_factory=list)
    discovered: list[mqe.Discovered] = field(default_factory=list)
    passed: set[tuple[str, Names]] = field(default_factory=set)

    def result(self, end: results.End) -> results.Resolution:
        """The resolution with this end."""
        accepted = not isinstance(end, results.Failed)
        return results.Resolution(tuple(self.steps), end, tuple(self.discovered), accepted)


def accept(
    tables: Tables, queue: Addressable | mqe.StoreAndForwardQueue, names: Names, trace: PutTrace
) -> results.End:
    """Add a message to a queue that is not synchronous: limits, expiry, then store.

    The order of these checks is ours (reading O10 in docs/resolution-mqe.md).
    """
    here = tables.manager.name
    if isinstance(queue, mqe.BridgeQueue):
        return results.Delivered(names, queue)
    refused = _refused_by_queue(here, queue, trace)
    if refused is not None:
        return refused
    if (end := expired(here, queue, trace)) is not None:
        return end
    if isinstance(queue, mqe.LocalQueue):
        return results.Delivered(names, queue)
    return results.Stored(here, queue, names)


def expired(here: str, queue: mqe.Queue, trace: PutTrace) -> results.Expired | None:
    """The end of a message that has expired when added to a queue or removed; else None."""
    now = trace.conditions.now
    if now is None or not is_expired(trace.message, queue.expiry, now):
        return None
    return results.Expired(here, queue)


def _refused_by_queue(here: str, queue: mqe.Queue, trace: PutTrace) -> results.Failed | None:
    """Duplicates and limits of a queue that keeps messages."""
    of, message = mqe.identity(queue, here), trace.message
    known = bool(message.identity) and (here, message.identity) in trace.conditions.received
    if known and not message.resend:
        detail = f"message {message.identity!r} was already put on {here!r}"
        return results.Failed(results.Failure.DUPLICATE, here, detail)
    longest, most = queue.maximum_message_size, queue.maximum_messages
    if longest is not None and message.length > longest:
        detail = f"{message.length} bytes are more than the {longest} of {of}"
        return results.Failed(results.Failure.MESSAGE_TOO_BIG, here, detail)
    if most is not None and trace.conditions.depths.get((here, of), 0) >= most:
        return results.Failed(
            results.Failure.QUEUE_FULL, here, f"{of} holds its {counted(most, 'message')}"
        )
    return None
