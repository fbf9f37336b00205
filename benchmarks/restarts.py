"""Restart under load, again and again, with tables that alternate and some that are broken.

    python -m benchmarks.restarts [--restarts 50] [--rate 1000] [--seed N]

Dead letters arrive at a steady rate while the job, started as an operator starts it, is asked to
restart: with the other table, or, one time in five, with one that has an error. Measured is the
time from the request until the first outcome by the new table can be read. Operators' commands,
restarts among them, are killed meanwhile. The audit is that of all crash programs, and beyond it:

    - every outcome is what the whole table that it names says, down to the line of the rule, and
      that table is kept; of messages that a replay took up, only the table is looked at;
    - what was answered held: nothing later was decided by the table before, and nothing by a table
      that was refused;
    - under another table the attempts of a message began again at 1.
"""

from __future__ import annotations

import json
import random
import statistics
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar, Final

from benchmarks.clients import Sent, listener, read_committed
from benchmarks.engine import CrashProgram, Scene, main, option, say
from benchmarks.load import DEAD_LETTERS, OUTCOMES, REPAIR, keyed
from benchmarks.operators import HANDLER
from benchmarks.reconciliation import Findings
from kafka.admin import NewTopic

from redrive.checkpoints.tables import read_tables
from redrive.configuration import JobConfiguration
from redrive.kafka.cluster import Cluster
from redrive.messages import DeadLetterHeader, encode_header
from redrive.operations.restart import RestartAnswer, RestartRecord, restart
from redrive.rules import parse
from redrive.settings import read_settings

PAUSE: Final = 2.0
"""Seconds from the first batch by a table to the next request, at most."""
FILLER: Final = 100
"""Rules between the first and the last, which match nothing."""
KINDS: Final = {2053: 90, 2085: 6, 2051: 2, 2030: 2}
"""Reasons of dead letters, and how many of a hundred have them."""
BROKEN: Final = "REASON(2053) ACTION(FWD) FWDQ('one.even')\nREASON(2085) ACTION(FORWARD)\n"
_ASKED_AGAIN: Final = 3
"""How often a request is made whose answer may have been meant for an operator's command."""
_ANSWERED: Final = 15.0
"""Seconds for the answers to earlier requests of operators' commands."""
_COMMANDS_EVERY: Final = 5
"""Requests between two moments at which operators' commands are started."""
_HEADERS: Final = {
    reason: encode_header(DeadLetterHeader(reason=reason, dest_q_name="nowhere"))
    for reason in KINDS
}

Verdict = tuple[str, str]
"""Action and target."""


@dataclass(frozen=True)
class Table:
    """One of the tables that alternate."""

    name: str
    verdicts: Mapping[int, Verdict]
    """What it does with each reason, in the order of its rules."""

    @property
    def text(self) -> str:
        """The rules; the first and the last far apart, so that half a table would show."""
        rules = [_rule(reason, *verdict) for reason, verdict in self.verdicts.items()]
        filler = [f"DESTQ(NO.{number}.*) ACTION(DISCARD)" for number in range(FILLER)]
        return "\n".join(["RETRYINT(1)", rules[0], *filler, *rules[1:]]) + "\n"

    @cached_property
    def hash(self) -> str:
        """What outcomes name it by."""
        return parse(self.text).required().hash[:16]

    def line(self, reason: int) -> int:
        """The line of the rule for a reason."""
        number = list(self.verdicts).index(reason)
        return 2 if number == 0 else 2 + FILLER + number


def _rule(reason: int, action: str, target: str) -> str:
    if action == "FWD":
        return f"REASON({reason}) ACTION(FWD) FWDQ('{target}') HEADER(NO)"
    return f"REASON({reason}) ACTION({action})" + " RETRY(2)" * (action == "RETRY")


EVEN: Final = Table(
    "even",
    {2053: ("FWD", "one.even"), 2085: ("FWD", "two.even"), 2051: ("IGNORE", ""),
     2030: ("FWD", "two.even")},
)  # fmt: skip
ODD: Final = Table(
    "odd",
    {2053: ("FWD", "one.odd"), 2085: ("FWD", "two.odd"), 2051: ("FWD", "two.odd"),
     2030: ("RETRY", "nowhere")},
)  # fmt: skip
LAST: Final = Table("last", dict.fromkeys(KINDS, ("FWD", "the.end")))
TABLES: Final = {table.hash: table for table in (EVEN, ODD, LAST)}
TARGETS: Final = ("one.even", "two.even", "one.odd", "two.odd", "the.end")


@dataclass
class Requests:
    """What was asked of the job, and what it did."""

    seconds: list[float] = field(default_factory=list)
    """From each request to the first outcome by its table."""
    answers: list[tuple[float, str]] = field(default_factory=list)
    """When a table was known to decide alone, and its hash."""
    refused: int = 0
    wrong: list[str] = field(default_factory=list)
    """Answers that should have been others."""


