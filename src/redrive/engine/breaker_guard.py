"""The part of a rules table's decider that checks its breakers before it tries a message."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from redrive.engine.attempts import AttemptCounter
from redrive.engine.breaker import PROBE, BreakerSettings, OpenBreaker, breaker_of, is_refused
from redrive.engine.context import SliceContext
from redrive.engine.deciders import Decided
from redrive.engine.decision import Decision, DecisionWriter, Put, Suspend, with_detail
from redrive.engine.message import Attempts, Message
from redrive.engine.outcome import Result
from redrive.messages import DeadLetterProfile


class BreakerGuard:
    """Makes retries of one rules table wait while their breakers are open."""

    def __init__(
        self,
        handler: str,
        settings: BreakerSettings,
        attempts: AttemptCounter,
        decisions: DecisionWriter,
    ) -> None:
        self.failures = settings.failures
        self._handler = handler
        self._attempts = attempts
        self._decisions = decisions

    def decide(
        self,
        message: Message,
        decision: Decision,
        attempts: Attempts,
        facts: SliceContext,
        attempt: Callable[[Decision], Decided],
    ) -> Decided:
        """The result of a decision under its breaker: an attempt, a probe, or a wait.

        ``attempt`` carries out a decision about the message.
        """
        key = breaker_of(self._handler, decision.rule, decision.profile)
        if key is None:
            return attempt(decision)
        is_put, breaker = isinstance(decision, Put), facts.breakers.of(key)
        if isinstance(decision, Put) and message.failed_at:
            is_put = not facts.is_waiting(message, decision.wait)
        if not is_put and not is_refused(decision):
            return attempt(decision)
        derive = facts.cache.derive
        if breaker is not None and not facts.breakers.admits(key, breaker):
            return Decided(message, derive(self._suspend, decision, attempts, breaker.detail))
        tried = decision
        if breaker is not None and not breaker.is_tried and isinstance(decision, Put):
            tried = derive(self._probe, decision, attempts, breaker.detail)
        decided = attempt(tried)
        if not is_refused(decided.decision):
            return decided
        facts.breakers.refuse(key, decided.decision.detail)
        if breaker is None:
            return decided
        return Decided(message, derive(self._suspend, decision, attempts, breaker.detail))

    def note_return(
        self, profile: DeadLetterProfile, attempts: Attempts, put_at: int, facts: SliceContext
    ) -> None:
        """Count a returned round, put at a time in milliseconds, for its rule's breaker.

        The last of the failed attempts was by that rule.
        """
        key = breaker_of(self._handler, self._attempts.last_tried(attempts), profile)
        if key is not None:
            facts.breakers.note_return(key, put_at)

    def open_breaker(self, decision: Decision, facts: SliceContext) -> OpenBreaker | None:
        """The breaker of a decision, if it is open."""
        if not facts.breakers:
            return None
        key = breaker_of(self._handler, decision.rule, decision.profile)
        return None if key is None else facts.breakers.of(key)

    def _suspend(self, decision: Decision, attempts: Attempts, why: str) -> Suspend:
        return self._decisions.write(
            Suspend,
            Result.PARKED,
            decision.profile,
            attempts=attempts,
            attempt=attempts.failures + 1,
            rule=decision.rule,
            target=decision.target,
            detail=why,
            of_kind={"delay": self._attempts.delay(decision.rule, attempts)},
        )

    def _probe(self, put: Put, attempts: Attempts, why: str) -> Put:
        """A put whose round does not count."""
        rounds = put.rounds
        if rounds is not None and put.rule is not None:
            rounds = self._attempts.rounds_of_probe(put.rule, rounds, attempts)
        return with_detail(replace(put, rounds=rounds), f"{PROBE}: {why}")
