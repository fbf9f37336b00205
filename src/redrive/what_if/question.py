"""The question: two tables for one handler, and the messages to try them on."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from redrive.collector import collector_paused
from redrive.configuration import HandlerConfiguration, JobConfiguration
from redrive.configuration.deciders import DeciderFactory
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
from redrive.outcomes.storage import is_remote
from redrive.rules import Dialect, RulesTable
from redrive.what_if.answer import WhatIf
from redrive.what_if.sources import Over, number_of_reads, parts_of, waiting_for
from redrive.what_if.tally import Tally

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


def _no_progress(_done: int, _total: int) -> None:
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
    show_progress: Callable[[int, int], None] = field(default=_no_progress)
    """Called with the number of messages that were read, and that of all."""

    def configuration(self, job: JobConfiguration) -> HandlerConfiguration:
        """The handler in one of the jobs."""
        names = [handler.identity.name for handler in self.old.handlers]
        return job.handlers[names.index(self.handler)]


def ask(question: Question) -> WhatIf:
    """Try both tables on the messages.

    Raises:
        UsageError: Over history, a table needs fields that the ledger does not have.
        EnvironmentFault: The cluster cannot be reached, or the ledger cannot be read.
        TransientFault: The broker did not answer in time.
    """
    begun = time.monotonic()
    handlers = [question.configuration(job) for job in (question.old, question.new)]
    _check_same_queue(*handlers)
    is_live = any(place is not Over.HISTORY for place in question.over)
    notes = [_ENRICHED] if question.new.enrichment else []
    cluster = _open_cluster(question, notes, required=is_live)
    facts = Facts(time.monotonic)
    old, new = (_decider(question, job, facts, cluster) for job in (question.old, question.new))
    if Over.HISTORY in question.over:
        _check_fields(old.table, new.table)
    tally = Tally(
        old, new, facts,
        _best_case if cluster is None else ClusterFacts(cluster).answers,
        now=int(time.time() * 1000), schemes=_other_schemes(question), mask=question.mask,
    )  # fmt: skip
    with collector_paused():
        if cluster is not None and is_live:
            _try_waiting(question, cluster, tally)
        if Over.HISTORY in question.over:
            notes += _try_history(question, tally)
            notes += [_AS_READ] if question.old.schemes != question.new.schemes else []
    is_ordered = old.table.control.is_ordered or new.table.control.is_ordered
    notes += [_ONE_BY_ONE] if is_ordered else []
    names = handlers[0].rules_name, handlers[1].rules_name
    seconds = time.monotonic() - begun
    return tally.answer(question.handler, names, over=question.over, seconds=seconds, notes=notes)


def _check_same_queue(old: HandlerConfiguration, new: HandlerConfiguration) -> None:
    if old.identity.topic != new.identity.topic:
        raise UsageError(
            f"the new table handles {new.identity.queue}, the old one {old.identity.queue}",
            hint="set the queue in the settings, or use the same INPUTQ in both tables",
        )


def _try_waiting(question: Question, cluster: Cluster, tally: Tally) -> None:
    job = question.old
    waiting = waiting_for(job, question.configuration(job), cluster, question.over)
    done, total = 0, number_of_reads(waiting)

    def advance(number: int) -> None:
        nonlocal done
        done += number
        question.show_progress(done, total)

    for part in parts_of(waiting, job.connection, advance):
        tally.add(part)


def _try_history(question: Question, tally: Tally) -> tuple[str, ...]:
    inventory, notes = Archive(question.old).inventory()
    with inventory, _engine(question, inventory) as engine:
        for letters in inventory.first_seen(question.handler, question.since, engine):
            tally.add_known(*letters)
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


def _check_fields(*tables: RulesTable) -> None:
    """Check that the ledger has the fields that tables need."""
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


def _decider(
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
    differing = [scheme for scheme in (*old, *new) if scheme not in old or scheme not in new]
    if old != new and not differing:
        differing = [*new]  # another order: the first that recognises a dead letter reads it
    return tuple(sorted({scheme.name for scheme in differing}))
