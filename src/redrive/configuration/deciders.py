"""From the configuration to a decider for each topic that is read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import lru_cache
from hashlib import sha256

from redrive.configuration import HandlerConfiguration, JobConfiguration, OnUndeliverable
from redrive.engine.attempts import Resolvers
from redrive.engine.commands import NO_STATES, States
from redrive.engine.context import Decider
from redrive.engine.facts import Facts, NewTopicQuestion
from redrive.engine.names import (
    HandlerIdentity,
    cluster_topic,
    message_retry_topic,
    remaining_topic,
)
from redrive.engine.put_decider import PutDecider
from redrive.engine.rules_decider import RulesDecider
from redrive.engine.sources import SourceKind
from redrive.errors import ConfigurationError
from redrive.messages import own_headers as own
from redrive.messages.reasons import Reason
from redrive.rules import RulesTable, is_topic_name, parse
from redrive.topology.files import read_topology
from redrive.topology.kafka import KafkaResolver
from redrive.topology.layout import QueueTopic, SourceText, TopicRole, Topology, topics_of
from redrive.topology.mq.objects import LocalQueue
from redrive.topology.names import put_topic
from redrive.topology.put import Destination, Discovered, Refusal, Resolver
from redrive.topology.receiving import ReceivingQueueManager, receiving_queue_managers, resolver_of

Deciders = dict[str, tuple[Decider, SourceKind]]
"""Topic -> decider, source kind."""


@lru_cache(maxsize=2)
def topology_of(sources: tuple[SourceText, ...]) -> Topology:
    """The topology that a configuration has as text; read once in each process.

    Raises:
        ConfigurationError: It has errors, although the configuration was checked.
    """
    result = read_topology(sources)
    if result.topology is None:
        raise ConfigurationError("the topology has errors", diagnostics=result.diagnostics)
    return result.topology


def in_states(defined: Topology, states: States) -> Topology:
    """The topology with the changes of operators, opens and queue discovery."""
    discovered = (Discovered(*definition) for definition in sorted(states.discovered))
    changed = defined.with_dynamic_queues(sorted(states.dynamic_queues))
    if states.put_enabled:
        changed = replace(changed, mq=changed.mq.with_put_enabled(states.put_enabled))
    return changed.with_discovered(discovered)


@lru_cache(maxsize=2)
def table_id_of(sources: tuple[SourceText, ...]) -> str:
    """An id (16 hex digits) of the definitions of a topology."""
    digest = sha256()
    for source in sources:
        digest.update(f"{source.queue_manager}\0{len(source.data)}\0".encode())
        digest.update(source.data)
    return digest.hexdigest()


def table_of(handler: HandlerConfiguration) -> RulesTable:
    """The rules table of a handler; read once in each process.

    Raises:
        ConfigurationError: It has errors, although the configuration was checked.
    """
    return _table(handler.rules, handler.rules_name)


@lru_cache(maxsize=64)
def _table(text: str, name: str) -> RulesTable:
    table = parse(text, name=name).table
    if table is None:
        raise ConfigurationError(f"the rules table {name} has errors")
    return table


def sources_of(configuration: JobConfiguration) -> Mapping[str, QueueTopic]:
    """The topics of the topology that the job reads, by name; empty if it carries out no puts."""
    if not configuration.topology or not configuration.routes_puts:
        return {}
    return _read_topics(configuration.topology)


@lru_cache(maxsize=2)
def _read_topics(sources: tuple[SourceText, ...]) -> Mapping[str, QueueTopic]:
    return {topic.topic: topic for topic in topics_of(topology_of(sources)) if topic.is_read}


def read_topics(configuration: JobConfiguration) -> list[str]:
    """The topics that the job reads but does not own: dead-letter queues and the topology's."""
    handled = [handler.identity.topic for handler in configuration.handlers]
    return [*handled, *(name for name in sources_of(configuration) if name not in handled)]


def counts_depths(configuration: JobConfiguration) -> bool:
    """Whether any queue has a depth limit and a consumer group for its depth."""
    if any(limits.max_depth is not None for limits in configuration.limits.values()):
        return True
    if not configuration.topology:
        return False
    managers = topology_of(configuration.topology).bindings.queue_managers.values()
    return any(queue.consumer_group for manager in managers for queue in manager.queues.values())


