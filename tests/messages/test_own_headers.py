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
def test_a_reader_tells_of_many_records_what_each_of_them_tells(
    drawn: tuple[list[str], list[list[bytes | None]]],
) -> None:
    names, rows = drawn
    every = [list(zip(names, row, strict=True)) for row in rows]
    for reader in (own.OwnHeadersReader(every, names), own.OwnHeadersReader(every, None)):
        for row in [*range(len(rows)), *reversed(range(len(rows)))]:
            assert reader.own(row) == own.read_own(every[row])
            assert reader.others(row) == own.without_own(every[row])
            assert reader.finds_some or reader.own(row) is own.NO_OWN_HEADERS
