"""The due-time error is measured per message, from one attempt to the next."""

from __future__ import annotations

import pytest

from redrive.demo.messages import Message, Outcome, Record
from redrive.demo.reconciliation import Trace
from redrive.demo.scripts.orders import Punctuality


def _trace(*steps: tuple[int, str]) -> Trace:
    """A message with its outcomes: milliseconds and result of each."""
    record = Record(None, None, ())
    return Trace(
        message=Message(0, "any", "A", record, record, ()),
        inputs=[],
        ends=[],
        outcomes=[
            Outcome(
                message="a", time=time, rule_line=1, attempt=1, result=result, reason=0, topic=""
            )
            for time, result in steps
        ],
    )


def test_each_retry_is_measured_from_its_own_failure() -> None:
    """Two messages with their own times; what was never parked does not count."""
    traces = [
        _trace((0, "parked"), (6_100, "parked"), (12_100, "forwarded")),
        _trace((500, "parked"), (6_750, "retried")),
        _trace((600, "discarded")),
    ]
    assert Punctuality.of(traces, 6).errors == pytest.approx([0.0, 0.1, 0.25])


def test_an_early_retry_is_named() -> None:
    """It must never be."""
    punctuality = Punctuality.of([_trace((0, "parked"), (5_999, "retried"))], 6)
    assert punctuality.early == 1
    assert "1 EARLY" in str(punctuality)
    assert punctuality.document()["early"] == 1


def test_percentiles_are_by_nearest_rank() -> None:
    """Of a hundred errors the p50 is the fiftieth and the p99 the last but one."""
    punctuality = Punctuality([number / 100 for number in range(1, 101)])
    assert punctuality.percentile(50) == 0.5
    assert punctuality.percentile(99) == 0.99
    assert punctuality.percentile(100) == 1.0
    assert "none early" in str(punctuality)


def test_without_retries_there_is_nothing_to_measure() -> None:
    """The report says so instead of failing."""
    punctuality = Punctuality.of([_trace((0, "discarded"))], 6)
    assert str(punctuality) == "no retries"
    assert punctuality.document()["count"] == 0
    with pytest.raises(ValueError, match="no retries"):
        punctuality.percentile(50)
