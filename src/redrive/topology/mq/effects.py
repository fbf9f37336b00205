"""Attributes that change a message's way in IBM MQ and not here: what is set, and what follows.

An attribute is honoured, recorded (kept and printed again; it changes no message's way), or
ignored. docs/resolution.md tells it of each one; the ignored ones are here, so that ``redrive
check`` says of a definition what it will not do.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from redrive.topology.mq.objects import (
    AliasQueue,
    Channel,
    Definition,
    LocalQueue,
    ModelQueue,
    QueueManagerAttributes,
    RemoteQueue,
    Usage,
)

_NEVER = ("", "NONE")
_EXIT = "the exit is not called: messages pass as they are"
_ON_EVERY_QUEUE: Mapping[str, tuple[tuple[str, ...], str]] = {
    "SCOPE": (("", "QMGR"), "there is no cell directory: only this queue manager knows it"),
}

IGNORED: Mapping[type[Definition], Mapping[str, tuple[tuple[str, ...], str]]] = {
    LocalQueue: _ON_EVERY_QUEUE,
    ModelQueue: _ON_EVERY_QUEUE,
    AliasQueue: _ON_EVERY_QUEUE,
    RemoteQueue: _ON_EVERY_QUEUE,
    Channel: {
        "CONVERT": (("", "NO"), "data is not converted: bodies pass as they are"),
        "MAXMSGL": (("", "4194304"), "the channel moves messages of any length"),
        "MREXIT": (_NEVER, "the exit is not called: MRRTY and MRTMR count as they do without it"),
        "MSGEXIT": (_NEVER, _EXIT),
        "PUTAUT": (("", "DEF"), "nobody is asked for authority but Kafka, of the job's own user"),
        "RCVEXIT": (_NEVER, _EXIT),
        "SENDEXIT": (_NEVER, _EXIT),
    },
    QueueManagerAttributes: {
        "CLWLEXIT": (_NEVER, "the exit is not called: workload management chooses by itself"),
    },
}
"""By kind and keyword: the values that ask for nothing, and what follows of others."""


def ignored_attributes(definition: Definition) -> Iterator[tuple[str, str]]:
    """What a definition asks for in vain.

    Args:
        definition: The object.

    Yields:
        The attribute as written, and what follows of its being ignored.
    """
    for keyword, (harmless, consequence) in IGNORED.get(type(definition), {}).items():
        written = definition.others.get(keyword)
        if written is not None and _value(written) not in harmless:
            yield written, consequence
    yield from _of_fields(definition)


def _value(written: str) -> str:
    """The value in ``KEYWORD(value)``, without quotes and padding."""
    return written.partition("(")[2].removesuffix(")").strip("' ").upper()


def _of_fields(definition: Definition) -> Iterator[tuple[str, str]]:
    match definition:
        case LocalQueue(usage=Usage.NORMAL, get_enabled=False):
            yield "GET(DISABLED)", "applications read its topic all the same"
        case AliasQueue(get_enabled=False):
            yield "GET(DISABLED)", "applications read the topic of its base all the same"