def inhibited_queues(configuration: JobConfiguration) -> Mapping[str, QueueTopic]:
    """The dead-letter queues with GET(DISABLED), by topic: their handlers wait.

    As for a stopped channel nothing is taken from them (How the DLQ rules table is processed, note
    6; MQGET would end with 2016).
    """
    if not configuration.topology:
        return {}
    managers = topology_of(configuration.topology).mq.queue_managers
    inhibited: dict[str, QueueTopic] = {}
    for handler in configuration.handlers:
        identity = handler.identity
        manager = managers.get(identity.queue_manager)
        queue = manager.queue(identity.queue) if manager else None
        if isinstance(queue, LocalQueue) and not queue.get_enabled:
            inhibited[identity.topic] = QueueTopic(
                topic=identity.topic,
                role=TopicRole.QUEUE,
                queue=identity.queue,
                queue_manager=identity.queue_manager,
                channel=(identity.queue_manager, f"GET({identity.queue})"),
                is_running=False,
            )
    return inhibited


def identity_of(application: str, source: QueueTopic) -> HandlerIdentity:
    """The names of puts in outcomes and topics of kept messages."""
    return HandlerIdentity(
        name=source.topic,
        queue_manager=source.queue_manager,
        queue=source.queue,
        topic=source.topic,
        retry_topic=message_retry_topic(application, source.topic),
        remaining_topic=remaining_topic(application, source.topic),
    )


