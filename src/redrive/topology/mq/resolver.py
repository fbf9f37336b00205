"""The seam to the job: puts on IBM MQ queue managers as destinations on topics."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from redrive.topology.bindings import NO_BINDINGS, Bindings
from redrive.topology.mq.network import Network
from redrive.topology.mq.resolution import open_queue
from redrive.topology.mq.results import Call, OpenRequest, Persistence, Resolution, Target
from redrive.topology.names import transmission_topic
from redrive.topology.put import Destination, Refusal
from redrive.topology.reasons import Reason

QUEUE_MANAGER_HEADER = "redrive.oqm"
"""Header for ObjectQMgrName, on intake topics and on the topics of transmission queues."""
QUEUE_HEADER = "redrive.oq"
"""Header for ObjectName."""
NEXT_QUEUE_MANAGER_HEADER = "redrive.next"
"""Header for the manager to which a cluster or shared transmission queue leads."""

_NAME_BITS = 21
_NAME_MASK = (1 << _NAME_BITS) - 1

Answer: TypeAlias = Destination | Refusal
"""Where a put goes, or why it goes nowhere."""


class MqResolver:
    """Resolves puts at one queue manager to topics.

    Puts are opened as MQPUT1 opens them: names and message come together.
    """

    def __init__(self, network: Network, at: str, *, bindings: Bindings = NO_BINDINGS) -> None:
        """Create a resolver.

        Args:
            network: The queue managers.
            at: Name of the manager on which the puts are made.
            bindings: Topics and consumer groups of queues.

        Raises:
            KeyError: The network has no manager ``at``.
        """
        self.queue_manager = network.queue_managers[at]
        self._network = network
        self._bindings = bindings

    def resolve(
        self,
        queue_manager: str,
        queue: str,
        *,
        seed: int = 0,
        from_cluster_channel: bool = False,
    ) -> Answer:
        """Resolve the names of a put.

        Args:
            queue_manager: ObjectQMgrName; empty for the local manager.
            queue: ObjectName.
            seed: Decides among equal instances of cluster queues.
            from_cluster_channel: Whether the message came in over a cluster channel.

        Returns:
            The topic of the queue or of the transmission queue, or the refusal.
        """
        request = OpenRequest(
            queue=queue,
            queue_manager=queue_manager,
            call=Call.MQPUT1,
            seed=seed,
            from_cluster_channel=from_cluster_channel,
        )
        opened = open_queue(self._network, self.queue_manager.name, request)
        if opened.is_failed:
            return Refusal(opened.reason, opened.detail)
        if opened.target is Target.TOPIC:
            detail = f"topic object {opened.destination.queue} has no subscriptions here"
            return Refusal(Reason.PUBLICATION_FAILURE, detail)
        return self._destination(opened)

    def _destination(self, opened: Resolution) -> Destination:
        at, queue = opened.opened_at, opened.put_queue
        group = self._bindings.consumer_group(at, queue)
        return Destination(
            topic=self._topic(opened),
            queue=opened.destination.queue,
            queue_manager=opened.destination.queue_manager,
            headers=_travelling_names(opened),
            limits=replace(opened.limits, consumer_group=group) if group else opened.limits,
            is_choice=opened.is_choice,
            persistence=int(Persistence(opened.default_persistence)),
        )

    def _topic(self, opened: Resolution) -> str:
        at, queue, to = opened.opened_at, opened.put_queue, opened.next_queue_manager
        # A queue that leads to several managers has a topic for each.
        return transmission_topic(at, queue, to) if to else self._bindings.topic(at, queue)


def _travelling_names(opened: Resolution) -> tuple[tuple[str, bytes], ...]:
    """The role of MQXQH: the names with which the receiver opens."""
    if opened.target is not Target.REMOTE:
        return ()
    headers = [
        (QUEUE_MANAGER_HEADER, opened.destination.queue_manager),
        (QUEUE_HEADER, opened.destination.queue),
    ]
    if opened.next_queue_manager:
        headers.append((NEXT_QUEUE_MANAGER_HEADER, opened.next_queue_manager))
    return tuple((name, value.encode()) for name, value in headers)


class ColumnarResolver:
    """Resolves columns of puts; each distinct triple of names once, as long as it is remembered.

    This class is responsible for: numbers for names, one number for each triple, and the memory
    of answers across batches, which is bounded.
    """

    def __init__(
        self, network: Network, *, bindings: Bindings = NO_BINDINGS, remembered: int = 1_000_000
    ) -> None:
        """Create a resolver for all managers of a network.

        Args:
            network: The queue managers.
            bindings: Topics and consumer groups of queues.
            remembered: Answers and names that are kept; beyond that memory starts anew.
        """
        self._network = network
        self._bindings = bindings
        self._remembered = remembered
        self._resolvers: dict[str, MqResolver] = {}
        self._forget()

    def _forget(self) -> None:
        self._names: tuple[dict[str, int], ...] = ({}, {}, {})
        """Managers, queue manager names and queue names, each with its number."""
        self._keys = np.empty(0, dtype=np.int64)
        """The triples that were resolved; their answers stand at the same index."""
        self._answers: list[Answer] = []

    def resolve(
        self, at: pa.Array, queue_managers: pa.Array, queues: pa.Array
    ) -> tuple[npt.NDArray[np.int32], Sequence[Answer]]:
        """Resolve a batch.

        Args:
            at: Names of the managers on which the puts are made.
            queue_managers: ObjectQMgrName per row; null is blank.
            queues: ObjectName per row; null is blank.

        Returns:
            An index per row into the list of answers. The list belongs to these indexes: a later
            batch may extend it or replace it by a new one, never change what stands in it.
        """
        if max(len(self._answers), *map(len, self._names)) > self._remembered:
            self._forget()
        keys = np.zeros(len(at), dtype=np.int64)
        for known, column in zip(self._names, (at, queue_managers, queues), strict=True):
            keys = (keys << _NAME_BITS) | _numbers(known, column)
        codes = self._codes_of(keys)
        if codes.null_count:
            self._learn(pa.array(keys).filter(codes.is_null()).unique().to_numpy())
            codes = self._codes_of(keys)
        return codes.to_numpy(), self._answers

    def _codes_of(self, keys: npt.NDArray[np.int64]) -> pa.Array:
        return pc.index_in(pa.array(keys), value_set=pa.array(self._keys))

    def _learn(self, keys: npt.NDArray[np.int64]) -> None:
        """Resolve triples that are new."""
        managers, queue_managers, queues = map(list, self._names)
        self._keys = np.concatenate([self._keys, keys])
        for key in keys.tolist():
            at = managers[key >> (2 * _NAME_BITS)]
            queue_manager = queue_managers[(key >> _NAME_BITS) & _NAME_MASK]
            self._answers.append(self._answer(at, queue_manager, queues[key & _NAME_MASK]))

    def _answer(self, at: str, queue_manager: str, queue: str) -> Answer:
        resolver = self._resolvers.get(at)
        if resolver is None:
            if at not in self._network:
                detail = f"there is no queue manager {at!r} in the topology"
                return Refusal(Reason.UNKNOWN_OBJECT_Q_MGR, detail)
            resolver = self._resolvers[at] = MqResolver(self._network, at, bindings=self._bindings)
        return resolver.resolve(queue_manager, queue)


def _numbers(known: dict[str, int], column: pa.Array) -> npt.NDArray[np.int64]:
    """The number of each row's name; null counts as blank, new names get the next number."""
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    if not pa.types.is_dictionary(column.type):
        column = column.dictionary_encode()
    names = [name or "" for name in column.dictionary.to_pylist()]
    indices = column.indices
    if indices.null_count:
        indices = indices.fill_null(len(names))
        names.append("")
    numbers = [known.setdefault(name, len(known)) for name in names]
    found: npt.NDArray[np.int64] = np.array(numbers, dtype=np.int64)[indices.to_numpy()]
    return found
