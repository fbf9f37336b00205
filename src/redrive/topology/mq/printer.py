"""Print the definitions of a queue manager as an MQSC script."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain

from redrive.topology.mq.forms import quote
from redrive.topology.mq.objects import ATTRIBUTES, Definition
from redrive.topology.mq.queue_manager import QueueManager
from redrive.topology.mq.system_objects import DEFAULT_CHANNELS, DEFAULT_QUEUES

_CONTINUED = " +\n       "
_COPIED_BY_DEFINE = {*DEFAULT_QUEUES.values(), *DEFAULT_CHANNELS}


def print_mqsc(queue_manager: QueueManager) -> str:
    """Print a queue manager in the form of ``dmpmqcfg``, one object after the other.

    Returns:
        A script; reading it gives the same definitions again. What the repository of the manager
        knows of others is left out, as no script can define it.
    """
    return "".join(f"{command}\n" for command in _commands(queue_manager))


def _commands(queue_manager: QueueManager) -> Iterator[str]:
    altered = _CONTINUED.join(["ALTER QMGR", *_attributes(queue_manager.attributes)])
    yield f"* Queue manager name: {queue_manager.name}\n{altered}"
    definitions: Iterable[Definition] = chain(
        queue_manager.namelists.values(),
        queue_manager.topics.values(),
        queue_manager.queues.values(),
        queue_manager.shared_queues.values(),
        queue_manager.channels.values(),
    )
    # An object that DEFINE copies comes last, so that none of the others takes its attributes.
    for definition in sorted(definitions, key=lambda one: one.name in _COPIED_BY_DEFINE):
        head = f"DEFINE {definition.keyword}({quote(definition.name)})"
        yield _CONTINUED.join([head, *_attributes(definition), "REPLACE"])
    for cluster in sorted(queue_manager.suspended_clusters):
        yield f"SUSPEND QMGR CLUSTER({quote(cluster)})"


def _attributes(definition: Definition) -> Iterator[str]:
    """The attributes that differ from the product's defaults."""
    for keyword, attribute in ATTRIBUTES[type(definition)].items():
        value = getattr(definition, attribute.field)
        if value != attribute.default:
            yield f"{keyword}({attribute.form.write(value)})"
    yield from definition.others.values()
