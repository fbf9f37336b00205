"""Saved replay plans that are not applied yet: files, as the command line writes them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import orjson

from redrive.configuration import JobConfiguration
from redrive.errors import EnvironmentFault, UsageError
from redrive.operations.replay.plan import ReplayPlan

_FOLDER: Final = "plans"
_PLANNED_BY: Final = "planned_by"
"""The maker of a plan: a key that the command line ignores."""
_ID: Final = re.compile(r"[0-9a-f]{12}")


@dataclass(frozen=True, slots=True)
class SavedPlan:
    """A plan that is not applied yet."""

    plan: ReplayPlan
    planned_by: str
    """Who made it; empty for a file of the command line."""

    def document(self) -> dict[str, Any]:
        """The plan as a JSON object, without its messages and the values of its edit."""
        content = self.plan.document()
        del content["messages"]
        content.pop("edit", None)
        return {**content, "description": str(self.plan.order), _PLANNED_BY: self.planned_by}


class SavedPlans:
    """The plans in a job's folder.

    ``redrive replay apply`` accepts such a file, and a file that ``redrive replay plan`` writes to
    the folder appears in the console.
    """

    def __init__(self, job: JobConfiguration) -> None:
        self.folder = job.directory / _FOLDER
        self._application = job.application
        self._only = job.only_handlers

    def save(self, plan: ReplayPlan, planned_by: str) -> Path:
        """Write a plan; raises ``EnvironmentFault`` if the folder cannot be written."""
        path = self.folder / f"{plan.plan}.json"
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            plan.write(path, **{_PLANNED_BY: planned_by})
        except OSError as error:
            raise EnvironmentFault(
                f"the plan cannot be saved in {self.folder}: {error.strerror}",
                hint="run the console as a user who may write to the job's folder",
            ) from error
        return path

    def find(self, plan: str) -> SavedPlan | None:
        """A plan by its id; None if unknown, or about handlers out of scope."""
        if not _ID.fullmatch(plan):
            return None
        path = self.folder / f"{plan}.json"
        found = self._read(path) if path.is_file() else None
        return found if found is not None and self._shows(found) else None

    def required(self, plan: str) -> SavedPlan:
        """Like ``find``; raises ``UsageError`` if there is none."""
        found = self.find(plan)
        if found is None:
            raise UsageError(f"there is no plan {plan}", hint="it may have been discarded")
        return found

    def every(self) -> Iterator[SavedPlan]:
        """All plans that can be read, the newest first."""
        try:
            files = sorted(self.folder.glob("*.json"), key=lambda it: -it.stat().st_mtime)
        except OSError:
            return
        for path in files:
            try:
                found = self._read(path)
            except (UsageError, EnvironmentFault):
                continue  # another kind of file
            if found.plan.application == self._application and self._shows(found):
                yield found

    def forget(self, plan: str) -> None:
        """Delete the file of a plan; errors as for ``required``."""
        self.required(plan)
        (self.folder / f"{plan}.json").unlink(missing_ok=True)

    def _shows(self, saved: SavedPlan) -> bool:
        return self._only is None or saved.plan.messages.keys() <= self._only

    @staticmethod
    def _read(path: Path) -> SavedPlan:
        plan = ReplayPlan.read(path)
        maker = orjson.loads(path.read_bytes()).get(_PLANNED_BY, "")
        return SavedPlan(plan, str(maker))
