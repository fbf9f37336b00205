"""The demo of three queue managers of IBM MQ: ``examples/mq``."""

from __future__ import annotations

from typing import Final

from redrive.demo.scripts.network import Example
from redrive.demo.scripts.network_operator import NetworkOperator
from redrive.demo.scripts.puts import LATE, Kind, Stage, dead_letter, on_queue, remaining
from redrive.messages.reasons import Reason

__all__ = ["MQ"]

_LONG: Final = 1001
"""Bytes: one more than MAXMSGL of RECEIPTS and of ORDERS."""

_ORDERS: Final = on_queue("ORDERS@DEPOT")

_LOCAL = Kind("a local queue", "SHOP", "RECEIPTS", on_queue("RECEIPTS@SHOP"))
_CHAIN = Kind("a chain of aliases", "SHOP", "SALES", on_queue("LEDGER@OFFICE"))
_TWO_HOPS = Kind("a remote definition, over a hub", "SHOP", "ORDERS", _ORDERS)
_NAMED = Kind("both names given", "OFFICE", "ORDERS@DEPOT", _ORDERS)
_CLUSTER = Kind(
    "a cluster queue, two instances", "SHOP", "STOCK", on_queue("STOCK@OFFICE", "STOCK@DEPOT")
)
_MEMBER = Kind("a manager of the cluster", "DEPOT", "RECEIPTS@SHOP", on_queue("RECEIPTS@SHOP"))
_MOVED = Kind("unknown there: a rule forwards it", "SHOP", "RETURNS", on_queue("RETURNS@OFFICE"))
_UNKNOWN = Kind(
    "unknown there, and no rule helps",
    "SHOP",
    "REFUNDS",
    remaining("DEPOT.DEAD@DEPOT", Reason.UNKNOWN_OBJECT_NAME),
)
_TOO_LONG = Kind(
    "too long",
    "SHOP",
    "RECEIPTS",
    dead_letter("SHOP.DEAD@SHOP", Reason.MSG_TOO_BIG_FOR_Q),
    length=_LONG,
)
_TOO_LONG_THERE = Kind(
    "too long there: a rule forwards it",
    "SHOP",
    "ORDERS",
    on_queue("ORDERS.LONG@DEPOT"),
    length=_LONG,
)
_NOWHERE = Kind(
    "nothing leads there",
    "SHOP",
    "ORDERS@PARIS",
    dead_letter("SHOP.DEAD@SHOP", Reason.UNKNOWN_REMOTE_Q_MGR),
)
_LATE = Kind("expires on the way", "SHOP", "ORDERS", LATE, expiry=10)

_STAGES: Final = (
    Stage(
        "everything",
        (
            (_LOCAL, 8),
            (_CHAIN, 8),
            (_TWO_HOPS, 8),
            (_NAMED, 5),
            (_CLUSTER, 12),
            (_MEMBER, 5),
            (_MOVED, 5),
            (_UNKNOWN, 3),
            (_TOO_LONG, 3),
            (_TOO_LONG_THERE, 4),
            (_NOWHERE, 3),
        ),
    ),
    Stage("stopped", ((_LOCAL, 3), (_CHAIN, 6), (_TWO_HOPS, 6), (_CLUSTER, 4))),
    Stage("late", ((_LATE, 4),)),
    Stage("disabled", ((_TWO_HOPS, 6), (_NAMED, 5), (_CHAIN, 2))),
)
"""What is put, stage by stage."""


def _play(network: NetworkOperator) -> None:
    _everything(network)
    _stopped_channel(network)
    _disabled_queue(network)


def _everything(network: NetworkOperator) -> None:
    network.begin("Puts of every kind")
    count = network.put("everything")
    network.say(f"{count} messages put on SHOP, OFFICE and DEPOT, as applications there do")
    network.wait_for_rest("everything")
    network.say(
        "over channels, aliases and the cluster; RETURNS and REFUNDS became dead letters of"
    )
    network.say("DEPOT, whose rules table forwards the ones and gives up on the others")


def _stopped_channel(network: NetworkOperator) -> None:
    network.begin("A channel is stopped")
    network.set_channel("SHOP", "SHOP.OFFICE", is_running=False)
    count = network.put_to_stopped("stopped", "SHOP", "OFFICE")
    network.say(f"{count} messages put on SHOP; those for LEDGER and ORDERS need the channel")
    waiting = network.wait_for_kept("stopped", "SHOP", "OFFICE")
    network.say(f"{waiting} wait on transmission queue OFFICE of SHOP; the others went their way")
    late = network.put("late")
    waiting = network.wait_for_kept("late", "SHOP", "OFFICE")
    network.say(f"{late} more that expire after a second: {waiting} wait now")
    network.wait_for_expiry(_LATE)
    network.set_channel("SHOP", "SHOP.OFFICE", is_running=True)
    network.wait_for_rest("stopped", "late")
    network.say("they went on in their order; those that had expired are gone")


def _disabled_queue(network: NetworkOperator) -> None:
    network.begin("A queue is broken")
    network.set_queue("DEPOT", "ORDERS", put_enabled=False)
    count = network.put_to_disabled("disabled")
    network.say(f"{count} messages put on SHOP and OFFICE, most of them for ORDERS at DEPOT")
    failed = network.wait_for_refused("disabled")
    network.say(
        f"{failed} became dead letters of DEPOT; its rules table retries every 2 s, in vain"
    )
    network.set_queue("DEPOT", "ORDERS", put_enabled=True)
    network.wait_for_rest("disabled")
    network.say("mended: the next attempt put each of them where it was going")


MQ: Final = Example("mq", "IBM MQ", _STAGES, _play)
"""Messages are put, a channel is stopped and started, a queue is broken and mended."""
