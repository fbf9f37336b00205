"""Criteria mean the same in the table and for outcomes that are not in it yet."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta, timezone
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.outcomes.samples import START, append, outcome, rows

from redrive.outcomes.ledger import Ledger
from redrive.outcomes.open_letters import write_open_letters
from redrive.outcomes.rows import Row, moment
from redrive.outcomes.selection import Criteria
from redrive.outcomes.table import LedgerTable

NUMBER = 200


@pytest.fixture(scope="module")
def ledgers(tmp_path_factory: pytest.TempPathFactory) -> tuple[Ledger, Ledger, list[Row]]:
    """The same outcomes in a table, and half in a table, counted in steps, and half after it."""
    everything = rows(outcome(number) for number in range(NUMBER))
    everything += rows([{"no": "outcome"}], partitions=7)
    whole, half = tmp_path_factory.mktemp("whole"), tmp_path_factory.mktemp("half")
    append(whole, everything)
    for begin, end in pairwise((0, NUMBER // 6, NUMBER // 3, NUMBER // 2)):
        write_open_letters(half)
        append(half, everything[begin:end])
    return (
        Ledger(LedgerTable.open(whole)),
        Ledger(LedgerTable.open(half), tuple(everything[NUMBER // 2 :])),
        everything,
    )


def _some(*values: Any) -> st.SearchStrategy[Any]:
    return st.sampled_from(values)


PLACES = st.builds("orders.dlq:{}:{}".format, st.integers(0, 1), st.integers(0, NUMBER))
CRITERIA = st.builds(
    Criteria,
    message=_some("", "o'hara", "x:0:12") | PLACES,
    record=_some("") | PLACES,
    key=_some(None, b"", b"key", b"other"),
    reason=_some(None, 0, 2053, 9999),
    result=_some("", "parked", "remains", "o'hara"),
    since=st.none()
    | st.integers(-10_000, NUMBER * 7_000_000).map(
        lambda milliseconds: moment(START + milliseconds)
    ),
)


@given(CRITERIA, st.integers(1, 2 * NUMBER))
def test_table_and_rows_find_the_same(
    ledgers: tuple[Ledger, Ledger, list[Row]], criteria: Criteria, limit: int
) -> None:
    whole, half, everything = ledgers
    fitting = [row for row in everything if criteria.matches(row)]
    fitting.sort(key=lambda row: (row.time, row.outcomes_offset))
    assert whole.find(criteria, limit=limit) == fitting[-limit:]
    assert half.find(criteria, limit=limit) == fitting[-limit:]


@settings(max_examples=30)
@given(st.lists(st.integers(-10_000, NUMBER * 7_000_000), max_size=3))
def test_flows_count_every_outcome_once(
    ledgers: tuple[Ledger, Ledger, list[Row]], ages: list[int]
) -> None:
    whole, half, everything = ledgers
    earliest = [moment(START + age) for age in ages]
    good = [row for row in everything if row.malformed is None]
    flows = [((row.handler, row.result), row) for row in good]
    expected = [Counter(flow for flow, _ in flows)]
    expected += [Counter(flow for flow, row in flows if row.time >= time) for time in earliest]
    assert whole.flows(*earliest) == half.flows(*earliest) == expected


def test_a_time_of_another_zone_is_the_same_moment(
    ledgers: tuple[Ledger, Ledger, list[Row]],
) -> None:
    """The table is partitioned by UTC days; who asks may live elsewhere."""
    here = moment(START).astimezone(timezone(timedelta(hours=-11)))
    whole, _, _ = ledgers
    answers = [
        whole.find(Criteria(since=since), limit=2 * NUMBER) for since in (here, moment(START))
    ]
    assert answers[0] == answers[1] != []
