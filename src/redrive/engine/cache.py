"""Caches: equal messages are decided once, and the most common kind of put is prepared."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeVar, TypeVarTuple

from redrive.engine.decision import Put
from redrive.engine.message import NO_ATTEMPTS, seed_of
from redrive.engine.put_record import PreparedPut, put_bounds
from redrive.messages.dead_letters import names_offset

if TYPE_CHECKING:
    from collections.abc import Callable

    from redrive.engine.commands import Replay
    from redrive.engine.context import SliceContext
    from redrive.engine.decision import Decision
    from redrive.engine.message import Attempts, Message
    from redrive.engine.rules_decider import RulesDecider
    from redrive.messages import DeadLetterProfile

_REMEMBERED: Final = 20_000
"""Decisions above which a cache is cleared before the next slice."""

_Source = TypeVar("_Source")
_More = TypeVarTuple("_More")
_Result = TypeVar("_Result")


class DecisionCache:
    """Decisions of rules tables under the same facts, shared by equal messages."""

    def __init__(self) -> None:
        self._facts: object = None
        self._batch: object = None
        # Decisions keep their profiles alive, so the id in a key stays unique.
        self._profiles: dict[int, DeadLetterProfile] = {}
        self._decisions: dict[tuple[RulesDecider, int, Attempts, int, int, str], Decision] = {}
        # With the source of each, so that its id stays unique too.
        self._derived: dict[tuple[object, ...], tuple[object, Any]] = {}
        self._prepared: dict[
            tuple[RulesDecider, tuple[str, ...]], dict[int, PreparedPut | None]
        ] = {}

    def begin(self, facts: object, batch: object) -> None:
        """Begin a slice; drop decisions under other facts, and puts prepared for another batch.

        Args:
            facts: Equal to that of the last slice while the facts that decisions depend on are.
            batch: Equal to that of the last slice while time and breakers, which only prepared puts
                depend on, are.
        """
        is_full = len(self._decisions) + len(self._derived) > _REMEMBERED
        if facts != self._facts or is_full:
            self._profiles.clear()
            self._decisions.clear()
            self._derived.clear()
            self._prepared.clear()
        if batch != self._batch:
            self._prepared.clear()
        self._facts, self._batch = facts, batch

    def decide(
        self,
        decider: RulesDecider,
        profile: DeadLetterProfile,
        attempts: Attempts,
        message: Message,
        replay: Replay | None = None,
    ) -> Decision:
        """The decision for one message; its identity chooses among equal instances.

        Arguments as for ``RulesDecider.decide_profile``, which decides.
        """
        hops = message.hops
        plan = "" if replay is None else replay.plan
        decision = self._decisions.get((decider, id(profile), attempts, hops, 0, plan))
        if decision is None:
            decision = self.of_profile(decider, profile, attempts, hops=hops, replay=replay)
        if isinstance(decision, Put) and decision.destination.is_choice:
            seed = seed_of(message.identity)
            decision = self.of_profile(
                decider, profile, attempts, hops=hops, seed=seed, replay=replay
            )
        return decision

    def of_profile(
        self,
        decider: RulesDecider,
        profile: DeadLetterProfile,
        attempts: Attempts,
        *,
        hops: int,
        seed: int = 0,
        replay: Replay | None = None,
    ) -> Decision:
        """The decision for a profile; arguments as for ``RulesDecider.decide_profile``."""
        plan = "" if replay is None else replay.plan
        key = (decider, id(profile), attempts, hops, seed, plan)
        decision = self._decisions.get(key)
        if decision is None:
            self._profiles[id(profile)] = profile
            decision = decider.decide_profile(
                profile, attempts, hops=hops, seed=seed, replay=replay
            )
            self._decisions[key] = decision
        return decision

    def derive(
        self, make: Callable[[_Source, *_More], _Result], source: _Source, *more: *_More
    ) -> _Result:
        """A decision derived from another one, or from a profile, made once.

        ``source`` is that decision or profile, compared by identity.
        """
        key = (make, id(source), *more)
        known = self._derived.get(key)
        if known is None:
            known = self._derived[key] = source, make(source, *more)
        result: _Result = known[1]
        return result

    def prepared_puts(
        self, decider: RulesDecider, layout: tuple[str, ...]
    ) -> dict[int, PreparedPut | None]:
        """Results of ``prepare`` for fresh dead letters with these header names, by profile id."""
        return self._prepared.setdefault((decider, layout), {})

    def prepare(
        self,
        decider: RulesDecider,
        profile: DeadLetterProfile,
        layout: tuple[str, ...],
        facts: SliceContext,
        *,
        attempts: Attempts = NO_ATTEMPTS,
        hops: int = 0,
        replay: Replay | None = None,
    ) -> PreparedPut | None:
        """The prepared put of a profile's dead letters; None if each needs its own decision.

        A replay ignores breakers. Arguments as for ``RulesDecider.decide_profile``; the layout is
        the header names without Redrive's own, in order.
        """
        decision = self.of_profile(decider, profile, attempts, hops=hops, replay=replay)
        if not isinstance(decision, Put):
            return None
        guard = decider.guard if replay is None else None
        if guard is not None and guard.open_breaker(decision, facts):
            return None
        bounds = put_bounds(decision, facts)
        if bounds is None:
            return None
        known, counter = facts.facts, decider.attempts
        names_record = names_offset(profile, layout)
        return PreparedPut(
            decision,
            layout,
            bounds,
            facts,
            hops=hops,
            may_lack_rounds=replay is None and counter.may_be_repeated(decision, known),
            is_counted_by_body=counter.is_counted_by_body(
                decision, known, names_record=names_record
            ),
        )
