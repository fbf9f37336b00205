"""Planted mistakes, each of which the simulation has to find (``make mutations``).

A mutation replaces a piece of the project's own code by one with a mistake that somebody might
make. The schedules are run with it until one of them shows that something is wrong.
"""

from __future__ import annotations

import itertools
import logging
import multiprocessing
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from contextlib import AbstractContextManager, ExitStack, suppress
from dataclasses import dataclass, replace
from typing import Any, Final, cast
from unittest.mock import patch

from confluent_kafka import KafkaError
from tests.simulation.clients import TIME, simulated_clients
from tests.simulation.schedules import ORDERED, Plan, run_schedule
from tests.simulation.schedules import Result as Schedule

from redrive.checkpoints import (
    clock,
    control,
    epoch,
    held,
    protocol,
    registry,
    states,
)
from redrive.checkpoints.clock import SteadyClock
from redrive.checkpoints.epoch import RunEntry
from redrive.checkpoints.protocol import Emitter, PositionsOnly, Verdict
from redrive.checkpoints.states import StatesFollower
from redrive.engine import commands, rules_decider
from redrive.engine import slice as slices
from redrive.engine.cache import DecisionCache
from redrive.engine.commands import NO_STATES
from redrive.engine.context import SliceContext
from redrive.engine.decision import Keep
from redrive.engine.facts import MISSING, Answers, Facts, Questions, Replayed
from redrive.engine.ordering import KeyOrder
from redrive.engine.rules_decider import HeldKeys
from redrive.engine.slice import Lane
from redrive.engine.sources import (
    InstructionSource,
    PartitionRecords,
    RemainingSource,
    RetrySource,
    SourceKind,
)
from redrive.errors import OutcomeUnknown, TransientFault
from redrive.kafka import cluster, compacted, errors, facts, producer, waiting_keys
from redrive.kafka.compacted import CompactedTopic
from redrive.kafka.reports import FailureKind, TransactionReport
from redrive.messages import own_headers as own
from redrive.operations.replay.applying import Instructions, PlannedMessages, Restorable
from redrive.outcomes import ledger
from redrive.outcomes.ledger import LastOutcome
from redrive.streaming import batch, emission, forwarding, held_keys, preparation, start

Patch = Callable[[], Iterable[AbstractContextManager[Any]]]

_SCHEDULES: Final = 300
"""Schedules in which a mutation has to be found, unless it says otherwise."""


@dataclass(frozen=True, slots=True)
class Mutation:
    """One mistake."""

    name: str
    patches: Patch
    duels_only: bool
    """Whether it is looked for where instances take over from each other."""
    schedules: int
    """In how many schedules it has to be found: some five times of what it took, seen from several
    seeds. What a machine does beside it changes nothing."""
    among: Callable[[Plan], bool]
    """Which schedules have what it takes to show it; only these are run, and count."""
    rule: str
    """The rule of docs/guarantees.md that it takes away, by the name of its list in ``RULES`` and
    its number there; empty if that has no number."""


MUTATIONS: list[Mutation] = []
_NUMBERS: Final = itertools.count()
RULES: Final = ("transaction", "start", "replay", "order")
"""Names of the numbered lists in docs/guarantees.md, in the order of that page."""


def _any(_: Plan) -> bool:
    return True


def mutation(
    name: str,
    *,
    duels_only: bool = False,
    schedules: int = _SCHEDULES,
    among: Callable[[Plan], bool] = _any,
    rule: str = "",
) -> Callable[[Patch], Patch]:
    def add(patches: Patch) -> Patch:
        MUTATIONS.append(Mutation(name, patches, duels_only, schedules, among, rule))
        return patches

    return add


