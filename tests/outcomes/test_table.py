"""The ledger's table: where the projection stands, what is kept, who may change it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from benchmarks.plot import bars
from deltalake import ColumnProperties, WriterProperties, write_deltalake
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.outcomes.samples import START, append, ledger_at, outcome, rows

import redrive
from redrive.engine.outcome import ADDED
from redrive.errors import AlreadyRunningError, EnvironmentFault
from redrive.outcomes.rows import moment
from redrive.outcomes.storage import locked
from redrive.outcomes.table import SCHEMA, LedgerTable, arrow_of, remove

LEDGER_PAGE = Path(__file__).parents[2] / "docs" / "ledger.md"
PAGE = LEDGER_PAGE.read_text()
BY_HOUR = PAGE.split("### Failures by hour")[1].split("### Less to read")[0]
[QUERY] = re.findall(r"```sql\n(.*?)```", BY_HOUR, re.DOTALL)
[PROGRAM] = re.findall(r"```python\n(.*?)```", BY_HOUR, re.DOTALL)
HOUR = 3_600_000


def test_there_may_be_no_ledger_yet(tmp_path: Path) -> None:
    assert LedgerTable.open(tmp_path / "ledger") is None


@pytest.mark.parametrize("known", range(len(ADDED)))
def test_a_ledger_of_an_earlier_version_gets_the_columns_that_came_since(
    tmp_path: Path, known: int
) -> None:
    path = tmp_path / "ledger"
    [old, new] = rows([outcome(1), outcome(3, traceparent="00-a-b-01")], partitions=1)
    missing = {column.name for column in ADDED[known:]}
    earlier = pa.schema([field for field in SCHEMA if field.name not in missing])
    plain = {name: value for name, value in old._asdict().items() if name not in missing}
    write_deltalake(path, pa.Table.from_pylist([plain], schema=earlier))
    assert ledger_at(path).size == 1
    append(path, [new])
    rows_read = ledger_at(path).outcomes("SELECT * FROM ledger ORDER BY outcomes_offset")
    assert [row.operator for row in rows_read] == [None, "ann@host"]
    assert [row.traceparent for row in rows_read] == [None, "00-a-b-01"]


def test_a_new_ledger_stands_nowhere(tmp_path: Path) -> None:
    assert LedgerTable.create(tmp_path / "ledger").positions() == {}


@settings(max_examples=25)
@given(
    st.lists(
        st.dictionaries(st.integers(0, 5), st.integers(0, 200_000), min_size=1),
        min_size=1,
        max_size=4,
    )
)
def test_positions_follow_the_largest_offset_of_each_partition(
    tmp_path_factory: pytest.TempPathFactory, appends: list[dict[int, int]]
) -> None:
    path = tmp_path_factory.mktemp("ledger")
    [sample] = rows([outcome(1)])
    largest: dict[int, int] = {}
    for offsets in appends:
        new = [
            sample._replace(outcomes_partition=partition, outcomes_offset=offset)
            for partition, offset in offsets.items()
        ]
        append(path, new)
        for partition, offset in offsets.items():
            largest[partition] = max(largest.get(partition, 0), offset)
    expected = {partition: offset + 1 for partition, offset in largest.items()}
    assert ledger_at(path).positions() == expected


def test_positions_are_found_without_statistics_of_files(tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    LedgerTable.create(path)
    none = WriterProperties(default_column_properties=ColumnProperties(statistics_enabled="NONE"))
    new = arrow_of(rows(outcome(number) for number in range(4)))
    write_deltalake(path, new, mode="append", writer_properties=none)
    assert ledger_at(path).positions() == {0: 2, 1: 1, 2: 1}


def test_rows_are_written_and_read_without_pandas(tmp_path: Path) -> None:
    program = (
        "import sys; from pathlib import Path; from tests.outcomes.samples import outcome, rows;"
        " from redrive.outcomes.table import LedgerTable, arrow_of;"
        " table = LedgerTable.of_rows(Path(sys.argv[1]), arrow_of(rows([outcome(1)])));"
        " assert len(table.outcomes('SELECT * FROM ledger')) == 1;"
        " sys.exit('pandas' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", program, str(tmp_path / "ledger")], check=True)


def test_compaction_changes_files_and_no_row(tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    for start in range(0, 60, 6):
        append(path, rows(outcome(start + number, time=0) for number in range(6)))
    before = ledger_at(path)
    content = sorted(before.rows("", columns="outcome, outcomes_offset"), key=str)
    done = before.compact()
    assert (done.files_before, done.files_after) == (10, 1)
    after = ledger_at(path)
    assert sorted(after.rows("", columns="outcome, outcomes_offset"), key=str) == content
    assert after.positions() == before.positions()
    assert done.files_deleted == 0


def test_another_table_is_not_taken_for_a_ledger(tmp_path: Path) -> None:
    write_deltalake(tmp_path / "ledger", pa.table({"x": [1]}))
    with pytest.raises(EnvironmentFault, match="is not a ledger"):
        LedgerTable.create(tmp_path / "ledger")
    with pytest.raises(EnvironmentFault, match="is not a ledger"):
        remove(tmp_path / "ledger")
    assert (tmp_path / "ledger" / "_delta_log").exists()


def test_the_ledger_of_another_cluster_is_not_taken_for_this_ones(tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    append(path, rows([outcome(1)]))
    assert LedgerTable.open(path, "A/outcomes") is not None
    assert LedgerTable.create(path, "A/outcomes").size == 1
    for _ in range(2):
        assert LedgerTable.create(path, "A/outcomes").size == 1
        with pytest.raises(EnvironmentFault, match="outcomes on the cluster A") as refused:
            LedgerTable.open(path, "B/outcomes")
        assert "its own ledger" in str(refused.value.hint)
        with pytest.raises(EnvironmentFault, match="not those of other on A"):
            LedgerTable.create(path, "A/other")
        LedgerTable.create(path).compact()
    assert ledger_at(path).size == 1
    remove(path)
    LedgerTable.create(path, "B/outcomes")
    assert LedgerTable.open(path, "B/outcomes") is not None


def test_a_broken_ledger_says_what_to_look_at_and_suggests_to_delete_nothing(
    tmp_path: Path,
) -> None:
    path = tmp_path / "ledger"
    append(path, rows([outcome(1)]))
    for file in (path / "_delta_log").glob("*.json"):
        file.write_text("{")
    with pytest.raises(EnvironmentFault) as caught:
        ledger_at(path).outcomes("SELECT * FROM ledger")
    assert "check the folder" in caught.value.hint
    assert "rebuild" not in caught.value.hint


def test_of_two_who_want_to_change_a_ledger_one_is_refused(tmp_path: Path) -> None:
    script = (
        "import sys, pathlib; from redrive.outcomes.storage import locked\n"
        "with locked(pathlib.Path(sys.argv[1])): print('held', flush=True); sys.stdin.read()"
    )
    path = tmp_path / "ledger"
    with subprocess.Popen(
        [sys.executable, "-c", script, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(AlreadyRunningError), locked(path):
            pass
        holder.kill()
    with locked(path):
        pass


MEMBERS = {"time": START + 8 * HOUR, "error_class": "E"}
BY_HOURS = {moment(START // HOUR * HOUR): 2, moment(START // HOUR * HOUR + HOUR): 1}


@pytest.fixture
def failures(tmp_path: Path) -> LedgerTable:
    """Failures of two hours, decided later in one; one of them is decided twice. And a put."""
    failed = [START, START + 5, START + HOUR, None]
    letters = [
        outcome(0, outcome=f"d:0:{number}", origin=f"d:0:{number}", failed_at=at, **MEMBERS)
        for number, at in enumerate(failed)
    ]
    again = {**letters[1], "outcome": "retry:0:1", "time": START + 9 * HOUR}
    append(tmp_path / "ledger", rows([*letters, again], partitions=1))
    return ledger_at(tmp_path / "ledger")


def test_failures_by_hour_are_a_query_on_the_page(failures: LedgerTable) -> None:
    answer = {row["hour"]: row["failures"] for row in failures.answer(QUERY)}
    assert answer == BY_HOURS


def test_failures_by_hour_are_a_table_of_pandas(failures: LedgerTable) -> None:
    program = PROGRAM.replace("/var/lib/redrive/orders/ledger", str(failures.path))
    made: dict[str, Any] = {}
    exec(compile(program, "docs/ledger.md", "exec"), made)  # noqa: S102 - our own page
    assert made["failures"]["E"].to_dict() == BY_HOURS


def test_failures_by_hour_are_a_query_of_duckdb(failures: LedgerTable) -> None:
    ledger = failures.delta.to_pyarrow_dataset()
    connection = duckdb.connect()
    connection.register("ledger", ledger)
    connection.execute("SET TimeZone = 'UTC'")
    hours = dict(connection.execute(QUERY).fetchall())
    assert hours == BY_HOURS


def test_the_picture_shows_the_failures_of_a_ledger(
    tmp_path: Path, pytestconfig: pytest.Config
) -> None:
    """A consumer had no database from 5 to 8 o'clock; all was decided in a minute at noon."""
    counts = [3, 2, 4, 3, 2, 38, 61, 44, 6, 3, 2, 3]
    midnight = START // (24 * HOUR) * 24 * HOUR
    times = [
        midnight + hour * HOUR + row for hour, count in enumerate(counts) for row in range(count)
    ]
    letters = (
        outcome(0, outcome=(at := f"d:0:{number}"), origin=at, failed_at=time, **MEMBERS)
        for number, time in enumerate(times)
    )
    append(tmp_path / "ledger", rows(letters, partitions=1))
    hours = {
        f"{row['hour']:%H:%M}": row["failures"]
        for row in ledger_at(tmp_path / "ledger").answer(QUERY)
    }
    assert [*hours.values()] == counts
    picture = LEDGER_PAGE.with_name("failures.svg")
    drawn = bars("Failures by hour", hours, "")
    if pytestconfig.getoption("--write-transcripts"):
        picture.write_text(drawn)
    assert picture.read_text() == drawn


def test_page_names_the_jars_that_setup_fetches() -> None:
    lock = (Path(redrive.__file__).parent / "jars.lock").read_text()
    for coordinate in re.findall(r"--packages (\S+)", PAGE):
        assert f"\ndelta  {coordinate} " in lock
