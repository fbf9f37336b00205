"""The demo of three queue managers of IBM MQ: ``examples/mq``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from redrive.demo.networks.puts import Act, Kind

if TYPE_CHECKING:
    from redrive.demo.networks.course import Course

__all__ = ["ACTS", "play"]

_LONG: Final = 1001
"""Bytes: one more than MAXMSGL of RECEIPTS and of ORDERS."""

_LOCAL = Kind(what="a local queue", at="SHOP", queue="RECEIPTS")
_CHAIN = Kind(what="a chain of aliases", at="SHOP", queue="SALES")
_TWO_HOPS = Kind(what="a remote definition, over a hub", at="SHOP", queue="ORDERS")
_NAMED = Kind(what="both names given", at="OFFICE", queue="ORDERS", queue_manager="DEPOT")
_CLUSTER = Kind(what="a cluster queue, two instances", at="SHOP", queue="STOCK")
_MEMBER = Kind(what="a manager of the cluster", at="DEPOT", queue="RECEIPTS", queue_manager="SHOP")
_MOVED = Kind(what="unknown there: a rule forwards it", at="SHOP", queue="RETURNS")
_UNKNOWN = Kind(what="unknown there, and no rule helps", at="SHOP", queue="REFUNDS")
_TOO_LONG = Kind(what="too long", at="SHOP", queue="RECEIPTS", length=_LONG)
_TOO_LONG_THERE = Kind(
    what="too long there: a rule forwards it", at="SHOP", queue="ORDERS", length=_LONG
)
_NOWHERE = Kind(what="nothing leads there", at="SHOP", queue="ORDERS", queue_manager="PARIS")
_LATE = Kind(what="expires on the way", at="SHOP", queue="ORDERS", expiry=10)

ACTS: Final = (
    Act(
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
    Act("stopped", ((_LOCAL, 3), (_CHAIN, 6), (_TWO_HOPS, 6), (_CLUSTER, 4))),
    Act("late", ((_LATE, 4),)),
    Act("disabled", ((_TWO_HOPS, 6), (_NAMED, 5), (_CHAIN, 2))),
)
"""What is put, part by part."""


def play(course: Course) -> None:
    """Put messages, stop a channel and start it, break a queue and mend it.

    Args:
        course: What can be done, and seen.
    """
    _everything(course)
    _stopped_channel(course)
    _disabled_queue(course)


def _everything(course: Course) -> None:
    course.begin("Puts of every kind")
    count = course.put("everything")
    course.tell(f"{count} messages put on SHOP, OFFICE and DEPOT, as applications there do")
    course.await_rest("everything")
    course.tell(
        "over channels, aliases and the cluster; RETURNS and REFUNDS became dead letters of"
    )
    course.tell("DEPOT, whose rules table forwards the ones and gives up on the others")


def _stopped_channel(course: Course) -> None:
    course.begin("A channel is stopped")
    course.set_channel("SHOP", "SHOP.OFFICE", is_running=False)
    count = course.put("stopped")
    course.tell(f"{count} messages put on SHOP; those for LEDGER and ORDERS need the channel")
    waiting = course.await_kept("stopped", "SHOP", "OFFICE")
    course.tell(f"{waiting} wait on transmission queue OFFICE of SHOP; the others went their way")
    late = course.put("late")
    waiting = course.await_kept("late", "SHOP", "OFFICE")
    course.tell(f"{late} more that expire after a second: {waiting} wait now")
    course.set_channel("SHOP", "SHOP.OFFICE", is_running=True)
    course.await_rest("stopped", "late")
    course.tell("they went on in their order; those that had expired are gone")


def _disabled_queue(course: Course) -> None:
    course.begin("A queue is broken")
    course.set_queue("DEPOT", "ORDERS", put_enabled=False)
    count = course.put("disabled")
    course.tell(f"{count} messages put on SHOP and OFFICE, most of them for ORDERS at DEPOT")
    failed = course.await_parked("disabled")
    course.tell(
        f"{failed} became dead letters of DEPOT; its rules table retries every 2 s, in vain"
    )
    course.set_queue("DEPOT", "ORDERS", put_enabled=True)
    course.await_rest("disabled")
    course.tell("mended: the next attempt put each of them where it was going")
