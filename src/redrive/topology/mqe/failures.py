"""How a put can end badly in MQ Everyplace.

The product's constants for these cases are not known, so the symbols are ours and have no numbers
(resolution specification A.6, E.10).
"""

from __future__ import annotations

from enum import StrEnum


class Failure(StrEnum):
    """What went wrong; the value is the short text a person reads."""

    NO_QUEUE_ACCEPTS = "fail: no queue accepts"
    """Steps 1 to 5 found no queue for the names."""
    UNKNOWN_QUEUE_MANAGER = "unknown queue manager"
    """A connection leads to a manager that the network does not contain."""
    NO_CONNECTION = "no connection"
    """No connection definition leads to the next manager."""
    LINK_DOWN = "link down"
    """The connection is defined, but the next manager cannot be reached now."""
    ALIAS_LOOP = "config: alias loop"
    """Queue manager aliases lead back to themselves."""
    VIA_LOOP = "config: via loop"
    """Via connections lead back to themselves."""
    ROUTE_LOOP = "config: route loop"
    """The message came back, under the same names, to a manager it had left."""
    MESSAGE_TOO_BIG = "message too big"
    """Longer than the queue's maximum message size."""
    QUEUE_FULL = "queue full"
    """The queue holds its maximum number of messages."""
    DUPLICATE = "duplicate message"
    """The manager had this message before, and it is not marked to be sent again."""
    RULE_VETO = "refused by rule"
    """The queue's put rule said no."""
    NOT_SUPPORTED = "not supported"
    """The queue does not offer the operation."""


ADVICE: dict[Failure, str] = {
    Failure.NO_QUEUE_ACCEPTS: "define the queue, a remote queue definition for it, or a "
    "store-and-forward queue that lists its queue manager",
    Failure.UNKNOWN_QUEUE_MANAGER: "add the queue manager to the network, or correct the name of "
    "the connection",
    Failure.NO_CONNECTION: "define a connection that is named after the queue manager",
    Failure.LINK_DOWN: "restore the link, or use an asynchronous remote queue definition",
    Failure.ALIAS_LOOP: "let one of the aliases name a real queue manager",
    Failure.VIA_LOOP: "let the last via connection name a direct one",
    Failure.ROUTE_LOOP: "on one of the managers of the circle, define the queue or a connection "
    "that leads out of it",
    Failure.MESSAGE_TOO_BIG: "raise the queue's maximum message size",
    Failure.QUEUE_FULL: "get messages from the queue, or raise its maximum number of messages",
    Failure.DUPLICATE: "set Resend on the message if it is meant to be put again",
    Failure.RULE_VETO: "look at the rule of the queue",
    Failure.NOT_SUPPORTED: "use an operation that this kind of queue offers",
}
"""What a person can do about each failure."""
