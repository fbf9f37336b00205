"""Following the states that operators set in the control topic while the job runs."""

from __future__ import annotations

import contextlib
from typing import Any

import orjson

from redrive.errors import TransientFault
from redrive.kafka.compacted import CompactedTopic, Pair
from redrive.kafka.connection import Connection
from redrive.topology.states import NO_STATES, STATE_KINDS, States, states_of


class StatesFollower:
    """Follows the states of one application.

    This class is responsible for: what is known of the control topic, from its first entry on; a
    broker that does not answer leaves the states as they are.
    """

    def __init__(self, connection: Connection, topic: str) -> None:
        """Start to follow.

        Args:
            connection: The cluster.
            topic: The application's control topic, which exists.
        """
        self._entries: dict[str, dict[str, Any]] = {}
        self._states = NO_STATES
        self._is_complete = False
        self._topic = CompactedTopic(connection, topic)

    def states(self, *, to_the_end: bool = False) -> States:
        """The states as far as they are known now; the same value as long as nothing changed.

        The first call waits until everything that is written has been read.

        Args:
            to_the_end: Whether every call does, so that nothing is missed that was committed.

        Raises:
            TransientFault: Nothing could be read yet, or not everything that has to be. A channel
                that may be stopped must not be taken for running.
        """
        if to_the_end or not self._is_complete:
            self._take(self._topic.read_to_end())
            self._is_complete = True
        else:
            with contextlib.suppress(TransientFault):
                self._take(self._topic.news())
        return self._states

    def close(self) -> None:
        """Closes the consumer."""
        self._topic.close()

    def _take(self, pairs: list[Pair]) -> None:
        changed = False
        for key, content in pairs:
            if not key.startswith(STATE_KINDS):
                continue
            changed = True
            if content is None:
                self._entries.pop(key, None)
                continue
            with contextlib.suppress(orjson.JSONDecodeError):
                value = orjson.loads(content)
                if isinstance(value, dict):
                    self._entries[key] = value
        if changed:
            self._states = states_of(self._entries)
