"""Queue managers of kind ``kafka``: every topic of the cluster is a local queue."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, field

from redrive.messages.reasons import Reason
from redrive.topology.names import is_reserved
from redrive.topology.put import UNLIMITED, Destination, QueueLimits, Refusal

__all__ = ["KafkaResolver"]


@dataclass(frozen=True, slots=True)
class KafkaResolver:
    """Resolves a queue name to the topic of exactly that name.

    Every queue manager name counts as local, unless the local ones are listed; then others are
    refused with 2087. A name without a topic, a blank name and the topics of Redrive and of Kafka
    itself are refused with 2085.
    """

    exists: Callable[[str], bool]
    """Whether there is a topic of a name now."""
    queue_managers: Sequence[str] | None = None
    """Names that count as local besides the empty one; None for all names."""
    limits: Mapping[str, QueueLimits] = field(default_factory=dict)
    reserved: Container[str] = frozenset()
    """Further topics that cannot be queues, such as a handler's own."""

    def resolve(
        self,
        *,
        queue: str,
        queue_manager: str,
        seed: int = 0,  # noqa: ARG002 - a topic is never one of several
    ) -> Destination | Refusal:
        """The topic of a name without its trailing blanks; refusals have 2085 or 2087."""
        queue_manager, queue = queue_manager.rstrip(" "), queue.rstrip(" ")
        local = self.queue_managers
        if queue_manager and local is not None and queue_manager not in local:
            return Refusal(
                Reason.UNKNOWN_REMOTE_Q_MGR,
                f"queue manager {queue_manager!r} is not local and cannot be reached",
            )
        problem = self._problem_of(queue)
        if problem:
            return Refusal(Reason.UNKNOWN_OBJECT_NAME, problem)
        name = queue_manager or (local[0] if local else "")
        return Destination(
            topic=queue, queue=queue, queue_manager=name, limits=self.limits.get(queue, UNLIMITED)
        )

    def _problem_of(self, queue: str) -> str:
        if not queue:
            return "the queue name is blank"
        if is_reserved(queue) or queue in self.reserved:
            return f"topic {queue!r} is reserved and cannot be a queue"
        if not self.exists(queue):
            return f"there is no topic {queue!r}"
        return ""
