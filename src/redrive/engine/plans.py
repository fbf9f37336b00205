"""Plans: what is to become of dead letters that are alike, and what their outcomes say of it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import orjson

from redrive.engine.outcome import (
    FIELDS,
    Result,
    decision_members,
    replay_members,
    static_members,
)
from redrive.engine.waiting import NONE_YET, Progress
from redrive.messages import own_headers as own
from redrive.rules import Action, Rule

if TYPE_CHECKING:
    from redrive.engine.commands import Replay
    from redrive.engine.names import HandlerIdentity
    from redrive.messages.dead_letters import DeadLetterProfile
    from redrive.topology.put import Destination


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Plan:
    """What is to become of all dead letters that are alike, in one attempt."""

    handler: str
    """Name of the handler that decided."""
    result: Result
    progress: Progress = NONE_YET
    """How far the table has come with them once this plan is carried out."""
    attempt: int
    """Number of this attempt, from 1; 0 when no rule was applied."""
    rule: Rule | None
    queue: str = ""
    """Queue the rule names; empty when nothing is put."""
    queue_manager: str = ""
    destination: Destination | None = None
    """Where to put, when the names resolved."""
    partition: int = -1
    """Where it goes back to, if the topic still has it; -1 leaves the choice to the key."""
    strip: bool = False
    """Whether the dead-letter header is removed before the put."""
    delay: int | None = None
    """Seconds that a parked message waits by its rule's BACKOFF; None for RETRYINT."""
    reason: int = 0
    """Why the attempt failed, or 0."""
    detail: str = ""
    is_invalid: bool = False
    """Whether the message has no valid dead-letter header."""
    news: bool = False
    """Whether a failure says more than the dead-letter header does (specification 6.3)."""
    headers: tuple[tuple[str, bytes | None], ...] = ()
    """Headers that a put adds, the same for all messages."""
    members: str = ""
    """JSON members of the outcome that do not depend on the single message."""
    replay: Replay | None = None
    """The replay that asked for it, whatever the table says."""


def with_detail(plan: Plan, more: str) -> Plan:
    """A plan whose outcome says more.

    Args:
        plan: The plan.
        more: What to say behind what it says already.
    """
    detail = "; ".join(filter(None, (plan.detail, more)))
    members = orjson.loads(f"{{{plan.members}}}") | {"detail": detail}
    return replace(plan, detail=detail, members=static_members(members))


class Planner:
    """Writes the plans of one handler under one table."""

    def __init__(self, identity: HandlerIdentity, table_id: str) -> None:
        """Take what every outcome of the handler says.

        Args:
            identity: The handler's names.
            table_id: What tells its table from others.
        """
        self._identity = identity
        self._table_id = table_id

    def plan(
        self,
        letter: DeadLetterProfile,
        result: Result,
        progress: Progress,
        rule: Rule | None,
        *,
        attempt: int | None = None,
        destination: Destination | None = None,
        queue: str = "",
        queue_manager: str = "",
        strip: bool = False,
        delay: int | None = None,
        reason: int = 0,
        detail: str = "",
        news: bool = False,
        replay: Replay | None = None,
    ) -> Plan:
        """The plan for a result, with what its outcome says of it.

        Args:
            letter: The dead letter.
            result: What is to become of it.
            progress: How far the table has come with it.
            rule: The rule that was applied, if any.
            attempt: Number of the attempt; None for the one after those that failed.
            destination: Where to put, if the names resolved.
            queue: The queue that the rule names.
            queue_manager: Its queue manager.
            strip: Whether the dead-letter header is removed before the put.
            delay: Seconds that it waits by its rule's BACKOFF; None for RETRYINT.
            reason: Why the attempt failed, or 0.
            detail: The same in words.
            news: Whether the failure says more than the dead-letter header does.
            replay: What a person decided about it instead of the table.
        """
        number = progress.failures + 1 if attempt is None else attempt
        members = decision_members(
            handler=self._identity.name,
            queue_manager=self._identity.queue_manager,
            queue=self._identity.queue,
            table=self._table_id,
            rule_line=rule.line if rule else 0,
            action=_action(rule, progress),
            authority=rule.authority.value if rule else "",
            attempt=number,
            result=result,
            reason=reason,
            detail=detail,
            target_queue_manager=destination.queue_manager if destination else queue_manager,
            target_queue=destination.queue if destination else queue,
            target_topic=destination.topic if destination else "",
            form=letter.scheme,
            error_class=letter.view.error_root_class or letter.view.error_class or "",
            consumer_group=letter.view.group or "",
            fields={name: letter.fields.get(name) for name in FIELDS} if letter.fields else {},
        )
        planned = Plan(
            handler=self._identity.name,
            is_invalid=not letter.is_dead_letter,
            result=result,
            progress=progress,
            attempt=number,
            rule=rule,
            queue=queue,
            queue_manager=queue_manager,
            destination=destination,
            partition=_partition(letter, result, destination),
            strip=strip,
            delay=delay,
            reason=reason,
            detail=detail,
            news=news,
            headers=self._put_headers(rule, destination),
            members=members,
        )
        return planned if replay is None else told_of(planned, replay)

    def remains(
        self, letter: DeadLetterProfile, progress: Progress, rule: Rule | None, detail: str
    ) -> Plan:
        """The plan for a dead letter that no rule can place, or that is to stay."""
        return self.plan(letter, Result.REMAINS, progress, rule, attempt=0, detail=detail)

    def quarantined(
        self, letter: DeadLetterProfile, progress: Progress, reason: int, detail: str
    ) -> Plan:
        """The plan for what went round too often under a table in DIALECT(KAFKA).

        Args:
            letter: The dead letter.
            progress: How far the table has come with it.
            reason: Why no put of it is tried any more.
            detail: The same in words.
        """
        kept = progress._replace(is_quarantined=True)
        return self.plan(
            letter, Result.REMAINS, kept, None, attempt=0, reason=reason, detail=detail
        )

    def _put_headers(
        self, rule: Rule | None, destination: Destination | None
    ) -> tuple[tuple[str, bytes | None], ...]:
        if rule is None or destination is None:
            return ()
        return (
            *destination.headers,
            (own.RULE, own.number(rule.line)),
            (own.TABLE, self._table_id.encode("ascii")),
        )


def told_of(plan: Plan, replay: Replay) -> Plan:
    """A plan whose outcome names the replay that asked for it."""
    members = f"{plan.members},{replay_members(replay)}"
    return replace(plan, replay=replay, members=members)


def _action(rule: Rule | None, progress: Progress) -> str:
    """The action that decides: that of a rule, or the quarantine that an earlier one began."""
    if rule is None:
        return Action.QUARANTINE.value if progress.is_quarantined else ""
    return rule.action.value


def _partition(letter: DeadLetterProfile, result: Result, destination: Destination | None) -> int:
    """The partition that a message came from, if it goes back to its topic; else -1."""
    origin = letter.view.origin
    if result is not Result.RETRIED or destination is None or origin.topic != destination.topic:
        return -1
    return -1 if origin.partition is None else origin.partition
