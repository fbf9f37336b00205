"""What the console does: saved plans, their application and cancellation, acknowledgements."""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

from redrive.command.edits import replacement, written_form
from redrive.command.ls import NothingRemains, acknowledge, take_back
from redrive.command.replay_work import planned, runs
from redrive.configuration import JobConfiguration
from redrive.console.access import EVERYTHING, RefusedError, Role, Scope, User
from redrive.console.documents import Documents
from redrive.engine.commands import Replay, To
from redrive.engine.edits import NO_EDIT, Content, Edit
from redrive.errors import EnvironmentFault, RedriveError, UsageError
from redrive.masking import Mask
from redrive.operations.network import open_cluster
from redrive.operations.replay.applying import accept
from redrive.operations.replay.plan import Plan
from redrive.operations.replay.progress import cancel, read_accepted
from redrive.outcomes.inventory import Selection
from redrive.printable import counted
from redrive.settings import Settings

_log: Final = logging.getLogger(__name__)

_FOLDER: Final = "plans"
_ID: Final = re.compile(r"[0-9a-f]{12}")


class SavedPlans:
    """The plans in a job's folder.

    ``redrive replay apply`` accepts such a file, and a file that ``redrive replay plan`` writes to
    the folder appears in the console.
    """

    def __init__(self, job: JobConfiguration) -> None:
        self.folder = job.directory / _FOLDER
        self._application = job.application
        self._only = job.only_handlers

    def save(self, plan: Plan) -> None:
        """Write a plan; raises ``EnvironmentFault`` if the folder cannot be written."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            plan.write(self.folder / f"{plan.id}.json")
        except OSError as error:
            raise EnvironmentFault(
                f"the plan cannot be saved in {self.folder}: {error.strerror}",
                hint="run the console as a user who may write to the job's folder",
            ) from error

    def find(self, plan: str) -> Plan | None:
        """A plan by its id; None if unknown, or about handlers out of scope."""
        if not _ID.fullmatch(plan):
            return None
        path = self.folder / f"{plan}.json"
        saved = Plan.read(path) if path.is_file() else None
        return saved if saved is not None and self._shows(saved) else None

    def required(self, plan: str) -> Plan:
        """Like ``find``; raises ``UsageError`` if there is none."""
        saved = self.find(plan)
        if saved is None:
            raise UsageError(f"there is no plan {plan}", hint="it may have been discarded")
        return saved

    def every(self) -> Iterator[Plan]:
        """All plans that can be read, the newest first."""
        try:
            files = sorted(self.folder.glob("*.json"), key=lambda path: -path.stat().st_mtime)
        except OSError:
            return
        for path in files:
            try:
                saved = Plan.read(path)
            except (UsageError, EnvironmentFault):
                continue  # another kind of file
            if saved.application == self._application and self._shows(saved):
                yield saved

    def forget(self, plan: str) -> None:
        """Delete the file of a plan; errors as for ``required``."""
        self.required(plan)
        (self.folder / f"{plan}.json").unlink(missing_ok=True)

    def _shows(self, plan: Plan) -> bool:
        return self._only is None or plan.messages.keys() <= self._only


def _shown(plan: Plan) -> dict[str, Any]:
    """A plan as a JSON object, without its messages and the values of its edit."""
    hidden = {"messages", "edit", "planned_by"}
    content = {name: value for name, value in plan.document().items() if name not in hidden}
    return {**content, "description": str(plan.replay), "planned_by": plan.planned_by}


def _has_secrets(mask: Mask, content: Content) -> bool:
    return mask.bytes_or_none(content.value) != content.value or any(
        mask.header(name, raw) != raw for name, raw in content.headers
    )


class Actions:
    """What users change; each action does the same as the command of its name.

    Plans for more than ``four_eyes_above`` messages need a second person to apply them.
    """

    def __init__(self, documents: Documents, *, four_eyes_above: int | None) -> None:
        self._documents = documents
        self._four_eyes_above = four_eyes_above
        self._failures: dict[str, str] = {}
        """Why a plan could not be handed to the job, by its id."""
        self._applying: set[str] = set()
        """Plans that are being handed to the job."""

    def make_plan(
        self, user: User, selection: Selection, replay: Replay, edited: str = ""
    ) -> dict[str, Any]:
        """Make and save a plan, which may be empty.

        ``edited`` is the edited text of the only message, from ``text``.

        Raises:
            UsageError: The text is not a message, or is unchanged.
            RefusedError: The messages would go to a topic outside the user's scope.
            RedriveError: As for ``redrive replay plan``, but an empty plan is no error.
        """
        scope = user.scope(Role.OPERATOR)
        if not _may_send(scope, replay):
            raise RefusedError(
                f"{user.name} may not send messages to {replay.target}",
                hint=f"topics of this user: {', '.join(sorted(scope.patterns or ()))}",
            )
        settings = self._settings(user, Role.OPERATOR)
        editor = partial(replacement, edited.encode()) if edited and selection.message else None
        plan = planned(settings, selection, replay, editor=editor)
        if editor is not None and plan.count and not plan.replay.edit:
            raise UsageError(f"{selection.message} is unchanged", hint="change it, or replay it")
        plan = replace(plan, planned_by=user.name)
        if plan.count:
            SavedPlans(settings.job).save(plan)
        return self._document(plan, user, settings.job)

    def text(self, user: User, selection: Selection, replay: Replay) -> dict[str, Any]:
        """A message as text to edit, as a replay would put it.

        Raises:
            UsageError: It does not remain, is not text, or has secrets.
            RedriveError: As for ``redrive replay --edit``.
        """
        settings, texts = self._settings(user, Role.OPERATOR), []

        def show(content: Content) -> Edit:
            if _has_secrets(settings.mask, content):
                raise UsageError(
                    f"{selection.message} has values hidden by [mask]",
                    hint=f"redrive replay --edit {selection.message} shows everything",
                )
            texts.append(written_form(selection.message, content))
            return NO_EDIT

        empty_plan = planned(settings, selection, replay, editor=show)
        if not texts:
            raise UsageError(
                f"{selection.message} does not remain", hint="; ".join(empty_plan.notes)
            )
        if "\r" in texts[0]:
            raise UsageError(
                f"{selection.message} has line ends that a form does not keep",
                hint=f"redrive replay --edit {selection.message}",
            )
        return {"message": selection.message, "text": texts[0]}

    def plan(self, plan: str, user: User) -> dict[str, Any]:
        """A saved plan, or the progress of an applied one; raises ``UsageError``."""
        seen = user.scope(Role.VIEWER)
        job = self._documents.settings(seen).job
        with open_cluster(job.connection) as cluster:
            is_accepted = plan in read_accepted(job, cluster)
        plans = SavedPlans(job)
        if is_accepted:
            saved = plans.find(plan)
            return {"replay": self._documents.replay(seen, plan), "plan": saved and _shown(saved)}
        return {"replay": None, "plan": self._document(plans.required(plan), user, job)}

    def waiting_plans(self, user: User) -> list[dict[str, Any]]:
        """The plans that are not applied yet."""
        job = self._settings(user, Role.VIEWER).job
        with open_cluster(job.connection) as cluster:
            accepted = read_accepted(job, cluster)
        every = SavedPlans(job).every()
        return [self._document(saved, user, job) for saved in every if saved.id not in accepted]

    def apply_plan(self, plan: str, user: User, purpose: str) -> dict[str, Any]:
        """Hand a plan to the job; a thread finishes that, and ``plan`` shows the progress.

        Raises:
            UsageError: There is no such plan.
            RefusedError: Another user has to apply it.
        """
        job = self._documents.settings(EVERYTHING).job
        saved = SavedPlans(self._settings(user, Role.OPERATOR).job).required(plan)
        if refusal := self._refusal(saved, user, job):
            raise RefusedError(
                refusal, hint="ask another user to apply it: redrive replay apply FILE"
            )
        self._failures.pop(plan, None)
        with open_cluster(job.connection) as cluster:
            is_running = runs(cluster, job)
        _log.info("%s applies the plan %s, %d messages", user.name, plan, saved.count)
        self._applying.add(plan)
        threading.Thread(
            target=self._accept, args=(job, saved, user, purpose), name=f"apply {plan}", daemon=True
        ).start()
        return {"plan": plan, "job_runs": is_running}

    def discard_plan(self, plan: str, user: User) -> None:
        """Delete a plan that is not applied; raises ``UsageError`` if there is none."""
        SavedPlans(self._settings(user, Role.OPERATOR).job).forget(plan)
        _log.info("%s discards the plan %s", user.name, plan)

    def cancel_replay(self, plan: str, user: User, purpose: str) -> None:
        """Cancel the rest of a replay; errors as for ``redrive replay cancel``."""
        job = self._settings(user, Role.OPERATOR).job
        _log.info("%s cancels the replay %s", user.name, plan)
        with open_cluster(job.connection) as cluster:
            cancel(job, cluster, plan, user.name, purpose)

    def acknowledge(
        self, user: User, selection: Selection, *, until: str, note: str
    ) -> dict[str, Any]:
        """Acknowledge remaining messages; errors as for ``redrive ack``.

        A restricted user acknowledges only messages of handlers in scope.
        """
        settings, done = self._settings(user, Role.OPERATOR), {}
        nothing: NothingRemains | None = None
        for part in _parts(settings.job, selection):
            try:
                made, answer = acknowledge(
                    settings, part, operator=user.name, until=until, note=note
                )
                done[made.id] = answer.found
            except NothingRemains as error:
                nothing = error
        if nothing is not None and not done:
            raise nothing
        _log.info("%s acknowledges %d messages until %s", user.name, sum(done.values()), until)
        return {"ids": [*done], "messages": sum(done.values())}

    def take_back(self, user: User, name: str) -> None:
        """Ends an acknowledgement; errors as for ``redrive ack --undo``."""
        take_back(self._settings(user, Role.OPERATOR), name, user.name)
        _log.info("%s ends the acknowledgement %s", user.name, name)

    def _accept(self, job: JobConfiguration, plan: Plan, user: User, purpose: str) -> None:
        try:
            with open_cluster(job.connection) as cluster:
                accept(job, cluster, plan, operator=user.name, purpose=purpose)
        except RedriveError as error:
            _log.warning("the plan %s was not handed over: %s", plan.id, error.message)
            self._failures[plan.id] = error.message
        finally:
            self._applying.discard(plan.id)

    def _settings(self, user: User, role: Role) -> Settings:
        return self._documents.settings(user.scope(role))

    def _document(self, plan: Plan, user: User, job: JobConfiguration) -> dict[str, Any]:
        return {
            **_shown(plan),
            "refusal": self._refusal(plan, user, job),
            "is_applying": plan.id in self._applying,
            "failure": self._failures.get(plan.id, ""),
        }

    def _refusal(self, plan: Plan, user: User, job: JobConfiguration) -> str:
        role = _role(user, plan, job)
        if role < Role.OPERATOR <= user.role:
            return f"{user.name} is not an operator of all topics of this plan"
        if role < Role.OPERATOR:
            return f"{user.name} may only view plans"
        if self._four_eyes_above is None or plan.count <= self._four_eyes_above:
            return ""
        most = f"a plan for more than {counted(self._four_eyes_above, 'message')}"
        if role < Role.APPROVER:
            return f"{most} needs an approver to apply it"
        if plan.planned_by == user.name:
            return f"{most} needs another user than {user.name}, who made it, to apply it"
        return ""


def _may_send(scope: Scope, replay: Replay) -> bool:
    if scope.is_everything or replay.to is not To.QUEUE:
        return True
    return not replay.queue_manager and scope.has(replay.queue)


def _role(user: User, plan: Plan, job: JobConfiguration) -> Role:
    def covers(scope: Scope) -> bool:
        only = scope.restrict(job).only_handlers
        names = plan.messages.keys()
        return (only is None or names <= only) and _may_send(scope, plan.replay)

    return max((role for role in Role if covers(user.scope(role))), default=Role.NOBODY)


def _parts(job: JobConfiguration, selection: Selection) -> Sequence[Selection]:
    """A selection; for part of a job, one for each of its handlers."""
    only = job.only_handlers
    if only is None or selection.handler in only:
        return [selection]
    if selection.handler is not None or not only:
        raise UsageError(
            f"there is no handler {selection.handler or ''}".rstrip(),
            hint=f"there are {', '.join(sorted(only)) or 'none that this user may see'}",
        )
    return [replace(selection, handler=name) for name in sorted(only)]
