"""What an auditor finds who reads everything that was committed: effects against outcomes."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Final

from tests.simulation.clients import SETTLED
from tests.simulation.cluster import Fate, SimulatedCluster, Transaction
from tests.simulation.job import (
    APPLICATION,
    BACKOFF,
    DEAD_LETTERS,
    FAR,
    REMAINING,
    REPLAY,
    RETRY,
    TO_FAR,
    waits_for_ever,
)
from tests.simulation.scheduler import ROUNDING

from redrive.engine import commands
from redrive.engine.breaker import PROBE
from redrive.engine.names import outcomes_topic, tables_topic
from redrive.messages import OutputRecord, TopicPartition
from redrive.messages import own_headers as own
from redrive.messages.reasons import Reason
from redrive.rules import RulesTable, backoff

OUTCOMES: Final = outcomes_topic(APPLICATION)
POISON: Final = b"poison"
"""A body that targets refuse as invalid; no other has its size."""
LARGE: Final = 1_000
"""Bytes of the bodies that some topics do not take, at least."""
FAR_TOPIC: Final = "FAR"
"""The topic of the other cluster."""
_PUT: Final = frozenset({"retried", "forwarded"})
_FINAL: Final = _PUT | {"discarded"}
_UNTOUCHED: Final = frozenset({"skipped", "cancelled"})
DIGITS: Final = 16
"""Digits of a table's hash in outcomes."""
_STALE: Final = 7.0
"""Seconds for which what was known of a topic may be taken for true, by a process that runs."""


@dataclass
class Condition:
    """Something that was the matter with a topic for some time."""

    topic: str
    reason: int
    """The reason code of a put that fails because of it."""
    since: float
    until: float = float("inf")


