"""Where a message has to end: what the library says, without the job (``redrive resolve``).

A put is followed through the definitions; what becomes a dead letter that a rules table handles is
followed on, by the rules that get their turn on it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from redrive.configuration.deciders import topology_of
from redrive.demo.messages import WAITING, End
from redrive.demo.scripts.places import DEAD_LETTERS, EXPIRED, ON_QUEUES, REMAINING
from redrive.engine.message import seed_of
from redrive.messages.reasons import Reason
from redrive.rules import Action, RulesTable, explain, parse, resolve_target
from redrive.topology.mq.results import OpenRequest, Persistence, PutMessage
from redrive.topology.mq.routes import End as RouteEnd
from redrive.topology.mq.routes import Route, follow_route
from redrive.topology.mqe import objects as mqe
from redrive.topology.mqe.message import Conditions
from redrive.topology.mqe.message import Message as MqeMessage
from redrive.topology.mqe.resolver import MqeResolver
from redrive.topology.mqe.results import Delivered, Failed, Stored
from redrive.topology.mqe.results import End as MqeEnd
from redrive.topology.names import Names

if TYPE_CHECKING:
    from redrive.configuration import JobConfiguration
    from redrive.demo.scripts.puts import Kind


class Predictor:
    """Says where puts end by the definitions and the rules tables of a job."""

    def __init__(self, configuration: JobConfiguration) -> None:
        """Take the job.

        Args:
            configuration: Its definitions and handlers.
        """
        self._topology = topology_of(configuration.topology)
        self._tables: Mapping[Names, RulesTable] = {
            Names(queue=handler.identity.queue, queue_manager=handler.identity.queue_manager): table
            for handler in configuration.handlers
            if (table := parse(handler.rules, name=handler.rules_name).table)
        }

    def end(self, kind: Kind, length: int, identity: str) -> End:
        """Where a message ends.

        Args:
            kind: The put.
            length: Bytes of its body.
            identity: ``topic:partition:offset`` of it on its intake, which decides among equal
                instances of a cluster queue.
        """
        if kind.expiry:
            return End(EXPIRED)
        if kind.at in self._topology.mq:
            queue, _, manager = kind.to.partition("@")
            request = OpenRequest(queue=queue, queue_manager=manager, seed=seed_of(identity))
            return self._of_mq(kind.at, request, length)
        return self._of_mqe(kind, length)

    # IBM MQ

    def _of_mq(self, at: str, request: OpenRequest, length: int) -> End:
        """Where an application's put ends."""
        route = self._route(at, request, length)
        if route.end is not RouteEnd.REFUSED:
            return self._end_of(route, length)
        # The application is told nothing here: its manager has taken the message.
        manager = self._topology.mq.queue_managers[at]
        place = Names(queue=manager.attributes.dead_letter_queue, queue_manager=at)
        asked = Names(queue=request.queue, queue_manager=request.queue_manager or at)
        return self._dead_letter(place, asked, route.reason, length)

    def _route(self, at: str, request: OpenRequest, length: int) -> Route:
        message = PutMessage(length=length, persistence=Persistence.PERSISTENT)
        return follow_route(self._topology.mq, at, request, message)

    def _end_of(self, route: Route, length: int) -> End:
        if route.end is RouteEnd.QUEUE:
            return End(ON_QUEUES, str(route.final))
        if route.end is RouteEnd.UNDELIVERED:
            manager = self._topology.mq.queue_managers[route.puts[-1].resolution.opened_at]
            queue = manager.attributes.dead_letter_queue
            place = Names(queue=queue, queue_manager=manager.name)
            sent = route.puts[-2].resolution.destination
            return self._dead_letter(place, sent, route.reason, length)
        return End(WAITING, str(route.final), route.reason)

    def _dead_letter(self, place: Names, destination: Names, reason: Reason, length: int) -> End:
        """What becomes of a dead letter: its queue's rules table decides, if it has one."""
        table = self._tables.get(place)
        if table is None:
            return End(DEAD_LETTERS, str(place), reason)
        fields: Mapping[str, str | int] = {
            "DESTQ": destination.queue,
            "DESTQM": destination.queue_manager,
            "REASON": int(reason),
        }
        for request in self._attempts(table, fields):
            route = self._route(place.queue_manager, request, length)
            if route.end is not RouteEnd.REFUSED:
                return self._end_of(route, length)
        return End(REMAINING, str(place), reason)

    @staticmethod
    def _attempts(table: RulesTable, fields: Mapping[str, str | int]) -> Iterator[OpenRequest]:
        """The puts that the rules make, one after the other as long as they fail."""
        for turn in explain(table, fields).turns:
            rule = None if turn.rule is None else table.rules[turn.rule]
            if rule is None or rule.action not in {Action.RETRY, Action.FWD}:
                return
            target = resolve_target(rule, fields)
            yield OpenRequest(queue=target.queue, queue_manager=target.queue_manager)

    # MQ Everyplace

    def _of_mqe(self, kind: Kind, length: int) -> End:
        if self._topology.mqe is None:
            raise ValueError(f"no queue manager {kind.at} is defined")
        resolver = MqeResolver(self._topology.mqe)
        queue, _, manager = kind.to.partition("@")
        names = Names(queue=queue, queue_manager=manager)
        message = MqeMessage(length=length)
        end = resolver.resolve(kind.at, names, message, Conditions(down=kind.stopped)).end
        while isinstance(end, Stored) and end.undeliverable is None:
            # Sooner or later its connection runs, and a home-server queue pulls.
            moved = resolver.transmit(end, message).end
            if moved == end:
                moved = resolver.pull(end, end.names.queue_manager, message).end
            if moved == end:
                return End(WAITING, f"{end.queue.name}@{end.queue_manager}")
            end = moved
        return self._end_in_mqe(kind.at, end)

    def _end_in_mqe(self, at: str, end: MqeEnd) -> End:
        match end:
            case Delivered():
                return End(DEAD_LETTERS if end.dead_letter else ON_QUEUES, str(end.names))
            case Stored():
                return End(REMAINING, f"{end.queue.name}@{end.queue_manager}")
            case Failed():
                manager = self._topology.mqe and self._topology.mqe.queue_manager(at)
                for queue in manager.queues if manager else ():
                    if isinstance(queue, mqe.LocalQueue) and queue.role is mqe.Role.DEAD_LETTER:
                        return End(DEAD_LETTERS, f"{queue.name}@{at}")
        return End(REMAINING, at)
