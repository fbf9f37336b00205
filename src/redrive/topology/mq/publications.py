"""Publications: which subscriptions match a topic string, and where their copies go.

A subscription names its topics by a topic object, a topic string, or both (DEFINE SUB). Its topic
string may have wildcards: of levels, ``+`` for one and ``#`` for any number, or with WSCHEMA(CHAR)
of characters, ``*`` and ``?``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

from redrive.topology.mq.objects import Subscription, Topic
from redrive.topology.mq.queue_manager import QueueManager

_CHARACTERS: Final = re.compile(r"%([*?%])|([*?])|([^*?%]+|%)")


def topic_string_of(manager: QueueManager, subscription: Subscription) -> str | None:
    """The topic string of a subscription: that of its topic object, and its own below it.

    None if the topic object does not exist.
    """
    if not subscription.topic_object:
        return subscription.topic_string
    topic = manager.topic(subscription.topic_object)
    if not isinstance(topic, Topic):
        return None
    own = subscription.topic_string
    return (
        f"{topic.string}/{own.removeprefix('/')}" if own and topic.string else topic.string or own
    )


def subscribers(manager: QueueManager, string: str) -> Iterator[Subscription]:
    """The subscriptions of a manager that get a copy of a publication to a topic string."""
    for subscription in manager.subscriptions.values():
        wanted = topic_string_of(manager, subscription)
        if wanted is not None and subscription.is_served and _matches(subscription, wanted, string):
            yield subscription


def is_publishable(manager: QueueManager, string: str) -> bool:
    """Whether topics accept publications: PUB of the nearest topic object above a topic string."""
    objects = {one.string: one for one in manager.topics.values() if one.publishable is not None}
    levels = string.split("/")
    for count in range(len(levels), 0, -1):
        above = objects.get("/".join(levels[:count]))
        if above is not None:
            return above.publishable is not False
    return True


def matches_levels(pattern: Sequence[str], levels: Sequence[str]) -> bool:
    """Whether the levels of a topic string match those of a pattern with ``+`` and ``#``."""
    reached = _beyond(pattern, {0})
    for level in levels:
        taking = {at for at in reached if at < len(pattern) and pattern[at] in {level, "+", "#"}}
        reached = _beyond(pattern, {at + (pattern[at] != "#") for at in taking})
    return len(pattern) in reached


def _beyond(pattern: Sequence[str], reached: set[int]) -> set[int]:
    """Positions in a pattern, with those after a ``#``, which may match no level."""
    found = set(reached)
    for at, level in enumerate(pattern):
        if at in found and level == "#":
            found.add(at + 1)
    return found


def _matches(subscription: Subscription, wanted: str, string: str) -> bool:
    if not subscription.matches_characters:
        return matches_levels(wanted.split("/"), string.split("/"))
    parts = (
        {"*": ".*", "?": "."}.get(wild, "") or re.escape(escaped or plain)
        for escaped, wild, plain in _CHARACTERS.findall(wanted)
    )
    return re.fullmatch("".join(parts), string, re.DOTALL) is not None
