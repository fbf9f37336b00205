"""Plans that were made before: dead letters that are alike have one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from redrive.engine.routers import seed_of

if TYPE_CHECKING:
    from redrive.engine.commands import Replay
    from redrive.engine.handlers import Handler
    from redrive.engine.plans import Plan
    from redrive.engine.waiting import DeadLetterRecord, Progress
    from redrive.messages.dead_letters import DeadLetterProfile


class KnownPlans:
    """Asks a handler once for all dead letters that are alike."""

    def __init__(self, handler: Handler) -> None:
        """Nothing is known yet.

        Args:
            handler: Makes the plans.
        """
        self._handler = handler
        # What is kept for a letter names it by its id: the letters are kept too.
        self._kept: dict[int, DeadLetterProfile] = {}
        self._plans: dict[tuple[int, Progress, int, int, str], Plan] = {}
        self._failed: dict[tuple[int, int, str], Plan] = {}

    def plan(
        self,
        letter: DeadLetterProfile,
        progress: Progress,
        hops: int,
        seed: int = 0,
        replay: Replay | None = None,
    ) -> Plan:
        """The plan for a kind of dead letter; arguments as for ``Handler.plan``.

        Args:
            letter: The dead letter.
            progress: How far the table has come with it.
            hops: How often Redrive has put it on a queue.
            seed: Decides among equal instances of a cluster queue.
            replay: What a person decided about it instead of the table.
        """
        key = (id(letter), progress, hops, seed, "" if replay is None else replay.plan)
        plan = self._plans.get(key)
        if plan is None:
            self._kept[id(letter)] = letter
            if replay is None:
                plan = self._handler.plan(letter, progress, hops, seed)
            else:
                plan = self._handler.replayed(letter, progress, hops, replay, seed)
            self._plans[key] = plan
        return plan

    def plan_for(
        self,
        record: DeadLetterRecord,
        letter: DeadLetterProfile,
        progress: Progress,
        replay: Replay | None = None,
    ) -> Plan:
        """The plan for one dead letter, which alone may choose among equal instances."""
        plan = self.plan(letter, progress, record.hops, replay=replay)
        if plan.destination is not None and plan.destination.is_choice:
            plan = self.plan(letter, progress, record.hops, seed_of(record.identity), replay)
        return plan

    def after(self, letter: DeadLetterProfile, plan: Plan, reason: int, detail: str) -> Plan:
        """The plan that follows when the put of another failed."""
        key = (id(plan), reason, detail)
        failed = self._failed.get(key)
        if failed is None:
            failed = self._failed[key] = self._handler.failed(letter, plan, reason, detail)
        return failed
