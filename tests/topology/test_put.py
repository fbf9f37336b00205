"""What a put has to pass after its names resolved."""

from __future__ import annotations

import pytest

from redrive.messages.reasons import Reason
from redrive.topology.put import PERSISTENT, UNLIMITED, QueueLimits, check_limits

LIMITED = QueueLimits(max_message_length=1000, max_depth=2, queue_manager_max_message_length=900)


@pytest.mark.parametrize(
    ("limits", "length", "depth", "persistence", "reason"),
    [
        (UNLIMITED, 10**9, 10**9, PERSISTENT, None),
        (LIMITED, 900, 1, PERSISTENT, None),
        (LIMITED, 900, None, 0, None),
        (LIMITED, 901, 1, 0, Reason.MSG_TOO_BIG_FOR_Q_MGR),
        (LIMITED, 1001, 1, 0, Reason.MSG_TOO_BIG_FOR_Q),
        (LIMITED, 0, 2, 0, Reason.Q_FULL),
        (LIMITED, 0, 3, 0, Reason.Q_FULL),
        (QueueLimits(put_enabled=False), 0, 0, 0, Reason.PUT_INHIBITED),
        (QueueLimits(temporary=True), 0, 0, PERSISTENT, Reason.PERSISTENT_NOT_ALLOWED),
        (QueueLimits(temporary=True), 0, 0, 0, None),
        (QueueLimits(max_depth=0), 0, 0, 0, Reason.Q_FULL),
    ],
)
def test_the_first_limit_that_is_broken_gives_the_reason(
    limits: QueueLimits, length: int, depth: int | None, persistence: int, reason: Reason | None
) -> None:
    refusal = check_limits(limits, length, depth, persistence)
    assert (refusal and refusal.reason) == reason


def test_a_refusal_says_what_was_too_much() -> None:
    refusal = check_limits(LIMITED, 1001, 0, 0)
    assert refusal is not None
    assert "1001" in refusal.detail
    assert "1000" in refusal.detail
