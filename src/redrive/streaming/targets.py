"""Where puts of handlers would end now, asked outside of the job by whoever plans them."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from redrive.configuration.deciders import DeciderFactory
from redrive.engine.commands import NO_STATES, States
from redrive.engine.facts import DepthQuestion, Facts, TopicFacts
from redrive.errors import TransientFault
from redrive.kafka.facts import ClusterFacts
from redrive.topology.put import Destination, Refusal

if TYPE_CHECKING:
    from redrive.configuration import HandlerConfiguration, JobConfiguration
    from redrive.kafka.cluster import Cluster

__all__ = ["Targets"]

_MOST: Final = 16
"""Times that one question may lead to another."""


class Targets:
    """Leads puts to topics as the job does, by its own code."""

    def __init__(
        self, configuration: JobConfiguration, cluster: Cluster, states: States = NO_STATES
    ) -> None:
        """Take the job.

        Args:
            configuration: Its settings.
            cluster: Answers.
            states: Queues whose PUT was changed since they were defined.
        """
        self._facts = Facts(time.monotonic)
        self._factory = DeciderFactory(configuration, self._facts)
        self._cluster = ClusterFacts(cluster)
        self._states = states

    def of(
        self, handler: HandlerConfiguration, queue_manager: str, queue: str
    ) -> Destination | Refusal:
        """Where a put of a handler ends.

        Args:
            handler: The handler.
            queue_manager: Name of the queue manager; may be empty.
            queue: Name of the queue.

        Raises:
            TransientFault: The broker gave no answer in time.
        """
        resolve = self._factory.resolver_for(handler, self._states)
        for _ in range(_MOST):
            answer = resolve(queue_manager, queue, 0)
            questions = self._facts.take_questions()
            if not questions:
                return answer
            self._facts.learn(self._cluster.answers(questions))
        raise TransientFault("what has to be known of the cluster changed while it was asked for")

    def topic(self, name: str) -> TopicFacts:
        """What is known of a topic; errors as for ``of``."""
        self._facts.topic(name)
        if questions := self._facts.take_questions():
            self._facts.learn(self._cluster.answers(questions))
        return self._facts.topic(name)

    def depth(self, destination: Destination) -> int | None:
        """Messages on a queue that can be full; None for any other; errors as for ``of``."""
        limits = destination.limits
        if limits.max_depth is None or not limits.consumer_group:
            return None
        question = DepthQuestion(destination.topic, limits.consumer_group, limits.max_depth)
        self._facts.begin_slice()
        self._facts.depth(question)
        self._facts.learn(self._cluster.answers(self._facts.take_questions()))
        return self._facts.depth(question)
