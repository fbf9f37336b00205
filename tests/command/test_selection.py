"""Filters in Kafka's words, on rows of outcomes."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.outcomes.samples import outcome, rows

from redrive.command.selection import parse_selection
from redrive.errors import UsageError
from redrive.outcomes.inventory import Inventory
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
    names = (
        "exception error_text group topic partition reason destq rule handler key since older_than"
    )
    given = {**dict.fromkeys(names.split()), "status": "open", "where": "", **options}
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