@dataclass
class Audit:
    """Checks one cluster after a course."""

    cluster: SimulatedCluster
    conditions: list[Condition]
    table: RulesTable | None
    """The table that says how long parked messages wait; None if it changed meanwhile."""
    apart: float = 0.0
    """Seconds by which the time of an attempt, as the job tells it, may be wrong."""
    set_back: float = 0.0
    """Seconds by which the clock of the job was set back at most: what was due may be taken for
    early then."""
    is_ordered: bool = False
    """Whether its tables have ORDER(KEY)."""
    has_rounds: bool = False
    """Whether consumers process what is put, and return some of it."""
    far: SimulatedCluster | None = None
    """The other cluster, if messages go to one."""
    tables: Mapping[str, RulesTable] = field(default_factory=dict)
    """Every table that may have decided, by its digits in outcomes; none if that is not to be
    looked at."""
    findings: list[str] = field(default_factory=list)

    def run(self) -> list[str]:
        """Everything that is wrong."""
        self.findings += self.cluster.violations
        outcomes = list(self._outcomes())
        self._check_sources(outcomes)
        self._check_effects(outcomes)
        self._check_ends(outcomes)
        self._check_instructions()
        self._check_accepted(outcomes)
        self._check_reasons(outcomes)
        self._check_order(outcomes)
        if self.tables:
            self._check_tables(outcomes)
        if self.far is not None:
            self._check_forwarded(self.far)
        if self.is_ordered:
            self._check_keys(outcomes)
            self._check_held(outcomes)
        if self.table is not None:
            self._check_waiting(outcomes, self.table)
        return self.findings

    def _outcomes(self) -> Iterator[dict[str, Any]]:
        for lane, _, entry, record in self.cluster.visible(OUTCOMES):
            outcome = json.loads(record.value or b"")
            more = {"written": entry.written, "transaction": entry.transaction, "lane": lane}
            yield {**outcome, **more}

    def _check_sources(self, outcomes: list[dict[str, Any]]) -> None:
        """Every input has one outcome, and its lane stands behind it."""
        counts = Counter(outcome["outcome"] for outcome in outcomes)
        for name, count in counts.items():
            if count > 1:
                self.findings.append(f"{name} has {count} outcomes")
        for outcome in outcomes:
            if outcome["topic"] == DEAD_LETTERS and outcome["offset"] >= self._end_of(outcome):
                self.findings.append(f"{outcome['outcome']} has an outcome, and was never there")
        for lane in self.cluster.logs:
            is_read = lane.topic in {DEAD_LETTERS, RETRY, BACKOFF, REMAINING, REPLAY}
            if is_read and (APPLICATION, lane) not in self.cluster.offsets:
                self.findings.append(f"{lane} was never committed: a week later it would be new")
        last = {record.key: offset for _, offset, _, record in self.cluster.visible(REMAINING)}
        moved = {own.read_own(record.headers or []).moved for record in self._written(BACKOFF)}
        for topic in (DEAD_LETTERS, RETRY, BACKOFF, REMAINING, REPLAY):
            for lane, offset, _, record in self.cluster.visible(topic):
                name = self._name(lane, offset)
                # A copy that was replayed before its turn came is passed over.
                is_over = topic == REMAINING and last[record.key] > offset
                needs_outcome = record.value is not None and not is_over and name not in moved
                if topic in {RETRY, BACKOFF} and waits_for_ever(self.cluster, record):
                    continue
                self._check_source(lane, offset, counts[name], needs_outcome=needs_outcome)

    def _name(self, lane: TopicPartition, offset: int) -> str:
        """The identity of what lies at an offset."""
        incarnation = self.cluster.incarnations.get(lane.topic, 1)
        return own.identity(own.name_in_identities(lane.topic, incarnation), lane.partition, offset)

    def _end_of(self, outcome: dict[str, Any]) -> int:
        """Where the partition ended that the record of an outcome was on."""
        lane = TopicPartition(outcome["topic"], outcome["partition"])
        incarnation = own.incarnation_of(outcome["outcome"])
        known = self.cluster.former_ends.get((lane, incarnation))
        return self.cluster.end(lane) if known is None else known

    def _check_source(
        self, lane: TopicPartition, offset: int, count: int, *, needs_outcome: bool
    ) -> None:
        committed = self.cluster.offsets.get((APPLICATION, lane), 0)
        name = self._name(lane, offset)
        if lane.topic != REMAINING and offset >= committed:
            self.findings.append(f"{name} was never handled")
        elif offset < committed and not count and needs_outcome:
            self.findings.append(f"{name} has no outcome")
        elif offset >= committed and count:
            self.findings.append(f"{name} has an outcome, but its lane stands before it")

    def _check_effects(self, outcomes: list[dict[str, Any]]) -> None:
        """What the outcomes say was put is there, once, and nothing else."""
        expected: Counter[tuple[str, str]] = Counter()
        last: dict[str, dict[str, Any]] = {}
        for outcome in sorted(outcomes, key=lambda outcome: outcome["written"]):
            if outcome["result"] not in _UNTOUCHED:
                last[outcome["origin"]] = outcome
            if outcome["result"] in _PUT:
                expected[outcome["target_topic"], outcome["message"]] += 1
            elif outcome["result"] == "parked" or _waits_on(outcome):
                expected[RETRY, outcome["message"]] += 1
        kept: Counter[tuple[str, str]] = Counter()
        for topic in self._topics():
            is_own = topic.endswith(("-control", "-tables", "-held-keys"))
            if is_own or topic in {DEAD_LETTERS, OUTCOMES, REMAINING, REPLAY}:
                continue
            for record in self._written(topic):
                kept_on = RETRY if topic == BACKOFF else topic
                headers = own.read_own(record.headers or [])
                # What goes on waiting, and notes of rounds, have no outcome.
                is_note = own.IN_ROUND in dict(record.headers or [])
                kept[kept_on, headers.identity] += not (headers.moved or is_note)
        for place in sorted({*expected, *kept}):
            if expected[place] != kept[place]:
                self.findings.append(
                    f"{place[1]} is on {place[0]} {kept[place]} times, not {expected[place]}"
                )
        self._check_remaining(last)

    def _check_forwarded(self, far: SimulatedCluster) -> None:
        """What is for another cluster is there once, or came back once, in its order."""
        self.findings += far.violations
        put = [_identity(record) for *_, record in self.cluster.visible(TO_FAR)]
        arrived = [_identity(record) for record in far.visible_before_deletion(FAR_TOPIC)]
        arrived += [_identity(record) for *_, record in far.visible(FAR_TOPIC)]
        counts = Counter([*arrived, *self._returned().values()])
        for identity in sorted({*put, *counts}):
            if counts[identity] != put.count(identity):
                self.findings.append(
                    f"{identity} was forwarded {counts[identity]} times, not {put.count(identity)}"
                )
        last: dict[TopicPartition, int] = {}
        for lane, _, _, record in far.visible(FAR_TOPIC):
            place = put.index(_identity(record)) if _identity(record) in put else -1
            if place < last.get(lane, -1):
                self.findings.append(f"{_identity(record)} is out of order on {lane} of {FAR}")
            last[lane] = place

    def _returned(self) -> dict[str, str]:
        """The messages that came back from the other cluster, by where they are."""
        return {
            self._name(lane, offset): _identity(record)
            for lane, offset, _, record in self.cluster.visible(DEAD_LETTERS)
            if _identity(record)
        }

    def _check_keys(self, outcomes: list[dict[str, Any]]) -> None:
        """Under ORDER(KEY) nothing but waiting happens to a message while an earlier one waits.

        Both wait on one partition of the dead-letter topic: once it gets another one, rounds of a
        key return there.
        """
        waiting: defaultdict[tuple[int, str], dict[tuple[int, int], float]] = defaultdict(dict)
        next_homes = _next_homes(outcomes)
        homes: dict[tuple[int, int], int] = {}
        decided: dict[tuple[int, int], dict[str, Any]] = {}
        # What one transaction wrote at once it decided in the order of the messages.
        for outcome in sorted(outcomes, key=lambda outcome: (outcome["written"], _place(outcome))):
            key = outcome["key"]
            if outcome["result"] in _UNTOUCHED or key is None:
                continue
            place, home = _place(outcome), _home(outcome)
            waiting[homes.get(place, home), key].pop(place, None)
            homes[place], line = home, waiting[home, key]
            earlier = [
                other
                for other, until in line.items()
                if other < place
                and until > outcome["written"]
                # A round that came back later on this partition is read after this message.
                and not _is_read_before(outcome, decided[other])
            ]
            decided[place] = outcome
            if earlier and "replay" not in outcome and not _is_held(outcome):
                self.findings.append(
                    f"{outcome['message']} was {outcome['result']}, and {earlier} of its key waited"
                )
            line[place] = float("inf") if outcome["result"] not in _FINAL else 0.0
            if outcome["result"] == "retried" and not self.has_rounds:
                line[place] = outcome["time"] / 1000 + SETTLED - self.apart
            # A round that comes back on another partition is not waited for on this one.
            elif (
                outcome["result"] == "retried" and next_homes.get(outcome["outcome"], home) == home
            ):
                line[place] = self._processed_at(outcome)

    def _processed_at(self, outcome: dict[str, Any]) -> float:
        """When a round was over because consumers had processed what was put; else infinite."""
        for lane, offset, entry, record in self.cluster.visible(outcome["target_topic"]):
            headers = own.read_own(record.headers or [])
            if (
                entry.transaction is outcome["transaction"]
                and headers.identity == outcome["message"]
            ):
                topic = self.cluster.topics[lane.topic].identity
                at = self.cluster.processed.get((topic, lane.partition, offset))
                return float("inf") if at is None else at
        return 0.0  # its topic was deleted with it

    def _check_held(self, outcomes: list[dict[str, Any]]) -> None:
        """Under ORDER(KEY) nothing waits behind what its own transaction has placed before it."""
        placed: defaultdict[int, dict[str, dict[str, Any]]] = defaultdict(dict)
        for outcome in outcomes:  # of each partition in their order
            before = placed[id(outcome["transaction"])]
            ahead = before.get(outcome["detail"].removeprefix("waits behind ").partition(",")[0])
            if _is_held(outcome) and ahead is not None and ahead["lane"] == outcome["lane"]:
                self.findings.append(
                    f"{outcome['outcome']} waits behind {ahead['message']}, which does not wait"
                )
            if outcome["result"] in {"forwarded", "discarded"}:
                before[outcome["message"]] = outcome
        # What waits on has no outcome, but names the copy that it replaces.
        for topic in (RETRY, BACKOFF):
            for _, _, entry, record in self.cluster.visible(topic):
                headers = own.read_own(record.headers or [])
                ahead = placed[id(entry.transaction)].get(headers.behind)
                if headers.moved and ahead is not None and _lies_before(ahead, headers.moved):
                    self.findings.append(
                        f"{headers.moved} waits behind {headers.behind}, which does not wait"
                    )

    def _check_accepted(self, outcomes: list[dict[str, Any]]) -> None:
        """No instruction is passed over for want of its plan: every plan was accepted."""
        self.findings += [
            f"{outcome['outcome']} was skipped: {outcome['detail']}"
            for outcome in outcomes
            if outcome["result"] == "skipped" and "no replay of this plan" in outcome["detail"]
        ]

    def _check_ends(self, outcomes: list[dict[str, Any]]) -> None:
        """A dead letter comes to one end, and a replay leaves alone what does not remain.

        Only a plan to bring discarded messages back moves one, once.
        """
        ended: dict[str, str] = {}
        undoing = {
            (record.key or b"").decode().removeprefix(commands.REPLAY)
            for *_, record in self.cluster.visible(tables_topic(APPLICATION))
            if b'"is_undo"' in (record.value or b"")
        }
        remains: dict[str, bool] = {}
        for outcome in sorted(outcomes, key=lambda outcome: outcome["written"]):
            origin, result = outcome["origin"], outcome["result"]
            if result in _UNTOUCHED:
                is_why = "does not remain" in outcome["detail"]
                if is_why and remains.get(origin, False):
                    self.findings.append(f"{outcome['outcome']} was skipped, and {origin} remained")
                continue
            is_undone = ended.get(origin) == "discarded" and outcome.get("replay") in undoing
            if origin in ended and not is_undone:
                self.findings.append(f"{origin} had come to its end before it was {result}")
            ended.pop(origin, None)
            if result in _FINAL:
                ended[origin] = result
            remains[origin] = result == "remains"

    def _check_instructions(self) -> None:
        """A plan that the project's own code applied asks for each message once."""
        asked: Counter[tuple[str, str]] = Counter()
        for *_, record in self.cluster.visible(REPLAY):
            headers = own.read_own(record.headers or [])
            asked[headers.replay, headers.origin] += headers.replay.startswith("applied-")
        for (plan, origin), count in asked.items():
            if count > 1:
                self.findings.append(f"{plan} asks for {origin} {count} times")
        # Each of its messages is asked for, or counted as placed by somebody else, and never both.
        for *_, record in self.cluster.visible(tables_topic(APPLICATION)):
            key = (record.key or b"").decode()
            if record.value and key.startswith(f"{commands.REPLAY}applied-"):
                replay = json.loads(record.value)
                if replay["instructed"] + replay["placed"] > replay["planned"]:
                    self.findings.append(f"{key} dealt with more messages than it has: {replay}")

    def _check_remaining(self, last: dict[str, dict[str, Any]]) -> None:
        live: dict[str, Transaction | None] = {}
        for _, _, entry, record in self.cluster.visible(REMAINING):
            key = (record.key or b"").decode()
            live.pop(key, None)
            if record.value is not None:
                live[key] = entry.transaction
        for origin, outcome in last.items():
            remains = outcome["result"] == "remains"
            if (origin in live) != remains:
                self.findings.append(
                    f"{origin} ended as {outcome['result']}, but what remains says otherwise"
                )
            elif remains and live[origin] is not outcome["transaction"]:
                self.findings.append(f"{origin} remains as it was before its last outcome")

    def _check_reasons(self, outcomes: list[dict[str, Any]]) -> None:
        """A put only fails for something that was the matter with its topic."""
        for outcome in outcomes:
            if not outcome["reason"]:
                if outcome["result"] == "parked" and not _is_before_an_attempt(outcome):
                    self.findings.append(f"{outcome['outcome']} failed for no reason")
                continue
            if outcome["reason"] == Reason.MSG_TOO_BIG_FOR_Q and outcome["size"] < LARGE:
                self.findings.append(f"{outcome['outcome']} is small, and was refused as too large")
            is_valid = outcome["size"] != len(POISON) and outcome["key"] is not None
            if outcome["reason"] == Reason.FORMAT_ERROR and is_valid:
                self.findings.append(f"{outcome['outcome']} is valid, and was refused as invalid")
            # However long it stood still since: what is too old is asked for again, slice by slice.
            asked = outcome["time"] / 1000 - _STALE - self.apart
            if not any(
                condition.topic == outcome["target_queue"]
                and condition.reason == outcome["reason"]
                and condition.since <= outcome["written"] + 0.1
                and condition.until >= asked
                for condition in self.conditions
            ):
                self.findings.append(
                    f"{outcome['outcome']} failed with {outcome['reason']} ({outcome['detail']}),"
                    f" but nothing was the matter with {outcome['target_queue']}"
                )

    def _check_order(self, outcomes: list[dict[str, Any]]) -> None:
        """Messages of one key that were never retried are in the order of their lane."""
        direct = {
            outcome["message"]: (outcome["partition"], outcome["key"], outcome["offset"])
            for outcome in outcomes
            if outcome["topic"] == DEAD_LETTERS
            and outcome["result"] in _PUT
            and not self.has_rounds
        }
        for message in self._returned().values() if self.far is not None else ():
            direct.pop(message, None)  # it was there twice
        for topic in {outcome["target_topic"] for outcome in outcomes if outcome["result"] in _PUT}:
            seen: dict[tuple[TopicPartition, int, str, str], int] = {}
            for lane, _, _, record in self.cluster.visible(topic):
                identity = own.read_own(record.headers or []).identity
                if identity not in direct:
                    continue
                partition, key, offset = direct[identity]
                line = lane, partition, key, identity.partition(":")[0]
                if offset < seen.get(line, -1):
                    self.findings.append(f"{identity} is out of order on {lane}")
                seen[line] = offset

    def _check_tables(self, outcomes: list[dict[str, Any]]) -> None:
        """Each attempt is by the one table that was recorded for its lane last; so no handler and
        no lane goes back to an earlier one. What remains was last looked at by the present one."""
        recorded: defaultdict[int, list[tuple[float, str]]] = defaultdict(list)
        for lane, table, entry in self.cluster.tables:
            if entry.transaction is not None and entry.transaction.fate is Fate.COMMITTED:
                recorded[lane.partition].append((entry.written, table[:DIGITS]))
        last: dict[str, dict[str, Any]] = {}
        for outcome in sorted(outcomes, key=lambda outcome: outcome["written"]):
            if outcome["result"] in _UNTOUCHED or "replay" in outcome:
                last.pop(outcome["origin"], None)
                continue
            before = last.get(outcome["origin"])
            last[outcome["origin"]] = outcome
            by = [table for at, table in recorded[_place(outcome)[0]] if at <= outcome["written"]]
            if by[-1:] != [outcome["table"]]:
                self.findings.append(
                    f"{outcome['outcome']} was decided by {outcome['table']}, not {by}"
                )
            anew = [at for at, _ in recorded[_place(outcome)[0]] if at <= outcome["written"]][-1:]
            if before is not None and anew and _counts_anew(before, outcome, anew[0]):
                self.findings.append(
                    f"{outcome['outcome']} is the attempt {outcome['attempt']}, though the table"
                    " is new"
                )
            if not self._is_of(outcome):
                self.findings.append(f"{outcome['outcome']} is not what {outcome['table']} says")
        for outcome in last.values():
            present = recorded[_place(outcome)[0]][-1:]
            if outcome["result"] == "remains" and present[0][1] != outcome["table"]:
                self.findings.append(
                    f"{outcome['origin']} remains, and {present} has not looked at it"
                )

    def _is_of(self, outcome: dict[str, Any]) -> bool:
        """Whether a line and an action of an outcome are of the whole table that it names."""
        if not outcome["rule_line"]:
            return True
        table = self.tables.get(outcome["table"])
        return table is not None and (outcome["rule_line"], outcome["action"]) in (
            (rule.line, rule.action.name) for rule in table.rules
        )

    def _check_waiting(self, outcomes: list[dict[str, Any]], table: RulesTable) -> None:
        """Attempts follow each other one by one, none before it is due."""
        due = {
            own.identity(*lane, offset): (record.timestamp, self._wait(lane, table))
            for topic in (RETRY, BACKOFF)
            for lane, offset, _, record in self.cluster.visible(topic)
        }
        attempts: defaultdict[str, list[int]] = defaultdict(list)
        for outcome in sorted(outcomes, key=lambda outcome: outcome["written"]):
            is_counted = not (_is_before_an_attempt(outcome) or outcome["detail"].startswith(PROBE))
            if outcome["attempt"] and is_counted:
                attempts[outcome["message" if self.has_rounds else "origin"]].append(
                    outcome["attempt"]
                )
            is_asked_for = "replay" in outcome or _waits_on(outcome)
            parked, wait = due.get(outcome["outcome"], (0, 0.0))
            is_early = outcome["time"] + 1000 * self.set_back < parked + 1000 * wait
            is_early |= self._waited(parked, outcome["time"]) < wait - ROUNDING
            if is_early and not is_asked_for:
                self.findings.append(f"{outcome['outcome']} was tried too early")
        replayed = {
            outcome["origin"] for outcome in outcomes if "replay" in outcome
        }  # by whom counts anew
        if self.far is not None:
            replayed.update(self._returned())  # as a failed attempt
        for origin, numbers in attempts.items():
            if origin not in replayed and numbers != list(range(1, len(numbers) + 1)):
                self.findings.append(f"{origin} had the attempts {numbers}")

    def _waited(self, parked: int, tried: int) -> float:
        """Seconds from one attempt of the job to another, however its clock was set; infinite if
        a stamp is that of another program."""
        known = self.cluster.attempted
        return known[tried] - known[parked] if {parked, tried} <= known.keys() else float("inf")

    def _wait(self, lane: TopicPartition, table: RulesTable) -> float:
        """Seconds that messages wait on a lane."""
        if lane.topic == RETRY:
            return table.control.retry_interval
        return table.backoff_partitions.seconds(lane.partition)

    def _topics(self) -> set[str]:
        return {*self.cluster.topics, *self.cluster.deleted}

    def _written(self, topic: str) -> Iterator[OutputRecord]:
        yield from (record for _, _, _, record in self.cluster.visible(topic))
        yield from self.cluster.visible_before_deletion(topic)


