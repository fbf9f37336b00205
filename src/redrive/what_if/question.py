"""The question: two tables for one handler, and the messages to try them on."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Final

from redrive.collector import collector_paused
from redrive.configuration import HandlerConfiguration, JobConfiguration
from redrive.configuration.deciders import DeciderFactory, counts_depths
from redrive.engine.commands import NO_STATES
from redrive.engine.facts import Answers, Facts, Questions, TopicFacts
from redrive.engine.rules_decider import RulesDecider
from redrive.errors import EnvironmentFault, UsageError
from redrive.kafka.cluster import Cluster
from redrive.kafka.deadline import ANSWER
from redrive.kafka.facts import ClusterFacts
from redrive.masking import NO_MASK, Mask
from redrive.messages import PATTERN_KEYWORDS
from redrive.operations.states import read_states
from redrive.outcomes.history import Archive
from redrive.outcomes.inventory import Engine, Inventory
from redrive.outcomes.rows import pattern_fields
from redrive.outcomes.storage import is_remote
from redrive.rules import Dialect, RulesTable
from redrive.rules.analysis import control_changes
from redrive.what_if.answer import WhatIf
from redrive.what_if.equal_messages import SharedDecoder
from redrive.what_if.processes import ShareProcesses
from redrive.what_if.sources import Over, Waiting
from redrive.what_if.tally import Tally
from redrive.what_if.totals import Totals

_MANY: Final = 200_000
"""Offsets that justify another process."""
_LARGE: Final = 4 * 1024**3
"""Bytes of a ledger above which Spark reads it: some hundred million outcomes."""
_KNOWN_OF_A_DIALECT: Final = frozenset({"SCHEME", *PATTERN_KEYWORDS})
"""Fields in the ledger."""
_ENRICHED: Final = (
    "the enrichment function of the settings is not applied: rules see the original messages"
)
_AS_READ: Final = (
    "the ledger has dead letters as they were read: the effect of changed [schemes] is unknown"
)
_ONE_BY_ONE: Final = (
    "ORDER(KEY) is ignored: each message is tried as if no earlier one of its key waited"
)
_UNCHECKED: Final = "the broker cannot be reached: whether targets exist and accept puts is unknown"


def _no_progress(_: int) -> None:
    """Ignores progress."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """Two tables, and the messages to try them on."""

    old: JobConfiguration
    """The job with one table."""
    new: JobConfiguration
    """The same job with the other."""
    handler: str
    over: Collection[Over]
    since: datetime | None = None
    """How far history goes back; None for all of it."""
    mask: Mask = NO_MASK
    by_spark: bool | None = None
    """Whether Spark reads history; None: where the ledger is larger than one process should
    read."""
    processes: int = 1
    """How many processes may share the work, if there is enough. With more than one, the program's
    main module is imported again, as ``multiprocessing`` does when it spawns."""
    begun: Callable[[int], None] = field(default=_no_progress)
    """Called with the amount to read."""
    advance: Callable[[int], None] = field(default=_no_progress)
    """Called with the amount read since the last call."""

    def configuration(self, job: JobConfiguration) -> HandlerConfiguration:
        """The handler in one of the jobs."""
        index = [one.identity.name for one in self.old.handlers].index(self.handler)
        return job.handlers[index]


def ask(question: Question) -> WhatIf:
    """Try both tables on the messages.

    Raises:
        UsageError: Over history, a table needs fields that the ledger does not have.
        EnvironmentFault: The cluster cannot be reached, or the ledger cannot be read.
        TransientFault: The broker did not answer in time.
    """
    begun = time.monotonic()
    _check_same_queue(question)
    is_live = any(it is not Over.HISTORY for it in question.over)
    notes = [_ENRICHED] if question.new.enrichment else []
    cluster = _open_cluster(question, notes, required=is_live)
    tables = _Tables(question, cluster, int(time.time() * 1000))
    tally = tables.tally
    _check_history_fields(question, tables.old.table, tables.new.table)
    with collector_paused():
        if cluster is not None and is_live:
            _try_waiting(question, cluster, tables)
        if Over.HISTORY in question.over:
            notes += _try_history(question, tally)
            notes += [_AS_READ] if question.old.schemes != question.new.schemes else []
    is_ordered = tables.old.table.control.is_ordered or tables.new.table.control.is_ordered
    notes += [_ONE_BY_ONE] if is_ordered else []
    return _answer(
        question, (tables.old, tables.new), tally.totals(), notes, time.monotonic() - begun
    )


class _Tables:
    def __init__(self, question: Question, cluster: Cluster | None, now: int) -> None:
        """Make them as an emitting process does; ``now`` is the time of the attempts, in ms."""
        facts = Facts(time.monotonic)
        self.now = now
        self.old, self.new = (
            _handler(question, job, facts, cluster) for job in (question.old, question.new)
        )
        answers = _best_case if cluster is None else ClusterFacts(cluster).answers
        decoders = _decoders(question)
        self.tally = Tally(
            self.old, self.new, facts, answers, now=now, decoders=decoders, mask=question.mask
        )


def _decoders(question: Question) -> tuple[SharedDecoder, SharedDecoder]:
    old, new = (SharedDecoder(job.scheme_table) for job in (question.old, question.new))
    return (old, old) if question.old.schemes == question.new.schemes else (old, new)


def _check_same_queue(question: Question) -> None:
    old, new = (question.configuration(job) for job in (question.old, question.new))
    if old.identity.topic != new.identity.topic:
        raise UsageError(
            f"the new table handles {new.identity.queue}, the old one {old.identity.queue}",
            hint="set the queue in the settings, or use the same INPUTQ in both tables",
        )


def _try_waiting(question: Question, cluster: Cluster, tables: _Tables) -> None:
    handler = question.configuration(question.old)
    waiting = Waiting.of(question.old, handler, cluster, question.over)
    question.begun(waiting.offsets)
    own, *others = waiting.shares(_processes(question, waiting.offsets))
    silent = replace(question, begun=_no_progress, advance=_no_progress)
    shares = [_Share(silent, one, tables.now) for one in others]
    with ShareProcesses(shares, question.advance) as processes:
        for part in own.parts(processes.advance):
            tables.tally.add(part)
        tables.tally.totals().add(processes.totals())


def _processes(question: Question, offsets: int) -> int:
    # If a queue may become full, all puts must be counted in one place.
    is_single = any(map(counts_depths, (question.old, question.new)))
    return 1 if is_single or offsets < _MANY else question.processes


@dataclass(frozen=True, slots=True)
class _Share:
    question: Question
    waiting: Waiting
    now: int

    def __call__(self, advance: Callable[[int], None]) -> Totals:
        cluster = Cluster.open(self.question.old.connection, timeout=ANSWER)
        tally = _Tables(self.question, cluster, self.now).tally
        with collector_paused():
            for part in self.waiting.parts(advance):
                tally.add(part)
        return tally.totals()


def _try_history(question: Question, tally: Tally) -> tuple[str, ...]:
    inventory, notes = Archive(question.old).inventory()
    with inventory, _engine(question, inventory) as engine:
        for row in inventory.first_seen(question.handler, question.since, engine):
            tally.add_known(row["form"] or "", pattern_fields(row), row["example"], row["n"])
    return notes


@contextmanager
def _engine(question: Question, inventory: Inventory) -> Iterator[Engine | None]:
    by_spark = question.by_spark
    if by_spark is None:
        is_large = inventory.size >= _LARGE
        by_spark = is_large and not is_remote(question.old.ledger.path)
    if not by_spark:
        yield None
        return
    from redrive.streaming.ledger_query import spark_engine  # noqa: PLC0415 - imports pyspark

    with spark_engine(question.old, inventory.tables) as engine:
        yield engine


def _check_history_fields(question: Question, *tables: RulesTable) -> None:
    if Over.HISTORY not in question.over:
        return
    for table in tables:
        unknown = sorted(table.asked - _KNOWN_OF_A_DIALECT)
        if table.control.dialect is Dialect.KAFKA and unknown:
            raise UsageError(
                f"the ledger does not have {', '.join(unknown)}, which a table needs",
                hint="try it over remaining, parked and backlog, which have the messages"
                " themselves",
            )


def _open_cluster(question: Question, notes: list[str], *, required: bool) -> Cluster | None:
    try:
        return Cluster.open(question.old.connection, timeout=ANSWER)
    except EnvironmentFault:
        if required:
            raise
        notes.append(_UNCHECKED)
        return None


def _handler(
    question: Question, job: JobConfiguration, facts: Facts, cluster: Cluster | None
) -> RulesDecider:
    states = read_states(job, cluster) if job.topology and cluster is not None else NO_STATES
    topic = question.configuration(job).identity.topic
    decider, _ = DeciderFactory(job, facts).deciders(states)[topic]
    if not isinstance(decider, RulesDecider):
        raise TypeError(f"{topic} is an intake and has no rules table")
    return decider


def _best_case(questions: Questions) -> Answers:
    topics = {name: TopicFacts() for name in questions.topics}
    return Answers(topics, dict.fromkeys(questions.depths, 0))


def _other_schemes(question: Question) -> tuple[str, ...]:
    old, new = question.old.schemes, question.new.schemes
    differing = [one for one in (*old, *new) if one not in old or one not in new]
    if old != new and not differing:
        differing = [*new]  # another order: the first that recognises a dead letter reads it
    return tuple(sorted({one.name for one in differing}))


def _answer(
    question: Question,
    handlers: tuple[RulesDecider, RulesDecider],
    totals: Totals,
    notes: list[str],
    seconds: float,
) -> WhatIf:
    old, new = handlers
    return WhatIf(
        handler=question.handler,
        old_name=question.configuration(question.old).rules_name,
        old_hash=old.table.hash,
        new_name=question.configuration(question.new).rules_name,
        new_hash=new.table.hash,
        messages={over.value: totals.messages[over] for over in Over if over in question.over},
        matrix=dict(totals.matrix),
        changes=totals.changes(),
        rules=tuple(totals.rules(old.table, new.table)),
        targets=tuple(totals.targets(question.mask)),
        refused=tuple(totals.refused(question.mask)),
        never_matched=tuple(totals.never_matched(new.table)),
        control=tuple(control_changes(old.table, new.table)),
        schemes=_other_schemes(question),
        seconds=seconds,
        notes=(*totals.risks(question.mask), *notes),
    )
