"""Filters in Kafka's words, on rows of outcomes."""

from __future__ import annotations

import re
from inspect import signature
from pathlib import Path

import pytest
from tests.outcomes.samples import outcome, rows

from redrive.command.selection import parse_selection
from redrive.errors import UsageError
from redrive.outcomes.conditions import BodyFilter
from redrive.outcomes.inventory import Inventory, Selection
from redrive.outcomes.ledger import Ledger

LETTERS = {
    1: ("java.net.SocketTimeoutException", "It's 5% late", "billing", "orders", 3),
    2: ("org.shop.Outer$SocketTimeoutException", "AWAY", "billing-2", "orders_eu", 13),
    3: ("SocketTimeoutExceptions", None, None, "ordersXeu", 3),
}


def chosen(folder: Path, **options: str | int) -> list[int]:
    """The dead letters of a selection by its options."""
    every = rows(
        [
            outcome(
                number,
                result="remains",
                action="",
                error_class=error,
                error_message=text,
                consumer_group=group,
                failed_record=f"{topic}:{partition}:{number}",
                fields={"DESTQ": topic},
            )
            for number, (error, text, group, topic, partition) in LETTERS.items()
        ]
    )
    names = signature(parse_selection).parameters
    given = {**dict.fromkeys(names), "status": "open", "where": "", **options}
    with Inventory(Ledger(None, tuple(every))) as inventory:
        listing = inventory.letters(parse_selection(**given), limit=10)  # type: ignore[arg-type]
    return sorted(int(row.origin.rpartition(":")[2]) for row in listing.letters)


@pytest.mark.parametrize(
    ("options", "numbers"),
    [
        ({"exception": "SocketTimeoutException"}, [1, 2]),
        ({"exception": "java.net.SocketTimeoutException"}, [1]),
        ({"exception": "*Timeout*"}, [1, 2, 3]),
        ({"error_text": "it's 5% l"}, [1]),
        ({"error_text": "away"}, [2]),
        ({"group": "billing"}, [1]),
        ({"group": "billing*"}, [1, 2]),
        ({"topic": "orders"}, [1]),
        ({"topic": "orders_*"}, [2]),
        ({"partition": 3}, [1, 3]),
        ({"partition": 3, "topic": "orders*", "where": "hop >= 0 OR hop < 0"}, [1, 3]),
        ({"topic": "nothing"}, []),
    ],
)
def test_filters_select_by_what_failed(
    tmp_path: Path, options: dict[str, str | int], numbers: list[int]
) -> None:
    assert chosen(tmp_path, **options) == numbers


def test_an_error_of_a_condition_is_about_what_the_user_wrote(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as alone:
        chosen(tmp_path, where="hop = = 2")
    with pytest.raises(UsageError) as beside:
        chosen(tmp_path, where="hop = = 2", topic="orders")
    assert beside.value.message == alone.value.message


BODIES = [
    b'{"order": {"id": 17, "name": "Ann"}}', b'{"order": {"id": 18, "name": "Bob"}}',
    b'{"order": {"id": 17.0, "paid": true}}', b"<order id='17' name='ANN'/>",
    b'{"order": {"id": "9"}}', None,
]  # fmt: skip


@pytest.mark.parametrize(
    ("comparison", "text", "numbers"),
    [
        ("$.order.id == 17", "", [0, 2]),
        ("$['order'].id>=17", "", [0, 1, 2]),
        ("$.order.id < 17", "", [4]),
        ("$.order.id == '9'", "", [4]),
        ("$.order.id != 17", "", [1, 4]),
        ("$.order.name == 'Ann'", "", [0]),
        ('$.order.name contains "B"', "18", [1]),
        ("$.order.name == null", "", [2, 4]),
        ("$.order.paid == true", "", [2]),
        ("", "aNN", [0, 3]),
        ("", "", [0, 1, 2, 3, 4, 5]),
    ],
)
def test_a_body_is_compared_by_its_json_and_its_text(
    comparison: str, text: str, numbers: list[int]
) -> None:
    wanted = BodyFilter.of(comparison, text)
    assert [number for number, body in enumerate(BODIES) if wanted.matches(body)] == numbers
    assert comparison == "" or BodyFilter.of(comparison, "").matches(BODIES[3]) is None


@pytest.mark.parametrize(
    ("comparison", "problem"),
    [
        ("order.id == 17", "is not a comparison of a JSON value"),
        ("$.order.id", "is not a comparison of a JSON value"),
        ("$.order..id == 17", "is neither .name nor [number]"),
        ("$.order.name == Ann", "Ann is neither a number nor a text in quotes"),
        ("$.order.name < 'Ann'", "< compares numbers"),
    ],
)
def test_a_comparison_that_cannot_be_meant_is_refused(
    tmp_path: Path, comparison: str, problem: str
) -> None:
    with pytest.raises(UsageError, match=re.escape(problem)):
        chosen(tmp_path, body=comparison)


def test_any_number_of_bodies_may_match() -> None:
    """A list of twenty thousand in SQL ended the process."""
    names = [f"orders.dlq:0:{number}" for number in range(20_000)]
    letter = outcome(17, result="remains", action="", message="orders.dlq:0:17")
    with Inventory(Ledger(None, tuple(rows([letter])))) as inventory:
        assert inventory.count(Selection(messages=frozenset(names))) == 1
        assert inventory.count(Selection(messages=frozenset(names[:17]))) == 0
        assert inventory.count(Selection(messages=frozenset())) == 0


def test_the_examples_of_the_page_are_valid() -> None:
    page = (Path(__file__).parents[2] / "docs" / "ledger.md").read_text()
    comparisons = re.findall(r"--body '([^']+)'", page)
    assert comparisons
    assert all(BodyFilter.of(comparison, "").path for comparison in comparisons)
