"""When a message expires."""

from __future__ import annotations

import pytest

from redrive.topology.mqe.results import ExpireAfter, ExpireAt, PutMessage, deadline, is_expired


@pytest.mark.parametrize(
    ("expire_time", "queue_expiry", "expected"),
    [
        (None, None, None),
        (None, 50, 1050),
        (ExpireAfter(20), 50, 1020),
        (ExpireAfter(20), None, 1020),
        (ExpireAt(1030), 50, 1030),
    ],
)
def test_the_deadline_counts_from_creation_unless_it_is_absolute(
    expire_time: ExpireAfter | ExpireAt | None, queue_expiry: int | None, expected: int | None
) -> None:
    message = PutMessage(created=1000, expire_time=expire_time)
    assert deadline(message, queue_expiry) == expected
    if expected is not None:
        assert not is_expired(message, queue_expiry, expected)
        assert is_expired(message, queue_expiry, expected + 1)
