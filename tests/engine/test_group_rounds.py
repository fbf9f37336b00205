"""Rounds for the group that failed: TO(GROUP) puts to a topic that only this group reads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from tests.conformance.rules_driver import IDENTITY
from tests.engine.failed_processing import GROUPS, smallrye, spring, streams
from tests.engine.test_rounds import BEGIN, Application

from redrive.messages import DeadLetterDecoder, Headers, OutputRecord, Records, decode_dead_letter
from redrive.messages import own_headers as own
from redrive.rules import group_topic

TABLE = """DIALECT(KAFKA)
TOPIC('orders') PARTITION(0) ACTION(RETRY) TO(GROUP) RETRY(3) BACKOFF(30s,2,10m)
TOPIC('orders') ACTION(FWD) FWDT('&TOPIC.dead')
"""


def application(fail: Any, table: str = TABLE, group: str = "billing", **more: Any) -> Application:
    """An application that reads rounds from the topic of its group."""
    return Application(fail, table, rounds=f"orders.{group}.retry", **more)


def puts_of(application: Application) -> Sequence[tuple[str, int, str]]:
    """Target, rule and DESTQ of every put, as outcomes tell them."""
    return [
        (outcome["target_topic"], outcome["rule_line"], outcome["fields"]["DESTQ"])
        for outcome in application.outcomes
        if outcome["target_topic"]
    ]


@pytest.mark.parametrize("fail", GROUPS, ids=lambda fail: fail.__name__)
def test_every_round_goes_to_the_topic_of_the_group_and_rules_see_the_original(fail: Any) -> None:
    """As often as RETRY says; the name of the topic does not grow, and patterns go on matching."""
    group = GROUPS[fail]
    consumers = application(fail, group=group)
    consumers.run()
    there = f"orders.{group}.retry"
    assert puts_of(consumers) == [(there, 2, "orders")] * 3 + [("orders.dead", 3, "orders")]
    assert len(consumers.topics.topics["orders"]) == 1
    rounds = consumers.topics.topics[there]
    assert [(put.key, put.value, put.partition) for put in rounds] == [(b"k", b"{}", 0)] * 3
    assert {dict(put.headers or [])[own.GROUP] for put in rounds} == {group.encode()}
    assert {outcome["message"] for outcome in consumers.outcomes} == {"DLQ:0:0"}
    (dead,) = consumers.topics.topics["orders.dead"]
    letter = decode_dead_letter(dead.value, dead.headers or [], key=dead.key)
    assert letter.fields["DESTQ"] == letter.view.origin.topic == "orders"


@pytest.mark.parametrize("fail", GROUPS, ids=lambda fail: fail.__name__)
def test_what_remains_keeps_its_original_topic(fail: Any) -> None:
    group = GROUPS[fail]
    keeps = TABLE.replace("RETRY(3)", "RETRY(1)").replace("FWD) FWDT('&TOPIC.dead')", "IGNORE)")
    consumers = application(fail, keeps, group)
    consumers.run()
    assert consumers.topics.topics[IDENTITY.remaining_topic]
    consumers.started(TABLE.replace("RETRY(3)", "RETRY(1)").replace("30s", "1s"))
    consumers.run()
    there = f"orders.{group}.retry"
    last = [(there, 2, "orders")] * 2 + [("orders.dead", 3, "orders")]
    assert puts_of(consumers) == last


def test_the_next_rule_may_put_to_the_original_topic() -> None:
    table = "DIALECT(KAFKA)\nACTION(RETRY) TO(GROUP) RETRY(2)\nACTION(RETRY) RETRY(1)\n"
    consumers = application(spring, table)
    consumers.run()
    assert [target for target, _, _ in puts_of(consumers)] == ["orders.billing.retry"] * 2 + [
        "orders"
    ]


def test_a_service_that_copies_headers_to_another_event_makes_no_round() -> None:
    consumers = application(spring)
    consumers.run(rounds=2)
    copied = consumers.topics.topics["orders.billing.retry"][-1].headers or []
    event = OutputRecord("invoices", b"i", b"[]", copied, 5)
    consumers.topics.topics["DLQ"][:] = [spring(event, 9, int(1000 * BEGIN))]
    consumers.topics.committed["DLQ"] = 0
    consumers.started("DIALECT(KAFKA)\nACTION(RETRY) TO(GROUP) RETRY(3)\n")
    consumers.driver.step(BEGIN + 1_000)
    (put,) = [
        outcome
        for outcome in consumers.outcomes
        if outcome["target_topic"] == "invoices.billing.retry"
    ]
    assert put["fields"]["DESTQ"] == "invoices"
    assert (put["message"], put["attempt"], put["hop"]) == ("DLQ:0:0", 1, 0)


def test_a_group_that_drops_redrives_headers_gets_no_longer_name() -> None:
    def forgetful(record: OutputRecord, offset: int, now: int) -> OutputRecord:
        headers = own.without_own(record.headers or [])
        return spring(record._replace(headers=headers), offset, now)

    consumers = application(forgetful, "DIALECT(KAFKA)\nACTION(RETRY) TO(GROUP) RETRY(2)\n")
    consumers.run(rounds=5)
    assert {target for target, _, _ in puts_of(consumers)} == {"orders.billing.retry"}


@pytest.mark.parametrize("fail", [smallrye, streams], ids=lambda fail: fail.__name__)
def test_a_dead_letter_without_a_group_is_a_failed_attempt(fail: Any) -> None:
    consumers = application(fail)
    consumers.run()
    failed = [outcome for outcome in consumers.outcomes if outcome["reason"]]
    assert [outcome["reason_name"] for outcome in failed] == ["MQRC_UNKNOWN_OBJECT_NAME"] * 3
    assert "names no consumer group" in failed[0]["detail"]
    assert puts_of(consumers) == [("orders.dead", 3, "orders")]


@pytest.mark.parametrize("group", ["with blank", "caf\u00e9", "g" * 240], ids=ascii)
def test_a_name_that_no_topic_can_have_is_refused(group: str) -> None:
    def fails(record: OutputRecord, offset: int, now: int) -> OutputRecord:
        letter = spring(record, offset, now)
        headers = [(n, group.encode() if "group" in n else v) for n, v in letter.headers or []]
        return letter._replace(headers=headers)

    consumers = application(fails)
    consumers.run()
    assert puts_of(consumers) == [("orders.dead", 3, "orders")]
    assert "not a valid topic name" in next(
        outcome["detail"] for outcome in consumers.outcomes if outcome["reason"]
    )


@pytest.mark.parametrize("fail", GROUPS, ids=lambda fail: fail.__name__)
def test_to_group_and_to_topic_differ_only_in_the_target(fail: Any) -> None:
    """Same delays, attempts, keys, values and headers but those that name table and target.

    The record that failed is on the target, so outcomes name another one.
    """

    def results(table: str) -> list[Any]:
        consumers = application(fail, table, GROUPS[fail])
        consumers.run()
        puts = [*consumers.topics.topics["orders"][1:], *consumers.topics.topics[consumers.rounds]]
        vary = {own.TABLE, own.ROUNDS, own.GROUP_TOPIC}
        records = [
            replace_headers(put, [pair for pair in put.headers or [] if pair[0] not in vary])
            for put in puts
        ]
        names = {"table", "target_topic", "target_queue", "failed_record"}
        outcomes = [
            {k: v for k, v in outcome.items() if k not in names} for outcome in consumers.outcomes
        ]
        return [consumers.puts, consumers.failures, records, outcomes]

    assert results(TABLE) == results(TABLE.replace(" TO(GROUP)", ""))


def replace_headers(record: OutputRecord, headers: Headers) -> OutputRecord:
    """A put without its topic, with other headers."""
    return record._replace(topic="", headers=headers)


def test_a_damaged_header_names_no_original() -> None:
    good = own.GroupTopic("orders.billing.retry", "orders", 3)
    assert own.read_group_topic(good.value) == good
    assert own.read_group_topic(good._replace(partition=None).value) == good._replace(
        partition=None
    )
    for value in (None, b"", b"orders", good.value + b" ", good.value.replace(b"3", b"x")):
        assert own.read_group_topic(value) is None


@pytest.mark.parametrize(
    ("form", "topic", "expected"),
    [
        ("{topic}.{group}.retry", "orders", "orders.billing.retry"),
        ("{topic}.{group}.retry", "orders.billing.retry", "orders.billing.retry"),
        ("{topic}.{group}.retry", "orders.ship.retry", "orders.ship.retry.billing.retry"),
        ("retry-{group}-{topic}", "orders", "retry-billing-orders"),
        ("retry-{group}-{topic}", "retry-billing-orders", "retry-billing-orders"),
        ("{topic}.{group}.retry", ".billing.retry", ".billing.retry.billing.retry"),
    ],
)
def test_the_name_follows_the_setting(form: str, topic: str, expected: str) -> None:
    assert group_topic(form, topic=topic, group="billing") == expected


def test_each_message_has_the_original_topic_of_its_own_header() -> None:
    letter = spring(OutputRecord("orders.billing.retry", b"k", b"{}", [], 5), 7, 5)
    marks = [own.GroupTopic("orders.billing.retry", name, 0) for name in ("orders", "bills")]
    foreign = own.GroupTopic("other.billing.retry", "other", 0)
    headers = [
        [*(letter.headers or []), (own.GROUP_TOPIC, mark.value)] for mark in (*marks, foreign)
    ]
    records = Records([b"k"] * 3, [b"{}"] * 3, headers, [5] * 3, [0, 1, 2])
    codes, profiles = DeadLetterDecoder().decode(records)
    assert [profiles[code].fields["DESTQ"] for code in codes.tolist()] == [
        "orders", "bills", "orders.billing.retry"
    ]  # fmt: skip
