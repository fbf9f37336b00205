"""Dead-letter handlers: one dead-letter queue with one rules table decides every attempt.

Nothing here reads or writes: a handler turns a dead letter and its number of failures into a
``Plan``, and a failed put into the plan that follows from it (rules-table specification 6).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from redrive.engine.commands import Replay, To
from redrive.engine.letters import Letter, Letters
from redrive.engine.names import HandlerIdentity
from redrive.engine.outcome import (
    Result,
)
from redrive.engine.plans import Plan, Planner, told_of
from redrive.engine.waiting import NONE_YET, Progress
from redrive.messages.constants import constant_value
from redrive.messages.reasons import Reason
from redrive.messages.schemes import KNOWN, SchemeTable
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
from redrive.topology.put import Destination, Refusal

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
        self._plans = Planner(identity, self.table_id)
        self.hop_limit = hop_limit
        self._resolve = resolve
        self._resolve_topic = resolve_topic or (lambda topic: resolve("", topic, 0))
        matcher = Matcher(table)
        is_kafka = table.control.dialect is Dialect.KAFKA
        self.schemes = schemes
        self.letters = Letters(table, matcher, schemes) if is_kafka else None
        """What a table in DIALECT(KAFKA) sees of dead letters; None for a table of IBM's."""
        self._numbers = {id(rule): number for number, rule in enumerate(table.rules)}
        self._candidates = _Candidates(matcher)

    def plan(self, letter: DeadLetterProfile, progress: Progress, hops: int, seed: int = 0) -> Plan:
        """What to do with a dead letter after the attempts that failed (specification 6.1).

        Args:
            letter: The dead letter.
            progress: How often which attempts on it have failed.
            hops: How often Redrive has put it on a queue.
            seed: Decides among equal instances of a cluster queue.
        """
        if not letter.is_dead_letter:
            return self._plans.remains(letter, progress, None, letter.problem)
        if progress.is_quarantined:
            return self._plans.remains(letter, progress, None, "in quarantine, no rule is asked")
        candidates = self.candidates_of(letter)
        index = self._selected(candidates, progress)
        if index is None:
            why = f"all {progress.failures} attempts failed" if candidates else "no rule matches"
            return self._plans.remains(letter, progress, None, why)
        return self._applied(letter, self.table.rules[index], progress, hops, seed)

    def _selected(self, candidates: int, progress: Progress) -> int | None:
        if self.letters is None:
            return select_rule(self.table, candidates, progress.failures)
        # What matches may change from one attempt to the next, so each rule has a count of its own.
        return select_untried(self.table, candidates, dict(progress.failed))

    def _applied(
        self, letter: DeadLetterProfile, rule: Rule, progress: Progress, hops: int, seed: int
    ) -> Plan:
        keeps_loops = self.letters is not None and rule.action.can_fail
        if keeps_loops and (loop := _loop(letter, hops, self.hop_limit)):
            return self._plans.quarantined(letter, progress, loop.reason, loop.detail)
        plan, why = self._attempted(letter, rule, progress, hops, seed)
        return plan if why is None else self.failed(letter, plan, why.reason, why.detail)

    def _attempted(
        self, letter: DeadLetterProfile, rule: Rule, progress: Progress, hops: int, seed: int
    ) -> tuple[Plan, Refusal | None]:
        """What a rule does with a dead letter, and why the names of its target lead nowhere."""
        if rule.action is Action.IGNORE:
            why = f"ignored by the rule at line {rule.line}"
            return self._plans.remains(letter, progress, rule, why), None
        if rule.action is Action.QUARANTINE:
            kept = progress._replace(is_quarantined=True)
            why = f"quarantined by the rule at line {rule.line}"
            return self._plans.remains(letter, kept, rule, why), None
        if rule.action is Action.DISCARD:
            return self._plans.plan(letter, Result.DISCARDED, progress, rule), None
        return self._put(letter, progress, rule, hops, seed)

    def replayed(
        self,
        letter: DeadLetterProfile,
        progress: Progress,
        hops: int,
        replay: Replay,
        seed: int = 0,
    ) -> Plan:
        """What to do with a dead letter about which a person decided.

        Where a remaining one is to go is a rule that the replay brings along: a put that fails
        leaves the message where it was, and no rule of the table follows. A parked one goes on
        with the table, or remains.

        Args:
            letter: The dead letter.
            progress: How far the table has come with it.
            hops: How often Redrive has put it on a queue.
            replay: What the person decided.
            seed: Decides among equal instances of a cluster queue.
        """
        if replay.to is To.REMAIN:
            why = f"{replay.operator} wants no more attempts"
            return told_of(self._plans.remains(letter, progress, None, why), replay)
        rule = _rule_of(replay)
        if rule is None:
            so_far = progress if replay.to is To.ATTEMPT else NONE_YET
            return told_of(self.plan(letter, so_far, hops, seed), replay)
        plan, refusal = self._attempted(letter, rule, progress, hops, seed)
        plan = told_of(plan, replay)
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
        return self._plans.plan(
            letter, result, NONE_YET, None, attempt=0, detail=detail, replay=replay
        )

    def failed(self, letter: DeadLetterProfile, plan: Plan, reason: int, detail: str) -> Plan:
        """What follows when the put of ``plan`` failed: parked, or left for good."""
        progress, following = self._following(letter, plan)
        result = Result.REMAINS if following is None else Result.PARKED
        header = letter.header
        news = header is None or not (
            reason == header.reason
            and (plan.queue, plan.queue_manager) == (header.dest_q_name, header.dest_q_mgr_name)
        )
        return self._plans.plan(
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
            replay=plan.replay,
        )

    def _following(self, letter: DeadLetterProfile, plan: Plan) -> tuple[Progress, int | None]:
        """How far the table has come when the put of a plan failed, and the next rule if any."""
        if plan.replay is not None and plan.replay.to not in {To.RULES, To.ATTEMPT}:
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
        return self._plans.plan(
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
            replay=plan.replay,
        )

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
        is_retry = rule.action is Action.RETRY
        destination = self._destination(letter, rule, target, hops, seed)
        planned = self._plans.plan(
            letter,
            Result.RETRIED if is_retry else Result.FORWARDED,
            progress,
            rule,
            queue=target.queue,
            queue_manager=target.queue_manager,
            destination=destination if isinstance(destination, Destination) else None,
            strip=is_retry or not rule.header,
        )
        return planned, destination if isinstance(destination, Refusal) else None

    def _destination(
        self, letter: DeadLetterProfile, rule: Rule, target: Target, hops: int, seed: int
    ) -> Destination | Refusal:
        if loop := _loop(letter, hops, self.hop_limit):
            return loop
        if missing := missing_insert(rule, letter.fields):
            return Refusal(Reason.UNKNOWN_OBJECT_NAME, f"the message has nothing for {missing}")
        if rule.forward_topic:
            destination = self._resolve_topic(target.queue)
        else:
            destination = self._resolve(target.queue_manager, target.queue, seed)
        if isinstance(destination, Destination) and destination.topic == self.identity.topic:
            return Refusal(LOOP, "the target is the handler's own dead-letter queue")
        return destination

    def candidates_of(self, letter: DeadLetterProfile) -> int:
        """The rules that match a dead letter, as bits."""
        return letter.candidates if isinstance(letter, Letter) else self._candidates.of(letter)


