"""An enrichment's rows are looked at as they pass: none missing, doubled or moved."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive.errors import FatalFault
from redrive.streaming.enrichment import numbered_in_order

TASK = 1 << 33
"""What Spark's numbers of two tasks' rows differ by (``monotonically_increasing_id``)."""


def batches(*numbers: Sequence[int]) -> list[pa.RecordBatch]:
    """Batches of rows with these numbers."""
    return [
        pa.RecordBatch.from_pydict(
            {"redrive_row": pa.array(some, pa.int64()), "value": pa.array([b"x"] * len(some))}
        )
        for some in numbers
    ]


def test_rows_in_their_order_pass() -> None:
    """Over batches, some of them empty; on the driver the tasks come one behind the other."""
    given_ = batches([0, 1, 2], [], [3, TASK, TASK + 1], [TASK + 2, 5 * TASK])
    assert list(numbered_in_order(given_)) == given_


def test_rows_without_numbers_pass() -> None:
    """There was no enrichment."""
    plain = [pa.RecordBatch.from_pydict({"value": [b"x"]})] * 2
    assert list(numbered_in_order(plain)) == plain


@pytest.mark.parametrize(
    "numbers",
    [
        pytest.param([[0, 2]], id="dropped"),
        pytest.param([[1]], id="dropped first"),
        pytest.param([[0, 1], [3]], id="dropped between batches"),
        pytest.param([[0, 0]], id="doubled"),
        pytest.param([[0], [0]], id="doubled between batches"),
        pytest.param([[1, 0]], id="moved"),
        pytest.param([[TASK + 1, 0, 1]], id="dropped of a later task"),
    ],
)
def test_other_rows_stop_the_job(numbers: list[list[int]]) -> None:
    """With a fault that says what an enrichment may do."""
    with pytest.raises(FatalFault, match="drops, doubles or moves rows") as caught:
        list(numbered_in_order(batches(*numbers)))
    assert "left joins" in caught.value.hint


@given(st.permutations(range(6)))
def test_nothing_behind_the_first_wrong_row_is_passed_on(numbers: list[int]) -> None:
    """Whatever is emitted before the fault was right."""
    passed: list[int] = []
    checked = numbered_in_order(batches(*[[number] for number in numbers]))
    try:
        passed.extend(batch.column("redrive_row")[0].as_py() for batch in checked)
    except FatalFault:
        assert numbers != sorted(numbers)
    else:
        assert numbers == sorted(numbers)
    assert passed == list(range(len(passed)))
