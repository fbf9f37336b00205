"""Puts on queue managers of the vectors' notation, walked by the job's deciders in memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from tests.conformance.decided_network import put_deciders
from tests.conformance.mq_notation import Topology as Notation
from tests.engine.known_cluster import KnownCluster
from tests.topology.mq.routes import PutMessage

from redrive.engine.facts import Facts
from redrive.engine.walk import Hop, walk
from redrive.messages import Headers, OutputRecord, mqmd_headers
from redrive.messages.fields import DEADLINE
from redrive.topology.bindings import Bindings, QueueBinding, QueueManagerBinding
from redrive.topology.layout import QueueTopic, TopicRole, Topology, topics_of
from redrive.topology.mq.network import MqNetwork
from redrive.topology.mq.objects import SHARED_TRANSMISSION_QUEUE
from redrive.topology.mq.results import OpenRequest
from redrive.topology.names import Names, put_topic, topic_name, transmission_topic

NOW: Final = 1_000_000_000
_TENTH: Final = 100
_MOMENT: Final = 1
"""Milliseconds that everything takes besides."""


@dataclass
class MqWalk:
    """The way of one put, hop by hop."""

    notation: Notation
    depths: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """Messages on queues before the put: manager to queue to number."""
    hops: tuple[Hop, ...] = ()
    """Of the message itself."""
    places: Mapping[str, QueueTopic] = field(default_factory=dict)
    """The layout, by topic."""

    def put(
        self,
        at: str,
        request: OpenRequest,
        message: PutMessage,
        *,
        expiry: int | None = None,
        report: int = 0,
    ) -> None:
        """Let a message go its way."""
        fields: dict[str, str | int] = {
            "Persistence": int(message.persistence),
            "ReplyToQ": message.reply_to.queue,
            "ReplyToQMgr": message.reply_to.queue_manager,
            "Report": report,
        }
        if expiry is not None:
            fields["Expiry"] = expiry
        names = [
            ("redrive.oqm", request.queue_manager.encode()),
            ("redrive.oq", request.queue.encode()),
        ]
        given = mqmd_headers({name: field for name, field in fields.items() if field != ""})
        headers: Headers = [*names, *given.items()]
        record = OutputRecord(put_topic(at), b"key", bytes(message.length), headers, NOW)
        self._follow(record, request.seed)

    @property
    def is_left(self) -> bool:
        """Whether the message is on a topic that no layout has, as no job reads or makes it."""
        written = self.hops[-1].message
        return written is not None and written.record.topic not in self.places

    def _follow(self, record: OutputRecord, seed: int) -> None:
        bindings = Bindings(
            queue_managers={
                name: QueueManagerBinding(
                    queues={queue: QueueBinding(consumer_group="group") for queue in queues}
                )
                for name, queues in self.depths.items()
            }
        )
        topology = Topology(mq=self.notation.network(), bindings=bindings)
        elsewhere = list(told_of_elsewhere(topology.mq))
        self.places = {topic.topic: topic for topic in [*topics_of(topology), *elsewhere]}
        deciders = put_deciders(topology, elsewhere)
        depths = {
            topic_name(queue=queue, queue_manager=name): number
            for name, queues in self.depths.items()
            for queue, number in queues.items()
        }
        answers = KnownCluster(depths=depths).answers
        waits = any(self.notation.delays.values())
        while True:
            # Where messages wait, time passes between two hops.
            now = {record.topic: deciders[record.topic]} if waits else deciders
            way = walk(record, now, Facts(lambda: 0.0), answers, now=NOW, offset=seed).way()
            self.hops += way
            written = way[-1].message
            if not waits or written is None or written.record.topic not in deciders:
                return
            record = self._waited(written.record)

    def _waited(self, record: OutputRecord) -> OutputRecord:
        place = self.places.get(record.topic)
        assert place is not None
        assert place.role is TopicRole.TRANSMISSION
        delay = self.notation.delays[Names(queue=place.queue, queue_manager=place.queue_manager)]
        waited = _TENTH * delay + _MOMENT
        headers = [
            (name, b"%d" % (int(raw) - waited) if name == DEADLINE and raw else raw)
            for name, raw in record.headers or ()
        ]
        return record._replace(timestamp=record.timestamp - waited, headers=headers)


def told_of_elsewhere(network: MqNetwork) -> Iterator[QueueTopic]:
    """Topics of what the notation tells that no script can: known routes, and sharing groups."""
    for manager in network.queue_managers.values():
        routes = [*manager.known_routes, *(instance.route for instance in manager.known_instances)]
        ways = [
            (network.transmission_queue(manager, route), route.queue_manager) for route in routes
        ]
        if manager.queue_sharing_group:
            members = manager.queue_sharing_group.members
            ways += [(SHARED_TRANSMISSION_QUEUE, name) for name in members if name != manager.name]
        for queue, to in ways:
            if to in network:
                yield QueueTopic(
                    topic=transmission_topic(queue=queue, queue_manager=manager.name, to=to),
                    role=TopicRole.TRANSMISSION,
                    queue=queue,
                    queue_manager=manager.name,
                    to=to,
                    is_of_cluster=queue != SHARED_TRANSMISSION_QUEUE,
                )
