"""One schedule: what happens to a simulated job and to its cluster, from one seed.

First everything may go wrong, for some hundred steps; then nothing more does, and the job has to
come to an end within a bounded number of steps, with everything done once.
"""

from __future__ import annotations

import logging
import random
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import combinations
from typing import Any, Final

from tests.simulation.audit import DIGITS, FAR_TOPIC, OUTCOMES, POISON, Audit, Condition
from tests.simulation.clients import Faults, Network, simulated_clients, simulated_clock
from tests.simulation.cluster import DEFAULT_LIMIT, DELETE_RETENTION, SimulatedCluster
from tests.simulation.job import (
    APPLICATION,
    BACKOFF,
    DEAD_LETTERS,
    FAR,
    REMAINING,
    REPLAY,
    RETRY,
    Instance,
    configuration,
)
from tests.simulation.replays import apply, cancel_replay, plan_replay, write_order, write_replay
from tests.simulation.scheduler import Process, Scheduler

from redrive.checkpoints.epoch import new_operator_key
from redrive.checkpoints.instances import Share
from redrive.checkpoints.protocol import RetryPolicy
from redrive.collector import collector_paused
from redrive.configuration import DataLoss, EmitterChoice
from redrive.engine.breaker import BreakerSettings
from redrive.engine.commands import Replay
from redrive.engine.names import control_topic, held_keys_topic, tables_topic
from redrive.errors import ConfigurationError, RedriveError, SupersededFault
from redrive.messages import Headers, OutputRecord, TopicPartition
from redrive.messages import own_headers as own
from redrive.messages.reasons import Reason
from redrive.operations.replay.plan import Plan as ReplayPlan
from redrive.rules import parse
from redrive.topology.put import QueueLimits

TABLE: Final = """RETRYINT(10)
REASON(2053) ACTION(RETRY) RETRY(2)
REASON(2035) ACTION(DISCARD)
REASON(2085) ACTION(FWD) FWDQ(ELSEWHERE) HEADER(NO)
REASON(2051) ACTION(IGNORE)
"""
CHANGED: Final = """RETRYINT(10)
REASON(2053) ACTION(RETRY) RETRY(3)
REASON(2051) ACTION(FWD) FWDQ(ELSEWHERE)
REASON(9999) ACTION(DISCARD)
"""
BACKED_OFF: Final = """DIALECT(KAFKA) RETRYINT(10)
REASON(2053) ACTION(RETRY) RETRY(3) BACKOFF(4s,3,20s)
REASON(2035) ACTION(DISCARD)
REASON(2085) ACTION(FWD) FWDQ(ELSEWHERE) HEADER(NO) RETRY(2)
REASON(2051) ACTION(IGNORE)
"""
"""As ``TABLE``, and messages wait as long as their rules say."""
ORDERED: Final = BACKED_OFF.replace("RETRYINT", "ORDER(KEY) RETRYINT")
"""As ``BACKED_OFF``, and messages of a key are placed in their order."""
ROUNDS: Final = """DIALECT(KAFKA) ORDER(KEY) RETRYINT(10)
REASON(2195) ACTION(RETRY) RETRY(3) BACKOFF(4s,3,20s)
"""
"""What is put comes back where its processing fails."""
FORWARDED: Final = BACKED_OFF.replace("ACTION(IGNORE)", "ACTION(FWD) FWDT('far:FAR')")
"""As ``BACKED_OFF``, and some messages go to another cluster."""
CHANGED_IN_ORDER: Final = CHANGED.replace("RETRYINT", "DIALECT(KAFKA) ORDER(KEY) RETRYINT")
_TABLES: Final = {
    text: parse(text).required()
    for text in (TABLE, CHANGED, BACKED_OFF, ORDERED, ROUNDS, FORWARDED, CHANGED_IN_ORDER)
}
"""What these texts mean."""
_BY_HASH: Final = {table.hash[:DIGITS]: table for table in _TABLES.values()}
_TARGETS: Final = ("Q0", "Q1", "Q2", "ELSEWHERE")
_REASONS: Final = (2053, 2053, 2053, 2035, 2085, 2051, 9999)
_SMALL: Final = 2_000
"""Bytes that a topic takes that was made smaller; half of what a large body has."""
_MOST_STEPS: Final = 24_000
"""Steps of a whole schedule: some thirty times of what an ordinary one takes, and twice of what the
longest took (seed 700017)."""
_A_DAY: Final = DELETE_RETENTION + 3600.0
_A_WEEK: Final = 8 * 24 * 3600.0
_AHEAD: Final = (-120.0, -20.0, 0.0, 20.0, 120.0)
"""Seconds by which somebody sets the clock wrong."""
_DAYS: Final = 0.5
"""Share of the times that an operator comes back a day later."""
_EMITTERS: Final = (EmitterChoice.LANES, EmitterChoice.LANES, EmitterChoice.AUTO)
"""Who emits where there are workers."""
_LATER: Final = 0.3
"""Share of the plans that are applied on another day."""
_COMMAND: Final = 50
"""Steps of a command that applies a plan, about."""
_DYING: Final = 0.3
"""Share of an operator's commands that die somewhere."""
_TRANSACTIONS: Final = 3
"""Transactions of a command of which the last is not committed where it dies in one, at most: it is
accepted, and some of its messages are instructed."""
_BESIDE: Final = 0.7
"""Share of the others beside which another command dies in a transaction, which hides their plan
while its instructions are there to be read."""
_HIDING: Final = 0.2
"""Share of the steps at which it does, once they may write."""
_DUEL: Final = 1_000
"""Steps in which instances take over from each other: a start takes some hundred."""
_DUEL_EVENTS: Final = 0.004
"""Share of these steps at which one does."""
_LATE: Final = 0.008
"""Share of the steps in calm at which the table is changed, or a week passes, once."""
_AFRESH: Final = 0.3
"""Share of the times at which the table is changed that other processes begin with it; else those
that run are asked to restart."""
_CHANGING: Final = 0.5
"""Share of the replays in calm after which the table is changed at once, where tables change."""
_DUEL_INPUTS: Final = 0.04
"""Share of these steps at which an input is written: who was overtaken has something to emit."""
_AT_WORK: Final = 0.04
"""Share of the steps of a worker at which instances take over from its own."""
_OPENING: Final = 5.0
"""Seconds for which a driver stands still that is about to open the control topic, while instances
take over from it that need about one for their start."""
_REPEATING: Final = 0.3
"""Share of the schedules in which an operator repeats a command just when a start has fenced it."""
_PAUSING: Final = 0.5
"""Share of the drivers that stand still in the middle of their start, while the old ones work."""
_START: Final = 30
"""Steps of a start that are its own, about, beside those in which it waits for markers."""
_AMID: Final = 0.5
"""Share of the processes that were overtaken which stop in the middle of a transaction."""
_SETTINGS: Final = 20
"""Times that somebody sets it at most: the job has to come to an end."""
_MOST_MARKERS: Final = 0.5
"""Share of the steps at which a marker is written at most."""
_WAITING: Final = 0.5
"""Share of the times at which a marker is written when every process waits: nobody can make use of
it that it is not there, but by waiting on."""
_OF_THE_BROKER: Final = 0.1
"""Share of the steps at which the broker does what it does by itself."""
_CLEANING: Final = 0.1
"""Share of these steps at which the log cleaner comes to a topic: a new run finds what was replaced
before it, now and then."""
_MEASURED: Final = 200
"""Schedules that are run to tell how fast they are, unless an argument says otherwise."""
_ORDERED: Final = 3
"""Which one of six seeds has a table with ORDER(KEY)."""
_REBALANCED: Final = 4
"""Which one of five seeds has instances that share the partitions out among themselves."""
_MOST_INSTANCES: Final = 3
"""How many of them there are at most."""
_BESIDE_BATCHES: Final = 0.4
"""Share of the schedules in which upkeep runs at any moment."""
_SPLIT_OTHERWISE: Final = 0.3
"""Share of the schedules with several ways to share partitions out that have a third one."""
_POISONED: Final = 0.03
"""Share of the schedules in which most messages are refused."""
_LARGE_SLICE: Final = 16
"""Records of a slice there: more than it may have rounds before it is halved."""
_LOSING: Final = 0.15
"""Share of the plain schedules in which a partition loses its leader for long."""
_LEADERLESS: Final = 200.0
"""Seconds for which it has none; all others are to be read to their ends meanwhile."""
_ANEW: Final = 0.15
"""Share of the other plain ones in which the dead-letter topic is made anew."""
_BREAKING: Final = 0.1
"""Share of the schedules in which retries have breakers."""
_BREAKER: Final = BreakerSettings(failures=2, probe_interval=5.0)
_FORWARDING: Final = 0.3
"""Share of the schedules with one share in which messages go to another cluster."""
_FAR_AWAY: Final = 0.6
"""Share of the messages there that do."""
_ABROAD: Final = 0.02
"""Share of the steps at which something happens to the topic there."""
_TOLD: Final = 0.5
"""Share of the schedules with consumers in which these read which keys wait."""
_PROCESSED: Final = 0.5
"""Share of the schedules with ORDER(KEY) in which consumers process what is put."""
_CONSUMERS: Final = "consumers"
"""The group of these."""
_PROCESSING: Final = 0.12
"""Share of the steps at which such a consumer does something."""
_FAILING: Final = 0.6
"""Share of the messages that it fails on."""
_MOST_PLANS: Final = 12
"""Plans up to which one is made because the clock was set forward."""
_A_MOMENT: Final = 30.0
"""Seconds after such a setting for which stamps from before it are judged with care, about."""
_START_BESIDE: Final = 0.4
"""Share of the dying commands beside which instances take over: first while one writes, then when
it has died."""
_SETTLED_AFTER: Final = 15.0
"""Seconds after which an instance is no longer starting."""
_SLOW_FETCHES: Final = 0.2
"""Share of the schedules in which consumers often have nothing yet, or only some of it."""
_GROUP: Final = "readers"
_DEPTH: Final = 3


