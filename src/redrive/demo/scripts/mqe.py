"""The demo of three queue managers of MQ Everyplace: ``examples/mqe``."""

from __future__ import annotations

from typing import Final

from redrive.demo.scripts.network import Example
from redrive.demo.scripts.network_operator import NetworkOperator
from redrive.demo.scripts.puts import LATE, Kind, Stage, dead_letter, on_queue, remaining

__all__ = ["MQE"]

_LONG: Final = 1001
"""Bytes: one more than Reports of the office takes."""

_ORDERS: Final = on_queue("Orders@OfficeQM")
_DEAD: Final = dead_letter("Dead@HandheldQM")

_SYNCHRONOUS = Kind("synchronous, over a via connection", "HandheldQM", "Orders@OfficeQM", _ORDERS)
_QUEUE_ALIAS = Kind("an alias of a queue", "HandheldQM", "Sales@OfficeQM", _ORDERS)
_MANAGER_ALIAS = Kind("an alias of a manager", "GatewayQM", "Orders@HeadOfficeQM", _ORDERS)
_DISCOVERED = Kind(
    "no definition: discovery",
    "HandheldQM",
    "Positions@GatewayQM",
    on_queue("Positions@GatewayQM"),
)
_UNKNOWN = Kind("no queue accepts it", "HandheldQM", "Nothing@GatewayQM", _DEAD)
_REPORT = Kind("asynchronous", "HandheldQM", "Reports@OfficeQM", on_queue("Reports@OfficeQM"))
_LATE = Kind("asynchronous, expires in store", "HandheldQM", "Reports@OfficeQM", LATE, expiry=10)
_TOO_LONG = Kind(
    "asynchronous, too long at its end",
    "HandheldQM",
    "Reports@OfficeQM",
    remaining("Reports@HandheldQM"),
    length=_LONG,
)
_JOB = Kind("store and forward, pulled", "OfficeQM", "Jobs@HandheldQM", on_queue("Jobs@HandheldQM"))
_CHORE = Kind("pulled, and no queue accepts it", "GatewayQM", "Chores@HandheldQM", _DEAD)

_STAGES: Final = (
    Stage(
        "everything",
        (
            (_SYNCHRONOUS, 10),
            (_QUEUE_ALIAS, 8),
            (_MANAGER_ALIAS, 6),
            (_DISCOVERED, 8),
            (_UNKNOWN, 4),
            (_TOO_LONG, 3),
        ),
    ),
    Stage("stopped", ((_REPORT, 12), (_SYNCHRONOUS, 5))),
    Stage("late", ((_LATE, 4),)),
    Stage("stored", ((_JOB, 12), (_CHORE, 4))),
    Stage("stored later", ((_JOB, 4),)),
)
"""What is put, stage by stage."""


def _play(network: NetworkOperator) -> None:
    _everything(network)
    _stopped_connection(network)
    _pull(network)


def _everything(network: NetworkOperator) -> None:
    network.begin("Puts of many kinds")
    count = network.put("everything")
    network.say(f"{count} messages put on HandheldQM and GatewayQM, as applications there do")
    network.wait_for_rest("everything")
    network.say("synchronous ones reached their queues at once, over the gateway or by discovery;")
    network.say("what no queue accepts is a dead letter of the manager on which it was put")


def _stopped_connection(network: NetworkOperator) -> None:
    network.begin("A connection is stopped")
    network.set_channel("HandheldQM", "OfficeQM", is_running=False)
    count = network.put_to_stopped("stopped", "HandheldQM", "Reports")
    network.say(f"{count} messages put on HandheldQM: reports, which are asynchronous, and orders")
    waiting = network.wait_for_kept("stopped", "HandheldQM", "Reports")
    network.say(f"{waiting} reports are safe in the store of their definition, and wait there")
    late = network.put("late")
    waiting = network.wait_for_kept("late", "HandheldQM", "Reports")
    network.say(f"{late} more that expire after a second: {waiting} wait now")
    network.wait_for_expiry(_LATE)
    network.set_channel("HandheldQM", "OfficeQM", is_running=True)
    network.wait_for_rest("stopped", "late")
    network.say("they went on in their order; those that had expired are gone")


def _pull(network: NetworkOperator) -> None:
    network.begin("A client pulls when it is told to")
    network.put("stored")
    waiting = network.wait_for_kept("stored", "GatewayQM", "ForHandhelds")
    network.say(f"{waiting} messages for HandheldQM wait on store-and-forward queue ForHandhelds")
    network.say("nothing moves: its home-server queue has interval 0")
    network.trigger("HandheldQM")
    network.wait_for_rest("stored")
    network.say("pulled; what none of its queues takes is a dead letter there")
    network.put("stored later")
    waiting = network.wait_for_kept("stored later", "GatewayQM", "ForHandhelds")
    network.say(f"{waiting} more came since, and wait for the next trigger")
    network.trigger("HandheldQM")
    network.wait_for_rest("stored later")
    network.say("pulled, too")


MQE: Final = Example("mqe", "MQ Everyplace", _STAGES, _play)
"""Messages are put, a connection is stopped and started, and a client pulls."""
