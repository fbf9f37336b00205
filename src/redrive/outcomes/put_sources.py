"""Where puts come from: the intakes and transmission queues of a job's topology."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING

from redrive.topology.files import SourceText, read_topology
from redrive.topology.layout import QueueTopic, topics_of

if TYPE_CHECKING:
    from redrive.configuration import JobConfiguration


def put_sources(configuration: JobConfiguration) -> Mapping[str, QueueTopic]:
    """The topics whose messages a job puts, by name, which their outcomes have as handler."""
    if not configuration.topology or not configuration.routes_puts:
        return {}
    return _sources(configuration.topology)


@lru_cache(maxsize=1)
def _sources(texts: tuple[SourceText, ...]) -> Mapping[str, QueueTopic]:
    # Kept, because a running job is asked for it again and again.
    topology = read_topology(texts).topology
    if topology is None:
        return {}
    return {one.topic: one for one in topics_of(topology) if one.is_read}
