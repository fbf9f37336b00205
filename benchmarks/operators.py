"""Operators in the middle of crashes: their commands are killed, some inside their transaction.

A command is a process of its own. It is killed at a step of its first transaction (see
``injected``) or after some seconds, whatever it does then; a few are left alone. Replays overlap:
they name the same messages, and some are applied by two processes at once. In the end every replay
that has a file is applied once more, what else is half accepted is cancelled, and all have to be
done then.
"""

from __future__ import annotations

import json
import random
import secrets
import subprocess
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Final

from benchmarks.clients import read_committed
from benchmarks.load import APPLICATION, EDITED, REPAIR
from benchmarks.processes import kill_session, redrive

from redrive.configuration import JobConfiguration
from redrive.engine.edits import Edit, SetHeader
from redrive.errors import ProtocolError
from redrive.kafka.cluster import Cluster
from redrive.operations.replay.applying import accept
from redrive.operations.replay.plan import Plan
from redrive.operations.replay.progress import cancel, statuses
from redrive.settings import read_settings

HANDLER: Final = "crash"
SECOND_CHANNEL: Final = ("QM2", "QM2.TO.QM3")
"""Queue manager and channel that ``channel`` commands are about, where there are channels."""
_STEPS: Final = ("begun", "written", "committed")
"""Steps of a transaction at which a command is killed."""
_LONGEST: Final = 8.0
"""Seconds after which a command is killed that did not die by itself."""
_SAMPLE: Final = 200
"""Messages that replays of one moment are about."""
_RECENT: Final = 5_000
"""Records at the end of each partition among which they are chosen."""
_PATIENCE: Final = 300.0
"""Seconds in which all replays have to be done when nothing is killed any more."""
_WORDS: Final = ("--because", "crash", "--yes")


