"""Decisions: the result of one attempt for all messages that are treated the same.

``Put`` and ``Discard`` end Redrive's work on a message, ``Park`` and ``Keep`` leave a copy of it on
a topic of Redrive's own (``Wait`` before the first attempt, ``Hold`` behind an earlier message of
its key), ``Skip`` leaves everything as it was.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from types import MappingProxyType
from typing import Any, Final, Self, TypeVar, TypeVarTuple

import orjson

from redrive.engine.commands import Replay
from redrive.engine.message import NO_ATTEMPTS, Attempts
from redrive.engine.names import HandlerIdentity
from redrive.engine.outcome import (
    FIELDS,
    Outcome,
    Result,
    replay_members,
    static_members,
)
from redrive.messages import NO_VALID_SCHEME, DeadLetterProfile, Headers
from redrive.messages import own_headers as own
from redrive.messages.own_headers import GroupTopic, Rounds
from redrive.messages.reports import ReportKind, ReportOptions
from redrive.rules import Action, Rule
from redrive.topology.names import NO_NAMES, Names
from redrive.topology.put import Destination

NO_PROFILE: Final = DeadLetterProfile(NO_VALID_SCHEME, "", {}, None)
"""For a message that is not a dead letter and need not be one."""
_NO_FIELDS: Final[Mapping[str, Any]] = MappingProxyType({})
_DERIVED: Final = 1_000
"""Maximum results that a decision keeps; refusals may differ for each message."""

_Result = TypeVar("_Result")
_More = TypeVarTuple("_More")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Decision:
    """A decision shared by equal messages in one attempt, with their outcomes' common members."""

    handler: str
    """Name of the handler that decided."""
    result: Result
    profile: DeadLetterProfile = NO_PROFILE
    """Profile of the messages that it is about."""
    attempts: Attempts = NO_ATTEMPTS
    """The failed attempts after this decision is carried out."""
    attempt: int
    """Number of this attempt, from 1; 0 when no rule was applied."""
    rule: Rule | None = None
    target: Names = NO_NAMES
    """The queue that the rule or the put names; empty when nothing is put."""
    reason: int = 0
    """Why the attempt failed, or 0."""
    detail: str = ""
    """Why the attempt failed, as text."""
    is_invalid: bool = False
    """Whether the message should be a dead letter and is not."""
    is_worth_logging: bool = False
    """Whether a failure says more than the dead-letter header does."""
    members: str = ""
    """JSON members of the outcome that are the same for all its messages."""
    replay: Replay | None = None
    """The replay that asked for it and overrides the table."""
    wait: int = 0
    """Seconds from the failure of the processing to the attempt."""
    _derived: dict[object, Any] = field(default_factory=dict, init=False, repr=False)

    def derive(self, make: Callable[[Self, *_More], _Result], *more: *_More) -> _Result:
        """A result that depends only on this decision and hashable arguments, made once."""
        key = make, *more
        known = self._derived.get(key)
        if known is None:
            if len(self._derived) >= _DERIVED:
                self._derived.clear()
            known = self._derived[key] = make(self, *more)
        result: _Result = known
        return result


class TimestampMode(StrEnum):
    """The timestamp of the records that a handler puts."""

    AUTO = "auto"
    """Their own; the time of the put where the target would soon delete them, or refuses it."""
    KEEP = "keep"
    """Their own."""
    NOW = "now"
    """The time of the put."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Put(Decision):
    """The message is put on a queue."""

    destination: Destination
    returns: bool = False
    """Whether a message returns to the partition where it failed, if the topic still has it; else
    the key chooses."""
    strip: bool = False
    """Whether the put removes the dead-letter header."""
    headers: tuple[tuple[str, bytes | None], ...] = ()
    """Headers that the put adds, the same for all messages."""
    group_topic: GroupTopic | None = None
    """The group's topic that it puts to, without the partition; None for other topics."""
    rounds: Rounds | None = None
    """The put's round counts, without its time; None if they are not counted."""
    timestamps: TimestampMode = TimestampMode.AUTO
    dies_young: bool = False
    """Whether the target deletes the record before half of its retention has passed."""

    @property
    def is_reported(self) -> bool:
        """Whether its messages ask for a report that they are on their queue (COA)."""
        arrives = self.strip and self.destination.is_arrival
        return arrives and ReportOptions(self.profile.report).asks_for(ReportKind.ARRIVAL)

    @property
    def is_round(self) -> bool:
        """Whether it begins a round that a RETRY counts."""
        if self.rounds is None or self.rule is None or self.replay is not None:
            return False
        return self.rule.action is Action.RETRY

    def added_headers(self, now: int, partition: int | None) -> Headers:
        """The headers that a put adds, at a time in milliseconds, for a failure on a partition."""
        added = [*self.headers]
        if self.group_topic is not None:
            known = partition if self.returns and partition != -1 else None
            added.append((own.GROUP_TOPIC, self.group_topic._replace(partition=known).value))
        if self.rounds is not None:
            added.append((own.ROUNDS, self.rounds._replace(put_at=now).value))
        return added


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Park(Decision):
    """The attempt failed; the message waits for the next one."""

    delay: int | None = None
    """Seconds that it waits by its rule's BACKOFF; None for RETRYINT."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Wait(Park):
    """The message waits until its delay since the failure has passed, and is tried then."""

    attempt_now: Decision
    """The attempt that follows, as it would end now."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Suspend(Park):
    """The message waits for an open breaker, and uses up no attempt."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Hold(Park):
    """The message waits behind an earlier one of its key, and uses up no attempt."""

    behind: str
    """Identity of the first message of the key that waits."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Keep(Decision):
    """The message remains until new definitions or an operator place it."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Discard(Decision):
    """The message is deleted, by a rule, by its own options, or because it expired."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Skip(Decision):
    """Nothing is done: the message stays where its previous outcome says."""


