"""Dead-letter handlers: one dead-letter queue with one rules table decides every attempt.

Nothing here reads or writes: a handler turns a dead letter and its number of failures into a
``Plan``, and a failed put into the plan that follows from it (rules-table specification 6).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from redrive.decisions.letters import Letter, Letters
from redrive.decisions.waiting import NONE_YET, Progress
from redrive.messages import own_headers as own
from redrive.messages.constants import constant_value
from redrive.messages.schemes import KNOWN, SchemeTable
from redrive.outcomes.record import (
    FIELDS,
    Result,
    decision_members,
    replay_members,
)
from redrive.rules import (
    Action,
    Dialect,
    Rule,
    RulesTable,
    Target,
    missing_insert,
    resolve_target,
    select_rule,
    select_untried,
)
from redrive.rules.matcher import Matcher
from redrive.topology.names import HandlerIdentity
from redrive.topology.put import Destination, Refusal
from redrive.topology.reasons import Reason
from redrive.topology.replays import Replay, To

if TYPE_CHECKING:
    from collections.abc import Callable

    from redrive.messages.dead_letters import DeadLetterProfile

LOOP: Final = constant_value("MQRC_LOOPING_PUBLICATION") or 0
"""Reason of an attempt that would send a message in circles (Q-26: detect and refuse)."""

NO_PAYLOAD: Final = constant_value("MQRC_NO_MSG_AVAILABLE") or 0
"""Reason of a dead letter whose payload is not where it points to."""

_CHAIN: Final = 8
"""Topics of a chain of origins that are named."""

CANDIDATE_MEMO: Final = 100_000
"""Distinct dead letters whose matching rules are remembered."""


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


class Handler:
    """One dead-letter queue and its rules table.

    This class is responsible for:
        - which rule applies to a dead letter after n failures;
        - where that rule puts it, in names and, through the resolver, in topics;
        - what follows when the put fails.
    """

    def __init__(
        self,
        identity: HandlerIdentity,
        table: RulesTable,
        resolve: Callable[[str, str, int], Destination | Refusal],
        *,
        hop_limit: int,
        resolve_topic: Callable[[str], Destination | Refusal] | None = None,
        schemes: SchemeTable = KNOWN,
    ) -> None:
        """Build the index of the table.

        Args:
            identity: The handler's names.
            table: The rules table.
            resolve: Queue manager, queue name and seed to a destination or a refusal.
            hop_limit: How often Redrive puts one message on a queue before it counts as looping.
            resolve_topic: A topic's name to a destination or a refusal; None where queues are
                topics of the same name.
            schemes: The schemes of dead letters to look for.
        """
        self.identity = identity
        self.table = table
        self.table_id = table.hash[:16]
        self.hop_limit = hop_limit
        self._resolve = resolve
        self._resolve_topic = resolve_topic or (lambda topic: resolve("", topic, 0))
        self._matcher = Matcher(table)
        is_kafka = table.control.dialect is Dialect.KAFKA
        self.schemes = schemes
        self.letters = Letters(table, self._matcher, schemes) if is_kafka else None
        """What a table in DIALECT(KAFKA) sees of dead letters; None for a table of IBM's."""
        self._numbers = {id(rule): number for number, rule in enumerate(table.rules)}
        self._candidates: dict[int, tuple[DeadLetterProfile, int]] = {}

    def plan(self, letter: DeadLetterProfile, progress: Progress, hops: int, seed: int = 0) -> Plan:
        """What to do with a dead letter after the attempts that failed (specification 6.1).

        Args:
            letter: The dead letter.
            progress: How often which attempts on it have failed.
            hops: How often Redrive has put it on a queue.
            seed: Decides among equal instances of a cluster queue.
        """
        if not letter.is_dead_letter:
            return self._remains(letter, progress, None, letter.problem)
        if progress.is_quarantined:
            return self._remains(letter, progress, None, "in quarantine, no rule is asked")
        candidates = self.candidates_of(letter)
        index = self._selected(candidates, progress)
        if index is None:
            why = f"all {progress.failures} attempts failed" if candidates else "no rule matches"
            return self._remains(letter, progress, None, why)
        return self._applied(letter, self.table.rules[index], progress, hops, seed)

    def _selected(self, candidates: int, progress: Progress) -> int | None:
        if self.letters is None:
            return select_rule(self.table, candidates, progress.failures)
        # What matches may change from one attempt to the next, so each rule has a count of its own.
        return select_untried(self.table, candidates, dict(progress.failed))

    def _applied(
        self, letter: DeadLetterProfile, rule: Rule, progress: Progress, hops: int, seed: int
    ) -> Plan:
        plan, refusal = self._attempted(letter, rule, progress, hops, seed)
        if refusal is not None:
            return self.failed(letter, plan, refusal.reason, refusal.detail)
        return plan

    def _attempted(
        self, letter: DeadLetterProfile, rule: Rule, progress: Progress, hops: int, seed: int
    ) -> tuple[Plan, Refusal | None]:
        """What a rule does with a dead letter, and why the names of its target lead nowhere."""
        if rule.action is Action.IGNORE:
            why = f"ignored by the rule at line {rule.line}"
            return self._remains(letter, progress, rule, why), None
        if rule.action is Action.QUARANTINE:
            kept = progress._replace(is_quarantined=True)
            why = f"quarantined by the rule at line {rule.line}"
            return self._remains(letter, kept, rule, why), None
        if rule.action is Action.DISCARD:
            return self._planned(letter, Result.DISCARDED, progress, rule), None
        return self._put(letter, progress, rule, hops, seed)

    def replayed(
        self,
        letter: DeadLetterProfile,
        progress: Progress,
        hops: int,
        replay: Replay,
        seed: int = 0,
    ) -> Plan:
        """What to do with a remaining dead letter that a person wants to be replayed.

        Where it is to go is a rule that the replay brings along: a put that fails leaves the
        message where it was, and no rule of the table follows.

        Args:
            letter: The dead letter.
            progress: How far the table has come with it.
            hops: How often Redrive has put it on a queue.
            replay: What the person decided.
            seed: Decides among equal instances of a cluster queue.
        """
        rule = _rule_of(replay)
        if rule is None:
            return _told(self.plan(letter, NONE_YET, hops, seed), replay)
        plan, refusal = self._attempted(letter, rule, progress, hops, seed)
        plan = _told(plan, replay)
        if refusal is not None:
            return self.failed(letter, plan, refusal.reason, refusal.detail)
        return plan

    def untouched(
        self, letter: DeadLetterProfile, result: Result, detail: str, replay: Replay | None
    ) -> Plan:
        """The plan for an instruction that changes nothing.

        Args:
            letter: The dead letter.
            result: ``SKIPPED`` or ``CANCELLED``.
            detail: Why.
            replay: The replay that it belongs to, if it is known.
        """
        plan = self._planned(letter, result, NONE_YET, None, attempt=0, detail=detail)
        return plan if replay is None else _told(plan, replay)

    def failed(self, letter: DeadLetterProfile, plan: Plan, reason: int, detail: str) -> Plan:
        """What follows when the put of ``plan`` failed: parked, or left for good."""
        progress, following = self._following(letter, plan)
        result = Result.REMAINS if following is None else Result.PARKED
        header = letter.header
        news = header is None or not (
            reason == header.reason
            and (plan.queue, plan.queue_manager) == (header.dest_q_name, header.dest_q_mgr_name)
        )
        planned = self._planned(
            letter,
            result,
            progress,
            plan.rule,
            attempt=plan.attempt,
            delay=self._delay(plan, progress) if result is Result.PARKED else None,
            queue=plan.queue,
            queue_manager=plan.queue_manager,
            reason=reason,
            detail=detail,
            news=news,
        )
        return planned if plan.replay is None else _told(planned, plan.replay)

    def _following(self, letter: DeadLetterProfile, plan: Plan) -> tuple[Progress, int | None]:
        """How far the table has come when the put of a plan failed, and the next rule if any."""
        if plan.replay is not None and plan.replay.to is not To.RULES:
            return plan.progress, None  # the table had no part in it
        progress = self._after(plan)
        return progress, self._selected(self.candidates_of(letter), progress)

    def without_payload(self, letter: DeadLetterProfile, plan: Plan, detail: str) -> Plan:
        """What follows when the payload of a dead letter is not where it points to: it remains.

        Args:
            letter: The dead letter.
            plan: The plan to put it.
            detail: What is the matter with its origin.
        """
        planned = self._planned(
            letter,
            Result.REMAINS,
            plan.progress,
            plan.rule,
            attempt=0,
            queue=plan.queue,
            queue_manager=plan.queue_manager,
            reason=NO_PAYLOAD,
            detail=detail,
            news=True,
        )
        return planned if plan.replay is None else _told(planned, plan.replay)

    def _delay(self, plan: Plan, progress: Progress) -> int | None:
        """Seconds to wait after the failed put of a plan; None for RETRYINT."""
        rule = plan.rule
        if rule is None or rule.backoff is None:
            return None
        return rule.backoff.delay(dict(progress.failed)[self._numbers[id(rule)]])

    def _after(self, plan: Plan) -> Progress:
        """How far the table has come when the put of a plan has failed."""
        before = plan.progress
        failed = dict(before.failed)
        if self.letters is not None and plan.rule is not None:
            number = self._numbers[id(plan.rule)]
            failed[number] = failed.get(number, 0) + 1
        return Progress(before.failures + 1, tuple(sorted(failed.items())))

    def _put(
        self, letter: DeadLetterProfile, progress: Progress, rule: Rule, hops: int, seed: int
    ) -> tuple[Plan, Refusal | None]:
        target = resolve_target(rule, letter.fields)
        queue, queue_manager = target.queue, target.queue_manager
        strip = rule.action is Action.RETRY or not rule.header
        result = Result.RETRIED if rule.action is Action.RETRY else Result.FORWARDED
        destination = self._destination(letter, rule, target, hops, seed)
        planned = self._planned(
            letter,
            result,
            progress,
            rule,
            queue=queue,
            queue_manager=queue_manager,
            destination=destination if isinstance(destination, Destination) else None,
            strip=strip,
        )
        return planned, destination if isinstance(destination, Refusal) else None

    def _destination(
        self, letter: DeadLetterProfile, rule: Rule, target: Target, hops: int, seed: int
    ) -> Destination | Refusal:
        # What other programs sent round leaves its traces in their headers.
        returns = (letter.view.hop or 1) - 1 if letter.comes_from_kafka else 0
        if hops + returns >= self.hop_limit:
            return Refusal(LOOP, _round_trip(letter, hops, returns, self.hop_limit))
        if missing := missing_insert(rule, letter.fields):
            return Refusal(Reason.UNKNOWN_OBJECT_NAME, f"the message has nothing for {missing}")
        if rule.forward_topic:
            destination = self._resolve_topic(target.queue)
        else:
            destination = self._resolve(target.queue_manager, target.queue, seed)
        if isinstance(destination, Destination) and destination.topic == self.identity.topic:
            return Refusal(LOOP, "the target is the handler's own dead-letter queue")
        return destination

    def _remains(
        self, letter: DeadLetterProfile, progress: Progress, rule: Rule | None, detail: str
    ) -> Plan:
        return self._planned(letter, Result.REMAINS, progress, rule, attempt=0, detail=detail)

    def _planned(
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
    ) -> Plan:
        number = progress.failures + 1 if attempt is None else attempt
        members = decision_members(
            handler=self.identity.name,
            queue_manager=self.identity.queue_manager,
            queue=self.identity.queue,
            table=self.table_id,
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
            fields={name: letter.fields.get(name) for name in FIELDS} if letter.fields else {},
        )
        return Plan(
            handler=self.identity.name,
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

    def _put_headers(
        self, rule: Rule | None, destination: Destination | None
    ) -> tuple[tuple[str, bytes | None], ...]:
        if rule is None or destination is None:
            return ()
        return (
            *destination.headers,
            (own.RULE, own.number(rule.line)),
            (own.TABLE, self.table_id.encode("ascii")),
        )

    def candidates_of(self, letter: DeadLetterProfile) -> int:
        """The rules that match a dead letter, as bits."""
        if isinstance(letter, Letter):
            return letter.candidates
        known = self._candidates.get(id(letter))
        if known is None:
            if len(self._candidates) >= CANDIDATE_MEMO:
                self._candidates.clear()
            # The letter is kept with its answer: its id stays taken as long as it is a key.
            known = letter, self._matcher.candidates_of(letter.fields)
            self._candidates[id(letter)] = known
        return known[1]


def _rule_of(replay: Replay) -> Rule | None:
    """The rule that a replay brings along; None if those of the table are to decide."""
    match replay.to:
        case To.RULES:
            return None
        case To.ORIGINAL:
            return Rule(action=Action.RETRY)
        case To.DISCARD:
            return Rule(action=Action.DISCARD)
        case To.QUEUE:
            return Rule(
                action=Action.FWD,
                forward_queue=replay.queue,
                forward_queue_manager=replay.queue_manager,
                header=replay.keeps_header,
            )


def _told(plan: Plan, replay: Replay) -> Plan:
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


def _round_trip(letter: DeadLetterProfile, hops: int, returns: int, limit: int) -> str:
    """What a person has to know of a message that goes round."""
    before = f" and came back {returns} times before" if returns else ""
    said = f"put {hops} times already{before}, the limit is {limit}"
    chain = letter.origins
    if len(chain) > _CHAIN:
        chain = (*chain[: _CHAIN // 2], "...", *chain[-_CHAIN // 2 :])
    return f"{said}; it failed on {' -> '.join(chain)}" if chain else said
