"""What is kept of a table that runs, from one run to the next."""

from __future__ import annotations

import secrets

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive.checkpoints import tables
from redrive.checkpoints.tables import KeptTable, Layout, RunningTable, _with_run
from redrive.messages.schemes import OwnScheme, schemes_id

HASH = "ab" * 32
LINES = st.lists(st.integers(1, 9), min_size=2, max_size=2, unique=True).map(
    lambda lines: tuple(sorted(lines))
)


SCHEMES = st.lists(
    st.builds(
        OwnScheme,
        name=st.sampled_from(["mine", "other"]),
        recognise=st.text(),
        is_assumed=st.booleans(),
        parts=st.dictionaries(st.text(), st.text(), max_size=2),
    ),
    max_size=2,
).map(tuple)


@given(
    st.lists(st.tuples(LINES, st.text(), st.sampled_from("ab"), SCHEMES), min_size=1, max_size=6)
)
def test_what_is_kept_is_the_last_text_the_first_run_and_where_rules_stood_when(
    runs: list[tuple[tuple[int, ...], str, str, tuple[OwnScheme, ...]]],
) -> None:
    kept = None
    for number, (lines, text, by, schemes) in enumerate(runs):
        table = RunningTable("orders", HASH, text, f"{number}.rul", lines, schemes)
        written = _with_run(kept, table, now=float(number), by=by)
        kept = KeptTable.from_entry(written.entry())
        assert kept == written
    assert kept is not None
    assert (kept.text, kept.name) == (runs[-1][1], f"{len(runs) - 1}.rul")
    assert (kept.first_run, kept.first_by) == (0, runs[0][2])
    assert (kept.last_run, kept.last_by) == (len(runs) - 1, runs[-1][2])
    assert schemes_id(kept.schemes) == schemes_id(runs[-1][3])
    for number, (lines, *_) in enumerate(runs):
        stood = [layout for layout in kept.layouts if layout.since <= number]
        assert stood[-1].lines == lines


def test_a_text_that_is_too_long_for_the_topic_is_left_out_and_nothing_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tables, "_LARGEST_ENTRY", 2_000)
    long = KeptTable(
        handler="orders", hash=HASH, text=secrets.token_hex(4_000), name="a.rul",
        first_run=1, first_by="a", last_run=2, last_by="b", layouts=(Layout(1, (1,)),),
    )  # fmt: skip
    kept = KeptTable.from_entry(long.entry())
    assert kept.text is None
    assert (kept.hash, kept.layouts, kept.last_by) == (long.hash, long.layouts, "b")


@pytest.mark.parametrize("value", [b"", b"{}", b"x\x9c\xab\xae\x05\x00\x01u\x00\xf9"])
def test_what_is_no_entry_says_so(value: bytes) -> None:
    with pytest.raises(ValueError, match="not the entry of a table"):
        KeptTable.from_entry(value)
