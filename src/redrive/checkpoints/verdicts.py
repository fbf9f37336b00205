"""What a transaction's report means: commit it, abort it and go on, or give up.

Pure: from a report to a verdict. The rules stand in one place, so that the simulation and the
broker are judged alike (design 6.7, 6.9).
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
    """What is to be done about a transaction."""

    commit: bool = False
    """Whether it may be committed; if not it is to be aborted."""
    refused: tuple[Refused, ...] = ()
    """Attempts that failed. They count whatever else happened to the transaction."""
    doubted: frozenset[str] = frozenset()
    """Topics of which what was known no longer holds: they are asked about again."""
    fault: ProtocolError | None = None
    """Why this producer can't go on after the abort; None if it can."""


def verdict_of(report: TransactionReport) -> Verdict:
    """The verdict about a transaction that was flushed, or whose commit was refused.

    Args:
        report: What the producer told. Without reports of single records it names nobody; the
            transaction is then to be produced again with them.
    """
    if report.may_commit:
        return Verdict(commit=True)
    refused = tuple(
        Refused(one.entry, one.reason, one.detail)
        for one in report.failed
        if one.kind in _CONDEMNED and one.entry != INTERNAL
    )
    topics = frozenset(one.topic for one in report.failed if one.kind in _CONDEMNED)
    return Verdict(refused=refused, doubted=topics, fault=_fault(report))


def _fault(report: TransactionReport) -> ProtocolError | None:
    """The gravest thing that happened beside refused records."""
    for kind, fault in (
        (FailureKind.FATAL, FatalFault),
        (FailureKind.FENCED, FencedFault),
        (FailureKind.TRANSIENT, TransientFault),
    ):
        for one in report.failed:
            if one.kind is kind:
                return fault(one.detail)
    for one in report.failed:
        if one.entry == INTERNAL and one.kind in _CONDEMNED:
            return _own_topic_fault(one)
    return None


def _own_topic_fault(failed: FailedRecord) -> ProtocolError:
    """A record of Redrive's own was refused: nothing can be decided until that is mended."""
    hint = (
        "check that the outcomes, retry and remaining topics exist, that this user may write to"
        " them, and that their max.message.bytes is not too small"
    )
    fault = FatalFault if failed.reason == Reason.NOT_AUTHORIZED else TransientFault
    return fault(f"the broker refused a record of Redrive's own: {failed.detail}", hint=hint)