class Operators:
    """Starts commands and kills them.

    Args:
        settings: The job's settings.
        servers: The brokers.
        chance: Decides everything random.
    """

    def __init__(self, settings: Path, servers: str, chance: random.Random) -> None:
        self._settings = settings
        self._servers = servers
        self._chance = chance
        self._running: list[subprocess.Popen[bytes]] = []
        self._files: list[Path] = []
        self.log = settings.parent / "operators.log"
        self.started: Counter[str] = Counter()
        """Commands, by what they are and how they are killed."""

    def act(self, count: int, commands: Mapping[str, Command]) -> None:
        """Starts so many commands at once, and kills them later.

        Args:
            count: How many different ones.
            commands: What makes the arguments of each, by name; empty where it has nothing to do.
        """
        for name in self._chance.sample(list(commands), len(commands)):
            if count and (arguments := commands[name](self)):
                count -= 1
                for _ in range(self._chance.choice([1, 1, 2])):
                    self._start(name, arguments)

    def kill(self) -> None:
        """Kills every command that still runs."""
        for process in self._running:
            kill_session(process)
        self._running.clear()

    def finish(self) -> list[str]:
        """Sees every replay through to its end; what was wrong with that."""
        self.kill()
        deadline, problem = time.monotonic() + _PATIENCE, "no answer"
        is_settled, before = False, list[str]()
        while time.monotonic() < deadline:
            try:
                if not is_settled:
                    self._settle()
                    is_settled = True
                if not (left := self._undone()):
                    return []
                problem = ", ".join(left)
                if left != before:  # the job goes on
                    deadline, before = time.monotonic() + _PATIENCE, left
            except ProtocolError as error:  # a broker that has just come back
                problem = error.message
            time.sleep(1)
        return [f"replays are not done: {problem}"]

    @cached_property
    def _job(self) -> JobConfiguration:
        return read_settings(self._settings).job

    @cached_property
    def _cluster(self) -> Cluster:
        return Cluster(self._job.connection)

    def _settle(self) -> None:
        """Applies once more what has a file, and cancels what cannot be applied again."""
        files = [Plan.read(file) for file in self._files if file.exists()]
        for plan in files:
            accept(self._job, self._cluster, plan, operator="crash", purpose="the end")
        known = {plan.id for plan in files}
        for status in statuses(self._job, self._cluster):
            if (
                not status.is_done
                and status.replay.plan not in known
                and not status.replay.is_complete
            ):
                cancel(self._job, self._cluster, status.replay.plan, "crash")

    def _undone(self) -> list[str]:
        every = statuses(self._job, self._cluster)
        return [
            f"{status.replay.plan} {status.state}, {status.waiting} waiting"
            for status in every
            if not status.is_done
        ]

    def _start(self, name: str, arguments: Sequence[str]) -> None:
        step = self._chance.choice([*_STEPS, "", "", ""])
        process = redrive(*arguments, "-c", str(self._settings), log=self.log, death=step)
        self._running.append(process)
        self.started[f"{name}, killed {f'when {step}' if step else 'at any time'}"] += 1
        seconds = _LONGEST if step else self._chance.uniform(0.5, _LONGEST)
        timer = threading.Timer(seconds, kill_session, [process])
        timer.daemon = True
        timer.start()

    # -- what the commands are about ------------------------------------------------------------

    def _topic(self, kind: str) -> str:
        return f"redrive-{APPLICATION}-{HANDLER}-{kind}"

    def remaining(self) -> list[str]:
        """Some messages that remain, or did so a moment ago."""
        live = {
            record.key.decode(): record.value is not None
            for record in read_committed(self._servers, [self._topic("remaining")], _RECENT)
        }
        return self._some([origin for origin, is_there in live.items() if is_there])

    def parked(self) -> list[str]:
        """Some messages that are parked, or were a moment ago."""
        origins = [
            dict(record.headers)["redrive.origin"].decode()
            for record in read_committed(self._servers, [self._topic("retry")], _RECENT)
        ]
        return self._some(list(dict.fromkeys(origins))[-_SAMPLE:])

    def _some(self, origins: Sequence[str]) -> list[str]:
        return self._chance.sample(list(origins), min(_SAMPLE, len(origins)))

    def planned(self, to: str, origins: Sequence[str], **more: object) -> Sequence[str]:
        """A command that applies a replay of a part of some messages, so that replays overlap."""
        if not origins:
            return ()
        places: defaultdict[str, list[int]] = defaultdict(list)
        for origin in self._chance.sample(list(origins), max(1, len(origins) * 2 // 3)):
            place, _, offset = origin.rpartition(":")
            places[place].append(int(offset))
        file = self._new_file()
        document = {
            "redrive_plan": 1, "plan": file.stem, "application": APPLICATION, "created": "",
            "to": to, "queue": REPAIR if to == "queue" else "", "queue_manager": "",
            "keeps_header": True, "rate": None, "bytes": 0, "messages": {HANDLER: places}, **more,
        }  # fmt: skip
        file.write_text(json.dumps(document))
        return self.applied(file)

    def edited(self) -> Sequence[str]:
        """A command that puts messages on a queue with a header more."""
        edit = Edit((SetHeader(EDITED, b"yes"),))
        return self.planned("queue", self.remaining(), redrive_plan=2, edit=edit.document())

    def planned_by_command(self) -> Sequence[str]:
        """A command that writes a replay of what remains; ``applied_again`` may apply it."""
        return (
            "replay", "plan", "--status", "remaining", "--to", REPAIR, "--limit", "100",
            "-o", str(self._new_file()),
        )  # fmt: skip

    def applied_again(self) -> Sequence[str]:
        """A command that applies a replay that may have been applied before."""
        written = [file for file in self._files if file.exists()]
        return self.applied(self._chance.choice(written)) if written else ()

    def cancelled(self) -> Sequence[str]:
        """A command that cancels a replay of one of the last files."""
        written = [file for file in self._files[-5:] if file.exists()]
        plan = Plan.read(self._chance.choice(written)).id if written else ""
        return ("replay", "cancel", plan, *_WORDS) if plan else ()

    @staticmethod
    def applied(file: Path) -> Sequence[str]:
        """A command that applies the replay of a file."""
        return ("replay", "apply", str(file), "--no-wait", *_WORDS)

    def _new_file(self) -> Path:
        self._files.append(self._settings.parent / f"{secrets.token_hex(6)}.json")
        return self._files[-1]


Command = Callable[[Operators], Sequence[str]]
"""Makes the arguments of a command; none if it has nothing to be about."""

COMMANDS: Final[Mapping[str, Command]] = {
    "apply to a queue": lambda operator: operator.planned("queue", operator.remaining()),
    "apply edited": Operators.edited,
    "apply to nowhere": lambda operator: operator.planned("discard", operator.remaining()),
    "apply to the rules": lambda operator: operator.planned("rules", operator.remaining()),
    "apply to the next attempt": lambda operator: operator.planned("attempt", operator.parked()),
    "apply to no more attempts": lambda operator: operator.planned("remain", operator.parked()),
    "replay plan": Operators.planned_by_command,
    "apply again": Operators.applied_again,
    "replay cancel": Operators.cancelled,
    "replay now": lambda _: ("replay", "now", "--to", "rules", "--limit", "50", *_WORDS),
    "discard now": lambda _: ("discard", "now", "--limit", "20", *_WORDS),
    "parked now": lambda _: ("parked", "now", "--limit", "50", *_WORDS),
    "parked cancel": lambda _: ("parked", "cancel", "--limit", "20", *_WORDS),
    "restart": lambda _: ("restart", "--timeout", "30"),
}
"""What operators do with dead letters and the job."""
CHANNELS: Final[Mapping[str, Command]] = {
    "channel stop": lambda _: ("channel", "stop", *SECOND_CHANNEL),
    "channel start": lambda _: ("channel", "start", *SECOND_CHANNEL),
}
"""What they do with channels."""
