"""The demo of three queue managers of MQ Everyplace: ``examples/mqe``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from redrive.demo.networks.puts import Act, Kind

if TYPE_CHECKING:
    from redrive.demo.networks.course import Course

__all__ = ["ACTS", "play"]

_LONG: Final = 1001
"""Bytes: one more than Reports of the office takes."""

_SYNCHRONOUS = Kind(
    what="synchronous, over a via connection",
    at="HandheldQM",
    queue="Orders",
    queue_manager="OfficeQM",
)
_QUEUE_ALIAS = Kind(
    what="an alias of a queue", at="HandheldQM", queue="Sales", queue_manager="OfficeQM"
)
_MANAGER_ALIAS = Kind(
    what="an alias of a manager", at="GatewayQM", queue="Orders", queue_manager="HeadOfficeQM"
)
_DISCOVERED = Kind(
    what="no definition: discovery", at="HandheldQM", queue="Positions", queue_manager="GatewayQM"
)
_UNKNOWN = Kind(
    what="no queue accepts it", at="HandheldQM", queue="Nothing", queue_manager="GatewayQM"
)
_REPORT = Kind(what="asynchronous", at="HandheldQM", queue="Reports", queue_manager="OfficeQM")
_LATE = Kind(
    what="asynchronous, expires in store",
    at="HandheldQM",
    queue="Reports",
    queue_manager="OfficeQM",
    expiry=10,
)
_TOO_LONG = Kind(
    what="asynchronous, too long at its end",
    at="HandheldQM",
    queue="Reports",
    queue_manager="OfficeQM",
    length=_LONG,
)
_JOB = Kind(
    what="store and forward, pulled", at="OfficeQM", queue="Jobs", queue_manager="HandheldQM"
)
_CHORE = Kind(
    what="pulled, and no queue accepts it",
    at="GatewayQM",
    queue="Chores",
    queue_manager="HandheldQM",
)

ACTS: Final = (
    Act(
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
    Act("stopped", ((_REPORT, 12), (_SYNCHRONOUS, 5))),
    Act("late", ((_LATE, 4),)),
    Act("stored", ((_JOB, 12), (_CHORE, 4))),
    Act("stored later", ((_JOB, 4),)),
)
"""What is put, part by part."""


def play(course: Course) -> None:
    """Put messages, stop a connection and start it, let a client pull.

    Args:
        course: What can be done, and seen.
    """
    _everything(course)
    _stopped_connection(course)
    _pull(course)


def _everything(course: Course) -> None:
    course.begin("Puts of many kinds")
    count = course.put("everything")
    course.tell(f"{count} messages put on HandheldQM and GatewayQM, as applications there do")
    course.await_rest("everything")
    course.tell("synchronous ones reached their queues at once, over the gateway or by discovery;")
    course.tell("what no queue accepts is a dead letter of the manager on which it was put")


def _stopped_connection(course: Course) -> None:
    course.begin("A connection is stopped")
    course.set_channel("HandheldQM", "OfficeQM", is_running=False)
    count = course.put("stopped")
    course.tell(f"{count} messages put on HandheldQM: reports, which are asynchronous, and orders")
    waiting = course.await_kept("stopped", "HandheldQM", "Reports")
    course.tell(f"{waiting} reports are safe in the store of their definition, and wait there")
    late = course.put("late")
    waiting = course.await_kept("late", "HandheldQM", "Reports")
    course.tell(f"{late} more that expire after a second: {waiting} wait now")
    course.set_channel("HandheldQM", "OfficeQM", is_running=True)
    course.await_rest("stopped", "late")
    course.tell("they went on in their order; those that had expired are gone")


def _pull(course: Course) -> None:
    course.begin("A client pulls when it is told to")
    course.put("stored")
    waiting = course.await_kept("stored", "GatewayQM", "ForHandhelds")
    course.tell(f"{waiting} messages for HandheldQM wait on store-and-forward queue ForHandhelds")
    course.tell("nothing moves: its home-server queue has interval 0")
    course.trigger("HandheldQM")
    course.await_rest("stored")
    course.tell("pulled; what none of its queues takes is a dead letter there")
    course.put("stored later")
    waiting = course.await_kept("stored later", "GatewayQM", "ForHandhelds")
    course.tell(f"{waiting} more came since, and wait for the next trigger")
    course.trigger("HandheldQM")
    course.await_rest("stored later")
    course.tell("pulled, too")
