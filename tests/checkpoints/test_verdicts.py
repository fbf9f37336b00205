"""What the report of a transaction means."""

from __future__ import annotations

import pytest

from redrive.checkpoints.protocol import Verdict, verdict_of
from redrive.errors import FatalFault, FencedFault, ProtocolError, TransientFault
from redrive.kafka.reports import FailedRecord, FailureKind, TransactionReport
from redrive.messages import INTERNAL, Refused
from redrive.messages.reasons import Reason

CULPRIT = FailedRecord(3, "Q", FailureKind.CULPRIT, 2030, "Q: too large")
SILENT = FailedRecord(4, "R", FailureKind.UNANSWERED, 2102, "R: timed out")
INNOCENT = FailedRecord(5, "S", FailureKind.INNOCENT, 0, "S: purged")
LOST = FailedRecord(6, "T", FailureKind.TRANSIENT, 0, "T: transport")
FENCED = FailedRecord(7, "U", FailureKind.FENCED, 0, "U: fenced")
FATAL = FailedRecord(8, "V", FailureKind.FATAL, 0, "V: not allowed")


def report(*failed: FailedRecord, abort_required: bool = True) -> TransactionReport:
    return TransactionReport(failed, abort_required)


def test_a_report_without_failures_may_be_committed() -> None:
    assert verdict_of(TransactionReport()) == Verdict(commit=True)
    assert verdict_of(report()) == Verdict()
    assert verdict_of(report(INNOCENT, abort_required=False)) == Verdict()


def test_culprits_and_targets_that_do_not_answer_are_refused_and_their_topics_doubted() -> None:
    verdict = verdict_of(report(INNOCENT, CULPRIT, SILENT))
    assert verdict.refused == (Refused(3, 2030, "Q: too large"), Refused(4, 2102, "R: timed out"))
    assert verdict.doubted == {"Q", "R"}
    assert verdict.fault is None
    assert not verdict.commit


@pytest.mark.parametrize(
    ("failed", "fault"), [(LOST, TransientFault), (FENCED, FencedFault), (FATAL, FatalFault)]
)
def test_a_culprit_is_never_dropped_because_of_another_fault(
    failed: FailedRecord, fault: type[ProtocolError]
) -> None:
    for order in ((CULPRIT, failed), (failed, CULPRIT)):
        verdict = verdict_of(report(*order))
        assert type(verdict.fault) is fault
        assert verdict.fault.message == failed.detail
        assert [refusal.entry for refusal in verdict.refused] == [3]


def test_the_gravest_fault_is_the_one_that_is_told() -> None:
    assert type(verdict_of(report(LOST, FENCED, FATAL)).fault) is FatalFault
    assert type(verdict_of(report(LOST, FENCED)).fault) is FencedFault


@pytest.mark.parametrize(
    ("reason", "fault"),
    [(Reason.MSG_TOO_BIG_FOR_Q, TransientFault), (Reason.NOT_AUTHORIZED, FatalFault)],
)
def test_a_refused_record_of_our_own_is_nobodys_failed_attempt(
    reason: Reason, fault: type[ProtocolError]
) -> None:
    own = FailedRecord(INTERNAL, "outcomes", FailureKind.CULPRIT, reason, "outcomes: refused")
    verdict = verdict_of(report(own, CULPRIT))
    assert [refusal.entry for refusal in verdict.refused] == [3]
    assert verdict.doubted == {"outcomes", "Q"}
    assert type(verdict.fault) is fault
    assert "a record of Redrive's own: outcomes: refused" in verdict.fault.message
    assert "max.message.bytes" in verdict.fault.hint
