"""Where a message has to end: what the library says, without the job (``redrive resolve``).

A put is followed through the definitions; what becomes a dead letter that a rules table handles is
followed on, by the rules that get their turn on it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from redrive.decisions.routers import seed_of
from redrive.demo.networks.ends import End, EndKind
from redrive.rules import Action, RulesTable, explain, parse, resolve_target
from redrive.streaming.factory import topology_of
from redrive.topology import mqe
from redrive.topology.mq import End as RouteEnd
from redrive.topology.mq import (
    OpenRequest,
    Persistence,
    PutMessage,
    Route,
    RoutedMessage,
    follow_route,
)
from redrive.topology.names import Names
from redrive.topology.reasons import Reason

if TYPE_CHECKING:
    from redrive.configuration import JobConfiguration
    from redrive.demo.networks.puts import Put

__all__ = ["Predictor"]


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

    def end(self, put: Put, identity: str) -> End:
        """Where a message ends.

        Args:
            put: The put.
            identity: ``topic:partition:offset`` of it on its intake, which decides among equal
                instances of a cluster queue.
        """
        if put.kind.expiry:
            return End(EndKind.EXPIRED)
        if put.kind.at in self._topology.mq:
            request = OpenRequest(
                queue=put.kind.queue,
                queue_manager=put.kind.queue_manager,
                seed=seed_of(identity),
            )
            return self._of_mq(put.kind.at, request, len(put.body))
        return self._of_mqe(put)

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
        return follow_route(self._topology.mq, at, request, RoutedMessage(put=message))

    def _end_of(self, route: Route, length: int) -> End:
        if route.end is RouteEnd.QUEUE:
            return End(EndKind.QUEUE, str(route.final))
        if route.end is RouteEnd.DEAD_LETTER:
            return self._dead_letter(route.final, route.destination, route.reason, length)
        return End(EndKind.WAITING, str(route.final), route.reason)

    def _dead_letter(self, place: Names, destination: Names, reason: Reason, length: int) -> End:
        """What becomes of a dead letter: its queue's rules table decides, if it has one."""
        table = self._tables.get(place)
        if table is None:
            return End(EndKind.DEAD_LETTER, str(place), reason)
        fields: Mapping[str, str | int] = {
            "DESTQ": destination.queue,
            "DESTQM": destination.queue_manager,
            "REASON": int(reason),
        }
        for request in self._attempts(table, fields):
            route = self._route(place.queue_manager, request, length)
            if route.end is not RouteEnd.REFUSED:
                return self._end_of(route, length)
        return End(EndKind.REMAINING, str(place), reason)

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

    def _of_mqe(self, put: Put) -> End:
        if self._topology.mqe is None:
            raise ValueError(f"no queue manager {put.kind.at} is defined")
        resolver = mqe.MqeResolver(self._topology.mqe)
        names = Names(queue=put.kind.queue, queue_manager=put.kind.queue_manager)
        message = mqe.Message(length=len(put.body))
        end = resolver.resolve(put.kind.at, names, message).end
        while isinstance(end, mqe.Stored) and end.undeliverable is None:
            # Sooner or later its connection runs, and a home-server queue pulls.
            moved = resolver.transmit(end, message).end
            if moved == end:
                moved = resolver.pull(end, end.names.queue_manager, message).end
            if moved == end:
                return End(EndKind.WAITING, f"{end.queue.name}@{end.queue_manager}")
            end = moved
        return self._end_in_mqe(put.kind.at, end)

    def _end_in_mqe(self, at: str, end: mqe.End) -> End:
        match end:
            case mqe.Delivered():
                kind = EndKind.DEAD_LETTER if end.dead_letter else EndKind.QUEUE
                return End(kind, str(end.names))
            case mqe.Stored():
                return End(EndKind.REMAINING, f"{end.queue.name}@{end.queue_manager}")
            case mqe.Failed():
                manager = self._topology.mqe and self._topology.mqe.queue_manager(at)
                for queue in manager.queues if manager else ():
                    if isinstance(queue, mqe.LocalQueue) and queue.role is mqe.Role.DEAD_LETTER:
                        return End(EndKind.DEAD_LETTER, f"{queue.name}@{at}")
        return End(EndKind.REMAINING, at)
