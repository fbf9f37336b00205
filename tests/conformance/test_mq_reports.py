"""Our vectors about the reports that a put writes beside its message.

Their form stands at the head of ``own/mq_reports.yaml`` and the other files.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.conformance.decided_network import NOW, DecidedNetwork
from tests.conformance.test_one_put import resolved
from tests.conformance.traffic_networks import Numbered, numbered
from tests.conformance.vectors import OWN, Vector, load

from redrive.messages import OutputRecord, decode_dead_letter, remove_header
from redrive.messages.fields import mqmd_fields
from redrive.messages.reports import REPORT_OPTIONS, ReportKind, ReportOptions
from redrive.topology.names import put_topic, topic_name

OPTIONS = {
    "MQRO_PASS_CORREL_ID": 0x40,
    "MQRO_PASS_MSG_ID": 0x80,
    "MQRO_PASS_DISCARD_AND_EXPIRY": 0x4000,
    "MQRO_DISCARD_MSG": 0x08000000,
    **{
        f"MQRO_{name}{data}": value * factor
        for name, value in [
            ("COA", 0x100), ("COD", 0x800), ("EXPIRATION", 0x200000), ("EXCEPTION", 0x1000000),
        ]
        for data, factor in [("", 1), ("_WITH_DATA", 3), ("_WITH_FULL_DATA", 7)]
    },
}  # fmt: skip
"""cmqc.h."""
_FIELDS = {
    "msgid": "MsgId", "correlid": "CorrelId", "format": "Format", "priority": "Priority",
    "userid": "UserIdentifier", "expiry": "Expiry", "replyq": "ReplyToQ", "replyqm": "ReplyToQMgr",
    "group": "GroupId",
}  # fmt: skip
_REPORT = 4
"""MQMT_REPORT."""


def put_of(case: Numbered) -> OutputRecord:
    """The record that an application writes."""
    put: Mapping[str, Any] = case.vector["put"]
    fields = {name: put[key] for key, name in _FIELDS.items() if key in put}
    fields["Report"] = sum(OPTIONS[name] for name in put.get("report", ()))
    if case.persistence is not None:
        fields["Persistence"] = int(case.persistence)
    names = [("redrive.oqm", case.queue_manager.encode()), ("redrive.oq", case.queue.encode())]
    if "open" in put:
        names.append(("redrive.bind", put["open"].encode()))
    headers = [(f"JMS_IBM_MQMD_{name}", str(value).encode()) for name, value in fields.items()]
    created = NOW - 100 * put.get("waits", 0)
    return OutputRecord(put_topic(case.at), b"key", case.body, [*names, *headers], created)


def place(names: str) -> str:
    """The topic of ``queue@manager``."""
    queue, _, manager = names.partition("@")
    return topic_name(queue=queue, queue_manager=manager)


def reports(network: DecidedNetwork) -> Iterator[tuple[str, OutputRecord]]:
    """Every report that rests, with its topic."""
    for topic, records in network.lying.items():
        for record in records:
            if mqmd_fields(record.headers or [])["MsgType"] == _REPORT:
                yield topic, record


def check_report(expected: dict[str, Any], topic: str, record: OutputRecord) -> None:
    """A report lies where it is expected, as it is expected."""
    letter = decode_dead_letter(record.value, record.headers or [])
    body, headers = remove_header(letter, record.value, record.headers or [])
    fields_found = {
        **mqmd_fields(headers),
        "rests": topic,
        "body": (body or b"").decode(),
        "dead": letter.header.reason if letter.header else None,
    }
    wanted = {"dead": None, **expected, "rests": place(expected["rests"])}
    assert {name: fields_found[name] for name in wanted} == wanted


@pytest.mark.parametrize("vector", load(OWN, "mq_reports"), ids=lambda vector: vector["id"])
def test_reports(vector: Vector) -> None:
    """The message ends as the vector says, and its reports are those that the vector lists."""
    check(vector)


def check(vector: Vector) -> tuple[Numbered, DecidedNetwork]:
    """Carries a vector out, and compares where the message is and which reports there are."""
    case = numbered("mq_routes", vector, 0)
    network = DecidedNetwork(case.topology)
    network.run([put_of(case)])
    expect = case.vector["expect"]
    made = list(reports(network))
    assert len(made) == len(expect.get("reports", ()))
    for expected, (topic, record) in zip(expect.get("reports", ()), made, strict=True):
        check_report(expected, topic, record)
    own_outcomes = [
        outcome
        for outcome in network.outcomes
        if outcome["message"] == network.outcomes[0]["message"]
    ]
    assert expect.get("result", "routed") == own_outcomes[-1]["result"]
    assert expect.get("reason", own_outcomes[-1]["reason"]) == own_outcomes[-1]["reason"]
    if "final" in expect:
        plain = [
            record
            for record in network.lying[place(expect["final"])]
            if mqmd_fields(record.headers or [])["MsgType"] != _REPORT
        ]
        assert len(plain) == 1
        fields = mqmd_fields(plain[0].headers or [])
        assert {name: fields[name] for name in expect.get("fields", ())} == expect.get("fields", {})
    return case, network


@pytest.mark.parametrize("vector", load(OWN, "mq_attributes"), ids=lambda vector: vector["id"])
def test_attributes(vector: Vector) -> None:
    """The message has the outcomes, the place and the fields that its definitions give it."""
    case, network = check(
        {
            **vector,
            "expect": {
                "result": vector["expect"].get("results", ["routed"])[-1],
                **vector["expect"],
            },
        }
    )
    expect = case.vector["expect"]
    results = [
        outcome["result"]
        for outcome in network.outcomes
        if outcome["message"].startswith(put_topic(case.at))
    ]
    assert results == expect.get("results", ["routed"])
    if "waits_on" in expect:
        assert len(network.lying[place(expect["waits_on"])]) == 1


def foretold(vector: Vector) -> list[str]:
    """Where ``redrive resolve`` says that the reports of a vector are."""
    case = numbered("mq_routes", vector, 0)
    put: Mapping[str, Any] = case.vector["put"]
    names = "@".join(filter(None, (put.get("replyq"), put.get("replyqm"))))
    options = [f"--report={name}" for name in put.get("report", ())]
    trace = resolved(case, *options, *([f"--reply-to={names}"] if names else []))
    is_late = put.get("waits", 0) > put.get("expiry", 600)
    return [
        place(caused["final"])
        for caused in trace["caused"]
        if caused["final"] and is_late == ("late" in caused["what"])
    ]


@pytest.mark.parametrize(
    "vector",
    [
        *load(OWN, "mq_reports"),
        *load(OWN, "mq_attributes"),
    ],
    ids=lambda vector: vector["id"],
)
def test_resolve_foretells_reports(folder: Path, vector: Vector) -> None:
    """Where the vector has them; a request without effect says that none is made."""
    expect = vector["expect"]
    # Names in a vector have the number that keeps its managers apart from those of others.
    numbers = numbered("mq_routes", vector, 0).vector["expect"]
    expected = [place(report["rests"]) for report in numbers.get("reports", ())]
    assert len(expected) == len(expect.get("reports", ()))
    assert sorted(foretold(vector)) == sorted(expected)


def test_every_option_that_asks_for_a_report_is_known() -> None:
    options = ReportOptions(sum(OPTIONS[name] for name in OPTIONS if "_WITH" not in name) | 0x4)
    assert all(options.asks_for(kind) for kind in ReportKind)
    assert {f"MQRO_{name}": value for name, value in REPORT_OPTIONS.items()} == {
        **OPTIONS,
        "MQRO_ACTIVITY": 0x4,
    }