class Watch:
    """Reads outcomes as they become visible, in a thread."""

    def __init__(self, servers: str) -> None:
        self._consumer = listener(servers, [OUTCOMES])
        self.first: dict[str, float] = {}
        """When the first outcome by a table came, since it was asked for."""
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Ends."""
        self._stopping.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stopping.is_set():
            for message in self._consumer.consume(500, timeout=0.01):
                if message.error() is None:
                    table = json.loads(message.value() or b"{}")["table"]
                    self.first.setdefault(table, time.time())


@dataclass(kw_only=True)
class Restarts(CrashProgram):
    """Tables that alternate while dead letters come."""

    restarts: int = option(50, "how often to ask for a restart")
    rate: float = option(1_000.0, "dead letters a second")

    takes = ("kill commands",)
    table = EVEN.text
    tables_change = True
    interval = 1.0
    targets = (*TARGETS, REPAIR)
    emitters: ClassVar = ("auto",)

    def make(self, number: int, chance: random.Random) -> Sent:
        """A dead letter of one of ``KINDS``, with its reason behind the header."""
        [reason] = chance.choices(list(KINDS), list(KINDS.values()))
        value = _HEADERS[reason] + b"%d" % reason + b" " * 300
        return keyed(number, value, [])

    def topics(self) -> list[NewTopic]:
        """The dead letters, the outcomes, and all queues of the tables."""
        own = [
            topic for topic in super().topics() if topic.name in {DEAD_LETTERS, OUTCOMES, REPAIR}
        ]
        return [*own, *(self.topic(target, 2) for target in TARGETS)]

    def disturb(self, scene: Scene) -> None:
        """Asks for all restarts; one in five has a table with an error."""
        chance, self.requests = random.Random(self.seed), Requests()
        self._job = read_settings(scene.job.settings).job
        scene.await_progress()
        self._watch, number = Watch(scene.servers), 0
        broken = set(chance.sample(range(self.restarts), self.restarts // 5))
        for step in range(self.restarts):
            time.sleep(chance.uniform(0.2, PAUSE))
            if step % _COMMANDS_EVERY == 0:
                scene.operators.kill()
                self.act(scene)
            if step in broken:
                self._ask_in_vain(scene, step)
                continue
            number += 1
            self._ask(scene, ODD if number % 2 else EVEN)

    def await_end(self, scene: Scene) -> None:
        """Lets a last table place everything that is left, and waits for that."""
        if scene.table != LAST.text:
            self._ask(scene, LAST)
            self._watch.stop()
        super().await_end(scene)
        known, deadline = scene.reader.reconciliation, time.monotonic() + self.patience
        while known.unplaced and time.monotonic() < deadline:
            time.sleep(0.5)
            scene.reader.look()

    def figures(self, scene: Scene) -> dict[str, Any]:
        """How long restarts took."""
        del scene
        measured = self.requests.seconds
        cut = statistics.quantiles(measured, n=100, method="inclusive")
        return {
            "restarts": len(measured),
            "refused": self.requests.refused,
            "request to first batch, ms": {
                "p50": round(cut[49] * 1000),
                "p95": round(cut[94] * 1000),
                "max": round(max(measured) * 1000),
                "goal": 700,
            },
        }

    def audit(self, scene: Scene) -> Findings:
        """As in every program; and every outcome is what its table says."""
        findings = super().audit(scene)
        job = read_settings(scene.job.settings).job
        reasons = {
            f"{DEAD_LETTERS}:{record.partition}:{record.offset}": int(record.value[172:176])
            for record in read_committed(scene.servers, [DEAD_LETTERS])
        }
        kept = {
            table.hash[:16]
            for table in read_tables(Cluster(job.connection), job.tables_topic).tables
        }
        courses: defaultdict[str, list[dict[str, Any]]] = defaultdict(list)
        for record in read_committed(scene.servers, [OUTCOMES]):
            outcome = json.loads(record.value)
            courses[outcome["origin"]].append(outcome)
        every = [outcome for course in courses.values() for outcome in course]
        named = {outcome["table"] for outcome in every}
        findings.wrong += self.requests.wrong
        findings.wrong += [
            f"the table {digest} is not kept" for digest in named if digest not in kept
        ]
        changes = [at for at, _ in self.requests.answers]
        for origin, reason in reasons.items():
            findings.wrong += _wrong_course(origin, reason, courses[origin], changes)
        findings.wrong += _decided_late(every, self.requests.answers)
        return findings

    def _ask(self, scene: Scene, table: Table) -> None:
        """Asks for a restart with a table, and waits for its first outcome."""
        scene.write_table(table.text)
        self._watch.first.clear()
        began = time.time()
        answer = _answered(
            self._job, self.patience, lambda reply: HANDLER in reply.changed or reply.message
        )
        if answer.message:
            self.requests.wrong.append(f"{table.name} was refused: {answer.message}")
            return
        self.requests.answers.append((time.time(), table.hash))
        # Outcomes by the table before may have been read after the first one was forgotten.
        while table.hash not in self._watch.first:
            if time.time() > began + self.patience:
                raise SystemExit(f"nothing was decided by {table.name}; {scene.job.last_lines()}")
            time.sleep(0.002)
        self.requests.seconds.append(self._watch.first[table.hash] - began)
        say(f"{table.name}: {self.requests.seconds[-1]:.2f} s")

    def _ask_in_vain(self, scene: Scene, step: int) -> None:
        """Asks for a restart with a table that has an error."""
        scene.write_table(BROKEN)
        answer = _answered(self._job, self.patience, lambda reply: reply.message)
        self.requests.refused += bool(answer.message)
        if not any("ACTION(FORWARD)" in finding for finding in answer.findings):
            self.requests.wrong.append(f"step {step}: the broken table gave {answer}")


def _answered(
    job: JobConfiguration, patience: float, is_meant: Callable[[RestartAnswer], object]
) -> RestartAnswer:
    """The job's answer to a request; another one's answer may come first, so it is waited for.

    It is asked again only after a while: a request that finds nothing changed restarts the query.

    Args:
        job: The job.
        patience: Seconds for an answer.
        is_meant: Whether an answer can only be the one to this request.
    """
    record = RestartRecord(job.directory, job.share)
    answer = restart(job, timeout=patience)
    for _ in range(_ASKED_AGAIN):
        deadline = time.monotonic() + _ANSWERED
        while not is_meant(answer) and time.monotonic() < deadline:
            time.sleep(0.01)
            answer = record.read() or answer
        if is_meant(answer):
            break
        answer = restart(job, timeout=patience)
    return answer


def _wrong_course(
    origin: str, reason: int, course: Sequence[dict[str, Any]], changes: Sequence[float]
) -> list[str]:
    """What is wrong with the outcomes of one dead letter, given when the table changed."""
    wrong = []
    if any(outcome.get("replay") for outcome in course):
        return [f"{origin}: unknown table" for outcome in course if outcome["table"] not in TABLES]
    if [outcome["result"] for outcome in course].count("forwarded") != 1:
        wrong.append(f"{origin} was not placed once: {[outcome['result'] for outcome in course]}")
    attempts = {"": 0}
    for before, outcome in zip([None, *course], course, strict=False):
        table = TABLES.get(outcome["table"])
        if table is None:
            wrong.append(f"{origin} was decided by an unknown table {outcome['table']}")
            continue
        # A table may also come back before the one between has looked at the message.
        changed = before is None or any(
            before["time"] < 1000 * at <= outcome["time"] for at in changes
        )
        if (
            before is None
            or before["table"] != outcome["table"]
            or (changed and outcome["attempt"] == 1)
        ):
            attempts = {outcome["table"]: 0}
        wrong += _wrong_outcome(origin, reason, table, outcome, attempts)
    return wrong


def _wrong_outcome(
    origin: str, reason: int, table: Table, outcome: dict[str, Any], attempts: dict[str, int]
) -> list[str]:
    """What is wrong with one outcome, given the whole table that it names."""
    action, target = table.verdicts[reason]
    if action == "IGNORE":
        expected: tuple[Any, ...] = ("remains", table.line(reason), "IGNORE", 0)
    else:
        number = attempts[outcome["table"]] = attempts[outcome["table"]] + 1
        is_last = number == 2
        result = {"FWD": "forwarded", "RETRY": "remains" if is_last else "parked"}[action]
        expected = (result, table.line(reason), action, number)
    observed = (outcome["result"], outcome["rule_line"], outcome["action"], outcome["attempt"])
    if observed != expected:
        return [f"{origin} under {table.name}: {observed} instead of {expected}"]
    if action == "FWD" and outcome["target_topic"] != target:
        return [f"{origin} under {table.name} went to {outcome['target_topic']}"]
    return []


def _decided_late(
    every: Sequence[dict[str, Any]], answers: Sequence[tuple[float, str]]
) -> list[str]:
    """Outcomes by a table that had been replaced when they were decided."""
    wrong = []
    ends = [at for at, _ in answers[1:]] + [float("inf")]
    for outcome in every:
        moment = outcome["time"] / 1000
        holding = [
            table for (at, table), end in zip(answers, ends, strict=True) if at <= moment < end
        ]
        following = [table for at, table in answers if at > moment][:1]
        if holding and outcome["table"] not in (*holding, *following):
            wrong.append(
                f"{outcome['origin']} was decided by {outcome['table']} after {holding[0]}"
            )
    return wrong


if __name__ == "__main__":
    sys.exit(main(Restarts, __doc__))