_Kind = TypeVar("_Kind", bound=Decision)


def with_detail(decision: _Kind, more: str) -> _Kind:
    """A decision with more text in the detail of its outcome."""
    detail = "; ".join(filter(None, (decision.detail, more)))
    members = orjson.loads(f"{{{decision.members}}}") | {"detail": detail}
    return replace(decision, detail=detail, members=static_members(members))


def with_replay(decision: _Kind, replay: Replay) -> _Kind:
    """A decision whose outcome names the replay that asked for it."""
    members = f"{decision.members},{replay_members(replay)}"
    return replace(decision, replay=replay, members=members)


def with_edit(decision: _Kind, edit: str) -> _Kind:
    """A decision whose outcome names the ``edits.changes`` of its message; empty for none."""
    if not edit:
        return decision
    return replace(decision, members=f"{decision.members},{static_members({'edit': edit})}")


@dataclass(frozen=True, slots=True)
class DecisionWriter:
    """Makes the decisions of one handler under one table, with the members of their outcomes."""

    identity: HandlerIdentity
    table_id: str
    queue_manager: str
    expects_dead_letters: bool
    """Whether a message that is not a dead letter is invalid."""

    def write(
        self,
        kind: type[_Kind],
        result: Result,
        profile: DeadLetterProfile,
        *,
        attempt: int,
        attempts: Attempts = NO_ATTEMPTS,
        rule: Rule | None = None,
        target: Names = NO_NAMES,
        destination: Destination | None = None,
        reason: int = 0,
        detail: str = "",
        replay: Replay | None = None,
        of_kind: Mapping[str, Any] = _NO_FIELDS,
    ) -> _Kind:
        """A decision.

        Args:
            kind: Its class.
            result: The result that the outcome names.
            profile: Profile of the messages.
            attempt: Number of the attempt; 0 when nothing was tried.
            attempts: The failed attempts, once it is carried out.
            rule: The rule that was applied, if any.
            target: The queue that the rule or the put names.
            destination: Where the message is put, if at all.
            reason: Why the attempt failed, or 0.
            detail: The reason as text.
            replay: An operator's decision instead of the table's.
            of_kind: The fields that only this kind has.
        """
        place = destination or target
        outcome = Outcome(
            handler=self.identity.name,
            queue_manager=self.queue_manager,
            queue=self.identity.queue,
            table=self.table_id,
            rule_line=rule.line if rule else 0,
            action=action_of(rule, attempts),
            authority=rule.authority.value if rule else "",
            attempt=attempt,
            result=result,
            reason=reason,
            detail=detail,
            target_queue_manager=place.queue_manager,
            target_queue=place.queue,
            target_topic=destination.topic if destination else "",
            form=profile.scheme,
            error_class=profile.view.error_root_class or profile.view.error_class or "",
            consumer_group=profile.view.consumer_group,
            fields={name: profile.fields.get(name) for name in FIELDS} if profile.fields else {},
        )
        if destination is not None:
            of_kind = {**of_kind, "destination": destination}
        decision = kind(
            handler=self.identity.name,
            result=result,
            profile=profile,
            attempts=attempts,
            attempt=attempt,
            rule=rule,
            target=target,
            reason=reason,
            detail=detail,
            is_invalid=self.expects_dead_letters and not profile.is_dead_letter,
            members=outcome.members,
            **of_kind,
        )
        return decision if replay is None else with_replay(decision, replay)


def action_of(rule: Rule | None, attempts: Attempts) -> str:
    """The action that decides: the rule's, or a quarantine without a rule; empty for none."""
    if rule is None:
        return Action.QUARANTINE.value if attempts.is_quarantined else ""
    return rule.action.value
