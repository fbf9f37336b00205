"""What the console does: plans, their application and cancellation, acknowledgements."""

from __future__ import annotations

import logging
import secrets
import threading
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Final

from redrive.command.opening import ask_inventory, open_cluster
from redrive.command.replay_work import planned, planned_message, runs
from redrive.configuration import JobConfiguration
from redrive.console.access import Role, User
from redrive.console.documents import Documents
from redrive.console.plans import SavedPlan, SavedPlans
from redrive.errors import RedriveError, TransientFault, UsageError
from redrive.operations.durations import parse_until
from redrive.operations.replay.accepting import accept
from redrive.operations.replay.entries import read_accepted
from redrive.operations.replay.plan import Order
from redrive.operations.replay.progress import cancel
from redrive.operations.states import write_states
from redrive.outcomes.acknowledgements import Acknowledgement
from redrive.outcomes.inventory import Selection, State

_log: Final = logging.getLogger(__name__)


class RefusedError(RedriveError):
    """What this user must not do."""


class Actions:
    """What users change; each action is what the command of the same name does.

    Args:
        documents: Those of the job.
        four_eyes_above: Messages of a plan above which somebody else has to apply it; None for
            no limit.
    """

    def __init__(self, documents: Documents, *, four_eyes_above: int | None) -> None:
        self._documents = documents
        self._four_eyes_above = four_eyes_above
        self._failures: dict[str, str] = {}
        """Why a plan could not be handed to the job, by its id."""
        self._applying: set[str] = set()
        """Plans that are being handed to the job."""

    def make_plan(self, user: User, selection: Selection, order: Order) -> dict[str, Any]:
        """Makes a plan and keeps it.

        Raises:
            RedriveError: As for ``redrive replay plan``; there is nothing to do is no error.
        """
        settings = self._documents.settings()
        if selection.message:
            found = planned_message(settings, selection, order)
        else:
            found = planned(settings, selection, order, None)
        if found.count:
            SavedPlans(settings.job).save(found, user.name)
        return self._described(SavedPlan(found, user.name), user)

    def plan(self, plan: str, user: User) -> dict[str, Any]:
        """A plan that is kept, or the progress of one that was applied.

        Raises:
            UsageError: There is neither.
        """
        job = self._documents.settings().job
        with open_cluster(job.connection) as cluster:
            is_accepted = plan in read_accepted(job, cluster)
        saved = SavedPlans(job).find(plan)
        if is_accepted:
            return {"replay": self._documents.replay(plan), "plan": saved and saved.document()}
        if saved is None:
            raise UsageError(f"there is no plan {plan}", hint="it may have been discarded")
        return {"replay": None, "plan": self._described(saved, user)}

    def waiting_plans(self, user: User) -> list[dict[str, Any]]:
        """The plans that nobody has applied."""
        job = self._documents.settings().job
        with open_cluster(job.connection) as cluster:
            accepted = read_accepted(job, cluster)
        every = SavedPlans(job).every()
        return [self._described(one, user) for one in every if one.plan.plan not in accepted]

    def apply_plan(self, plan: str, user: User, purpose: str) -> dict[str, Any]:
        """Hands a plan to the job; a thread goes on with it, and ``plan`` tells how far it is.

        Raises:
            UsageError: There is no such plan.
            RefusedError: Somebody else has to apply it.
        """
        job = self._documents.settings().job
        saved = SavedPlans(job).find(plan)
        if saved is None:
            raise UsageError(f"there is no plan {plan}", hint="it may have been discarded")
        if refusal := self._refusal(saved, user):
            raise RefusedError(
                refusal, hint="ask somebody else to apply it: redrive replay apply FILE"
            )
        self._failures.pop(plan, None)
        with open_cluster(job.connection) as cluster:
            is_running = runs(cluster, job)
        _log.info("%s applies the plan %s, %d messages", user.name, plan, saved.plan.count)
        self._applying.add(plan)
        threading.Thread(
            target=self._accept, args=(job, saved, user, purpose), name=f"apply {plan}", daemon=True
        ).start()
        return {"plan": plan, "job_runs": is_running}

    def discard_plan(self, plan: str, user: User) -> None:
        """Removes a plan that nobody has applied."""
        _log.info("%s discards the plan %s", user.name, plan)
        SavedPlans(self._documents.settings().job).forget(plan)

    def cancel_replay(self, plan: str, user: User, purpose: str) -> None:
        """Cancels what is left of a replay; errors as for ``redrive replay cancel``."""
        job = self._documents.settings().job
        told = f"{user.name} ({purpose})" if purpose else user.name
        _log.info("%s cancels the replay %s", user.name, plan)
        with open_cluster(job.connection) as cluster:
            cancel(job, cluster, plan, told)

    def acknowledge(
        self, user: User, selection: Selection, *, until: str, note: str, covers_new: bool
    ) -> dict[str, Any]:
        """Acknowledges messages that remain; errors as for ``redrive ack``."""
        settings = self._documents.settings()
        try:
            end = parse_until(until, datetime.now(UTC))
        except ValueError as error:
            raise UsageError(
                f"{until!r} is not a time to come", hint="give 12h, 7d, 4w, or 2027-01-31"
            ) from error
        if not note:
            raise UsageError("an acknowledgement needs a note", hint="say why they are kept")
        one = Acknowledgement(
            id=secrets.token_hex(4),
            operator=user.name,
            note=note,
            made=datetime.now(UTC),
            until=end,
            covers_new=covers_new,
            selection=replace(selection, state=State.REMAINING),
        )
        covered = ask_inventory(settings, one.selection, lambda it: it.covered(one)).found
        if not covered and not covers_new:
            raise UsageError("no remaining message fits", hint="include those that come later")
        write_states(settings.job, [one.entry()])
        _log.info("%s acknowledges %d messages until %s", user.name, covered, until)
        return {"id": one.id, "messages": covered}

    def _accept(self, job: JobConfiguration, saved: SavedPlan, user: User, purpose: str) -> None:
        try:
            with open_cluster(job.connection) as cluster:
                accept(job, cluster, saved.plan, operator=user.name, purpose=purpose)
        except (RedriveError, TransientFault) as error:
            _log.warning("the plan %s was not handed over: %s", saved.plan.plan, error.message)
            self._failures[saved.plan.plan] = error.message
        finally:
            self._applying.discard(saved.plan.plan)

    def _described(self, saved: SavedPlan, user: User) -> dict[str, Any]:
        return {
            **saved.document(),
            "refusal": self._refusal(saved, user),
            "is_applying": saved.plan.plan in self._applying,
            "failure": self._failures.get(saved.plan.plan, ""),
        }

    def _refusal(self, saved: SavedPlan, user: User) -> str:
        """Why a user must not apply a plan; empty if they may."""
        if user.role < Role.OPERATOR:
            return f"{user.name} may look at plans only"
        if self._four_eyes_above is None or saved.plan.count <= self._four_eyes_above:
            return ""
        most = f"a plan for more than {self._four_eyes_above:,} messages"
        if user.role < Role.APPROVER:
            return f"{most} is applied by an approver"
        if saved.planned_by == user.name:
            return f"{most} is applied by somebody other than {user.name}, who made it"
        return ""
