"""Names of queues, the names of their topics, and reserved topics.

A queue without a binding is on the topic ``escape(queue manager) + "--" + escape(queue)``.
``escape`` keeps ``A-Z a-z 0-9 .`` and writes every other byte as ``-`` and two upper-case hex
digits. An escaped name therefore never contains ``--``, nor a hyphen followed by a lower-case
letter; our own topics and the tail of shortened names use exactly that gap.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass

MAX_TOPIC_NAME = 249
"""Kafka's limit on the length of a topic name."""

_SEPARATOR = "--"
_HASH_MARK = "-h"
_HASH_DIGITS = 32
OWN_PREFIX = "redrive-"
_INTERNAL_PREFIX = "__"

# ``_`` is escaped too: Kafka refuses a topic that differs from another only in ``.`` and ``_``.
_ESCAPED = re.compile(rb"[^A-Za-z0-9.]")
_UNESCAPED_NAME = re.compile(r"(?:[A-Za-z0-9.]|-[0-9A-F]{2})*")
_ESCAPE_SEQUENCE = re.compile(r"-([0-9A-F]{2})")
_CUT_ESCAPE = re.compile(r"(?<!-)-[0-9A-F]?$")
_HASH_TAIL = re.compile(r"-h[0-9a-f]{32}$")
# ``redrive:`` escapes to ``redrive-3A``, so two hex digits after the prefix may be a queue's.
_OWN_PART = re.compile(r"(?:^|--)redrive-(?![0-9A-F]{2})")


@dataclass(frozen=True, slots=True, order=True, kw_only=True)
class Names:
    """The two names of a queue, or of a put."""

    queue: str = ""
    queue_manager: str = ""
    """Name of its queue manager; empty for the local one."""

    def __str__(self) -> str:
        """``queue@manager``; an empty manager is left out."""
        return f"{self.queue}@{self.queue_manager}" if self.queue_manager else self.queue


NO_NAMES = Names()


def escape(name: str) -> str:
    """Write a name reversibly with ``A-Z a-z 0-9 . -`` only, such as ``A-5FB`` for ``A_B``."""
    encoded = name.encode("utf-8", "surrogatepass")
    return _ESCAPED.sub(lambda byte: b"-%02X" % byte[0][0], encoded).decode("ascii")


def unescape(escaped: str) -> str | None:
    """Read an escaped name back; None if ``escape`` never writes it."""
    if not _UNESCAPED_NAME.fullmatch(escaped):
        return None
    parts = _ESCAPE_SEQUENCE.split(escaped)
    # Odd parts are the hex digits between the literal ones.
    encoded = b"".join(
        bytes.fromhex(part) if index % 2 else part.encode("ascii")
        for index, part in enumerate(parts)
    )
    try:
        name = encoded.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        return None
    return name if escape(name) == escaped else None


def topic_name(*, queue: str, queue_manager: str) -> str:
    """The topic of a queue without a binding, different for different pairs of names.

    A name that would exceed 249 characters keeps a prefix and ends in a hash of the whole.
    """
    return shortened(escape(queue_manager) + _SEPARATOR + escape(queue))


def shortened(full: str) -> str:
    """A topic's name within Kafka's limit: a prefix and a hash of a name that is too long."""
    if len(full) <= MAX_TOPIC_NAME:
        return full
    digest = hashlib.sha256(full.encode("ascii")).hexdigest()[:_HASH_DIGITS]
    prefix = full[: MAX_TOPIC_NAME - len(_HASH_MARK) - _HASH_DIGITS]
    return _CUT_ESCAPE.sub("", prefix) + _HASH_MARK + digest


def put_topic(queue_manager: str) -> str:
    """The intake topic for puts to a queue manager, such as ``QM1--redrive-put``."""
    return f"{escape(queue_manager)}{_SEPARATOR}{OWN_PREFIX}put"


def transmission_topic(*, queue: str, queue_manager: str, to: str) -> str:
    """The topic of one queue's messages for one other manager.

    Queues that serve several managers - cluster transmission queues, store-and-forward queues -
    have a topic for each, so that a channel that is stopped does not delay messages for others.

    Returns:
        A name such as ``QM1--SYSTEM.CLUSTER.TRANSMIT.QUEUE--redrive-to-QM2``.
    """
    tail = f"{_SEPARATOR}{OWN_PREFIX}to-"
    return shortened(escape(queue_manager) + _SEPARATOR + escape(queue) + tail + escape(to))


def is_reserved(topic: str) -> bool:
    """Whether a topic belongs to Redrive or to Kafka, and so cannot be a queue.

    Returns:
        True for names that start with ``redrive-`` or ``__``, or that have a Redrive part after a
        queue manager's name; False for every result of ``topic_name``.
    """
    if topic.startswith(_INTERNAL_PREFIX) or _OWN_PART.search(topic):
        return True
    is_of_queue = _SEPARATOR in topic or _HASH_TAIL.search(topic) is not None
    return topic.startswith(OWN_PREFIX) and not is_of_queue