class _Candidates:
    """The rules that match dead letters whose fields are all that a table asks for, kept."""

    def __init__(self, matcher: Matcher) -> None:
        self._matcher = matcher
        self._known: dict[int, tuple[DeadLetterProfile, int]] = {}

    def of(self, letter: DeadLetterProfile) -> int:
        """The rules that match one, as bits."""
        known = self._known.get(id(letter))
        if known is None:
            if len(self._known) >= CANDIDATE_MEMO:
                self._known.clear()
            # The letter is kept with its answer: its id stays taken as long as it is a key.
            known = self._known[id(letter)] = letter, self._matcher.candidates_of(letter.fields)
        return known[1]


def _rule_of(replay: Replay) -> Rule | None:
    """The rule that a replay brings along; None if those of the table are to decide."""
    match replay.to:
        case To.RULES | To.ATTEMPT | To.REMAIN:
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


def _loop(letter: DeadLetterProfile, hops: int, limit: int) -> Refusal | None:
    """The refusal of a message that went round too often."""
    # What other programs sent round leaves its traces in their headers.
    returns = (letter.view.hop or 1) - 1 if letter.comes_from_kafka else 0
    if hops + returns < limit:
        return None
    return Refusal(LOOP, _round_trip(letter, hops, returns, limit))


def _round_trip(letter: DeadLetterProfile, hops: int, returns: int, limit: int) -> str:
    """What a person has to know of a message that goes round."""
    before = f" and came back {returns} times before" if returns else ""
    said = f"put {hops} times already{before}, the limit is {limit}"
    chain = letter.origins
    if len(chain) > _CHAIN:
        chain = (*chain[: _CHAIN // 2], "...", *chain[-_CHAIN // 2 :])
    return f"{said}; it failed on {' -> '.join(chain)}" if chain else said
