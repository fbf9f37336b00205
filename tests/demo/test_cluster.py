"""What is read from the broker is what it means to the job."""

from __future__ import annotations

from dataclasses import dataclass, field

from redrive.demo.cluster import remaining_among
from redrive.demo.messages import NUMBER_HEADER, Record, State


@dataclass
class _Copy:
    """A record of a remaining topic, as kafka-python gives it."""

    offset: int
    key: bytes
    value: bytes | None
    headers: list[tuple[str, bytes]] = field(default_factory=list)
    topic: str = "remaining"
    partition: int = 0


def test_what_remains_is_the_last_copy_of_each_message() -> None:
    """A message that was placed later left a tombstone; the record itself is in the headers."""
    number = (NUMBER_HEADER, b"7")
    own = [("redrive.key", b"customer"), ("redrive.timestamp", b"5")]
    copies = [
        _Copy(0, b"A:0:0", b"first", [number]),
        _Copy(1, b"A:0:1", b"placed later"),
        _Copy(2, b"A:0:0", b"", [number, ("redrive.null", b""), *own]),
        _Copy(3, b"A:0:1", None),
    ]
    [found] = remaining_among(copies, "A")
    assert (found.place, found.topic, found.number) == ("remaining:0:2", "A", 7)
    assert found.record == Record(b"customer", None, (number,), 5)
    assert found.state is State.REMAINING
