"""What an application says about a message, as the headers of a record."""

from __future__ import annotations

from typing import Any

import pytest
from tests.cases import cases_beside

from redrive.errors import UsageError
from redrive.operations.put import NewMessage

in_table = cases_beside(__file__)


def test_names_fields_and_properties_are_headers() -> None:
    message = NewMessage(
        queue="PAY",
        queue_manager="QM2",
        persistent=False,
        expiry=600,
        properties=[
            ("colour", "blue"),
            ("JMS_IBM_MQMD_MsgType", "MQMT_REQUEST"),
            ("JMS_IBM_MQMD_Report", "-7"),
            ("JMS_IBM_MQMD_ReplyToQ", "ANSWERS"),
        ],
    )
    assert message.headers() == [
        ("redrive.oqm", b"QM2"),
        ("redrive.oq", b"PAY"),
        ("JMS_IBM_MQMD_Persistence", b"0"),
        ("JMS_IBM_MQMD_Priority", b"-1"),
        ("JMS_IBM_MQMD_Expiry", b"600"),
        ("colour", b"blue"),
        ("JMS_IBM_MQMD_MsgType", b"1"),
        ("JMS_IBM_MQMD_Report", b"-7"),
        ("JMS_IBM_MQMD_ReplyToQ", b"ANSWERS"),
    ]


def test_what_is_not_said_is_left_to_the_queue() -> None:
    assert NewMessage(queue="PAY").headers() == [
        ("redrive.oq", b"PAY"),
        ("JMS_IBM_MQMD_Persistence", b"2"),
        ("JMS_IBM_MQMD_Priority", b"-1"),
    ]


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
    ("name", "value", "said"),
    [
        ("redrive.id", "1", "property redrive.id: names that begin with redrive. are Redrive's"),
        ("JMS_IBM_MQMD_Reprt", "1", "MQMD has no field Reprt"),
        ("JMS_IBM_MQMD_Report", "yes", "yes is neither a number nor a symbolic name"),
        ("JMS_IBM_MQMD_UserIdentifier", "alice", "UserIdentifier is set by the put"),
    ],
)
def test_a_property_that_is_wrong_is_refused(name: str, value: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        NewMessage(queue="PAY", properties=[(name, value)]).headers()


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