@dataclass
class Result:
    """What one schedule showed."""

    seed: int
    findings: list[str]
    steps: int
    inputs: int
    happened: list[str]
    """What happened to the cluster and to processes."""


@dataclass
class Plan:
    """What the seed of a schedule decides beforehand."""

    random: random.Random
    shares: list[list[Share]]
    """The ways in which partitions are shared out, one after the other."""
    inputs: int
    chaos_steps: int
    events: float
    workers: int
    table: str
    tables_change: bool
    has_full_queue: bool
    may_expire: bool
    bumps_epochs: bool
    """Whether the coordinator raises the epoch with each transaction (KIP-890)."""
    sets_clocks: bool
    """Whether somebody sets the clock of the job's machines."""
    mends: bool
    """Whether some topics may not be written to when nothing goes wrong any more, until somebody
    mends that."""
    is_duel: bool
    """Whether all that happens is that instances take over from each other, step by step."""
    markers: float
    """Share of the steps at which a marker is written."""
    faults: Faults
    rebalances: bool = False
    """Whether instances share the partitions out among themselves."""
    doubled: float = 0.0
    """Share of the tasks that Spark runs twice at once, in two workers of one run."""
    has_upkeep_beside: bool = False
    """Whether upkeep runs at any moment, also while a batch runs or dies."""
    loses_partition: bool = False
    """Whether a partition where messages wait has no leader for long, and all others have one."""
    is_made_anew: bool = False
    """Whether the dead-letter topic is made anew once."""
    is_made_anew_amid: bool = False
    """Whether it is made anew while the job runs."""
    has_breakers: bool = False
    """Whether the handler has breakers."""
    has_held_keys: bool = False
    """Whether the job writes the topic of held keys."""
    has_rounds: bool = False
    """Whether consumers process what is put, and return what they fail on."""
    forwards: bool = False
    """Whether some messages go to another cluster."""
    is_poisoned: bool = False
    """Whether most messages of large slices are refused one by one."""
    stops_fencer: bool = False
    """Whether a start that has fenced a command stands still, while its operator repeats it."""
    replays: int = 0
    """How often an operator asks for a replay once nothing goes wrong any more; if at all, then
    also before."""

    @classmethod
    def of(cls, seed: int, *, duels_only: bool = False) -> Plan:
        """The plan of a schedule; arguments as for ``run_schedule``."""
        chance, more = random.Random(seed), random.Random(f"more of {seed}")
        has_full_queue = chance.random() < 0.2 and not duels_only
        whole, two = [Share(1, 1)], [Share(1, 2), Share(2, 2)]
        ways = [[whole], [whole, two]] if duels_only else [[whole], [whole], [two], [whole, two]]
        is_duel = duels_only or (not has_full_queue and chance.random() < 0.3)
        tables_change = chance.random() < 0.25
        rebalances = seed % 5 == _REBALANCED and not is_duel and not has_full_queue
        level = 0.0 if is_duel else chance.choice([0.0, 0.02, 0.02, 0.05, 0.1])
        shares = [whole] if has_full_queue else chance.choice(ways)
        if len(shares) > 1 and not rebalances and more.random() < _SPLIT_OTHERWISE:
            # Neither way contains the other: a share gets some lanes of several shares.
            shares = [*shares, [Share(1, 3), Share(2, 3), Share(3, 3)]]
        is_poisoned = more.random() < _POISONED and not (is_duel or has_full_queue)
        has_rounds = seed % 6 == _ORDERED and not (is_duel or has_full_queue or is_poisoned)
        has_rounds = more.random() < _PROCESSED and has_rounds
        # What else may happen is for the others.
        is_plain = not (is_duel or has_full_queue or is_poisoned or has_rounds or rebalances)
        is_plain = is_plain and shares == [whole] and seed % 6 != _ORDERED
        loses_partition = more.random() < _LOSING and is_plain
        is_made_anew = more.random() < _ANEW and is_plain and not loses_partition
        has_breakers = more.random() < _BREAKING and not (is_duel or has_full_queue)
        is_special = has_rounds or loses_partition or is_made_anew
        forwards = (
            random.Random(f"abroad of {seed}").random() < _FORWARDING and seed % 6 != _ORDERED
        )
        forwards &= shares == [whole] and not (
            is_special or is_duel or has_full_queue or rebalances
        )
        forwards &= not is_poisoned
        tables_change &= not forwards
        tables_change = tables_change and not is_special
        inputs = chance.randint(20, 40) if is_duel else chance.randint(4, 16)
        return cls(
            chance,
            shares=shares,
            inputs=inputs + 12 * is_poisoned,
            chaos_steps=_DUEL if is_duel else chance.choice([50, 100, 200]),
            events=_DUEL_EVENTS if is_duel else chance.choice([0.0, 0.04, 0.1, 0.2]),
            workers=0 if has_full_queue else chance.choice([1, 2] if is_duel else [0, 1, 2]),
            table=FORWARDED
            if forwards
            else TABLE
            if duels_only or seed % 3
            else ROUNDS
            if has_rounds
            else ORDERED
            if seed % 6 == _ORDERED
            else BACKED_OFF,
            tables_change=tables_change and not rebalances,
            has_full_queue=has_full_queue,
            # What comes back from another cluster is only known by offsets.
            may_expire=chance.random() < 0.2 and not (loses_partition or forwards),
            bumps_epochs=seed % 4 == 1,
            sets_clocks=seed % 5 == 2 and not duels_only,
            mends=seed % 4 == 2 or has_breakers,
            is_duel=is_duel,
            markers=chance.choice([0.04, 0.2] if is_duel else [0.1, _MOST_MARKERS]),
            faults=Faults(
                lost_request=level,
                lost_answer=level,
                unregistered=chance.choice([0.0, 0.5]) if is_duel else 0.0,
                hangs=level / 4,
                late=level / 2,
                repeated=level,
                ended_twice=0.5 if seed % 3 == 2 and not is_duel else 0.0,
                unanswered=0.1 if seed % 6 == 4 and not is_duel else 0.0,
                fencer_dies=0.2 if seed % 4 == 0 and is_duel else 0.0,
                opener_stops=0.2 if seed % 4 == 2 and is_duel else 0.0,
                commit_in_doubt=chance.choice([0.0, 0.0, 0.3]),
                buffer_full=chance.choice([0.0, 0.1]),
                out_of_sequence=chance.choice([0.0, 0.5]),
                # A fault with each of many refusals takes longer than an emission has.
                is_mixed=chance.random() < 0.3 and not is_poisoned,
                fetched_later=0.3 if more.random() < _SLOW_FETCHES and not is_duel else 0.0,
            ),
            rebalances=rebalances,
            has_upkeep_beside=more.random() < _BESIDE_BATCHES and not is_duel,
            loses_partition=loses_partition,
            is_made_anew=is_made_anew,
            is_made_anew_amid=is_made_anew and seed % 3 > 0,
            has_breakers=has_breakers,
            has_held_keys=has_rounds and more.random() < _TOLD,
            has_rounds=has_rounds,
            forwards=forwards,
            is_poisoned=is_poisoned,
            stops_fencer=random.Random(f"repeats of {seed}").random() < _REPEATING and not is_duel,
            doubled=0.5 if seed % 7 == 3 and not duels_only else 0.0,
            # Mostly where tables change: what both want to place is hardest to place once.
            replays=0
            if is_duel or is_special or chance.random() < (0.1 if tables_change else 0.5)
            else chance.randint(1, 6),
        )


