"""Where a put ends: resolution over all managers it reaches.

A put is resolved on its manager; a synchronous remote definition passes it on at once, and the
receiver resolves it again with its own objects. It ends on a queue, in the store of an asynchronous
definition or of a store-and-forward queue, or with an error for the application. A stored message
moves when it is pushed, transmitted or pulled; each of these is another put.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TypeAlias

from redrive.topology.mqe import objects as mqe
from redrive.topology.mqe.admission import PutTrace, accept, expired
from redrive.topology.mqe.message import NORMAL, Conditions, Message
from redrive.topology.mqe.results import (
    Delivered,
    End,
    Failed,
    Failure,
    Resolution,
    Step,
    StepKind,
    Stored,
)
from redrive.topology.mqe.routes import Match, discover, discovery_link, find_link, match
from redrive.topology.mqe.tables import NetworkTables, Tables
from redrive.topology.names import Names

ANY_MESSAGE = Message()
"""An empty message, which no limit refuses and which has no expiry."""


@dataclass(frozen=True, slots=True)
class Push:
    """Store-and-forward queues push the message, hop after hop, as far as possible."""


@dataclass(frozen=True, slots=True)
class TriggerTransmission:
    """``triggerTransmission``: asynchronous definitions send, home-server queues pull."""

    queue_manager: str = ""
    """The manager on which it is called; empty: on every manager where the message waits."""


@dataclass(frozen=True, slots=True)
class Pull:
    """The home-server queues of a manager pull."""

    queue_manager: str


FollowUp: TypeAlias = Push | TriggerTransmission | Pull


class MqeResolver:
    """Resolves puts in an MQ Everyplace network.

    A resolver is immutable: definitions that a put discovers are part of its result, and
    ``Network.with_discovered`` makes a network with them. It terminates on every network; an error
    that the check of the network reports is a failure here.
    """

    def __init__(self, network: mqe.Network) -> None:
        self.network = network
        self._tables = NetworkTables(network)

    def resolve(
        self, at: str, names: Names, message: Message = ANY_MESSAGE, conditions: Conditions = NORMAL
    ) -> Resolution:
        """Resolve one put on a manager, until it is delivered, stored or refused."""
        trace = PutTrace(message, conditions)
        names = Names(queue=names.queue, queue_manager=names.queue_manager or at)
        return trace.result(self._put(at, names, trace))

    def follow(
        self,
        resolution: Resolution,
        follow_up: FollowUp,
        message: Message = ANY_MESSAGE,
        conditions: Conditions = NORMAL,
    ) -> Resolution:
        """Follow a stored message; the new steps follow the earlier ones."""
        trace = PutTrace(message, conditions)
        rests: set[tuple[str, Names]] = set()
        end = resolution.end
        while isinstance(end, Stored) and (end.queue_manager, end.names) not in rests:
            rests.add((end.queue_manager, end.names))
            moved = self._follow_once(end, follow_up, trace)
            if moved is None:
                break
            end = moved
        return Resolution(
            (*resolution.steps, *trace.steps),
            end,
            (*resolution.discovered, *trace.discovered),
            resolution.accepted,
        )

    def transmit(
        self, stored: Stored, message: Message = ANY_MESSAGE, conditions: Conditions = NORMAL
    ) -> Resolution:
        """Pass a stored message on over its queue's connection once.

        It is the common part of a push and a transmission, and what a running channel does for each
        message. A message that the next manager refuses stays where it is, with the reason (reading
        O3).
        """
        trace = PutTrace(message, conditions)
        return trace.result(self._pass_on(stored, trace) or stored)

    def pull(
        self,
        stored: Stored,
        queue_manager: str,
        message: Message = ANY_MESSAGE,
        conditions: Conditions = NORMAL,
    ) -> Resolution:
        """Pull a stored message to a manager; without steps if none of its queues pulls it."""
        trace = PutTrace(message, conditions)
        return trace.result(self._pull(stored, queue_manager, trace) or stored)

    # A put and its hops

    def _put(self, here: str, names: Names, trace: PutTrace) -> End:
        """Resolve on ``here`` and on every manager that synchronous definitions lead to."""
        while True:
            tables = self._tables.of(here)
            if tables is None:
                detail = f"the network has no queue manager {here!r}"
                return Failed(Failure.UNKNOWN_QUEUE_MANAGER, here, detail)
            if (here, names) in trace.passed:
                detail = f"a message for {names} returns to {here!r}"
                return Failed(Failure.ROUTE_LOOP, here, detail)
            trace.passed.add((here, names))
            found = match(tables, names, self.network.options)
            trace.steps.extend(found.steps)
            queue = found.queue or self._discover(tables, found, trace)
            if queue is None:
                return self._no_queue(tables, found, trace.conditions)
            if not (isinstance(queue, mqe.RemoteQueue) and queue.mode is mqe.Mode.SYNC):
                return accept(tables, queue, found.names, trace)
            link = find_link(self._tables, here, queue.queue_manager, found.names, trace.conditions)
            trace.steps.extend(link.steps)
            if link.failed is not None:
                return link.failed
            here, names = link.receiver, found.names

    def _discover(self, tables: Tables, found: Match, trace: PutTrace) -> mqe.RemoteQueue | None:
        definition = discover(self._tables, tables, found, trace.conditions)
        if definition is not None:
            here = tables.manager.name
            trace.discovered.append(mqe.Discovered(here, definition))
            step = Step(here, StepKind.DISCOVERY, definition, found.names, found.names)
            trace.steps.append(step)
        return definition

    def _no_queue(self, tables: Tables, found: Match, conditions: Conditions) -> Failed:
        here = tables.manager.name
        if found.alias_loop:
            name = found.names.queue_manager
            detail = f"queue manager aliases of {here!r} form a loop at {name!r}"
            return Failed(Failure.ALIAS_LOOP, here, detail)
        detail = f"no queue of {here!r} accepts a message for {found.names}"
        stopped = self._stopped_discovery(tables, found, conditions)
        if stopped is None:
            return Failed(Failure.NO_QUEUE_ACCEPTS, here, detail)
        detail = f"{detail}, and it cannot be discovered: {stopped.detail}"
        return Failed(Failure.NO_QUEUE_ACCEPTS, here, detail, stopped=stopped.stopped)

    def _stopped_discovery(
        self, tables: Tables, found: Match, conditions: Conditions
    ) -> Failed | None:
        """The connection, here or on the way, over which a queue cannot be discovered."""
        asked: set[str] = set()
        receiver: Tables | None = tables
        while receiver is not None and found.queue is None and receiver.manager.name not in asked:
            asked.add(receiver.manager.name)
            link = discovery_link(self._tables, receiver, found, conditions)
            if link is None or link.failed is not None:
                return link.failed if link and link.failed and link.failed.stopped else None
            receiver = self._tables.of(link.receiver)
            if receiver is not None:
                found = match(receiver, found.names, self.network.options)
        return None

    # Moves of stored messages

    def _follow_once(self, stored: Stored, follow_up: FollowUp, trace: PutTrace) -> End | None:
        """One move; None if the message does not move at all."""
        match follow_up:
            case Push():
                on_its_own = isinstance(stored.queue, mqe.StoreAndForwardQueue)
                return self._pass_on(stored, trace) if on_its_own else None
            case TriggerTransmission(queue_manager):
                return self._trigger(stored, queue_manager or stored.queue_manager, trace)
            case Pull(queue_manager):
                return self._pull(stored, queue_manager, trace)

    def _trigger(self, stored: Stored, queue_manager: str, trace: PutTrace) -> End | None:
        if stored.queue_manager != queue_manager:
            return self._pull(stored, queue_manager, trace)
        queue = stored.queue
        is_sent = isinstance(queue, mqe.RemoteQueue) and queue.mode is mqe.Mode.ASYNC
        return self._pass_on(stored, trace) if is_sent else None

    def _pass_on(self, stored: Stored, trace: PutTrace) -> End | None:
        """Send over the connection of the queue's manager name; None if there is none."""
        here, names = stored.queue_manager, stored.names
        if not trace.message.is_movable:
            return None
        next_hop = stored.queue.queue_manager
        link = find_link(self._tables, here, next_hop, names, trace.conditions)
        if isinstance(stored.queue, mqe.StoreAndForwardQueue) and not link.is_defined:
            return None
        if (late := expired(here, stored.queue, trace)) is not None:
            return late
        trace.steps.extend(link.steps)
        end = link.failed or self._put(link.receiver, names, trace)
        return replace(stored, refused=end) if isinstance(end, Failed) else end

    def _pull(self, stored: Stored, client: str, trace: PutTrace) -> End | None:
        """Pull to a client that has a home-server queue for it; None if it has none."""
        tables = self._tables.of(client)
        if tables is None or not trace.message.is_movable:
            return None
        for home_server in tables.home_servers:
            if not collects(self._tables, tables, home_server, stored, trace.conditions):
                continue
            late = expired(stored.queue_manager, stored.queue, trace)
            if late is not None:
                return late
            trace.steps.append(Step(client, StepKind.PULL, home_server, stored.names, stored.names))
            end = self._put(client, stored.names, trace)
            return (
                self._handle_undelivered(tables, stored, end, trace)
                if isinstance(end, Failed)
                else end
            )
        return None

    def _handle_undelivered(
        self, client: Tables, stored: Stored, failed: Failed, trace: PutTrace
    ) -> End:
        """A pulled message that no queue accepted: it becomes a dead letter.

        Without a dead-letter queue it stays on the home server (reading O4). So does a duplicate,
        which must not be created a second time.
        """
        stays = replace(stored, refused=failed)
        dead_letters = client.dead_letter_queue
        if dead_letters is None or failed.failure is Failure.DUPLICATE:
            return stays
        names = mqe.identity(dead_letters, client.manager.name)
        # Resend, as the message may have been put here before.
        dead = replace(trace, message=replace(trace.message, resend=True))
        end = accept(client, dead_letters, names, dead)
        if isinstance(end, Delivered):
            return replace(end, dead_letter=True)
        return stays if isinstance(end, Failed) else end


def collects(
    tables: NetworkTables,
    client: Tables,
    home_server: mqe.HomeServerQueue,
    stored: Stored,
    conditions: Conditions,
) -> bool:
    """Whether a home-server queue of a client pulls a stored message: one hop, own ones only."""
    here, options = client.manager.name, tables.options
    if not isinstance(stored.queue, mqe.StoreAndForwardQueue) or stored.names.queue_manager != here:
        return False
    # Names of the two queues count in the strict reading only (reading O5).
    if options.home_server_names and home_server.name != stored.queue.name:
        return False
    link = find_link(tables, here, home_server.queue_manager, stored.names, conditions)
    return link.is_one_hop and link.receiver == stored.queue_manager
