"""The flood limit: how many new dead letters of a minute are handled, and which remain."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.engine.samples import dead_letter, handler_of, slice_of

from redrive.engine.flood import NO_ARRIVALS, Floods, Minute, SliceFloods
from redrive.engine.slice import Slice, SliceSettings
from redrive.engine.sources import SourceKind
from redrive.messages import Records

LIMIT = 3
MINUTE = 60_000


@given(
    st.lists(st.lists(st.integers(-1, 4 * MINUTE), max_size=20), max_size=6),
    st.integers(0, 4 * MINUTE),
)
def test_each_minute_has_its_limit_however_its_letters_are_cut_into_slices(
    slices: list[list[int]], now: int
) -> None:
    """The first ones of each minute are handled, in all slices and batches together."""
    floods, handled, arrived = Floods({"dlq": LIMIT}), Counter[int](), Counter[int]()
    for times in slices:
        one = SliceFloods(floods.arrivals, now)
        excess = one.excess("dlq", LIMIT, times, 0)
        for row, time in enumerate(times):
            minute = (now if time < 0 else time) // MINUTE
            arrived[minute] += 1
            handled[minute] += row not in excess
        floods.learn(one.arrivals, now)
    assert handled == {minute: min(LIMIT, count) for minute, count in arrived.items()}
    kept = sum(arrived.values()) - sum(handled.values())
    assert sum(one.kept for one in floods.states(now)) == kept


def test_a_flood_lasts_until_it_kept_nothing_for_a_minute() -> None:
    """Its number grows meanwhile; the next one counts anew."""
    floods = Floods({"dlq": LIMIT})
    told = []
    for now, count in [(0, 5), (50_000, 4), (100_000, 1), (200_000, 9)]:
        floods.learn({Minute("dlq", now // MINUTE): count}, now)
        told.append([(one.kept, one.rate, one.since) for one in floods.states(now)])
    assert told == [[(2, 5, 0)], [(6, 9, 0)], [(6, 9, 0)], [(6, 9, 200)]]
    assert [*floods.states(259_999)]
    assert not [*floods.states(260_000)]


@pytest.mark.parametrize(
    ("kind", "limit", "kept"),
    [
        (SourceKind.DEAD_LETTERS, LIMIT, 2),
        (SourceKind.DEAD_LETTERS, 0, 0),
        (SourceKind.DEAD_LETTERS, 5, 0),
        (SourceKind.RETRIES, LIMIT, 0),
        (SourceKind.REMAINING, LIMIT, 0),
    ],
)
def test_what_is_beyond_the_limit_remains_and_says_why(
    kind: SourceKind, limit: int, kept: int
) -> None:
    """Only new dead letters count; the others are forwarded as the table says."""
    handler = handler_of()
    handler.flood_limit = limit
    records = Records(
        [b"k"] * 5, [b"v"] * 5, [dead_letter(2035) for _ in range(5)], [77] * 5, [*range(5)]
    )
    one = slice_of(records, handler, kind=kind)
    settings = SliceSettings(outcomes_topic="OUT", now=90_000, arrivals=NO_ARRIVALS)
    one = Slice(one._parts, one._decoder, one._facts, settings)
    one.decide()
    summary = one.summary()
    results = Counter({key.result: count for key, count in summary.inputs.items()})
    assert results == Counter({"forwarded": 5 - kept, "remains": kept})
    why = b"flood: 5 dead letters so far in the minute of 1970-01-01 00:00 UTC, the limit is 3"
    said = [b for _, it in one.outputs if it.topic == "OUT" and why in (b := it.value or b"")]
    assert len(said) == kept
    is_counted = limit > 0 and kind is SourceKind.DEAD_LETTERS
    assert summary.arrivals == ({Minute("dlq", 0): 5} if is_counted else {})