@dataclass
class _World:
    """The cluster and the processes of one schedule, and what may happen to them."""

    plan: Plan
    scheduler: Scheduler
    network: Network
    instances: list[Instance] = field(default_factory=list)
    conditions: list[Condition] = field(default_factory=list)
    happened: list[str] = field(default_factory=list)
    every: list[Instance] = field(default_factory=list)
    is_left_alone: bool = False
    """Whether nobody takes over any more: where two instances believe that they may emit, the next
    start would fence both before they show it."""
    overtaken: set[str] = field(default_factory=set)
    """Names of instances beside which another was started for some of their partitions."""
    written: int = 0
    is_calm: bool = False
    calm_since: float = 0.0
    stops_amid: dict[str, bool] = field(default_factory=dict)
    """By the name of a process that was overtaken, whether it stops in its next transaction."""
    table: str = ""
    shares: list[Share] = field(default_factory=list)
    findings: list[str] = field(default_factory=list)
    plans: list[str] = field(default_factory=list)
    """Replays that were accepted."""
    every_apply: list[Process] = field(default_factory=list)
    """Processes that apply plans."""
    planned: ReplayPlan | None = None
    """What was planned last."""
    dies_amid: Process | None = None
    """A command that dies in a transaction, which then hides what others decide."""
    transactions_left: int = 0
    """Transactions that it begins until then."""
    to_be_hidden: str = ""
    """The transactional id of a command whose plan is to be hidden by what another leaves open."""
    unfinished: ReplayPlan | None = None
    """A plan whose command dies: it is applied again."""
    kept_plan: ReplayPlan | None = None
    """A plan that is to be applied on another day."""
    late: list[Callable[[], None]] = field(default_factory=list)
    """What happened once when nothing went wrong any more."""
    awaits_table: bool = False
    """Whether somebody replays something as soon as a new table is to look at it."""
    replays_left: int = 0
    """Replays that are still to be asked for, before the job may end."""
    far: Network | None = None
    """What lies before the other cluster, if messages go to one."""
    _returns: tuple[TopicPartition, int] | None = None
    """What a consumer has failed on and returned, without having passed it."""
    _leaderless_until: float | None = float("inf")
    """When the partition that lost its leader gets one; None once it has."""
    _was_amid: bool = False
    """Whether the command was in a transaction at the step before."""
    _is_full: bool = False
    _looked_at: object = None
    _read_at: list[float] = field(default_factory=list)
    """When messages of the queue with a depth were read."""

    @cached_property
    def cluster(self) -> SimulatedCluster:
        return self.network.cluster

    # -- the course ------------------------------------------------------------------------------

    def prepare(self) -> None:
        """What is there before the job is started."""
        chance, cluster = self.plan.random, self.cluster
        cluster.bumps_epochs = self.plan.bumps_epochs
        cluster.create(DEAD_LETTERS, chance.choice([1, 2, 3]) + self.plan.loses_partition)
        cluster.create(OUTCOMES, 2)
        cluster.create(control_topic(APPLICATION), wants_keys=True)
        cluster.create(tables_topic(APPLICATION), wants_keys=True)
        cluster.on_entry = self._check_taken
        for name in _TARGETS:
            if chance.random() < 0.9 or self.plan.is_duel:
                topic = cluster.create(
                    name,
                    chance.choice([1, 2]),
                    wants_keys=chance.random() < 0.1 and not self.plan.is_duel,
                )
                topic.refuses = POISON
            else:
                self._matters(name, Reason.UNKNOWN_OBJECT_NAME)
            self._matters(name, Reason.FORMAT_ERROR)
        if self.plan.forwards:
            self._prepare_far()
        for _ in range(self.plan.inputs // (8 if self.plan.is_duel else 2)):
            self._write_input()
        self.shares = self.plan.shares[0]
        self.table = self.plan.table
        self.network.faults = self.plan.faults
        self.network.on_death = self._look_after
        self.network.on_opening = self._overtake_opener
        self.network.on_fenced = self._repeat_fenced
        self.network.on_unregistered = self._overtake_once
        self.network.on_first_plan = self._replay_beside_table
        for share in self.shares:
            self._start_instance(share)

    def _prepare_far(self) -> None:
        self.far = Network(SimulatedCluster(), self.scheduler)
        self.far.cluster.bumps_epochs = self.plan.bumps_epochs
        self.far.faults = replace(self.plan.faults, fencer_dies=0.0, unregistered=0.0)
        # A replay of what the other cluster returned looks for a topic of that name in this one.
        self._matters(f"{FAR}:{FAR_TOPIC}", Reason.UNKNOWN_OBJECT_NAME)
        self._create_far()

    def _create_far(self) -> None:
        """Makes the topic of the other cluster, or gives it back what puts need."""
        assert self.far is not None
        topic = self.far.cluster.create(FAR_TOPIC, 2)
        topic.refuses, topic.limit, topic.may_write = POISON, DEFAULT_LIMIT, True

    def _happens_far(self) -> None:
        """Something happens to the topic of the other cluster, or it is as it was again."""
        assert self.far is not None
        chance, topic = self.scheduler.random, self.far.cluster.topics.get(FAR_TOPIC)
        if self.is_calm or topic is None or chance.random() < 0.5:
            self._create_far()
        elif chance.random() < 0.3:
            self._tell("the topic of the other cluster is deleted")
            self.far.cluster.delete(FAR_TOPIC)
        elif chance.random() < 0.5:
            topic.limit = _SMALL
        else:
            topic.may_write = False

    def on_wait(self) -> None:
        """What happens when no process does anything."""
        if self.plan.has_rounds:
            self._process()
        if self.scheduler.random.random() < _WAITING:
            self.cluster.write_marker()
            if self.far is not None:
                self.far.cluster.write_marker()

    def on_step(self) -> None:
        """What happens around the processes at a step: at most one thing, by one draw."""
        drawn = self.scheduler.random.random()
        networks = [self.network] if self.far is None else [self.network, self.far]
        if drawn < self.plan.markers:
            for network in networks:
                network.cluster.write_marker()
        elif drawn > 1 - _OF_THE_BROKER:
            for network in networks:
                network.deliver_late()
                network.cluster.expire()
            if self.scheduler.random.random() < _CLEANING:
                compacted = [control_topic(APPLICATION), tables_topic(APPLICATION), REMAINING]
                self.cluster.compact(self.scheduler.random.choice(compacted))
        if self.dies_amid is not None:
            self._stop_amid(self.dies_amid)
        if self.to_be_hidden in self.cluster.owners and self.scheduler.random.random() < _HIDING:
            self._hide()
        self._watch()
        if not self.is_calm and self.scheduler.steps > self.plan.chaos_steps:
            self._calm_down()
        elif (happens := self._drawn(drawn - _MOST_MARKERS)) is not None:
            happens()

    def _watch(self) -> None:
        """What is looked at at every step."""
        if self.plan.has_full_queue:
            self.watch_depth()
        if self.plan.is_duel:
            self._overtake_worker()
            self._stop_overtaken()
        if self.plan.loses_partition and self.is_calm:
            self._watch_partition()

    def _drawn(self, place: float) -> Callable[[], object] | None:
        """What happens at a step, if anything does: one share behind the other."""
        if place < 0:
            return None
        for share, happens in self._shares[self.is_calm]:
            if place < share:
                return happens
            place -= share
        return None

    @cached_property
    def _shares(self) -> Sequence[Sequence[tuple[float, Callable[[], object]]]]:
        """Shares of the steps at which something happens: while all may go wrong, then in calm."""
        plan = self.plan
        before = [(plan.events, self._event), (0.04, self._look_after)]
        if plan.is_duel:
            before.append((_DUEL_INPUTS, self._write_input))
        afterwards = [(0.1, self._look_after), (0.06, self._replay_in_calm)]
        always: list[tuple[float, Callable[[], object]]] = []
        if plan.has_full_queue:
            always.append((0.04, self._read_full_queue))
        if plan.has_rounds:
            always.append((_PROCESSING, self._process))
        if plan.forwards:
            always.append((_ABROAD, self._happens_far))
        if plan.sets_clocks:
            always.append((0.04, self._set_clock))
        if plan.mends:
            afterwards.append((0.1, self._mend))
        if plan.is_made_anew:
            afterwards.append((_LATE, self._make_anew))
        if plan.may_expire:
            afterwards.append((_LATE, partial(self._once, self._leave_for_a_week)))
        if plan.tables_change:
            afterwards.append((_LATE, partial(self._once, self._change_table)))
        return [*before, *always], [*afterwards, *always]

    def _event(self) -> None:
        if not self.is_left_alone:
            self.scheduler.random.choice(self._events())()

    def _replay_in_calm(self) -> None:
        if not self.replays_left or (
            self.unfinished is not None and self._unread(APPLICATION, REPLAY)
        ):
            return  # a command that died is given again once the job has done what it asked for
        before = len(self.plans) + len(self.every_apply)
        if self.kept_plan is not None and self.scheduler.random.random() < _DAYS:
            self._leave_for_a_day()
        else:
            self._replay()
        is_accepted = len(self.plans) + len(self.every_apply) > before
        # Where nothing is to be replayed yet, an operator comes back, but not forever.
        if is_accepted or self.scheduler.random.random() < 0.3:
            self.replays_left -= 1
        if is_accepted and self.plan.tables_change and self.scheduler.random.random() < _CHANGING:
            self._change_table()  # the new one looks at what was replayed before

    def _calm_down(self) -> None:
        """From now on nothing goes wrong any more, but what a client gets over by itself."""
        self._tell("calm")
        self.is_calm, self.calm_since = True, self.scheduler.now
        self.replays_left = self.plan.replays
        faults = self.plan.faults
        self.network.faults = Faults(
            ended_twice=faults.ended_twice,
            unanswered=faults.unanswered,
            is_mixed=faults.is_mixed,
            fetched_later=faults.fetched_later,
        )
        if self.far is not None:
            self.far.faults = self.network.faults
        while self.written < self.plan.inputs:
            self._write_input()
        self.shares = self.plan.shares[-1]
        self._find_leader()
        for _ in _TARGETS if self.plan.mends else ():
            self._forbid()
        self._look_after()

    def _look_after(self) -> None:
        """What a supervisor does: a share without a live instance gets one."""
        self.instances = [
            instance for instance in self.instances if instance.is_alive or instance.has_finished
        ]
        for share in self.shares:
            if not any(instance.share == share for instance in self.instances):
                self._start_instance(share)

    def _events(self) -> list[Callable[[], None]]:
        if self.plan.is_duel:
            take_over = self._take_over
            return [take_over, take_over, take_over, self._kill_driver, self._stop]
        events = [
            self._write_input, self._write_input, self._kill, self._kill, self._kill_worker,
            self._freeze, self._freeze, self._take_over, self._take_over, self._delete_topic,
            self._create_topic, self._create_topic, self._shrink, self._shrink, self._lose_leader,
            self._find_leader, self._forbid, self._allow, self._restart_broker, self._add_partition,
            self._stop,
        ]  # fmt: skip
        if self.plan.tables_change:
            events += [self._change_table] * 2
        if self.plan.replays:
            events += [self._replay] * 4
            events.append(self._leave_for_a_day)
        if self.plan.may_expire:
            events.append(self._leave_for_a_week)
        return events

    # -- processes -------------------------------------------------------------------------------

    def _start_instance(self, share: Share) -> None:
        limits = {"Q1": QueueLimits(max_depth=_DEPTH, consumer_group=_GROUP)}
        instance = Instance(
            f"i{len(self.happened)}",
            self.network,
            configuration(
                self.network,
                self.table,
                share,
                limits=limits if self.plan.has_full_queue else None,
                emitter=self.scheduler.random.choice(_EMITTERS)
                if self.plan.workers
                else EmitterChoice.DRIVER,
                rebalances=self.plan.rebalances,
                breaker=_BREAKER if self.plan.has_breakers else None,
                has_held_keys=self.plan.has_held_keys,
                data_loss=DataLoss.CONTINUE if self.plan.is_made_anew else DataLoss.STOP,
                slice_records=_LARGE_SLICE if self.plan.is_poisoned else None,
                far=self.far,
            ),
            workers=self.plan.workers,
            renewed=0.9 if self.plan.is_duel else 0.2,
            doubled=self.plan.doubled,
            has_upkeep_beside=self.plan.has_upkeep_beside,
            is_over=self._is_over,
        )
        self._tell(f"{instance.name} is started for share {share}")
        self.overtaken.update(
            overtaken.name for overtaken in self.every if overtaken.settings.share.overlaps(share)
        )
        self.instances.append(instance)
        self.every.append(instance)
        instance.start()
        if self.plan.is_duel and self.plan.random.random() < _PAUSING:
            instance.processes[0].stops_after = self.plan.random.randint(1, _START)

    def _is_over(self) -> bool:
        """Whether nothing new will come."""
        is_applied = not any(process.is_alive for process in self.every_apply)
        is_led = self._leaderless_until is None if self.plan.loses_partition else True
        is_processed = is_led and self._returns is None and not self._unprocessed()
        is_done = not self.replays_left and is_applied and not self.awaits_table
        is_done &= not self.plan.is_made_anew_amid or bool(self.cluster.incarnations)
        return self.is_calm and is_done and is_processed

    def _kill(self) -> None:
        """Kills a driver, mostly with its workers (SIGKILL of the group)."""
        if not self.instances:
            return
        instance = self.scheduler.random.choice(self.instances)
        self.instances.remove(instance)
        self._tell(f"{instance.name} is killed")
        with_workers = self.scheduler.random.random() < 0.7
        for process in instance.processes if with_workers else instance.processes[:1]:
            self.scheduler.kill(process)

    def _stop(self) -> None:
        """Asks an instance to stop, which releases its share whatever is left to do."""
        if self.instances:
            instance = self.instances.pop()
            self._tell(f"{instance.name} is to stop")
            instance.is_to_stop = True

    def _kill_driver(self) -> None:
        """Kills the driver that was started last, perhaps in the middle of its start."""
        if self.instances:
            self._tell(f"the driver of {self.instances[-1].name} is killed")
            self.scheduler.kill(self.instances.pop().processes[0])

    def _kill_worker(self) -> None:
        workers = [process for process in self.scheduler.processes if ".w" in process.name]
        if workers:
            worker = self.scheduler.random.choice(workers)
            self._tell(f"{worker.name} is killed")
            self.scheduler.kill(worker)

    def _freeze(self) -> None:
        if self.scheduler.processes:
            process = self.scheduler.random.choice(self.scheduler.processes)
            seconds = self.scheduler.random.choice([1.0, 15.0, 150.0, 400.0])
            self._tell(f"{process.name} is frozen for {seconds:g} s")
            self.scheduler.freeze(process, seconds)

    def _take_over(self, ways: Sequence[list[Share]] = ()) -> None:
        """Starts instances beside those that run, which are frozen now and then."""
        self.shares = self.scheduler.random.choice(ways or self.plan.shares)
        if not self.plan.is_duel:
            for instance in self.instances:
                process = self.scheduler.random.choice(instance.processes)
                self.scheduler.freeze(process, self.scheduler.random.choice([0.0, 5.0, 60.0]))
        self.instances.clear()
        for share in self.shares:
            self._start_instance(share)
        if self.plan.rebalances:
            for instance in [instance for instance in self.every if instance.is_alive][
                :-_MOST_INSTANCES
            ]:
                self._tell(f"{instance.name} is killed, as there are too many")
                self.scheduler.kill(instance.processes[0])

    def _overtake_opener(self) -> None:
        """Lets a driver stand still before it opens the control topic, while others take over that
        share partitions out in another way: their entries are not under its key."""
        (share,) = [
            instance.settings.share
            for instance in self.every
            if instance.name == self.scheduler.name
        ]
        ways = [way for way in self.plan.shares if share not in way]
        if ways and not self.is_left_alone:
            self._take_over(ways)
            self.is_left_alone = True
            self.scheduler.sleep(_OPENING)

    def _repeat_fenced(self, fenced: str) -> None:
        """Lets a start stand still once it has fenced a command, while its operator repeats it."""
        is_start = not self.scheduler.name.startswith("apply")
        is_repeated = self.unfinished is not None and fenced.endswith(self.unfinished.id)
        if self.plan.stops_fencer and is_start and is_repeated:
            self._apply()
            self.scheduler.sleep(_OPENING)

    def _overtake_once(self) -> None:
        """Starts instances while a worker goes on whose id nobody got to know, and no more."""
        if not (self.is_calm or self.is_left_alone):
            self._take_over()
            self.is_left_alone = True

    def _overtake_worker(self) -> None:
        """Starts instances while a worker of the ones that run is at work."""
        name = self.scheduler.name
        is_at_work = not (self.is_calm or self.is_left_alone) and ".w" in name
        is_newest = name.partition(".")[0] not in self.overtaken
        if is_at_work and is_newest and self.scheduler.random.random() < _AT_WORK:
            self._take_over()

    def _stop_overtaken(self) -> None:
        """Lets old processes stop after a few steps, or as soon as a transaction holds records and
        no offsets yet: they do the rest when the new ones ran."""
        chance = self.scheduler.random
        for process in self.scheduler.processes:
            name = process.name
            if process.stops_after is not None or name.partition(".")[0] not in self.overtaken:
                continue
            if name not in self.stops_amid:
                self.stops_amid[name] = chance.random() < _AMID
            if not self.stops_amid[name]:
                process.stops_after = chance.randint(1, 13) if "." in name else 10**9
            elif self.cluster.emits(name):
                process.stops_after = 1
                self.stops_amid[name] = False

    def _change_table(self) -> None:
        changed = CHANGED_IN_ORDER if self.plan.table == ORDERED else CHANGED
        self.table = changed if self.table == self.plan.table else self.plan.table
        self.awaits_table = self.plan.replays > 0
        alive = [instance for instance in self.instances if instance.is_alive]
        if not alive or self.scheduler.random.random() < _AFRESH:
            self._tell("the table is changed")
            self._take_over()
            return
        self._tell("the table is changed by a restart")
        self.instances = alive  # who has finished is started again, with the new table
        for instance in alive:
            handlers = [replace(each, rules=self.table) for each in instance.settings.handlers]
            instance.asked = replace(instance.settings, handlers=tuple(handlers))

    def _once(self, happens: Callable[[], None]) -> None:
        """Lets something happen when much was handled, and not again."""
        if happens not in self.late:
            self.late.append(happens)
            happens()

    def _leave_for_a_week(self) -> None:
        """Nothing runs for so long that the group's offsets expire."""
        self._leave_for(_A_WEEK)
        self.cluster.offsets = {
            place: end for place, end in self.cluster.offsets.items() if place[0] != APPLICATION
        }
        self._tell("a week passes, and committed offsets expire")
        self._look_after()

    def _leave_for_a_day(self) -> None:
        """Nothing runs for so long that the log cleaner drops tombstones."""
        self.cluster.compact(REMAINING)
        self._leave_for(_A_DAY)
        self.cluster.compact(REMAINING)
        self._tell("a day passes, and tombstones are dropped")
        self._look_after()
        if self.kept_plan is not None:
            self._apply_plan(self.kept_plan)
            self.kept_plan = None

    def _leave_for(self, seconds: float) -> None:
        self.scheduler.kill_all()
        self.instances.clear()
        self.scheduler.now += seconds
        self.cluster.expire()
        self.cluster.settle()

    def _set_clock(self) -> None:
        """Somebody sets the clock of all machines on which the job runs; not that of the broker."""
        if len(self.scheduler.set_at) > _SETTINGS:
            return
        ahead = self.scheduler.random.choice(_AHEAD)
        self._tell(f"the clock is set, and is {ahead:g} s ahead")
        self.scheduler.set_at.append((self.scheduler.now, ahead))

    def _replay(self) -> None:
        """An operator replays some messages, or cancels what is left of a replay."""
        if REPLAY not in self.cluster.topics or not self.scheduler.random.random() < 0.9:
            if self.plans:
                cancel_replay(self.cluster, self.plans[-1])
                self._tell(f"{self.plans[-1]} is cancelled")
            return
        if self.scheduler.random.random() < (0.4 if self.unfinished is None else 0.7):
            self._apply()
            return
        self._accept(self.scheduler.random.choice([write_replay, write_order]))

    def _replay_beside_table(self) -> None:
        """An operator replays something at the moment at which a new table is to look at it, or
        has parked messages tried when the job has just got a clock that was set forward."""
        if self._was_set_forward() and len(self.plans) < _MOST_PLANS:
            self._accept(write_order)
        if self.awaits_table and REPLAY in self.cluster.topics:
            self._accept(write_replay)
        self.awaits_table = False

    def _was_set_forward(self) -> bool:
        """Whether the clock was set forward a moment ago, where operators replay."""
        if not self.plan.replays or len(self.scheduler.set_at) < 2:
            return False
        (_, before), (at, ahead) = self.scheduler.set_at[-2:]
        return ahead > before and self.scheduler.now - at < _A_MOMENT

    def _accept(
        self, write: Callable[[SimulatedCluster, random.Random, str], Replay | None]
    ) -> None:
        replay = write(self.cluster, self.scheduler.random, f"plan-{len(self.plans)}")
        if replay is not None:
            self.plans.append(replay.plan)
            self._tell(f"{replay.plan} is accepted, to {replay.to}")

    def _apply(self) -> None:
        """An operator applies a plan, a new one or the last one again."""
        chance = self.scheduler.random
        if self.unfinished is not None:
            self.cluster.compact(REMAINING)
            self._apply_plan(self.unfinished)
            return
        if self.planned is None or chance.random() < 0.6:
            self.planned = plan_replay(self.cluster, chance, f"applied-{len(self.every_apply)}")
        if self.planned is None:
            return
        if chance.random() < _LATER:
            self._tell(f"{self.planned.id} is made, and kept for another day")
            self.kept_plan = self.planned
        else:
            self._apply_plan(self.planned)

    def _apply_plan(self, plan: ReplayPlan) -> None:
        chance = self.scheduler.random
        settings = configuration(self.network, self.table, Share(1, 1))
        name = f"apply{len(self.every_apply)}.w"  # by its name it is killed now and then
        self._tell(f"{plan.id} is accepted, and applied by {name}")
        process = self.scheduler.spawn(name, lambda: apply(settings, plan))
        self.unfinished = None
        if chance.random() < _DYING:
            self.unfinished = plan
            process.stops_after, process.dies_there = chance.randint(1, _COMMAND), True
            if chance.random() < _AMID:
                process.stops_after, self.dies_amid = None, process
                self.transactions_left = chance.randint(1, _TRANSACTIONS)
        elif chance.random() < _BESIDE:
            self.to_be_hidden = f"{tables_topic(APPLICATION)}-replay-{plan.id}"
        self.every_apply.append(process)

    def _stop_amid(self, process: Process) -> None:
        """Lets a command die in one of its transactions."""
        is_amid = self.cluster.emits(process.name)
        if is_amid and not self._was_amid:
            self.transactions_left -= 1
            if self.scheduler.random.random() < _START_BESIDE:
                self._take_over()
        self._was_amid = is_amid
        if not self.transactions_left:
            process.stops_after, self.dies_amid, self._was_amid = 1, None, False

    def _hide(self) -> None:
        """Leaves a transaction open behind which readers of the tables topic see nothing."""
        self._tell("a command about a queue dies in its transaction")
        self.to_be_hidden, writer = "", f"{tables_topic(APPLICATION)}-writer"
        key = new_operator_key(writer).encode()
        self.cluster.append(OutputRecord(control_topic(APPLICATION), key, b"{}", None, 0, 0))
        epoch = self.cluster.initialise(writer, "")
        record = OutputRecord(tables_topic(APPLICATION), b"queue//UNKNOWN", b"{}", None, 0, 0)
        self.cluster.write(writer, epoch, record)

    # -- the cluster -----------------------------------------------------------------------------

    def _write_input(self) -> None:
        if self.written >= self.plan.inputs:
            return
        chance, number = self.plan.random, self.written
        self.written += 1
        reason, queue = chance.choice(_REASONS), f"Q{number % 3}"
        if self.plan.has_full_queue and chance.random() < 0.6:
            reason, queue = 2053, "Q1"
        large = chance.choice([b"large" * 800, chance.randbytes(4_000)])  # one can be compressed
        body = chance.choice([b"small", b"small", b"small", large, POISON])
        if self.plan.has_rounds:
            self._fail(number, f"Q{number % 3}", b"small", [])
            return
        if self.plan.forwards and chance.random() < _FAR_AWAY:
            reason = 2051
        if self.plan.is_poisoned:
            reason, body = 2053, chance.choice([POISON, POISON, b"small"])
        if self.plan.is_duel:
            reason, body = 2053, b"small"  # what happens is to happen between the instances
        headers: list[tuple[str, bytes | None]] = [
            ("mqdlh.Reason", str(reason).encode()),
            ("mqdlh.DestQName", queue.encode()),
        ]
        key = f"k{number % 3}".encode() if chance.random() < 0.9 else None
        partition = number % self.cluster.topics[DEAD_LETTERS].partitions
        if self.plan.is_poisoned:
            partition = 0
        now = int(self.scheduler.now * 1000)
        self.cluster.append(OutputRecord(DEAD_LETTERS, key, body, headers, now, partition))

    # -- consumers that return rounds ------------------------------------------------------------

    def _fail(self, number: int, topic: str, body: bytes, kept: Headers) -> None:
        """A consumer fails on a record of a topic, and writes its dead letter as Spring does."""
        key = f"k{number % 3}".encode()
        count = self.cluster.topics[DEAD_LETTERS].partitions
        headers: list[tuple[str, bytes | None]] = [
            *kept,
            ("kafka_dlt-original-topic", topic.encode()),
            ("kafka_dlt-original-partition", bytes(4)),
            ("kafka_dlt-original-offset", number.to_bytes(8, "big")),
            ("kafka_dlt-original-consumer-group", _CONSUMERS.encode()),
            ("kafka_dlt-exception-fqcn", b"org.example.Failure"),
        ]
        now = int(self.scheduler.now * 1000)
        record = OutputRecord(DEAD_LETTERS, key, body, headers, now, number % 3 % count)
        self.cluster.append(record)

    def _unprocessed(self) -> list[tuple[TopicPartition, int, OutputRecord]]:
        if not self.plan.has_rounds:
            return []
        return [
            (lane, offset, record)
            for topic in _TARGETS
            for lane, offset, _, record in self.cluster.visible(topic)
            if offset >= self.cluster.offsets.setdefault((_CONSUMERS, lane), 0)
        ]

    def _check_told(self) -> None:
        """Who believes the topic of held keys as the docs say knows every key that waits."""
        positions: dict[str, bytes] = {}
        topic = held_keys_topic(APPLICATION)
        for *_, record in self.cluster.visible(topic):
            positions.pop((record.key or b"").decode(), None)
            if record.value is not None:
                positions[(record.key or b"").decode()] = record.value
        for topic in (RETRY, BACKOFF):
            for lane, offset, _, record in self.cluster.visible(topic):
                place = own.read_own(record.headers or []).identity.rsplit(":", 2)
                # Without a position, as it has expired, nobody knows yet what waits.
                position = self.cluster.offsets.get((APPLICATION, lane))
                if position is None or offset < position or not record.key:
                    continue
                passed = int(positions.get(f"{DEAD_LETTERS}:{place[1]}", b"0"))
                is_told = f"{DEAD_LETTERS}/{record.key.decode()}" in positions
                if int(place[2]) < passed and not is_told:
                    finding = f"{record.key!r} waits on {lane}, and consumers do not know"
                    self.findings += [finding] if finding not in self.findings else []

    def _process(self) -> None:
        """A consumer goes on: first it returns what it fails on, then it commits its offset."""
        if self.plan.has_held_keys:
            self._check_told()
        chance, cluster = self.scheduler.random, self.cluster
        if self._returns is not None:
            (lane, offset), self._returns = self._returns, None
            if lane in cluster.logs and cluster.offsets.get((_CONSUMERS, lane)) == offset:
                cluster.offsets[_CONSUMERS, lane] = offset + 1
            return
        records = self._unprocessed()
        if not records:
            return
        firsts = {lane: (lane, offset, record) for lane, offset, record in reversed(records)}
        lane, offset, record = chance.choice(list(firsts.values()))
        cluster.offsets[_CONSUMERS, lane] = offset
        has_failed = chance.random() < _FAILING
        cluster.processed[cluster.topics[lane.topic].identity, lane.partition, offset] = (
            None if has_failed else self.scheduler.now
        )
        self.scheduler.tell(f"* {lane}:{offset} {'fails' if has_failed else 'is processed'}")
        self._returns = lane, offset
        if has_failed:
            number = int((record.key or b"k0")[1:])
            self._fail(number, lane.topic, record.value or b"", record.headers or [])

    def _delete_topic(self) -> None:
        name = self.scheduler.random.choice(_TARGETS)
        if name in self.cluster.topics and name != "Q1":  # whose depth is watched
            self._tell(f"{name} is deleted")
            self.cluster.delete(name)
            self._is_over_for(None, name)
            self._matters(name, Reason.UNKNOWN_OBJECT_NAME)

    def _create_topic(self) -> None:
        for name in _TARGETS:
            if name not in self.cluster.topics:
                self._tell(f"{name} is created")
                self.cluster.create(name, 2)
                self._is_over_for(Reason.UNKNOWN_OBJECT_NAME, name)
                return

    def _shrink(self) -> None:
        name = self.scheduler.random.choice(_TARGETS)
        topic = self.cluster.topics.get(name)
        if topic is not None:
            topic.limit = _SMALL if topic.limit == DEFAULT_LIMIT else DEFAULT_LIMIT
            topic.packs = self.scheduler.random.random() < 0.5
            self._tell(f"{name} takes {topic.limit} bytes")
            if topic.limit == _SMALL:
                self._matters(name, Reason.MSG_TOO_BIG_FOR_Q)
            else:
                self._is_over_for(Reason.MSG_TOO_BIG_FOR_Q, name)

    def _make_anew(self) -> None:
        """Somebody deletes a topic that the job knows and makes it again."""
        cluster, is_amid = self.cluster, self.plan.is_made_anew_amid
        entries = cluster.visible(control_topic(APPLICATION))
        is_known = any(record.key == f"topic/{DEAD_LETTERS}".encode() for *_, record in entries)
        if cluster.incarnations or not is_known:
            return
        if not is_amid:
            self.scheduler.kill_all()
            self.instances.clear()
            cluster.settle()
        were_there = sum(
            len(log) for lane, log in cluster.logs.items() if lane.topic == DEAD_LETTERS
        )
        cluster.make_anew(
            DEAD_LETTERS, keeps_positions=not is_amid or self.scheduler.random.random() < 0.5
        )
        self._tell("the dead-letter topic is made anew")
        # While the job runs at once more than there were: what it reads next is there.
        self.plan.inputs += 6 + were_there * is_amid
        while self.written < self.plan.inputs:
            self._write_input()
        self.instances = [instance for instance in self.instances if instance.is_alive]
        self._look_after()

    def _watch_partition(self) -> None:
        """Takes the leader from a partition where messages wait; some time later all of the others
        have been read, and it gets one."""
        topic, until = self.cluster.topics.get(RETRY), self._leaderless_until
        if topic is None or until is None:
            return
        if until == float("inf"):
            topic.leaderless.add(0)
            self._leaderless_until = self.scheduler.now + _LEADERLESS
            self._tell(f"{RETRY}:0 has no leader")
        elif self.scheduler.now > until:
            topic.leaderless.clear()
            self._leaderless_until = None
            self._tell(f"{RETRY}:0 has a leader")
            left = {lane for lane, _ in self._unread(APPLICATION, DEAD_LETTERS) if lane.partition}
            self.findings += [f"{lane} stood still beside another one" for lane in sorted(left)]

    def _lose_leader(self) -> None:
        names = [*_TARGETS, *_TARGETS, OUTCOMES, RETRY, BACKOFF, REMAINING]
        self._spoil(names, "has_leader", Reason.RESOURCE_PROBLEM)

    def _find_leader(self) -> None:
        self._restore("has_leader", Reason.RESOURCE_PROBLEM)

    def _forbid(self) -> None:
        self._spoil(_TARGETS, "may_write", Reason.NOT_AUTHORIZED)

    def _allow(self) -> None:
        self._restore("may_write", Reason.NOT_AUTHORIZED)

    def _spoil(self, names: Sequence[str], what: str, reason: int) -> None:
        """Takes from one of some topics what puts need."""
        topic = self.cluster.topics.get(self.scheduler.random.choice(names))
        if topic is not None and getattr(topic, what):
            setattr(topic, what, False)
            self._tell(f"{topic.name}: {what} no more")
            self._matters(topic.name, reason)

    def _restore(self, what: str, reason: int) -> None:
        """Gives it back to every topic."""
        for topic in self.cluster.topics.values():
            if not getattr(topic, what):
                setattr(topic, what, True)
                self._tell(f"{topic.name}: {what} again")
                self._is_over_for(reason, topic.name)

    def _mend(self) -> None:
        """Somebody sees that messages wait, and mends the topics that they are for."""
        if any(True for topic in (RETRY, BACKOFF) for _ in self.cluster.visible(topic)):
            self._create_topic()
            self._allow()

    def _restart_broker(self) -> None:
        seconds = self.scheduler.random.choice([1.0, 10.0, 30.0, 60.0])
        networks = [self.network] if self.far is None else [self.network, self.far]
        network = self.scheduler.random.choice(networks) if self.far else self.network
        self._tell(f"the broker is down for {seconds:g} s")
        network.cluster.restarts += 1
        network.down_until = self.scheduler.now + seconds

    def _add_partition(self) -> None:
        count = self.cluster.topics[DEAD_LETTERS].partitions
        if count < 3:
            self._tell("the dead-letter topic gets one more partition")
            self.cluster.create(DEAD_LETTERS, count + 1)

    # -- a queue with a depth --------------------------------------------------------------------

    def _unread(self, group: str, topic: str) -> list[tuple[TopicPartition, int]]:
        return [
            (lane, offset)
            for lane, offset, _, _ in self.cluster.visible(topic)
            if offset >= self.cluster.offsets.get((group, lane), 0)
        ]

    def _read_full_queue(self) -> None:
        unread = self._unread(_GROUP, "Q1")
        if unread:
            lane, offset = unread[0]
            self.cluster.offsets[_GROUP, lane] = offset + 1
            self._read_at.append(self.scheduler.now)

    def watch_depth(self) -> None:
        """Notes when the queue is full, for those that may write to it, and when it is too full."""
        state = self.cluster.changes, len(self._read_at), self.scheduler.now // 1
        if state == self._looked_at:
            return
        self._looked_at = state
        depth = len(self._unread(_GROUP, "Q1"))
        if depth > _DEPTH:
            finding = f"Q1 holds {depth} messages and takes {_DEPTH}"
            if finding not in self.findings:
                self.findings.append(finding)
        # A slice asks once, and may be repeated for as long as its deadline lets it.
        asked = self.scheduler.now - RetryPolicy().deadline - 20
        gone = sum(time > asked for time in self._read_at)
        is_full = depth + gone + self.cluster.open_records("Q1") >= _DEPTH
        if is_full != self._is_full:
            self._is_full = is_full
            if is_full:
                self._matters("Q1", Reason.Q_FULL)
            else:
                self._is_over_for(Reason.Q_FULL, "Q1")

    # -- for the audit ---------------------------------------------------------------------------

    def _tell(self, what: str) -> None:
        self.happened.append(what)
        self.scheduler.tell(f"* {what}")

    def _matters(self, topic: str, reason: int) -> None:
        self.conditions.append(Condition(topic, reason, self.scheduler.now))

    def _is_over_for(self, reason: int | None, topic: str | None = None) -> None:
        for condition in self.conditions:
            if topic in {None, condition.topic} and reason in {None, condition.reason}:
                condition.until = min(condition.until, self.scheduler.now)

    def _check_taken(self, key: str, before: Mapping[str, Any]) -> None:
        """Instances that share partitions out give up what others are to take: nobody takes it
        from one that lives, unless that one stands still or gets no answers."""
        faults = self.plan.faults
        has_answers = not (faults.ended_twice or faults.unanswered)
        is_quiet = self.is_calm and self.plan.rebalances and has_answers
        holder = self.network.members.get(before.get("member", ""))
        if not is_quiet or holder is None or holder is self.scheduler.current:
            return
        is_stopping = any(
            instance.is_to_stop for instance in self.every if instance.name == holder.name
        )
        is_settled = self.scheduler.now - self.calm_since > _SETTLED_AFTER and not is_stopping
        is_settled = is_settled and self.scheduler.wall - before.get("since", 0.0) > _SETTLED_AFTER
        is_well = is_settled and holder.is_alive and not holder.is_doomed and not holder.frozen[1]
        if is_well and holder.name != self.scheduler.name.partition(".")[0]:
            self.findings.append(f"{key} was taken from {holder.name}, which lives")

    def is_unfinished(self) -> bool:
        """Whether every process ended, and something is left to do; one is started if so."""
        if not self.is_calm:
            self._calm_down()
        elif self.instances and (any if self.plan.rebalances else all)(
            map(self._is_done, self.instances)
        ):
            return False
        else:
            self.instances = [instance for instance in self.instances if self._is_done(instance)]
            self._look_after()
        return True

    def _is_done(self, instance: Instance) -> bool:
        """Whether an instance left nothing to do: no other one and no command worked on after it.

        Where shares change it had all of them, as the last one.
        """
        share = instance.settings.share
        if self.plan.rebalances and share != Share(1, 1):
            return False
        if not instance.has_finished:
            return False
        end = instance.processes[0].ended_at
        others = [
            process
            for other in self.every
            if other is not instance and other.settings.share.overlaps(share)
            for process in other.processes
        ]
        return not any(process.ended_at > end for process in (*others, *self.every_apply))

    def look_at_ends(self, errors: list[tuple[str, BaseException]]) -> None:
        """What may end a process: a newer run, and nothing else.

        One that a newer run overtook while it looked where lanes stand may also find what it read
        before contradicted by what it reads now.
        """
        for name, error in errors:
            is_overtaken = name in self.overtaken and isinstance(error, ConfigurationError)
            if not is_overtaken and not isinstance(error, SupersededFault):
                self.findings.append(f"{name} ended by {type(error).__name__}: {error}")


def _is_broken(scheduler: Scheduler) -> bool:
    """Whether a process ended by a mistake, which those that follow it would make again."""
    return any(not isinstance(error, RedriveError) for _, error in scheduler.errors)


def _apart(scheduler: Scheduler) -> float:
    """Seconds by which what the job says of times may be wrong at most."""
    return _AHEAD[-1] - _AHEAD[0] if len(scheduler.set_at) > 1 else 0.0


def _set_back(scheduler: Scheduler) -> float:
    """Seconds by which a clock was set back at most."""
    offsets = [ahead for _, ahead in scheduler.set_at]
    offsets.append(offsets[-1])  # at least two
    return max((offset - other for offset, other in combinations(offsets, 2)), default=0.0)


@collector_paused()
def run_schedule(
    seed: int, trace: Callable[[float, str, str], None] | None = None, *, duels_only: bool = False
) -> Result:
    """Runs the schedule of a seed; within ``simulated_clients``.

    Args:
        seed: Decides everything.
        trace: Told of every step: when, which process, what.
        duels_only: Whether nothing is to happen but that instances take over from each other.
    """
    plan = Plan.of(seed, duels_only=duels_only)
    scheduler = Scheduler(seed, most_steps=_MOST_STEPS)
    network = Network(SimulatedCluster(), scheduler)
    world = _World(plan, scheduler, network)
    if trace is not None:
        scheduler.trace = lambda name, what: trace(scheduler.now, name, what)
    scheduler.on_step, scheduler.on_wait = world.on_step, world.on_wait
    with simulated_clock(scheduler):
        world.prepare()
        scheduler.run()
        while not (scheduler.has_ended_early or _is_broken(scheduler)) and world.is_unfinished():
            scheduler.steps += 50  # each start counts, so that there is an end to them
            scheduler.run()
    world.look_at_ends(scheduler.errors)
    if scheduler.has_ended_early:
        world.findings.append(f"the job did not come to an end in {_MOST_STEPS} steps")
    else:
        table = None if plan.tables_change else _TABLES[plan.table]
        for simulated in [network] if world.far is None else [network, world.far]:
            simulated.cluster.expire()
            simulated.cluster.settle()
        audit = Audit(
            network.cluster, world.conditions, table, _apart(scheduler), _set_back(scheduler)
        )
        audit.far = None if world.far is None else world.far.cluster
        audit.is_ordered = plan.table in {ORDERED, ROUNDS}
        audit.has_rounds = plan.has_rounds
        audit.tables = _BY_HASH
        world.findings += audit.run()
    return Result(seed, world.findings, scheduler.steps, world.written, world.happened)


def main() -> int:
    """Runs the schedules of the seeds from 0 to an argument, and tells how many a second; 1 if any
    shows a fault."""
    logging.disable()  # the warnings of a job that has a hard time
    count = int(sys.argv[1]) if len(sys.argv) > 1 else _MEASURED
    failed = 0
    with simulated_clients():
        run_schedule(0)  # compiles patterns, reads the tables
        begun, used = time.perf_counter(), time.process_time()
        for seed in range(count):
            result = run_schedule(seed)
            failed += bool(result.findings)
            for finding in result.findings[:1]:
                print(f"--seed {seed}: {finding}")  # noqa: T201
        seconds, used = time.perf_counter() - begun, time.process_time() - used
    print(f"{count / used:.1f} schedules a second of processor time, {count / seconds:.1f} in all")  # noqa: T201
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