def _identity(record: OutputRecord) -> str:
    return own.read_own(record.headers or []).identity


def _place(outcome: dict[str, Any]) -> tuple[int, int]:
    """Partition and offset where a message was seen first."""
    partition, offset = map(int, outcome["message"].rsplit(":", 2)[1:])
    return partition, offset


def _is_read_before(outcome: dict[str, Any], other: dict[str, Any]) -> bool:
    """Whether one transaction decided two records of one partition in this order."""
    at, other_at = ((each["topic"], each["partition"]) for each in (outcome, other))
    is_same = outcome["transaction"] is other["transaction"] and at == other_at
    return is_same and outcome["offset"] < other["offset"]


def _lies_before(outcome: dict[str, Any], place: str) -> bool:
    """Whether one partition had the record of an outcome before that of a place."""
    lane, offset = place.rsplit(":", 1)
    own_lane, own_offset = outcome["outcome"].rsplit(":", 1)
    return bool(own_lane == lane) and int(own_offset) < int(offset)


def _home(outcome: dict[str, Any]) -> int:
    """The partition of the dead-letter topic to which a message belongs while it waits."""
    partition: int = outcome["partition"]
    return partition // backoff.PARTITIONS if outcome["topic"] == BACKOFF else partition


def _next_homes(outcomes: list[dict[str, Any]]) -> dict[str, int]:
    """By outcome, the home of its message when that was decided next."""
    of_messages: defaultdict[str, list[dict[str, Any]]] = defaultdict(list)
    for outcome in sorted(outcomes, key=lambda outcome: outcome["written"]):
        of_messages[outcome["message"]].append(outcome)
    return {
        before["outcome"]: _home(after)
        for decided in of_messages.values()
        for before, after in pairwise(decided)
    }


def _counts_anew(before: dict[str, Any], outcome: dict[str, Any], since: float) -> bool:
    """Whether a waiting message has attempts from before a table was recorded for it."""
    waits = before["result"] in {"parked", "remains"} and before["written"] < since
    return waits and not _is_before_an_attempt(outcome) and outcome["attempt"] > 1


def _is_before_an_attempt(outcome: dict[str, Any]) -> bool:
    """Whether a message waits for its delay since it failed, before anything is tried."""
    detail: str = outcome["detail"]
    is_early = detail.endswith("after the failure") or _is_held(outcome)
    is_early |= detail.startswith("breaker open since")
    return outcome["result"] == "parked" and is_early


def _is_held(outcome: dict[str, Any]) -> bool:
    """Whether a message waits behind an earlier one of its key."""
    return outcome["result"] == "parked" and "waits behind" in outcome["detail"]


def _waits_on(outcome: dict[str, Any]) -> bool:
    """Whether a parked message was read for the sake of others, and parked again as it was."""
    return outcome["result"] in _UNTOUCHED and outcome["topic"] in {RETRY, BACKOFF}
