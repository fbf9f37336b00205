"""Adding a message to a queue: what it takes, and what becomes of the message (A.4, A.6)."""

from __future__ import annotations

from dataclasses import dataclass, field

from redrive.topology.mqe.message import Conditions, Message, is_expired
from redrive.topology.mqe.objects import (
    BridgeQueue,
    CodeBase,
    Discovered,
    LocalQueue,
    Queue,
    StoreAndForwardQueue,
    identity,
)
from redrive.topology.mqe.results import (
    Delivered,
    End,
    Expired,
    Failed,
    Failure,
    Resolution,
    Step,
    Stored,
)
from redrive.topology.mqe.rules import Rules, ask
from redrive.topology.mqe.tables import Addressable, Tables
from redrive.topology.names import Names


@dataclass(slots=True)
class PutTrace:
    """One message on its way: what is known about it, and what it has passed."""

    message: Message
    conditions: Conditions
    steps: list[Step] = field(default_factory=list)
    discovered: list[Discovered] = field(default_factory=list)
    passed: set[tuple[str, Names]] = field(default_factory=set)

    def result(self, end: End) -> Resolution:
        """The resolution that ends so."""
        accepted = not isinstance(end, Failed)
        return Resolution(tuple(self.steps), end, tuple(self.discovered), accepted)


class Admission:
    """Adds messages to queues: limits and duplicates, the veto of rules, expiry."""

    def __init__(self, rules: Rules) -> None:
        self._rules = rules

    def accept(
        self,
        tables: Tables,
        queue: Addressable | StoreAndForwardQueue,
        names: Names,
        trace: PutTrace,
    ) -> End:
        """Add a message to a queue that is not synchronous: limits, rule, expiry, then store.

        The order of these checks is ours (reading O10).
        """
        here = tables.manager.name
        if isinstance(queue, BridgeQueue):
            return self.refused_by_rule(tables, queue, names, trace) or Delivered(names, queue)
        refused = self._refused_by_queue(here, queue, trace)
        refused = refused or self.refused_by_rule(tables, queue, names, trace)
        if refused is not None:
            return refused
        if (expired := self.expired(here, queue, trace)) is not None:
            return expired
        if isinstance(queue, LocalQueue):
            return Delivered(names, queue)
        return Stored(here, queue, names)

    def expired(self, here: str, queue: Queue, trace: PutTrace) -> Expired | None:
        """The end of a message that is late when it is added to a queue or removed; else None."""
        now = trace.conditions.now
        if now is None or not is_expired(trace.message, queue.expiry, now):
            return None
        rule, of = self._rules.of_queue(queue.rule), identity(queue, here)
        ask(lambda: rule.message_expired(of, trace.message), default=None)
        return Expired(here, queue)

    def _refused_by_queue(self, here: str, queue: Queue, trace: PutTrace) -> Failed | None:
        """Duplicates and limits of a queue that keeps messages."""
        of, message = identity(queue, here), trace.message
        if self._is_duplicate(here, queue, trace):
            detail = f"message {message.identity!r} was put on {here!r} before"
            return Failed(Failure.DUPLICATE, here, detail)
        longest, most = queue.maximum_message_size, queue.maximum_messages
        if longest is not None and message.length > longest:
            detail = f"{message.length} bytes are more than the {longest} that {of} takes"
            return Failed(Failure.MESSAGE_TOO_BIG, here, detail)
        if most is not None and trace.conditions.depths.get((here, of), 0) >= most:
            return Failed(Failure.QUEUE_FULL, here, f"{of} holds its {most} messages")
        return None

    def _is_duplicate(self, here: str, queue: Queue, trace: PutTrace) -> bool:
        message = trace.message
        known = bool(message.identity) and (here, message.identity) in trace.conditions.received
        if message.resend or not known:
            return False
        rule, of = self._rules.of_queue(queue.rule), identity(queue, here)
        return not ask(lambda: rule.duplicate_message(of, message), default=False)

    def refused_by_rule(
        self, tables: Tables, queue: Queue, names: Names, trace: PutTrace
    ) -> Failed | None:
        """The veto of the queue's put rule, if it has one; the C code base has no such rule."""
        if not queue.rule or tables.manager.code_base is CodeBase.C:
            return None
        here = tables.manager.name
        rule, of = self._rules.of_queue(queue.rule), identity(queue, here)
        if ask(lambda: rule.put(of, trace.message), default=True):
            return None
        return Failed(Failure.RULE_VETO, here, f"rule {queue.rule!r} refused a message for {names}")
