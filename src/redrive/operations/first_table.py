"""A starter rules table, made from the messages of a topic."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from textwrap import wrap
from typing import Final

from redrive.messages import reason_name
from redrive.messages.constants import constant_value
from redrive.operations.identify import Case, Identification
from redrive.printable import counted
from redrive.rules import GROUP_TOPIC, group_topic

_RULES: Final = 30
"""Maximum cases with their own rule."""
_NAMED: Final = 3
"""Maximum exceptions of a case in a comment."""
_WIDTH: Final = 70
"""Characters of a line; 72 fit everywhere."""
_REASONS: Final = range(1_000_000_000)
"""What REASON accepts."""
_LONGEST_PATTERN: Final = 48
_OF_MQ: Final = frozenset({"mqdlh", "redrive", "none"})
"""Schemes of dead letters whose put failed, rather than their processing."""
_TOPIC: Final = re.compile(r"[A-Za-z0-9._-]{1,249}")
_ADVICE: Final = {
    constant_value("MQRC_FORMAT_ERROR"): (
        "It cannot be read, and a retry will not help: it remains until someone looks at it.",
        "ACTION(IGNORE)",
    ),
    constant_value("MQRC_MSG_TOO_BIG_FOR_Q"): (
        (
            "It is too large for the topic: it remains until the limit is raised and the job"
            " restarted."
        ),
        "ACTION(IGNORE)",
    ),
    constant_value("MQRC_NOT_AUTHORIZED"): (
        "A right is missing, which may be granted meanwhile.",
        "ACTION(RETRY) RETRY(10)",
    ),
    constant_value("MQRC_Q_MGR_NOT_AVAILABLE"): (
        "Something was unavailable and may recover: retry for a while.",
        "ACTION(RETRY) RETRY(30)",
    ),
}
_KAFKA_ADVICE: Final = {
    **_ADVICE,
    constant_value("MQRC_NOT_AUTHORIZED"): (
        "A right is missing, which may be granted meanwhile: process it up to five times more.",
        "ACTION(RETRY) RETRY(5) BACKOFF(5m,2,2h)",
    ),
    constant_value("MQRC_Q_MGR_NOT_AVAILABLE"): (
        (
            "Something was unavailable and may recover: process it up to five times more, with"
            " back-off."
        ),
        "ACTION(RETRY) RETRY(5) BACKOFF(30s,2,10m)",
    ),
}
_OTHERWISE: Final = (
    "The cause is unknown: retry once, then it remains.",
    "ACTION(RETRY) RETRY(1)",
)


def first_table(found: Identification) -> str:
    """A rules table without errors for what was found; comments say why each rule is there.

    Every rule either retries or keeps; nothing is discarded.
    """
    return "\n".join(_lines(found)) + "\n"


def _lines(found: Identification) -> Iterator[str]:
    yield from _comment(f"Starter table for {found.topic}, from {found.count} of its messages:")
    for one in found.by_share():
        share = round(100 * one.count / max(1, found.count))
        yield from _comment(f"{share} % {one.name}, such as {one.example}")
    yield ""
    is_kafka = any(one.name not in _OF_MQ for one in found.by_share())
    if is_kafka:
        yield "* A round is a minute after the failure, unless BACKOFF differs."
        yield "DIALECT(KAFKA) RETRYINT(60) WAIT(YES)"
    else:
        yield "* An attempt each minute, forever."
        yield "RETRYINT(60) WAIT(YES)"
    cases = ((case, errors) for case, errors in found.cases.items() if case.reason in _REASONS)
    ranked = sorted(cases, key=lambda it: (-it[1].total(), it[0].topic, it[0].reason))
    for case, errors in ranked[:_RULES]:
        yield ""
        yield from _rule(case, errors, is_kafka=is_kafka)
    yield ""
    yield from _comment(f"All others: {_OTHERWISE[0]}")
    yield _OTHERWISE[1]
    yield from _about_groups(found)


def _about_groups(found: Identification) -> Iterator[str]:
    """The comment that offers TO(GROUP), if dead letters name a group.

    No rule uses it, because nobody would read the group's topic until the group subscribes to it.
    """
    views = (one.view for one in found.by_share() if one.view is not None)
    view = next((one for one in views if one.consumer_group and one.origin.topic), None)
    if view is not None:
        group = view.consumer_group
        name = group_topic(GROUP_TOPIC, topic=view.origin.topic or "", group=group)
        yield ""
        yield from _comment(
            "Every consumer of the topic sees a round. To send it only to the group that failed,"
            f" have that group read a topic such as {name} too, and write"
            " ACTION(RETRY) TO(GROUP)."
        )


def _rule(case: Case, errors: Counter[str], *, is_kafka: bool) -> Iterator[str]:
    classes = [name.rpartition(".")[2] for name, _ in errors.most_common(_NAMED) if name]
    names = f": {', '.join(classes)}" if classes else ""
    more = ", ..." if len(errors) > _NAMED else ""
    where = f" of {case.topic}" if case.topic else ""
    known = _KAFKA_ADVICE if is_kafka else _ADVICE
    advice, action = known.get(case.reason, _OTHERWISE)
    count = errors.total()
    yield from _comment(f"{counted(count, 'message')}{where}{names}{more}. {advice}")
    if pattern := _pattern("TOPIC" if is_kafka else "DESTQ", case.topic):
        yield f"{pattern} +"
    name = reason_name(case.reason)
    yield f"REASON({name if name.startswith('MQRC_') else case.reason}) {action}"


def _pattern(keyword: str, topic: str) -> str:
    if not _TOPIC.fullmatch(topic):
        return ""
    name = topic if len(topic) <= _LONGEST_PATTERN else f"{topic[: _LONGEST_PATTERN - 1]}*"
    return f"{keyword}('{name}')"


def _comment(text: str) -> list[str]:
    printable = "".join(one if one.isprintable() else "?" for one in text)
    lines = wrap(printable, _WIDTH - 2) or [""]
    return [f"* {line}" for line in lines]
