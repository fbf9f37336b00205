"""The page on messages: its examples run, its tables are those of the code."""

from __future__ import annotations

import doctest
import re
from dataclasses import fields
from itertools import chain
from pathlib import Path

from redrive.messages.constants import FAMILIES
from redrive.messages.schemes import SCHEME_NAMES
from redrive.messages.schemes.known import SCHEMES
from redrive.messages.schemes.scheme import REASONS, DeadLetterView

PAGE = Path(__file__).parents[2] / "docs" / "messages.md"


def test_examples_run() -> None:
    """Every example gives what the page says."""
    results = doctest.testfile(str(PAGE), module_relative=False)
    assert results.attempted > 0
    assert results.failed == 0


def test_every_scheme_is_in_the_table_with_a_header_that_identifies_it() -> None:
    rows = re.findall(
        r"^\| `([\w-]+)` \| (.*) \| .* \|$",
        PAGE.read_text(encoding="utf-8").split("| recognised by |")[1].split("\n\n")[0],
        re.MULTILINE,
    )
    assert {name for name, _ in rows} == {*SCHEME_NAMES}
    recognised_by = dict(rows)
    for scheme in SCHEMES:
        assert f"`{scheme.leading[0]}`" in recognised_by[scheme.name]


def test_every_part_of_the_normalised_view_is_in_its_table() -> None:
    table = PAGE.read_text(encoding="utf-8").split("| part | meaning |")[1].split("\n\n")[0]
    parts = [re.findall(r"`(\w+)`", row.split("|")[1]) for row in table.splitlines()[2:]]
    assert [*chain.from_iterable(parts)] == [part.name for part in fields(DeadLetterView)]


def test_reasons_of_exceptions_are_complete() -> None:
    written = {
        exception: reason
        for exceptions, code, reason in re.findall(
            r"^\| ([\w, ]+) \| (\d+) `(MQRC_\w+)` \|$",
            PAGE.read_text(encoding="utf-8"),
            re.MULTILINE,
        )
        for exception in exceptions.split(", ")
        if FAMILIES["MQRC"][reason] == int(code) and exception in REASONS
    }
    assert written == REASONS