class DeciderFactory:
    """Makes the deciders of one process.

    It applies the current definitions, and Kafka's limits: missing topics, and topics that may not
    be written to. The facts are read whenever something is decided.
    """

    def __init__(self, configuration: JobConfiguration, facts: Facts) -> None:
        self._configuration = configuration
        self._facts = facts
        self._schemes = configuration.scheme_table
        self._own_topics = frozenset(
            name for handler in configuration.handlers for name in handler.identity.own_topics
        )

    def deciders(self, states: States = NO_STATES) -> Deciders:
        """All deciders, with operators' states of queues and channels."""
        deciders: Deciders = {}
        for settings in self._configuration.handlers:
            decider = self._rules_decider(settings, states)
            deciders[settings.identity.topic] = decider, SourceKind.DEAD_LETTERS
            for topic in settings.identity.waiting_topics:
                deciders[topic] = decider, SourceKind.RETRIES
            deciders[settings.identity.remaining_topic] = decider, SourceKind.REMAINING
            if settings.identity.replay_topic:
                deciders[settings.identity.replay_topic] = decider, SourceKind.REPLAYS
        if sources := sources_of(self._configuration):
            topology = self._topology(states)
            receivers = receiving_queue_managers(topology, sources, stopped=states.stopped)
            for name, receiver in receivers.items():
                put_decider = self._put_decider(sources[name], receiver)
                deciders[put_decider.identity.topic] = put_decider, SourceKind.PUTS
                deciders[put_decider.identity.retry_topic] = put_decider, SourceKind.RETRIES
                deciders[put_decider.identity.remaining_topic] = put_decider, SourceKind.UNDELIVERED
        return deciders

    def _puts_at(self, queue_manager: str, states: States) -> PutDecider | None:
        """The decider of puts at a queue manager of IBM MQ, by a handler as by an application."""
        if not self._configuration.topology:
            return None
        topology = self._topology(states)
        if queue_manager not in topology.mq:
            return None
        intake = put_topic(queue_manager)
        source = QueueTopic(topic=intake, role=TopicRole.PUTS, queue_manager=queue_manager)
        receiver = receiving_queue_managers(topology, {intake: source})[intake]
        return self._put_decider(source, receiver)

    def _put_decider(self, source: QueueTopic, receiver: ReceivingQueueManager) -> PutDecider:
        configuration = self._configuration
        is_transmission = source.role is TopicRole.TRANSMISSION
        stops = configuration.on_undeliverable is OnUndeliverable.STOP_CHANNEL
        stops = stops and is_transmission and not receiver.keeps_refused
        return PutDecider(
            identity_of(configuration.application, source),
            receiver,
            self._checked_by_definition,
            table_id=table_id_of(configuration.topology)[:16],
            hop_limit=configuration.hop_limit,
            channel=source.channel if stops and source.channel[1] else None,
            by_priority=is_transmission and source.by_priority,
            message_retries=source.message_retries,
            message_retry_interval=source.message_retry_interval / 1000,
        )

    def _topology(self, states: States) -> Topology:
        return in_states(topology_of(self._configuration.topology), states)

    def _rules_decider(self, settings: HandlerConfiguration, states: States) -> RulesDecider:
        table = table_of(settings)
        topics = self._kafka_resolver()
        resolvers = Resolvers(
            names=self.resolver_for(settings, states),
            topic=lambda topic, cluster: self._checked(
                self._to_other_cluster(topic, cluster, settings.identity.topic)
                if cluster
                else topics.resolve(queue=topic, queue_manager="", seed=0)
            ),
            group_topic=self._group_topic,
            group_topic_form=self._configuration.group_topic,
        )
        return RulesDecider(
            settings.identity,
            table,
            resolvers,
            hop_limit=self._configuration.hop_limit,
            schemes=self._schemes.at(settings.identity.topic),
            transforms={
                transform.name: transform.applied for transform in self._configuration.transforms
            },
            breaker=settings.breaker,
            timestamps=settings.timestamp,
            puts=self._puts_at(settings.identity.queue_manager, states),
        )

    def resolver_for(
        self, settings: HandlerConfiguration, states: States
    ) -> Callable[[str, str, int], Destination | Refusal]:
        """The resolver of a handler's puts to topics, with operators' states.

        Returns:
            A function of queue manager, queue and seed, which reads the facts that it needs.
        """
        if self._configuration.topology:
            resolver = resolver_of(
                self._topology(states), settings.identity.queue_manager, stopped=states.stopped
            )
            check = self._checked_by_definition
        else:
            resolver, check = self._kafka_resolver(), self._checked
        return lambda queue_manager, queue, seed: check(
            resolver.resolve(queue=queue, queue_manager=queue_manager, seed=seed)
        )

    def _group_topic(self, name: str, original: str) -> Destination | Refusal:
        if not self._facts.topic(name).exists:
            created = self._facts.created(NewTopicQuestion(name, original))
            if created is not None and created.reason:
                return Refusal(created.reason, created.detail)
        resolver = self._kafka_resolver(lambda topic: topic == name)
        return self._checked(resolver.resolve(queue=name, queue_manager="", seed=0))

    def _to_other_cluster(
        self, name: str, cluster: str, dead_letters: str
    ) -> Destination | Refusal:
        """The topic where a message waits until it is put on another cluster.

        ``name`` is ``cluster:topic``; a message that cannot be put returns to ``dead_letters``.
        """
        topic = name.removeprefix(f"{cluster}:")
        if cluster not in self._configuration.clusters:
            detail = f"the settings have no [clusters.{cluster}]"
            return Refusal(Reason.UNKNOWN_OBJECT_NAME, detail)
        if not is_topic_name(topic):
            return Refusal(Reason.UNKNOWN_OBJECT_NAME, f"{topic!r} is not a valid topic name")
        header = own.Forward(topic, dead_letters).value
        return Destination(
            topic=cluster_topic(self._configuration.application, cluster),
            queue=name,
            queue_manager="",
            headers=((own.FORWARD, header),),
        )

    def _kafka_resolver(self, exists: Callable[[str], bool] | None = None) -> Resolver:
        """The resolver to topics that exist, by default in the cluster."""
        return KafkaResolver(
            exists or (lambda name: self._facts.topic(name).exists),
            queue_managers=self._configuration.queue_managers,
            limits=self._configuration.limits,
            reserved=self._own_topics,
        )

    def _checked(self, answer: Destination | Refusal) -> Destination | Refusal:
        """Refuse a topic that this user may not write to."""
        if isinstance(answer, Destination) and not self._facts.topic(answer.topic).may_write:
            detail = f"this user may not write to {answer.topic}"
            return Refusal(Reason.NOT_AUTHORIZED, detail)
        return answer

    def _checked_by_definition(self, answer: Destination | Refusal) -> Destination | Refusal:
        """Refuse a defined queue without a topic, so that none is created by accident."""
        if isinstance(answer, Destination) and not self._facts.topic(answer.topic).exists:
            detail = f"{answer.topic} does not exist; redrive topology apply creates it"
            return Refusal(Reason.UNKNOWN_OBJECT_NAME, detail)
        return self._checked(answer)
