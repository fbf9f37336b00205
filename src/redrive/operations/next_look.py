"""When messages that remain are looked at again: once another table decides than the last one."""

from __future__ import annotations

from enum import StrEnum

from redrive.checkpoints.control import read_entries
from redrive.configuration import JobConfiguration
from redrive.errors import EnvironmentFault, TransientFault
from redrive.kafka.cluster import Cluster
from redrive.kafka.deadline import CONNECT
from redrive.rules import parse


class NextLook(StrEnum):
    """When the messages that remain with a handler are looked at again."""

    WITH_ANOTHER_TABLE = "once the rules table means something else"
    AT_THE_NEXT_START = "at the next start or restart: the rules table means something else by now"


def next_looks(job: JobConfiguration) -> dict[str, NextLook]:
    """When each handler looks again at what remains.

    Returns:
        By the handler's name; nothing of a handler that has not decided yet, or if the broker gives
        no answer.
    """
    try:
        with Cluster.open(job.connection, timeout=CONNECT) as cluster:
            if not cluster.partitions([job.control_topic]):
                return {}
            entries = read_entries(cluster, job.control_topic)
    except (EnvironmentFault, TransientFault):
        return {}
    looks = {}
    for handler in job.handlers:
        prefix = f"table/{handler.identity.topic}/"
        decided = {entry.get("table") for key, entry in entries.items() if key.startswith(prefix)}
        if decided:
            table = parse(handler.rules, name=handler.rules_name).required()
            is_same = decided == {table.hash + job.schemes_id}
            looks[handler.identity.name] = (
                NextLook.WITH_ANOTHER_TABLE if is_same else NextLook.AT_THE_NEXT_START
            )
    return looks