def replaced(
    name: str,
    owner: Any,
    attribute: str,
    *,
    duels_only: bool = False,
    schedules: int = _SCHEDULES,
    among: Callable[[Plan], bool] = _any,
    rule: str = "",
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Adds a mutation that is a function in the place of another, which is its first argument."""

    def add(mistake: Callable[..., Any]) -> Callable[..., Any]:
        original = getattr(owner, attribute)
        replacement = lambda *given, **named: mistake(original, *given, **named)  # noqa: E731
        patched = patch.object(owner, attribute, replacement)
        add_mutation = mutation(
            name, duels_only=duels_only, schedules=schedules, among=among, rule=rule
        )
        add_mutation(lambda: [patched])
        return mistake

    return add


def is_broken(shown: Schedule) -> bool:
    """Whether a mistake only shows that it does not fit the code: no schedule has found it."""
    return any(
        re.search(r"ended by (?:Attribute|Name|Type)Error", finding) for finding in shown.findings
    )


def find(name: str, first: int = 0) -> tuple[int, Schedule | None]:
    """Runs schedules with a mistake until one of them shows it, or there were as many as it has.

    Args:
        name: Of the mistake.
        first: The first seed.

    Returns:
        How many schedules it took, and the last one; None if no schedule shows the mistake.
    """
    (planted,) = [planted for planted in MUTATIONS if planted.name == name]
    with simulated_clients(), ExitStack() as stack:
        logging.disable()  # the warnings of a job that has a hard time
        stack.callback(logging.disable, logging.NOTSET)
        for each in planted.patches():
            stack.enter_context(each)
        for tried, seed in enumerate(itertools.islice(_seeds(planted, first), planted.schedules)):
            result = run_schedule(seed, duels_only=planted.duels_only)
            if result.findings:
                return tried + 1, result
    return planted.schedules, None


def _seeds(planted: Mutation, first: int) -> Iterator[int]:
    every = itertools.count(first)
    return (seed for seed in every if planted.among(Plan.of(seed, duels_only=planted.duels_only)))


def main() -> int:
    """Tries every mutation, or those whose name holds an argument; 1 if one was not found.

    An argument that is a number is the seed of the first schedule.
    """
    words = [word for word in sys.argv[1:] if not word.isdecimal()]
    first = next((int(word) for word in sys.argv[1:] if word.isdecimal()), 0)
    chosen = [
        planted for planted in MUTATIONS if not words or any(word in planted.name for word in words)
    ]
    missed = 0
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(os.cpu_count(), mp_context=context) as pool:
        results = pool.map(find, [planted.name for planted in chosen], itertools.repeat(first))
        for planted, (tried, result) in zip(chosen, results, strict=True):
            missed += result is None or is_broken(result)
            shown = "NOT FOUND" if result is None else f"seed {result.seed}: {result.findings[0]}"
            shown = f"DOES NOT FIT, {shown}" if result and is_broken(result) else shown
            line = f"{planted.name:58} {tried:4} of {planted.schedules:4}  {shown}"
            print(line[:200], flush=True)  # noqa: T201
    print(f"{len(chosen) - missed} of {len(chosen)} found")  # noqa: T201
    return 1 if missed else 0


# -- the order of one emission -----------------------------------------------------------------


@replaced("offsets before the flush", Emitter, "_transact", rule="transaction 4")
def _offsets_before_flush(
    _original: Any, self: Emitter, opened: Any, work: Any, ends: Any
) -> Verdict:
    opened.begin()
    opened.produce(work.outputs, with_reports=self._with_reports)
    verdict = protocol.verdict_of(opened.send_offsets(ends))
    if verdict.commit:
        verdict = protocol.verdict_of(opened.flush())
    return protocol.verdict_of(opened.commit()) if verdict.commit else verdict


@replaced("offsets not sent", producer.KafkaProducer, "send_offsets", rule="transaction 5")
def _no_offsets(_original: Any, *_: object) -> TransactionReport:
    return TransactionReport()


@replaced(
    "offsets read before the producer is initialised", Emitter, "_emit_once", rule="transaction 1"
)
def _offsets_read_early(original: Any, self: Emitter, work: Any) -> Any:
    known = dict(self._committed(work.lanes()))
    self.open()
    self._known.update(known)
    return original(self, work)


@replaced("a producer used again after a lost answer", Emitter, "_note")
def _used_again(original: Any, self: Emitter, fault: Any, *rest: Any) -> None:
    kept = self._producer if isinstance(fault, OutcomeUnknown) else None
    if kept is not None:
        self._producer, self._known = None, {}
    original(self, fault, *rest)
    self._producer = kept


@mutation("records below the committed offset emitted again", rule="transaction 2")
def _not_resumed() -> Iterable[AbstractContextManager[Any]]:
    yield patch.object(slices.Slice, "_done", lambda *_: 0)


@replaced(
    "offsets read while a transaction moves them",
    cluster.Cluster,
    "committed",
    rule="transaction 2",
)
def _unstable_offsets(
    original: Any, self: cluster.Cluster, group: str, lanes: Any, *, stable: bool = False
) -> Any:
    del stable
    return original(self, group, lanes)


@replaced(
    "a slice without records to write not committed", Emitter, "_transact", rule="transaction 5"
)
def _empty_not_committed(original: Any, self: Emitter, opened: Any, work: Any, ends: Any) -> Any:
    if not work.outputs:
        return Verdict(commit=True)
    return original(self, opened, work, ends)


@mutation("a transaction left open after a refusal", rule="transaction 6")
def _not_aborted() -> Iterable[AbstractContextManager[Any]]:
    yield patch.object(producer.KafkaProducer, "abort", lambda _: None)


@replaced(
    "committed although records were refused without a report",
    protocol,
    "verdict_of",
    rule="transaction 4",
)
def _committed_all_the_same(_original: Any, report: TransactionReport) -> Verdict:
    return protocol.verdict_of(report) if report.failed else Verdict(commit=True)


@mutation("a slice that was tried too often taken for done")
def _exhausted_is_done() -> Iterable[AbstractContextManager[Any]]:
    yield patch.object(protocol, "MAXIMUM_ROUNDS", 1)
    yield patch.object(Emitter, "_halved", lambda *_: ())


@mutation("a transactional id of its own for every producer")
def _random_ids() -> Iterable[AbstractContextManager[Any]]:
    def opened(settings: Any, transactional_id: str, *rest: Any, **more: Any) -> Any:
        name = f"{transactional_id}-{next(numbers)}"
        return producer.KafkaProducer(settings, name, *rest, **more)

    numbers = itertools.count()
    yield patch.object(emission, "KafkaProducer", opened)


@mutation("halves of a slice in the wrong order", rule="transaction 6")
def _halves_swapped() -> Iterable[AbstractContextManager[Any]]:
    original = slices.Slice.split
    yield patch.object(protocol, "MAXIMUM_ROUNDS", 1)
    yield patch.object(slices.Slice, "split", lambda self: tuple(reversed(original(self))))


@replaced(
    "halving drops the tail",
    Emitter,
    "_halved",
    schedules=40,
    among=lambda plan: plan.is_poisoned,
    rule="transaction 6",
)
def _tail_dropped(original: Any, self: Emitter, work: Any) -> Any:
    return original(self, work)[:1]


@replaced(
    "ends counted before emission",
    emission.Emission,
    "_emit_slice",
    schedules=300,
    among=lambda plan: plan.has_upkeep_beside,
)
def _counted_early(
    original: Any, self: emission.Emission, parts: Any, settings: Any, emitted: Any
) -> Any:
    emitted.ends.update({part.lane: part.records.offsets[-1] + 1 for part in parts})
    return original(self, parts, settings, emitted)


@replaced(
    "the ids of topics not compared",
    slices.Slice,
    "_check_topics",
    schedules=40,
    among=lambda plan: plan.is_made_anew_amid,
    rule="transaction 2",
)
def _ids_not_compared(*_: object) -> None: ...


@replaced(
    "the id of a topic asked before its records are read",
    Facts,
    "begin_slice",
    schedules=60,
    among=lambda plan: plan.is_made_anew_amid,
    rule="transaction 2",
)
def _ids_of_before(original: Any, self: Facts, read: Iterable[str] = ()) -> None:
    known = dict(self.topic_ids)
    original(self, set(read) - known.keys())
    self._topic_ids.answers.update(known)


# -- what a report means -----------------------------------------------------------------------


@mutation("innocents blamed for a neighbour in their batch", rule="transaction 6")
def _blame_shared() -> Iterable[AbstractContextManager[Any]]:
    yield patch.object(slices.Slice, "batch_limit", 1 << 62)


@mutation("_STATE taken for a transient fault that hides the culprit")
def _state_is_transient() -> Iterable[AbstractContextManager[Any]]:
    yield patch.object(errors, "INNOCENTS", errors.INNOCENTS - {KafkaError._STATE})
    yield patch.object(protocol, "verdict_of", _without_culprits)


@mutation("culprits dropped beside another fault")
def _culprits_dropped() -> Iterable[AbstractContextManager[Any]]:
    yield patch.object(protocol, "verdict_of", _without_culprits)


_verdict_of = protocol.verdict_of


def _without_culprits(report: TransactionReport) -> Verdict:
    verdict = _verdict_of(report)
    return replace(verdict, refused=()) if verdict.fault is not None else verdict


@mutation("a purged record taken for a culprit")
def _innocents_condemned() -> Iterable[AbstractContextManager[Any]]:
    condemned = (*protocol._CONDEMNED, FailureKind.INNOCENT)
    yield patch.object(protocol, "_CONDEMNED", condemned)


@replaced("no answer taken for 'missing'", emission.GroupCluster, "answers", rule="transaction 3")
def _silence_is_missing(original: Any, self: emission.GroupCluster, questions: Questions) -> Any:
    try:
        return original(self, questions)
    except TransientFault:
        return Answers(dict.fromkeys(questions.topics, MISSING), {})


@mutation("facts never asked for again", rule="transaction 3")
def _facts_for_ever() -> Iterable[AbstractContextManager[Any]]:
    yield patch("redrive.engine.facts.TOPIC_AGE", 1e9)
    yield patch("redrive.engine.facts.MISSING_AGE", 1e9)
    yield patch.object(Facts, "doubt", lambda *_: None)


@replaced("decisions kept although facts changed", DecisionCache, "begin", schedules=4_000)
def _decided_for_ever(original: Any, self: DecisionCache, context: SliceContext) -> None:
    with patch.object(context.facts, "version", 0):
        original(self, context)


@replaced("depth counted by offsets", facts.ClusterFacts, "_count")
def _depth_by_offsets(
    original: Any, self: facts.ClusterFacts, starts: Mapping[Any, int], limit: int
) -> int:
    return max(limit, original(self, starts, limit)) if starts else 0


@replaced("depth counted before the markers are written", facts, "settled_ends", schedules=500)
def _depth_too_early(original: Any, asked: Any, lanes: Any, **bound: Any) -> Any:
    # Only the question for a depth waits for a time of its own.
    return asked.ends(lanes) if bound else original(asked, lanes)


@mutation("a producer used again whose last commit may arrive twice")
def _late_copies() -> Iterable[AbstractContextManager[Any]]:
    yield patch.object(Emitter, "_fence_late_requests", lambda *_: None)


@replaced(
    "late copies refused only once the next transaction begins",
    Emitter,
    "_fence_late_requests",
    schedules=1_500,
    among=lambda plan: plan.faults.ended_twice > 0,
)
def _fenced_lazily(_original: Any, self: Emitter, producer: Any) -> None:
    if producer.may_arrive_late:
        known = dict(self._known)
        self.drop_producer()
        self._known = known


@replaced(
    "the sending of offsets not counted as late",
    producer.KafkaProducer,
    "send_offsets",
    schedules=100,
    among=lambda plan: plan.faults.ended_twice > 0,
)
def _late_offsets(original: Any, self: producer.KafkaProducer, ends: Any) -> Any:
    before = self.may_arrive_late
    try:
        return original(self, ends)
    finally:
        self.may_arrive_late = before


# -- who may emit ------------------------------------------------------------------------------


@mutation("nobody fenced at a start", duels_only=True, rule="start 3")
def _nobody_fenced() -> Iterable[AbstractContextManager[Any]]:
    yield patch.object(epoch, "fence_all", lambda *_: None)


@mutation("ids read before the entry is written", duels_only=True, schedules=1_500, rule="start 2")
def _ids_read_early() -> Iterable[AbstractContextManager[Any]]:
    original = epoch.begin_run

    class ReadEarly:
        """A control topic that was read before it was written."""

        def __init__(self, store: Any) -> None:
            self._early = store.registered("emitter/")
            self.entries, self.write = store.entries, store.write

        def registered(self, prefix: str) -> Any:
            del prefix
            return self._early

    def begin_run(store: Any, *rest: Any, **more: Any) -> Any:
        return original(ReadEarly(store), *rest, **more)

    yield patch.object(registry, "begin_run", begin_run)


@mutation(
    "an id registered after it is initialised",
    duels_only=True,
    schedules=1_500,
    rule="transaction 1",
)
def _registered_late() -> Iterable[AbstractContextManager[Any]]:
    yield patch.object(Emitter, "open", _open_in_order("initialise", "check", "register"))


@mutation(
    "the entry read before the producer is initialised",
    duels_only=True,
    schedules=1_500,
    rule="transaction 1",
)
def _checked_early() -> Iterable[AbstractContextManager[Any]]:
    yield patch.object(Emitter, "open", _open_in_order("register", "check", "initialise"))


@mutation("the entry not read at all", duels_only=True, rule="transaction 1")
def _never_checked() -> Iterable[AbstractContextManager[Any]]:
    yield patch.object(RunEntry, "check_current", lambda _: None)


@replaced(
    "a share given up after another is taken",
    preparation.Preparation,
    "_lack_of_share",
    schedules=600,
    among=lambda plan: plan.rebalances,
)
def _given_up_late(original: Any, self: preparation.Preparation, partitions: int) -> str:
    registration, topic = self._registration, self.configuration.control_topic
    before, share = registration.share, registration.assigned(partitions)
    if before is None or share in {None, before}:
        lack: str = original(self, partitions)
        return lack
    if holders := registration.take(share, topic):
        return f"others must give up share {share}: {holders}"
    registration.share = before
    with self._entries() as entries:
        registration.give_up(entries)
    registration.share = share
    return ""


@mutation("a newer run seen only under the own key", duels_only=True, schedules=300)
def _own_key_only() -> Iterable[AbstractContextManager[Any]]:
    def check_current(entries: Any, run: Any) -> None:
        key = epoch.instance_key(run.share)
        original({key: entries[key]} if key in entries else {}, run)

    original = epoch.check_current
    yield patch.object(epoch, "check_current", check_current)
    yield patch.object(preparation, "check_current", check_current)


@mutation("a missing entry taken for fine", duels_only=True, schedules=300)
def _missing_is_fine() -> Iterable[AbstractContextManager[Any]]:
    def check_current(entries: Any, run: Any) -> None:
        with suppress(TransientFault):
            original(entries, run)

    original = epoch.check_current
    yield patch.object(epoch, "check_current", check_current)
    yield patch.object(preparation, "check_current", check_current)


@replaced(
    "an id counted as registered though registering failed",
    epoch.RunEntry,
    "register",
    duels_only=True,
    schedules=1_500,
)
def _registered_by_hope(original: Any, self: epoch.RunEntry, transactional_id: str) -> None:
    with suppress(TransientFault):
        original(self, transactional_id)


@replaced(
    "ids removed before they are fenced", epoch, "_registered", duels_only=True, schedules=1_500
)
def _removed_early(original: Any, store: Any, share: Any) -> Any:
    registered = original(store, share)
    store.write(dict.fromkeys(registered))
    return registered


@replaced(
    "only the own share fenced",
    epoch,
    "_registered",
    duels_only=True,
    schedules=1_500,
    rule="start 2",
)
def _own_share_only(original: Any, store: Any, share: Any) -> Any:
    prefix = epoch.emitter_prefix(share)
    registered = original(store, share)
    return {key: name for key, name in registered.items() if key.startswith(prefix)}


@replaced(
    "the lanes of the share before it changed",
    preparation.Preparation,
    "_take_share",
    schedules=1_500,
)
def _lanes_of_before(original: Any, self: preparation.Preparation, *arguments: Any) -> Any:
    before = self.configuration
    taken = original(self, *arguments)
    self.configuration = before
    return taken


@mutation(
    "a start does not wait until its entry is visible",
    duels_only=True,
    schedules=3_000,
    rule="start 1",
)
def _not_awaited() -> Iterable[AbstractContextManager[Any]]:
    yield patch.object(control.ControlTopic, "_await_readers", lambda _: None)


@replaced(
    "the control topic read before its writer fences",
    control.ControlTopic,
    "__init__",
    schedules=1_000,
)
def _control_read_early(
    original: Any, self: control.ControlTopic, cluster: Any, topic: str
) -> None:
    entries = control.read_entries(cluster, topic)
    original(self, cluster, topic)
    self.entries = entries


@mutation("a task's second attempt emits")
def _second_attempt_emits() -> Iterable[AbstractContextManager[Any]]:
    from tests.simulation import job  # noqa: PLC0415 - Spark's part is written out there

    yield patch.object(job, "refuse_second_attempt", lambda _: None)


def _open_in_order(*steps: str) -> Callable[[Any], Any]:
    def open_(self: Any) -> Any:
        if self._producer is not None:
            return self._producer
        opened = self._make_producer(self._batching)
        for step in steps:
            if step == "register":
                self._run.register(opened.transactional_id)
            elif step == "initialise":
                opened.initialise()
            else:
                self._run.check_current()
        self._producer = opened
        return opened

    return open_


@replaced(
    "positions read before the fence", preparation.Preparation, "_prepare_once", rule="start 4"
)
def _positions_read_early(_original: Any, self: preparation.Preparation, wait: Any) -> Any:
    layout = self._await_sources(wait)
    if layout is None:
        return None
    if self.configuration.rebalances and not self._take_share(sum(layout.values()), wait):
        return None
    settings = self.configuration
    with self._entries() as entries:
        finder = start.StartFinder(settings, self._control, self._cluster, entries)
        layout_found = finder.find(layout, self._denied)
        identity = self._registration.begin_run(
            entries, topic=settings.control_topic, take_over=True
        )
    return replace(layout_found, moved=frozenset(layout_found.every_position)), identity


# -- where lanes stand -------------------------------------------------------------------------


@mutation("forgotten offsets taken for new lanes")
def _forgotten_is_new() -> Iterable[AbstractContextManager[Any]]:
    yield patch.object(start.StartFinder, "_is_known", lambda *_: False)


@mutation("the periodic commit moves a lane backwards")
def _moved_back() -> Iterable[AbstractContextManager[Any]]:
    yield patch.object(PositionsOnly, "resume", lambda *_: None)


@mutation("parked messages released before they are due")
def _released_early() -> Iterable[AbstractContextManager[Any]]:
    def free(self: Any, begin: Any, ends: Any, states: Any) -> Any:
        del states
        return _free(self, begin, dict(ends), NO_STATES)

    _free = held.HeldPartitions.free
    original = held.HeldPartitions._due_before
    yield patch.object(held.HeldPartitions, "free", free)
    yield patch.object(
        held.HeldPartitions, "_due_before", lambda self, interval: original(self, interval) + 5_000
    )


@mutation("a clock that is set forward is believed", schedules=600)
def _clock_believed() -> Iterable[AbstractContextManager[Any]]:
    yield patch.object(SteadyClock, "now", lambda _: TIME.time())


@mutation(
    "what was parked before the clock was set forward counts as parked after it", schedules=1_200
)
def _stamps_believed() -> Iterable[AbstractContextManager[Any]]:
    yield patch.object(SteadyClock, "late", lambda *_: 0.0)


@mutation("no tombstone once what remained went elsewhere")
def _no_tombstone() -> Iterable[AbstractContextManager[Any]]:
    def without_them(original: Any) -> Any:
        def replacement(*of_rows: Any) -> Iterable[Any]:
            return (output for output in original(*of_rows) if output[1].value is not None)

        return replacement

    for name in ("_copies_and_outcome", "_write_prepared_puts"):
        yield patch.object(Lane, name, without_them(getattr(Lane, name)))


@mutation(
    "positions committed after a failed batch",
    schedules=300,
    among=lambda plan: plan.has_upkeep_beside and plan.doubled > 0 and plan.workers > 0,
)
def _committed_after_failure() -> Iterable[AbstractContextManager[Any]]:
    def commit_positions(self: Any, positions: Any, moved: Any = frozenset()) -> None:
        if self._busy.acquire(blocking=False):
            try:
                self._commit(positions, moved)
            finally:
                self._busy.release()

    def commit_if_requested(self: Any) -> None:
        if self._commit_requested.is_set() and not self._ending.is_set():
            self._commit(dict(self.positions))
            self._commit_requested.clear()

    yield patch.object(batch.BatchProcessor, "commit_positions", commit_positions)
    yield patch.object(batch.BatchProcessor, "_commit_if_requested", commit_if_requested)


@replaced(
    "lanes that moved not known",
    start.StartFinder,
    "_all_positions",
    schedules=60,
    among=lambda plan: plan.is_made_anew,
)
def _never_moved(original: Any, *given: Any) -> Any:
    return replace(original(*given), moved=frozenset())


@replaced(
    "leaderless topics of waiting messages read all the same",
    cluster.Cluster,
    "identified",
    schedules=30,
    among=lambda plan: plan.loses_partition,
)
def _leaderless_read(original: Any, self: cluster.Cluster, topics: Any, lanes: Any) -> Any:
    ids, silent = original(self, topics, lanes)
    return ids, frozenset(lane for lane in silent if not lane.topic.startswith("redrive-"))


@replaced(
    "the clock of the own share only",
    clock,
    "_overlapping_clocks",
    schedules=200,
    among=lambda plan: plan.sets_clocks and len(plan.shares) > 1,
)
def _own_clock_only(original: Any, entries: Any, share: Any) -> Any:
    return [pair for pair in original(entries, share) if pair[0] == share]


@replaced(
    "lateness not known to the emitter",
    emission.EmissionOrder,
    "of",
    schedules=300,
    among=lambda plan: plan.sets_clocks and plan.replays > 0,
)
def _never_late(original: Any, *given: Any) -> Any:
    return replace(original(*given), late=0.0)


# -- replays -----------------------------------------------------------------------------------


@mutation("a replay does not ask what still remains", rule="replay 1")
def _replay_without_asking() -> Iterable[AbstractContextManager[Any]]:
    yield patch.object(Facts, "copies", lambda *_: None)


@replaced(
    "what remains is known from before the last transaction",
    compacted.LiveCopies,
    "on",
    rule="replay 1",
)
def _copies_of_yesterday(original: Any, self: compacted.LiveCopies, lane: Any) -> Any:
    return self._followed[lane][1] if lane in self._followed else original(self, lane)


@replaced(
    "replays while a new table looks at what remains",
    held.HeldPartitions,
    "_instructions",
    schedules=2_000,
    rule="replay 2",
)
def _replay_beside_table(
    _original: Any, self: held.HeldPartitions, begin: Any, ends: Any, *_: object
) -> Iterable[Any]:
    lanes = [
        partition.lane
        for partition in self._partitions
        if isinstance(partition, held.HeldInstructions)
    ]
    return ((lane, max(begin[lane], ends[lane])) for lane in lanes)


@replaced(
    "a new table looks at what was replayed",
    RemainingSource,
    "_is_gone",
    schedules=800,
    rule="replay 1",
)
def _table_after_replay(_original: Any, self: RemainingSource, row: int) -> bool:
    return self._part.records.values[row] is None


@mutation("two instructions for one message in one transaction", rule="replay 3")
def _replayed_twice() -> Iterable[AbstractContextManager[Any]]:
    def forgetful(original: Any) -> Any:
        def replacement(self: Any, row: int, *more: Any) -> Any:
            self._facts.replayed.clear()
            return original(self, row, *more)

        return replacement

    for name in ("read", "is_plain"):
        original = getattr(InstructionSource, name)
        yield patch.object(InstructionSource, name, forgetful(original))


@mutation("all parked messages before a named one are tried", schedules=1_000)
def _tried_with_the_named() -> Iterable[AbstractContextManager[Any]]:
    yield patch.object(RetrySource, "_is_read_for_others", lambda *_: False)


@replaced("a release one too small", commands, "free_by_order")
def _released_short(original: Any, every: Any) -> Any:
    return {lane: end - 1 for lane, end in original(every).items()}


@replaced("a remaining copy not written again when it remains again", Lane, "_copies_and_outcome")
def _copy_not_renewed(
    original: Any, self: Lane, row: int, message: Any, decision: Any
) -> Iterable[Any]:
    is_kept = self._part.kind in {SourceKind.REMAINING, SourceKind.REPLAYS}
    written = list(original(self, row, message, decision))
    return written[1:] if is_kept and isinstance(decision, Keep) else written


@mutation(
    "a plan's own instructions not subtracted",
    schedules=4_000,
    among=lambda plan: plan.replays > 0,
    rule="replay 4",
)
def _asked_again() -> Iterable[AbstractContextManager[Any]]:
    original = LastOutcome.add

    def add(self: Any, row: Any) -> None:
        original(self, row)
        self.replays.clear()

    # Outcomes tell of them too, once they are carried out.
    yield patch.object(PlannedMessages, "_instructed_keys", lambda *_: set())
    yield patch.object(LastOutcome, "add", add)


@replaced("an instruction position off by one", Instructions, "_chunks", schedules=1_500)
def _position_off(
    original: Any, self: Instructions, lane: Any, span: Any, look: Any
) -> Iterable[Any]:
    for records, after in original(self, lane, span, look):
        yield records, replace(after, read=after.read - 1)


@replaced(
    "a message without a copy restored whatever its last outcome is",
    PlannedMessages,
    "_restorable",
    schedules=1_200,
    among=lambda plan: plan.replays > 0,
    rule="replay 4",
)
def _restored_once_placed(
    _original: Any, self: PlannedMessages, _lane: object, lost: Any, outcomes: Any, _until: int
) -> Any:
    known = {key: outcomes.by_origin[key.decode()] for key in lost}
    return {
        key: Restorable(outcome.partition, outcomes.ends[outcome.partition], outcome.message)
        for key, outcome in known.items()
        if self._plan not in outcome.replays
    }


@replaced(
    "outcomes not read again before a restored message is placed",
    Facts,
    "replayed",
    schedules=2_000,
    among=lambda plan: plan.replays > 0,
    rule="replay 4",
)
def _restored_twice(*_: object) -> Replayed:
    return Replayed(0, {})


@mutation("a planner that does not wait for the plans of instructions", schedules=600)
def _plans_not_awaited() -> Iterable[AbstractContextManager[Any]]:
    yield patch.object(StatesFollower, "known_ends", lambda _, ends: dict(ends))


@mutation("a follower that passes over tombstones")
def _tombstones_passed_over() -> Iterable[AbstractContextManager[Any]]:
    # One that forgets them once it has read them does no harm: the log cleaner forgets them too.
    class PassesOver(CompactedTopic):
        """A remaining topic without tombstones."""

        def runs_to_end(self) -> Iterator[Any]:
            for run in super().runs_to_end():
                run.messages = [message for message in run.messages if message.value() is not None]
                yield run

    yield patch.object(compacted, "CompactedTopic", PassesOver)


@replaced("who waits on is not parked again", RetrySource, "_parked_again", schedules=1_000)
def _not_parked_again(
    original: Any, self: RetrySource, row: int, message: Any, cancelled: Any
) -> Any:
    return original(self, row, message, cancelled)._replace(records=())


@replaced("a parked message that is tried at once stays parked too", Lane, "_outputs_of")
def _tried_and_parked(original: Any, self: Lane, row: int) -> Iterable[Any]:
    yield from original(self, row)
    source = self._source
    if isinstance(source, RetrySource) and source.letters is not None:
        command = source._command(row)
        if command is not None and not command.cancelled_by:
            yield from source._parked_again(row, source.letters.read(row)[0], None).records


@mutation("what was ordered is known from before the batch")
def _order_forgotten() -> Iterable[AbstractContextManager[Any]]:
    yield patch.object(Facts, "orders", lambda *_: ())


@replaced("a message of a key is not held", KeyOrder, "ahead")
def _not_held(*_: object) -> None: ...


@replaced("no note of a round", HeldKeys, "round_of", rule="order 3")
def _no_note(*_: object) -> None: ...


@replaced("what remains holds no key", waiting_keys._FollowedKeys, "_take", rule="order 2")
def _remaining_passed_over(original: Any, self: waiting_keys._FollowedKeys, record: Any) -> None:
    if record.lane != self._question.remaining:
        original(self, record)


@replaced("copies do not say where a lane stands", ledger, "_positions_in_copies", schedules=1_000)
def _copies_not_asked(*_: object) -> dict[Any, int]:
    return {}


@replaced("positions read after what waits", waiting_keys._FollowedKeys, "follow", rule="order 2")
def _positions_last(
    _original: Any, self: waiting_keys._FollowedKeys, asked: Any, group: str
) -> None:
    there = asked.topics()
    backoff = [lane for lane in self._question.backoff if lane.partition < there.get(lane.topic, 0)]
    parked = [self._question.retry, *backoff]
    lanes = [*parked, self._question.remaining]
    ends = cluster.settled_ends(asked, lanes)
    starts = {lane: self._read.get(lane, 0) for lane in lanes}
    for record in asked.read(starts, ends):
        self._take(record)
    self._read.update(ends)
    for lane, position in asked.committed(group, parked, stable=True).items():
        self._pass(lane, position or 0)


@replaced(
    "a copy that was moved still holds its key",
    KeyOrder,
    "remove",
    schedules=500,
    among=lambda plan: plan.table == ORDERED and plan.workers > 0,
)
def _hold_not_removed(*_: object) -> None: ...


@replaced(
    "a message has its place in the order where its copy lies",
    waiting_keys._FollowedKeys,
    "_take",
    schedules=300,
    among=lambda plan: plan.table == ORDERED,
    rule="order 1",
)
def _place_of_copy(original: Any, self: waiting_keys._FollowedKeys, record: Any) -> None:
    headers = [pair for pair in record.headers if pair[0] != own.ID]
    original(self, replace(record, headers=headers))


@replaced(
    "where a round comes back to read before its group",
    waiting_keys.LiveOrder,
    "rounds",
    schedules=300,
    among=lambda plan: plan.has_rounds,
    rule="order 3",
)
def _returned_early(original: Any, self: waiting_keys.LiveOrder, rounds: Any) -> Any:
    letters = {open_round.letters for open_round in rounds}
    early, ends = self._ends(letters), self._ends

    def of_before(lanes: Any) -> Any:
        return {**ends(lanes), **{lane: early[lane] for lane in letters & {*lanes}}}

    with patch.object(self, "_ends", of_before):
        return original(self, rounds)


@replaced(
    "consumers see where the job stands before what waits",
    held_keys,
    "changes",
    schedules=30,
    among=lambda plan: plan.has_held_keys,
)
def _told_early(original: Any, written: Any, entries: Any) -> Any:
    return [pair for pair in original(written, entries) if b"/" not in pair[0]]


@mutation(
    "a message that waits at a breaker counts an attempt",
    schedules=100,
    among=lambda plan: plan.has_breakers,
)
def _counted_at_breaker() -> Iterable[AbstractContextManager[Any]]:
    def suspend(self: Any, decision: Any, attempts: Any, why: str) -> Any:
        counted = self._attempts.add_failure(decision.rule, attempts)
        return original(self, decision, counted, why)

    original = rules_decider.BreakerGuard._suspend
    yield patch.object(rules_decider.BreakerGuard, "_suspend", suspend)


@mutation(
    "a round over once its group passed",
    schedules=60,
    among=lambda plan: plan.has_rounds,
    rule="order 3",
)
def _over_once_passed() -> Iterable[AbstractContextManager[Any]]:
    over = lambda open_round, *_: open_round._replace(is_over=True)  # noqa: E731
    yield patch.object(waiting_keys, "_returned", over)


@replaced(
    "rounds looked up after what waits",
    emission.GroupCluster,
    "answers",
    schedules=100,
    among=lambda plan: plan.has_rounds and plan.workers > 1,
    rule="order 4",
)
def _rounds_last(original: Any, self: emission.GroupCluster, questions: Questions) -> Any:
    if not questions.about_order:
        return original(self, questions)
    waiting = {question: self._ordered.waiting(question) for question in questions.waiting}
    waiting = {
        question: {key: dict(line) for key, line in keys.items()}
        for question, keys in waiting.items()
    }
    return replace(original(self, questions), waiting=waiting)


@replaced(
    "a plan not read to its end",
    StatesFollower,
    "states",
    schedules=300,
    among=lambda plan: plan.replays > 0 and plan.faults.fetched_later > 0,
)
def _plan_not_read(original: Any, self: StatesFollower, **_: object) -> Any:
    return original(self)


@mutation(
    "operators' ids not fenced at a start",
    schedules=200,
    among=lambda plan: plan.replays > 0,
    rule="start 3",
)
def _operators_not_fenced() -> Iterable[AbstractContextManager[Any]]:
    yield patch.object(epoch, "operator_ids", lambda _: {})


@mutation(
    "the key of an operator's id used again",
    among=lambda plan: plan.replays > 0 and plan.stops_fencer,
)
def _operator_key_reused() -> Iterable[AbstractContextManager[Any]]:
    yield patch.object(states, "new_operator_key", lambda name: f"emitter/operator/0/{name}")


@mutation("a lost answer of the control topic ends the job")
def _control_in_doubt() -> Iterable[AbstractContextManager[Any]]:
    yield patch.object(control, "_to_be_opened_again", ExitStack)


# -- another cluster ---------------------------------------------------------------------------


@replaced(
    "where forwarding stands asked at home only",
    forwarding.Forwarder,
    "committed",
    schedules=100,
    among=lambda plan: plan.forwards,
)
def _asked_at_home(_original: Any, self: forwarding.Forwarder, lanes: Any) -> Any:
    here = self._home.committed(self._application, lanes, stable=True)
    return {lane: here[lane] or 0 for lane in lanes}


@replaced(
    "where forwarding stands asked in the other cluster only",
    forwarding.Forwarder,
    "committed",
    schedules=100,
    among=lambda plan: plan.forwards,
)
def _asked_there(_original: Any, self: forwarding.Forwarder, lanes: Any) -> Any:
    there = self._there.committed(self._group_there, lanes, stable=True)
    return {lane: there[lane] or 0 for lane in lanes}


@replaced(
    "forwarding goes on behind what was refused",
    forwarding.Forwarder,
    "_move",
    schedules=100,
    among=lambda plan: plan.forwards,
)
def _refused_passed(original: Any, self: forwarding.Forwarder, records: Any) -> None:
    original(self, records)
    self._position = records[-1].offset + 1


@replaced(
    "a transactional id of its own for each run that forwards",
    forwarding.Forwarder,
    "_producer_there",
    schedules=100,
    among=lambda plan: plan.forwards,
)
def _own_id_there(_original: Any, self: forwarding.Forwarder, batching: Any) -> Any:
    group, client = self._group_there, self._connections[1].librdkafka()
    transactional_id = f"{group}-{next(_NUMBERS)}"
    return producer.KafkaProducer(client, transactional_id, group, batching=batching)


@replaced(
    "where forwarding stands asked beside what a late request began",
    forwarding.Forwarder,
    "committed",
    schedules=100,
    among=lambda plan: plan.forwards and plan.faults.ended_twice > 0,
)
def _asked_beside_late(original: Any, self: forwarding.Forwarder, lanes: Any) -> Any:
    opened = lambda: None  # noqa: E731
    with (
        patch.object(self._forward, "open", opened),
        patch.object(self._return, "open", opened),
    ):
        return original(self, lanes)


@replaced(
    "forwarding taken for done as of its last look",
    forwarding.Forwarding,
    "completed",
    schedules=1_200,
    among=lambda plan: plan.forwards,
)
def _done_at_last_look(_original: Any, self: forwarding.Forwarding, _home: Any) -> Any:
    completed = {forwarder.lane: forwarder.completed for forwarder in self._forwarders}
    return None if None in completed.values() else completed


# -- changed tables ----------------------------------------------------------------------------


@mutation("a changed table taken in the middle of a batch")
def _taken_amid() -> Iterable[AbstractContextManager[Any]]:
    yield patch("tests.simulation.clients.SimulatedLock.acquire", lambda *_, **__: True)


@replaced("a changed table taken before it is recorded", batch.BatchProcessor, "change_tables")
def _taken_early(
    original: Any, self: batch.BatchProcessor, configuration: Any, record: Any, **more: Any
) -> start.Start | None:
    order = replace(self._emission._order, configuration=configuration)
    self._order = cast("bytes", order)  # the simulation pickles no order
    self._emission.change_tables(order)
    TIME.sleep(0.5)  # for the batches that come meanwhile
    changed: start.Start | None = original(self, configuration, record, **more)
    return changed


@replaced(
    "batches go on though a changed table may be recorded", batch.BatchProcessor, "change_tables"
)
def _goes_on(
    original: Any, self: batch.BatchProcessor, configuration: Any, record: Any, **more: Any
) -> Any:
    def recorded() -> None:
        record()
        raise TransientFault("the answer is lost")

    try:
        return original(self, configuration, recorded, **more)
    except TransientFault:
        self._ending.clear()
        self.failure = None
        TIME.sleep(1.0)  # the run ends when the driver comes to it
        raise


@replaced("held lanes keep what the old table said", held.HeldPartitions, "change", schedules=1_000)
def _not_told(*_: object) -> None: ...


@replaced("changed tables followed late", control.TableFollower, "waits", schedules=3_000)
def _followed_late(original: Any, self: control.TableFollower) -> Any:
    known = self._waits
    original(self)
    return known


@replaced(
    "what a changed table sets free ends where readers see it",
    start.StartFinder,
    "_tables_of",
    schedules=1_500,
)
def _ends_early(original: Any, self: start.StartFinder, kept: Any, _: Any) -> Any:
    waiting = [lane for partition in kept for lane in partition.waiting]
    return original(self, kept, self.cluster.ends(waiting))


@replaced(
    "a changed table asks only about replays of before it",
    start.StartFinder,
    "change_tables",
    schedules=2_000,
)
def _replays_forgotten(original: Any, self: start.StartFinder, before: Any, *more: Any) -> Any:
    return replace(original(self, before, *more), replayed=before.replayed)


@replaced(
    "a table changed though the batch failed",
    batch.BatchProcessor,
    "change_tables",
    schedules=250,
    among=lambda plan: plan.tables_change and plan.doubled > 0 and plan.workers > 0,
)
def _changed_after_failure(
    _original: Any, self: batch.BatchProcessor, configuration: Any, record: Any, *, gives_up: Any
) -> Any:
    while not self._deciding.acquire(timeout=0.2):
        if gives_up():
            return None
    try:
        if self._ending.is_set():
            return None
        changed = record()
        self._take(configuration, changed)
    finally:
        self._deciding.release()
    return changed


@replaced(
    "the changed tables of another run believed",
    control.TableFollower,
    "_take",
    schedules=300,
    among=lambda plan: plan.tables_change,
)
def _of_another_run(original: Any, self: control.TableFollower, entry: Any) -> None:
    original(self, {**entry, "run": self._run})


@mutation("a release that keeps old attempts", schedules=250, among=lambda plan: plan.tables_change)
def _attempts_kept() -> Iterable[AbstractContextManager[Any]]:
    counts = lambda self, _, headers: headers.table == self.decider.table_id  # noqa: E731
    yield patch.object(PartitionRecords, "counts", counts)


@mutation(
    "a run that was overtaken records its tables",
    schedules=2_500,
    among=lambda plan: plan.tables_change,
)
def _records_though_overtaken() -> Iterable[AbstractContextManager[Any]]:
    yield patch.object(preparation, "check_current", lambda *_: None)


if __name__ == "__main__":
    sys.exit(main())
