"""An operator in the middle of crashes: plans that overlap, applied at once and killed.

Each round makes plans about what remains and what is parked at that moment: the same messages to a
queue, to nowhere, through the rules again; tried at once, or no more. Each is applied by a process
of its own, some of them twice at the same time; these are killed too. In the end every plan is
applied once more, and has to be done then.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import secrets
import signal
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Final

from redrive.kafka.cluster import Cluster
from redrive.operations.replay.accepting import accept
from redrive.operations.replay.plan import ReplayPlan
from redrive.operations.replay.progress import statuses
from redrive.settings import read_settings

__all__ = ["REPAIR", "Operator", "check_replays"]

REPAIR: Final = "repair"
"""Where plans put what remains."""
_REMAINING: Final = ("queue", "discard", "rules")
_PARKED: Final = ("attempt", "remain")
_SAMPLE: Final = 200
"""Messages of a round that plans are about."""
_PATIENCE: Final = 240.0
"""Seconds in which all plans have to be done when nothing is killed any more."""

Read = Callable[[str, list[str]], Iterable[Any]]


class Operator:
    """Makes plans and applies them, in processes that are killed.

    Args:
        settings: The job's settings.
        servers: The broker.
        handler: Name of the handler.
        application: Name of the application.
        chance: Decides everything random.
        read: Every committed record of some topics.
    """

    def __init__(
        self,
        settings: Path,
        servers: str,
        *,
        handler: str,
        application: str,
        chance: random.Random,
        read: Read,
    ) -> None:
        self._settings = settings
        self._servers = servers
        self._handler = handler
        self._application = application
        self._chance = chance
        self._read = read
        self._log = settings.parent / "apply.log"
        self._running: list[subprocess.Popen[bytes]] = []
        self.plans: list[Path] = []

    def act(self, count: int) -> None:
        """Applies so many overlapping plans at once, each by one or two processes."""
        remaining, parked = self._remaining(), self._parked()
        orders = [(to, remaining) for to in _REMAINING] + [(to, parked) for to in _PARKED]
        for to, origins in self._chance.sample(orders, count):
            if origins:
                plan = self._plan(to, origins)
                for _ in range(self._chance.choice([1, 1, 2])):
                    self._running.append(self._apply(plan, "--no-wait"))

    def kill(self) -> None:
        """Kills every process that applies a plan, without warning."""
        for process in self._running:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        self._running.clear()

    def finish(self) -> list[str]:
        """Applies every plan once more, to its end; what was wrong with that."""
        job = read_settings(self._settings).job
        cluster = Cluster(job.connection)
        for plan in map(ReplayPlan.read, self.plans):
            accept(job, cluster, plan, operator="crash", purpose="the end")
        deadline = time.monotonic() + _PATIENCE
        while open_plans := [one.replay.plan for one in statuses(job, cluster) if not one.is_done]:
            if time.monotonic() > deadline:
                return [f"plan {plan} is not done" for plan in open_plans]
            time.sleep(0.5)
        return []

    def _topic(self, kind: str) -> str:
        return f"redrive-{self._application}-{self._handler}-{kind}"

    def _remaining(self) -> list[str]:
        live = {
            record.key.decode(): record.value is not None
            for record in self._read(self._servers, [self._topic("remaining")])
        }
        return self._some([origin for origin, is_there in live.items() if is_there])

    def _parked(self) -> list[str]:
        """Messages that are parked, or were a moment ago."""
        found = [
            dict(record.headers)["redrive.origin"].decode()
            for record in self._read(self._servers, [self._topic("retry")])
        ]
        return self._some(list(dict.fromkeys(found))[-_SAMPLE:])

    def _some(self, origins: Sequence[str]) -> list[str]:
        return self._chance.sample(list(origins), min(_SAMPLE, len(origins)))

    def _plan(self, to: str, origins: Sequence[str]) -> Path:
        """A plan about a part of the messages, so that plans of a round overlap."""
        chosen = self._chance.sample(list(origins), max(1, len(origins) * 2 // 3))
        places: defaultdict[str, list[int]] = defaultdict(list)
        for origin in chosen:
            place, _, offset = origin.rpartition(":")
            places[place].append(int(offset))
        identity = secrets.token_hex(6)
        path = self._settings.parent / f"{to}-{identity}.json"
        path.write_text(
            json.dumps(
                {
                    "redrive_plan": 1,
                    "plan": identity,
                    "application": self._application,
                    "created": "",
                    "to": to,
                    "queue": REPAIR if to == "queue" else "",
                    "queue_manager": "",
                    "keeps_header": True,
                    "rate": None,
                    "bytes": 0,
                    "messages": {self._handler: places},
                }
            )
        )
        self.plans.append(path)
        return path

    def _apply(self, plan: Path, *more: str) -> subprocess.Popen[bytes]:
        command = ["replay", "apply", str(plan), "-c", str(self._settings), *more]
        with self._log.open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "redrive", *command, "--reason", "crash", "--yes"],
                stdout=log,
                stderr=log,
                start_new_session=True,
            )


def check_replays(outcomes: Iterable[dict[str, Any]]) -> list[str]:
    """What was done twice for a plan: each names a message once.

    Args:
        outcomes: All outcomes.
    """
    done = Counter((one["replay"], one["origin"]) for one in outcomes if one.get("replay"))
    return [f"plan {plan}: {origin} {count} times" for (plan, origin), count in done.items()
            if count > 1]  # fmt: skip
