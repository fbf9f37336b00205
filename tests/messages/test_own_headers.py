"""Redrive's own headers: what is read for many records alike is what is read for each."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from redrive.messages import own_headers as own

NAMES = st.sampled_from(
    [
        own.ID, own.ORIGIN, own.TIMESTAMP, own.HOPS, own.FAILURES, own.TABLE, own.KEY, own.NULL,
        own.REPLAY, own.QUARANTINE, own.PREFIX, "redrive.unknown", "JMS_IBM_MQMD_Format", "", "x",
    ]
)  # fmt: skip
VALUES = st.none() | st.sampled_from([b"q:0:1", b"q:0:2", b"12", b"0123456789abcdef"]) | st.binary()


@given(st.lists(NAMES, max_size=12).flatmap(
    lambda names: st.tuples(
        st.just(names),
        st.lists(st.lists(VALUES, min_size=len(names), max_size=len(names)), max_size=4),
    )
))  # fmt: skip
def test_places_tell_what_each_record_tells(
    drawn: tuple[list[str], list[list[bytes | None]]],
) -> None:
    """Wherever Redrive's headers stand among others, and however often."""
    names, rows = drawn
    places = own.OwnPlaces(names)
    for row in rows:
        headers = list(zip(names, row, strict=True))
        assert places.read_own(headers) == own.read_own(headers)
        assert places.without_own(headers) == own.without_own(headers)
