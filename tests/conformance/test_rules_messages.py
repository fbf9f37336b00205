"""Vectors of kinds ``transform`` and ``decode``: what is put, and what the bytes of a header say.

A transform runs through the job's own code on topics in memory, its message once with a binary
dead-letter header and once with one in header form.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.conformance.rules_driver import OUTCOMES, HandlerDriver, MemoryTopics, dead_letter
from tests.conformance.vectors import Vector, is_subset

from redrive.messages import DeadLetterHeader, Form, OutputRecord, encode_header, reason_name
from redrive.messages.dead_letter_header import MQDLH_LENGTH, decode_header, read_header_fields
from redrive.messages.fields import mqmd_fields
from redrive.rules import parse


def attempt(table_text: str, sent: OutputRecord) -> tuple[dict[str, Any], OutputRecord | None]:
    """The outcome of the first attempt on a dead letter, and what was put, if anything."""
    topics = MemoryTopics()
    topics.topics["DLQ"].append(sent)
    HandlerDriver(topics, parse(table_text).required()).step(0.0)
    outcome: dict[str, Any] = json.loads(topics.topics[OUTCOMES][0].value or b"")
    put = topics.topics[outcome["target_topic"]]
    return outcome, put[0] if put and outcome["target_topic"] else None


def described(outcome: dict[str, Any], sent: OutputRecord, put: OutputRecord | None) -> Any:
    """An attempt in the words of the vectors."""
    user = outcome["fields"]["USERID"] if outcome["authority"] == "CTX" else None
    result: dict[str, Any] = {
        "target": {"q": outcome["target_queue"], "qm": outcome["target_queue_manager"]},
        "authority": {"alternate_user": user},
        "put_fails": put is None,
    }
    if put is not None:
        value, headers = put.value or b"", put.headers or []
        is_binary = not any(name.startswith("mqdlh.") for name, _ in sent.headers or [])
        present = (
            value == sent.value
            if is_binary
            else any(name.startswith("mqdlh.") for name, _ in headers)
        )
        body = value[MQDLH_LENGTH:] if present and is_binary else value
        result |= {"dlh_present": present, "body_hex": body.hex(), "md": mqmd_fields(headers)}
    return result


@pytest.mark.vectors("rules", kinds=["transform"])
def test_transform(vector: Vector) -> None:
    """The put has the target, the descriptor and the data that the vector says, in both forms."""
    for form in (Form.BINARY, Form.HEADERS):
        check_transform(vector, form)


def check_transform(vector: Vector, form: Form) -> None:
    """One vector with its dead letter in one form."""
    sent = dead_letter(vector["message"], form)
    outcome, put = attempt(vector["table"], sent)
    actual = described(outcome, sent, put)
    expected = dict(vector["expect"])
    beginning = expected.pop("body_starts_with_hex", "")
    assert is_subset(expected, actual), actual
    assert actual.get("body_hex", "").startswith(beginning)
    if put is not None:
        assert (put.key, put.timestamp) == (sent.key, sent.timestamp)


@pytest.mark.vectors("rules", kinds=["decode"])
def test_decode(vector: Vector) -> None:
    """The bytes have the fields that the vector says, by every reader that takes them."""
    data = bytes.fromhex(vector["bytes_hex"])
    ccsid, encoding = vector.get("ccsid", 0), vector.get("encoding", 0)
    fields = read_header_fields(data, ccsid=ccsid, encoding=encoding)
    header = decode_header(data, ccsid)
    if isinstance(header, DeadLetterHeader):
        assert header.fields().items() <= fields.items()
        assert encode_header(header) == data[:MQDLH_LENGTH]
    actual = {
        **fields,
        "ReasonName": reason_name(int(fields.get("Reason", 0))),
        "body_hex": data[MQDLH_LENGTH:].hex(),
        "valid": isinstance(header, DeadLetterHeader),
    }
    for name, value in vector["expect"].items():
        if name.endswith("_prefix"):
            assert str(actual[name.removesuffix("_prefix")]).startswith(value)
        else:
            assert actual[name] == value, name
