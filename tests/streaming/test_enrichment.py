"""An enrichment fills columns, and no row is missing, doubled or moved after it."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from textwrap import indent
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.configurations import job_of

from redrive.errors import FatalFault
from redrive.messages import Headers, Records, decode_dead_letter
from redrive.streaming.enrichment import Enrichment, numbered_in_order
from redrive.streaming.held_source import SCHEMA

if TYPE_CHECKING:
    from types import ModuleType

    from pyspark.sql import DataFrame, SparkSession

PROJECT = Path(__file__).parents[2]

TASK = 1 << 33
"""What Spark's numbers of two tasks' rows differ by (``monotonically_increasing_id``)."""


def batches(*numbers: Sequence[int]) -> list[pa.RecordBatch]:
    return [
        pa.RecordBatch.from_pydict(
            {"redrive_row": pa.array(some, pa.int64()), "value": pa.array([b"x"] * len(some))}
        )
        for some in numbers
    ]


def test_rows_in_their_order_pass() -> None:
    given_ = batches([0, 1, 2], [], [3, TASK, TASK + 1], [TASK + 2, 5 * TASK])
    assert list(numbered_in_order(given_)) == given_


def test_rows_without_numbers_pass() -> None:
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
    with pytest.raises(FatalFault, match="drops, doubles or moves rows") as caught:
        list(numbered_in_order(batches(*numbers)))
    assert "left joins" in caught.value.hint


@given(st.permutations(range(6)))
def test_nothing_behind_the_first_wrong_row_is_passed_on(numbers: list[int]) -> None:
    passed: list[int] = []
    checked = numbered_in_order(batches(*[[number] for number in numbers]))
    try:
        passed.extend(batch.column("redrive_row")[0].as_py() for batch in checked)
    except FatalFault:
        assert numbers != sorted(numbers)
    else:
        assert numbers == sorted(numbers)
    assert passed == list(range(len(passed)))


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The module of examples/enrichment, found as a user's own is."""
    monkeypatch.syspath_prepend(PROJECT / "examples" / "enrichment")
    return importlib.import_module("teams")


@pytest.fixture
def enrichment(tmp_path: Path) -> Callable[[str], Enrichment]:
    """Make the enrichment that settings name: ``enrichment("package.module:function")``."""

    def make(name: str) -> Enrichment:
        return Enrichment.of(job_of(directory=tmp_path, enrichment=name))

    return make


def frame_of(spark: SparkSession, headers: Sequence[Headers]) -> DataFrame:
    """A batch of messages with these headers, on one lane; none is null, as in Spark's source."""
    when = datetime(2026, 3, 2, tzinfo=UTC)
    rows = [("dlq", 0, at, when, None, b"x", pairs or None) for at, pairs in enumerate(headers)]
    return spark.createDataFrame(rows, SCHEMA).coalesce(1)


def fetched(applied: Enrichment, frame: DataFrame) -> list[pa.RecordBatch]:
    """What the driver would decide about."""
    batches = applied.applied(frame).toArrow().to_batches()
    applied.check_fetched(batches)
    return list(applied.checked(batches))


def test_the_example_adds_a_header_from_a_lookup_table(
    spark: SparkSession, example: ModuleType, enrichment: Callable[[str], Enrichment]
) -> None:
    put, team = "JMS_IBM_MQMD_PutApplName", "JMS_IBM_MQMD_ApplIdentityData"
    dead = ("mqdlh.Reason", b"2053")
    before: list[Headers] = [
        [dead, (put, b"payapp")],
        [dead, (team, b"sales"), (put, b"payapp"), (put, b"stockapp   ")],
        [(put, b"otherapp"), dead, (team, b"sales")],
        [dead, (put, b"\xff\xfe")],
        [dead],
        [],
    ]
    applied = enrichment(f"{example.__name__}:add_team")
    batches = fetched(applied, frame_of(spark, before))
    after = [pairs for batch in batches for pairs in Records.from_arrow(batch).headers]
    teams = [decode_dead_letter(b"x", pairs).fields["APPLIDAT"] for pairs in after[:-1]]
    assert teams == ["payments", "logistics", "sales", "", ""]
    assert after[0] == [*before[0], (team, b"payments")]
    assert after[1] == [dead, *before[1][2:], (team, b"logistics")]
    assert after[2:] == before[2:]


def test_the_documentation_shows_the_example(example: ModuleType) -> None:
    body = inspect.getsource(example.add_team).rpartition('"""')[2]
    page = (PROJECT / "docs" / "settings.md").read_text(encoding="utf-8")
    assert indent(body, " " * 4) in page


def drops(frame: DataFrame) -> DataFrame:
    """Leaves out the last row, which no later one gives away."""
    return frame.where("offset < 2")


def doubles(frame: DataFrame) -> DataFrame:
    """Joins with a table whose keys are not unique."""
    from pyspark.sql import functions as F  # noqa: N812, PLC0415 - slow to import

    twice = frame.sparkSession.createDataFrame([(2,), (2,)], "offset bigint")
    return frame.join(F.broadcast(twice), "offset", "left")


def sorts(frame: DataFrame) -> DataFrame:
    return frame.sort("value")


def moves(frame: DataFrame) -> DataFrame:
    """Spreads the rows of a lane over tasks."""
    return frame.repartition(2)


def takes_away(frame: DataFrame) -> DataFrame:
    return frame.drop("headers")


@pytest.mark.parametrize(
    ("function", "problem"),
    [
        (drops, "returned 2 rows for 3"),
        (doubles, "returned 4 rows for 3"),
        (sorts, "moves rows between tasks"),
        (moves, "moves rows between tasks"),
        (takes_away, "drops the columns headers"),
    ],
)
def test_an_enrichment_that_loses_messages_is_refused(
    spark: SparkSession,
    enrichment: Callable[[str], Enrichment],
    function: Callable[[DataFrame], DataFrame],
    problem: str,
) -> None:
    applied = enrichment(f"{__name__}:{function.__name__}")
    with pytest.raises(FatalFault, match=problem):
        fetched(applied, frame_of(spark, [[], [], []]))
