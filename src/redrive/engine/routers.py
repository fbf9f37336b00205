"""Routers: what one topic holds is put by its receiver, and what becomes of what cannot be put.

Nothing here reads or writes: a router turns the names of a put into a ``Plan``, and a failed put
into the plan that follows from it (resolution specification B.11, A.6).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from zlib import crc32

from redrive.engine.handlers import LOOP
from redrive.engine.names import HandlerIdentity
from redrive.engine.outcome import FIELDS, Result, decision_members
from redrive.engine.plans import Plan
from redrive.engine.waiting import NONE_YET, Progress
from redrive.messages import NO_VALID_SCHEME
from redrive.messages.reasons import TEMPORARY
from redrive.topology.put import Destination, Refusal

if TYPE_CHECKING:
    from collections.abc import Callable

    from redrive.topology.receiving import ReceivingQueueManager

REMEMBERED: Final = 100_000
"""Answers that a router remembers; beyond that its memory starts anew."""
_SEEDS: Final = 1024
"""Different seeds for the choice among instances of a cluster queue."""


def seed_of(identity: str) -> int:
    """The seed of one message, the same whenever it is decided again.

    Args:
        identity: ``topic:partition:offset`` where Redrive saw the message first, or the name of the
            open that its put belongs to.
    """
    return 1 + crc32(identity.encode()) % _SEEDS


class Router:
    """One topic that is read, and the queue manager that puts what it holds.

    This class is responsible for:
        - where a put leads, in names and in topics;
        - where a message goes that cannot be put;
        - the outcomes of both.
    """

    def __init__(
        self,
        identity: HandlerIdentity,
        receiver: ReceivingQueueManager,
        check: Callable[[Destination | Refusal], Destination | Refusal],
        *,
        table_id: str,
        hop_limit: int,
        channel: tuple[str, str] | None = None,
        by_priority: bool = False,
        message_retries: int = 0,
    ) -> None:
        """Take the receiver.

        Args:
            identity: Names of the source, and of the topic for what can be put nowhere.
            receiver: Puts what the topic holds.
            check: Refuses destinations that Kafka would refuse now.
            table_id: 16 hex digits that stand for the definitions.
            hop_limit: How often Redrive puts one message on a queue before it counts as looping.
            channel: The channel, by its queue manager and name, that stops at a message which can
                be put nowhere; None if none does.
            by_priority: Whether messages leave the topic by priority, the highest first.
            message_retries: How often a put that fails for now is tried again (MRRTY).
        """
        self.identity = identity
        self.channel = channel
        self.by_priority = by_priority
        self.receiver = receiver
        self.table_id = table_id
        self.hop_limit = hop_limit
        self.message_retries = message_retries
        self._check = check
        self._answers: dict[tuple[str, str, int], Destination | Refusal] = {}
        self._ended: dict[tuple[Result, str, str, int, str, str, int], Plan] = {}

    def plan(self, queue_manager: str, queue: str, hops: int, seed: int = 0) -> Plan | Refusal:
        """Where a put leads.

        Args:
            queue_manager: Name of the queue manager that came with the message; may be empty.
            queue: Name of the queue that came with it.
            hops: How often Redrive has put the message on a queue.
            seed: Decides among equal instances of a cluster queue.

        Returns:
            The plan to put it, or why it cannot be put.
        """
        if hops >= self.hop_limit:
            return Refusal(LOOP, f"put {hops} times already, the limit is {self.hop_limit}")
        answer = self._check(self._resolved(queue_manager, queue, seed))
        if isinstance(answer, Refusal):
            return answer
        return self._planned(Result.ROUTED, queue_manager, queue, answer, Refusal(0, ""))

    def dead_letters(self) -> Destination | Refusal:
        """The dead-letter queue for what cannot be put here, or why there is none."""
        return self._check(self.receiver.dead_letters)

    def ended(
        self,
        result: Result,
        queue_manager: str,
        queue: str,
        *,
        reason: int = 0,
        detail: str = "",
        destination: Destination | None = None,
        attempt: int = 1,
    ) -> Plan:
        """The plan for a message that is not put where its names lead.

        Args:
            result: What becomes of it.
            queue_manager: Name of the queue manager that came with the message.
            queue: Name of the queue that came with it.
            reason: Why.
            detail: Why, in one sentence.
            destination: The dead-letter queue, if it goes there.
            attempt: Number of the attempt, from 1.
        """
        topic = destination.topic if destination else ""
        key = result, queue_manager, queue, reason, detail, topic, attempt
        plan = self._ended.get(key)
        if plan is None:
            if len(self._ended) >= REMEMBERED:
                self._ended.clear()
            refusal = Refusal(reason, detail)
            plan = self._planned(
                result, queue_manager, queue, destination, refusal, attempt=attempt
            )
            self._ended[key] = plan
        return plan

    def parked(
        self, queue_manager: str, queue: str, refusal: Refusal, failures: int
    ) -> Plan | None:
        """The plan to try a put again later, as a receiving channel does (MRRTY).

        Args:
            queue_manager: Name of the queue manager that came with the message.
            queue: Name of the queue that came with it.
            refusal: Why it cannot be put.
            failures: Tries that failed before.

        Returns:
            None if it is not tried again: the reason is none that passes by itself, or MRRTY is
            exhausted.
        """
        if refusal.reason not in TEMPORARY or failures >= self.message_retries:
            return None
        return self.ended(
            Result.PARKED,
            queue_manager,
            queue,
            reason=refusal.reason,
            detail=refusal.detail,
            attempt=failures + 1,
        )

    def told(self, plan: Plan, detail: str = "", *, attempt: int = 0) -> Plan:
        """A plan that says more in its outcomes.

        Args:
            plan: One that this router made.
            detail: What to say behind what it says already; empty for nothing.
            attempt: Number of the attempt; 0 leaves the plan's.
        """
        attempt = attempt or plan.attempt
        if not detail and attempt == plan.attempt:
            return plan
        return self.ended(
            plan.result,
            plan.queue_manager,
            plan.queue,
            reason=plan.reason,
            detail="; ".join(filter(None, (plan.detail, detail))),
            destination=plan.destination,
            attempt=attempt,
        )

    def _resolved(self, queue_manager: str, queue: str, seed: int) -> Destination | Refusal:
        key = queue_manager, queue, seed
        answer = self._answers.get(key)
        if answer is None:
            if len(self._answers) >= REMEMBERED:
                self._answers.clear()
            answer = self.receiver.resolve(queue=queue, queue_manager=queue_manager, seed=seed)
            self._answers[key] = answer
        return answer

    def _planned(
        self,
        result: Result,
        queue_manager: str,
        queue: str,
        destination: Destination | None,
        refusal: Refusal,
        *,
        attempt: int = 1,
    ) -> Plan:
        asked = {"DESTQ": queue, "DESTQM": queue_manager, "REASON": refusal.reason or None}
        members = decision_members(
            handler=self.identity.name,
            queue_manager=self.receiver.queue_manager,
            queue=self.identity.queue,
            table=self.table_id,
            attempt=attempt,
            result=result,
            reason=refusal.reason,
            detail=refusal.detail,
            target_queue_manager=destination.queue_manager if destination else queue_manager,
            target_queue=destination.queue if destination else queue,
            target_topic=destination.topic if destination else "",
            form=NO_VALID_SCHEME,
            fields={name: asked.get(name) for name in FIELDS},
        )
        return Plan(
            handler=self.identity.name,
            result=result,
            progress=Progress(attempt) if result is Result.PARKED else NONE_YET,
            attempt=attempt,
            rule=None,
            queue=queue,
            queue_manager=queue_manager,
            destination=destination,
            reason=refusal.reason,
            detail=refusal.detail,
            news=refusal.reason != 0,
            headers=destination.headers if destination else (),
            members=members,
        )
