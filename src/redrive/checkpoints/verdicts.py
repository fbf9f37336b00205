"""Verdicts on a transaction's report: commit, abort and continue, or give up.

Pure functions from a report to a verdict, so that the rules are the same for the simulation and the
broker.
"""

from __future__ import annotations

from dataclasses import dataclass

from redrive.errors import FatalFault, FencedFault, ProtocolError, TransientFault
from redrive.kafka.reports import FailedRecord, FailureKind, TransactionReport
from redrive.messages import INTERNAL, Refused
from redrive.messages.reasons import Reason

_CONDEMNED = (FailureKind.CULPRIT, FailureKind.UNANSWERED)


@dataclass(frozen=True, slots=True)
class Verdict:
    """What to do about a transaction."""

    commit: bool = False
    """Whether it may be committed; if not, it must be aborted."""
    refused: tuple[Refused, ...] = ()
    """Failed attempts, which count whatever else happened to the transaction."""
    doubted: frozenset[str] = frozenset()
    """Topics whose facts may have changed and are read again."""
    fault: ProtocolError | None = None
    """Why this producer cannot continue after the abort; None if it can."""


def verdict_of(report: TransactionReport) -> Verdict:
    """The verdict on a transaction that was flushed, or whose commit was refused.

    A report without single records does not name the refused ones; the transaction must then be
    produced again with reports of them.
    """
    if report.may_commit:
        return Verdict(commit=True)
    refused = tuple(
        Refused(record.entry, record.reason, record.detail)
        for record in report.failed
        if record.kind in _CONDEMNED and record.entry != INTERNAL
    )
    topics = frozenset(record.topic for record in report.failed if record.kind in _CONDEMNED)
    return Verdict(refused=refused, doubted=topics, fault=_fault(report))


def _fault(report: TransactionReport) -> ProtocolError | None:
    for kind, fault in (
        (FailureKind.FATAL, FatalFault),
        (FailureKind.FENCED, FencedFault),
        (FailureKind.TRANSIENT, TransientFault),
    ):
        for record in report.failed:
            if record.kind is kind:
                return fault(record.detail)
    for record in report.failed:
        if record.entry == INTERNAL and record.kind in _CONDEMNED:
            return _own_topic_fault(record)
    return None


def _own_topic_fault(failed: FailedRecord) -> ProtocolError:
    """The fault of a refused record of Redrive's own: nothing can be decided until it is fixed."""
    hint = (
        "check that the outcomes, retry and remaining topics exist, that this user may write to"
        " them, and that their max.message.bytes is not too small"
    )
    fault = FatalFault if failed.reason == Reason.NOT_AUTHORIZED else TransientFault
    return fault(f"the broker refused a record of Redrive's own: {failed.detail}", hint=hint)
