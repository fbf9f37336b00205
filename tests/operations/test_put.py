"""What an application says about a message, as the headers of a record."""

from __future__ import annotations

from typing import Any

import pytest
from tests.cases import cases_beside

from redrive.operations.put import NewMessage

in_table = cases_beside(__file__)


@in_table
def test_the_put_makes_the_context_that_the_application_does_not_set(
    given: dict[str, str], options: dict[str, Any], expected: dict[str, str | None]
) -> None:
    properties = [(f"JMS_IBM_MQMD_{name}", value) for name, value in given.items()]
    message = NewMessage(queue="Q", user="a-very-long-user", properties=properties, **options)
    headers = message.headers()
    assert len(dict(headers)) == len(headers)
    raws = {name: dict(headers).get(f"JMS_IBM_MQMD_{name}") for name in expected}
    assert {name: raw and raw.decode() for name, raw in raws.items()} == expected


@pytest.mark.parametrize(
    ("report", "reply_to", "expected"),
    [
        (0, "", []),
        (0x08000000, "", []),
        (0x100 + 0x03000000 + 0x200000, "R", []),
        (0x100, "", ["ReplyToQ"]),
        (0x800 + 0x200000, "R", ["delivery"]),
        (0x3804, "", ["activity", "delivery", "ReplyToQ"]),
    ],
)
def test_reports_that_nobody_makes_are_told(
    report: int, reply_to: str, expected: list[str]
) -> None:
    fields = {"Report": str(report), "ReplyToQ": reply_to}
    properties = [(f"JMS_IBM_MQMD_{name}", value) for name, value in fields.items()]
    said = NewMessage(queue="Q", properties=properties).reports_in_vain()
    assert len(said) == len(expected)
    assert all(word in sentence for word, sentence in zip(expected, said, strict=True))
