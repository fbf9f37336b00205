"""The networks of the examples: their files are valid, and their puts end where meant."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.commands import json_of, redrive

EXAMPLES = Path(__file__).parents[2] / "examples"
MQ_PUTS = [
    # a local queue, a chain of aliases, a remote definition over a hub, both names given
    ("SHOP", "RECEIPTS", 0, "RECEIPTS@SHOP"),
    ("SHOP", "SALES", 0, "LEDGER@OFFICE"),
    ("SHOP", "ORDERS", 0, "ORDERS@DEPOT"),
    ("OFFICE", "ORDERS@DEPOT", 0, "ORDERS@DEPOT"),
    ("DEPOT", "RECEIPTS@SHOP", 0, "RECEIPTS@SHOP"),
    # too long, unknown there, nothing leads there
    ("SHOP", "RECEIPTS", 1001, "SHOP.DEAD@SHOP MQRC_MSG_TOO_BIG_FOR_Q"),
    ("SHOP", "ORDERS", 1001, "DEPOT.DEAD@DEPOT MQRC_MSG_TOO_BIG_FOR_Q"),
    ("SHOP", "RETURNS", 0, "DEPOT.DEAD@DEPOT MQRC_UNKNOWN_OBJECT_NAME"),
    ("SHOP", "REFUNDS", 0, "DEPOT.DEAD@DEPOT MQRC_UNKNOWN_OBJECT_NAME"),
    ("SHOP", "ORDERS@PARIS", 0, "SHOP.DEAD@SHOP MQRC_UNKNOWN_REMOTE_Q_MGR"),
    # where the rules of DEPOT put its dead letters
    ("DEPOT", "RETURNS@OFFICE", 0, "RETURNS@OFFICE"),
    ("DEPOT", "ORDERS.LONG", 1001, "ORDERS.LONG@DEPOT"),
]
"""Manager, names, length of the body; the end and its reason."""
MQE_PUTS = [
    # synchronous over a via connection, aliases of a queue and of a manager, discovery
    ("HandheldQM", "Orders@OfficeQM", 0, "", "Orders@OfficeQM"),
    ("HandheldQM", "Sales@OfficeQM", 0, "", "Orders@OfficeQM"),
    ("GatewayQM", "Orders@HeadOfficeQM", 0, "", "Orders@OfficeQM"),
    ("HandheldQM", "Positions@GatewayQM", 0, "", "Positions@GatewayQM"),
    # no queue accepts it, asynchronous, too long at its end
    ("HandheldQM", "Nothing@GatewayQM", 0, "", "Dead@HandheldQM"),
    ("HandheldQM", "Reports@OfficeQM", 0, "", "Reports@OfficeQM"),
    ("HandheldQM", "Reports@OfficeQM", 1001, "", "Reports@HandheldQM"),
    # store and forward, until the handheld pulls
    ("OfficeQM", "Jobs@HandheldQM", 0, "", "ForHandhelds@GatewayQM"),
    ("OfficeQM", "Jobs@HandheldQM", 0, "pull", "Jobs@HandheldQM"),
    ("GatewayQM", "Chores@HandheldQM", 0, "pull", "Dead@HandheldQM"),
]
"""Manager, names, length of the body, what follows; the end."""


@pytest.mark.parametrize(
    ("name", "warnings"),
    [("mq", ["UNDELIVERABLE", "UNDELIVERABLE"]), ("mqe", ["ATTRIBUTES_DIFFER"])],
)
def test_check_warns_of_what_the_example_means_to_show(name: str, warnings: list[str]) -> None:
    """Nothing else: its README names what the warnings are about."""
    text = redrive("check", EXAMPLES / name, code=0).output
    assert [text.count(f"[{code}]") for code in warnings] == [len(warnings)] * len(warnings)
    assert text.count("warning: ") == len(warnings)


@pytest.mark.parametrize(("at", "names", "length", "end"), MQ_PUTS)
def test_put_to_the_network_of_mq_ends_where_meant(
    at: str, names: str, length: int, end: str
) -> None:
    words = (names, "--at", at, "--length", str(length), "--topology", EXAMPLES / "mq", "--json")
    result = redrive("resolve", *words).output
    final, _, reason = end.partition(" ")
    assert f'"final": "{final}"' in result
    assert reason in result
    assert ('"problem": null' in result) is not bool(reason)


def test_cluster_queue_of_the_network_of_mq_has_two_instances() -> None:
    words = ("STOCK", "--at", "SHOP", "--topology", EXAMPLES / "mq", "--seed")
    finals = {json_of("resolve", *words, str(seed))["final"] for seed in range(10)}
    assert finals == {"STOCK@OFFICE", "STOCK@DEPOT"}


@pytest.mark.parametrize(
    ("queue", "reason", "attempt"),
    [
        ("RETURNS", "MQRC_UNKNOWN_OBJECT_NAME", "rule at line 13: put to RETURNS on OFFICE"),
        ("REFUNDS", "MQRC_UNKNOWN_OBJECT_NAME", "rule at line 21: put to REFUNDS"),
        ("ORDERS", "MQRC_MSG_TOO_BIG_FOR_Q", "rule at line 17: put to ORDERS.LONG"),
        ("ORDERS", "MQRC_PUT_INHIBITED", "rule at line 9: put to ORDERS"),
    ],
)
def test_rules_of_the_depot_take_its_dead_letters(queue: str, reason: str, attempt: str) -> None:
    fields = ("--field", f"DESTQ={queue}", "--field", f"REASON={reason}")
    text = redrive("explain", EXAMPLES / "mq" / "DEPOT.rul", *fields, code=0).output
    first = next(line for line in text.splitlines() if line.lstrip().startswith("0 s"))
    assert attempt in first


@pytest.mark.parametrize(("at", "names", "length", "then", "end"), MQE_PUTS)
def test_put_to_the_network_of_mqe_ends_where_meant(
    at: str, names: str, length: int, then: str, end: str
) -> None:
    following = ["--then", then] if then else []
    words = (names, "--at", at, "--length", str(length), "--topology", EXAMPLES / "mqe", "--json")
    result = redrive("resolve", *words, *following).output
    assert f'"final": "{end}"' in result
