"""The question: two tables for one handler, and the messages to try them on."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Final

from redrive.collector import collector_paused
from redrive.configuration import HandlerConfiguration, JobConfiguration
from redrive.decisions.handlers import Handler
from redrive.decisions.trial import SharedDecoder
from redrive.errors import EnvironmentFault, UsageError
from redrive.kafka.cluster import Cluster
from redrive.kafka.facts import ClusterFacts
from redrive.masking import NO_MASK, Mask
from redrive.messages import PATTERN_KEYWORDS, SchemeTable
from redrive.operations.states import read_states
from redrive.outcomes.history import Archive
from redrive.rules import Dialect
from redrive.rules.analysis import control_changes
from redrive.streaming.factory import HandlerFactory
from redrive.topology.facts import Answers, Facts, Questions, TopicFacts
from redrive.topology.states import NO_STATES
from redrive.what_if.answer import WhatIf
from redrive.what_if.sources import Over, Waiting
from redrive.what_if.tally import Tally

if TYPE_CHECKING:
    from redrive.rules import RulesTable

__all__ = ["Question", "ask"]

_ANSWER_TIMEOUT: Final = 15.0
"""Seconds for one answer of the cluster."""
_KNOWN_OF_A_DIALECT: Final = frozenset({"SCHEME", *PATTERN_KEYWORDS})
"""Fields that the ledger keeps."""
_ENRICHED: Final = (
    "the enrichment function of the settings is not applied: rules see the messages as they came"
)
_AS_READ: Final = (
    "the ledger has dead letters as they were read: what other [schemes] make of them is not known"
)
_UNCHECKED: Final = "the broker can't be reached: whether targets exist and take puts is not known"


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What is asked."""

    old: JobConfiguration
    """The job with one table."""
    new: JobConfiguration
    """The same job with the other."""
    handler: str
    """Name of the handler that the tables are for."""
    over: Collection[Over]
    since: datetime | None = None
    """How far history goes back; None for all of it."""
    mask: Mask = NO_MASK
    """What is not to be shown."""
    begun: Callable[[int], None] = field(default=lambda _: None)
    """Told how much there is to read."""
    advance: Callable[[int], None] = field(default=lambda _: None)
    """Told how much was read since the last time."""

    def configuration(self, job: JobConfiguration) -> HandlerConfiguration:
        """The handler in one of the jobs."""
        index = [one.identity.name for one in self.old.handlers].index(self.handler)
        return job.handlers[index]


def ask(question: Question) -> WhatIf:
    """Tries both tables on the messages.

    Raises:
        UsageError: A table asks for what the ledger does not keep, over history.
        EnvironmentFault: The cluster can't be reached, or the ledger can't be read.
        TransientFault: The broker gave no answer in time.
    """
    begun = time.monotonic()
    _check_same_queue(question)
    is_live = any(it is not Over.HISTORY for it in question.over)
    notes = [_ENRICHED] if question.new.enrichment else []
    cluster = _opened(question, notes, required=is_live)
    facts = Facts(time.monotonic)
    old, new = (_handler(question, job, facts, cluster) for job in (question.old, question.new))
    answers = _best_case if cluster is None else ClusterFacts(cluster).answers
    now = int(time.time() * 1000)
    tally = Tally(
        old, new, facts, answers, now=now, decoders=_decoders(question), mask=question.mask
    )
    _checked_for_history(question, old.table, new.table)
    with collector_paused():
        if cluster is not None and is_live:
            _try_waiting(question, cluster, tally)
        if Over.HISTORY in question.over:
            notes += _try_history(question, tally)
            notes += [_AS_READ] if question.old.schemes != question.new.schemes else []
    return _answer(question, (old, new), tally, notes, time.monotonic() - begun)


def _decoders(question: Question) -> tuple[SharedDecoder, SharedDecoder]:
    """What reads dead letters for each table: the same decoder if their schemes are the same."""
    old, new = question.old.schemes, question.new.schemes
    decoder = SharedDecoder(SchemeTable(one.scheme() for one in old))
    if old == new:
        return decoder, decoder
    return decoder, SharedDecoder(SchemeTable(one.scheme() for one in new))


def _check_same_queue(question: Question) -> None:
    old, new = (question.configuration(job) for job in (question.old, question.new))
    if old.identity.topic != new.identity.topic:
        raise UsageError(
            f"the new table works on {new.identity.queue}, the old one on {old.identity.queue}",
            hint="name the queue in the settings, or let INPUTQ of both tables say the same",
        )


def _try_waiting(question: Question, cluster: Cluster, tally: Tally) -> None:
    handler = question.configuration(question.old)
    waiting = Waiting.of(question.old, handler, cluster, question.over)
    question.begun(waiting.offsets)
    for part in waiting.parts(question.advance):
        tally.add(part)


def _try_history(question: Question, tally: Tally) -> tuple[str, ...]:
    inventory, notes = Archive(question.old).inventory()
    with inventory:
        for row in inventory.first_seen(question.handler, question.since):
            fields = {
                name: value
                for name in PATTERN_KEYWORDS
                if (value := row[f"field_{name.lower()}"]) is not None
            }
            tally.add_known(row["form"] or "", fields, row["example"], row["n"])
    return notes


def _checked_for_history(question: Question, *tables: RulesTable) -> None:
    if Over.HISTORY not in question.over:
        return
    for table in tables:
        unknown = sorted(table.asked - _KNOWN_OF_A_DIALECT)
        if table.control.dialect is Dialect.KAFKA and unknown:
            raise UsageError(
                f"the ledger does not keep {', '.join(unknown)}, which a table asks for",
                hint="try it over remaining, parked and backlog, where the messages themselves are",
            )


def _opened(question: Question, notes: list[str], *, required: bool) -> Cluster | None:
    try:
        return Cluster.open(question.old.connection, timeout=_ANSWER_TIMEOUT)
    except EnvironmentFault:
        if required:
            raise
        notes.append(_UNCHECKED)
        return None


def _handler(
    question: Question, job: JobConfiguration, facts: Facts, cluster: Cluster | None
) -> Handler:
    """The handler with the table of one of the jobs, as an emitting process makes it."""
    has_states = bool(job.topology) and cluster is not None
    states = read_states(job, cluster) if has_states and cluster is not None else NO_STATES
    topic = question.configuration(job).identity.topic
    decider, _ = HandlerFactory(job, facts).deciders(states)[topic]
    if not isinstance(decider, Handler):
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
    handlers: tuple[Handler, Handler],
    tally: Tally,
    notes: list[str],
    seconds: float,
) -> WhatIf:
    old, new = handlers
    totals = tally.totals()
    return WhatIf(
        handler=question.handler,
        old_name=question.configuration(question.old).rules_name,
        old_hash=old.table.hash,
        new_name=question.configuration(question.new).rules_name,
        new_hash=new.table.hash,
        messages={over.value: tally.messages[over] for over in Over if over in question.over},
        matrix=dict(totals.matrix),
        changes=totals.changes(),
        rules=tuple(totals.rules()),
        targets=tuple(totals.targets()),
        refused=tuple(totals.refused()),
        never_matched=tuple(totals.never_matched()),
        control=tuple(control_changes(old.table, new.table)),
        schemes=_other_schemes(question),
        seconds=seconds,
        notes=tuple(notes),
    )
