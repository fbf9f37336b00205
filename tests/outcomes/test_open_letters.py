"""What is written down of open dead letters: used where it fits the ledger, and else left out."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from deltalake import DeltaTable
from tests.outcomes.samples import append, ledger_at, outcome, rows

from redrive.errors import EnvironmentFault
from redrive.outcomes.inventory import Inventory, Selection
from redrive.outcomes.ledger import Ledger
from redrive.outcomes.open_letters import (
    OpenLetters,
    counts_of,
    newer_than,
    write_open_letters,
)
from redrive.outcomes.storage import open_letters_folder
from redrive.outcomes.table import LedgerTable, remove

EVERY = rows(
    [outcome(number, origin=f"d:0:{number}", result="remains") for number in range(6)], partitions=2
)
ONE = frozenset({"orders"})


def written(path: Path) -> OpenLetters | None:
    table = ledger_at(path)
    return OpenLetters.of(table)


def number_open(path: Path) -> int:
    with Inventory(Ledger(LedgerTable.open(path))) as inventory:
        return inventory.letters(Selection(), limit=1).total


@pytest.fixture
def ledger(tmp_path: Path) -> Path:
    """A ledger of four open dead letters, which are written down."""
    path = tmp_path / "ledger"
    append(path, EVERY[:4])
    write_open_letters(path)
    return path


def test_what_is_written_down_is_read_instead_of_the_older_outcomes(ledger: Path) -> None:
    known = written(ledger)
    assert known is not None
    assert known.positions == {0: 2, 1: 2}
    assert known.table.size == number_open(ledger)
    append(ledger, EVERY[4:])
    table = ledger_at(ledger)
    assert [
        row["outcomes_offset"]
        for row in table.rows(f"WHERE {newer_than(known.positions)}", columns="outcomes_offset")
    ] == [2, 2]
    assert number_open(ledger) == len(EVERY)


def test_outcomes_that_were_counted_are_not_read_again(ledger: Path) -> None:
    append(ledger, EVERY[4:])
    table = ledger_at(ledger)
    for part, handlers in ((table, {"orders", "payments"}), (table.restricted_to(ONE), ONE)):
        known = OpenLetters.of(part)
        assert known is not None
        assert {handler for handler, *_ in known.counts} == handlers
        assert counts_of(part, known) == counts_of(part, None)


def test_nothing_is_written_where_nothing_is_new(ledger: Path) -> None:
    before = DeltaTable(open_letters_folder(ledger)).version()
    write_open_letters(ledger)
    assert DeltaTable(open_letters_folder(ledger)).version() == before


def test_without_a_ledger_nothing_is_written(tmp_path: Path) -> None:
    write_open_letters(tmp_path / "none")
    LedgerTable.create(tmp_path / "ledger")
    write_open_letters(tmp_path / "ledger")
    assert written(tmp_path / "ledger") is None


@pytest.mark.parametrize("with_open", [True, False])
def test_a_ledger_made_anew_has_nothing_written_down(ledger: Path, *, with_open: bool) -> None:
    kept = ledger.with_name("kept")
    shutil.copytree(open_letters_folder(ledger), kept)
    remove(ledger)
    assert not open_letters_folder(ledger).exists()
    if with_open:
        shutil.copytree(kept, open_letters_folder(ledger))
    append(ledger, EVERY[:1])
    assert written(ledger) is None
    assert number_open(ledger) == 1
    write_open_letters(ledger)
    assert written(ledger) is not None


def test_what_comes_from_a_later_version_of_the_ledger_is_left_out(ledger: Path) -> None:
    table = LedgerTable.open(ledger)
    append(ledger, EVERY[4:])
    write_open_letters(ledger)
    assert table is not None
    assert OpenLetters.of(table) is None


def test_a_damaged_note_costs_time_and_no_answer(ledger: Path) -> None:
    for file in (open_letters_folder(ledger) / "_delta_log").iterdir():
        file.write_text("{")
    assert written(ledger) is None
    assert number_open(ledger) == len(EVERY[:4])


def test_a_place_that_cannot_be_written_is_told(ledger: Path) -> None:
    append(ledger, EVERY[4:])
    shutil.rmtree(open_letters_folder(ledger))
    open_letters_folder(ledger).write_text("a file")
    with pytest.raises(EnvironmentFault, match="the ledger in"):
        write_open_letters(ledger)
