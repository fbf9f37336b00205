"""Fencing: runs, and the transactional ids that their emitters registered.

It uses only Kafka, so it works on any number of machines. The entry of a share in the control topic
has the increasing number of its current run. A run starts in this order:

    a. write the entry with the next number, and wait until readers see it;
    b. read which ids are registered, to the very end of the topic;
    c. initialise each of them, which aborts and fences what older runs have open;
    d. remove them; only then read positions.

An emitter registers its id, initialises its producer, then reads the entry as readers see it. An id
registered before (b) is either fenced by (c), or initialised after (c) and then finds the new
entry; an id registered after (b) was initialised after (a) and finds it too.

Operators' commands register their ids as well. Every start fences them: a dead command's open
transaction hides nothing from the new run, and a live one opens its producer again.
"""

from __future__ import annotations

import contextlib
import os
import socket
import time
import uuid
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Protocol, TypeAlias

from redrive.checkpoints.control import read_entries, register
from redrive.checkpoints.instances import Share
from redrive.engine.names import own_prefix
from redrive.errors import FencedFault, OutcomeUnknown, SupersededFault, TransientFault
from redrive.kafka.cluster import Cluster
from redrive.kafka.connection import Connection
from redrive.kafka.producer import fence

_INSTANCE: Final = "instance/"
_EMITTER: Final = "emitter/"
_OPERATOR: Final = f"{_EMITTER}operator/"
_AT_ONCE: Final = 8
"""Maximum ids to fence in parallel."""


@dataclass(frozen=True, slots=True)
class RunIdentity:
    """One start of the query, as known to every process that emits for it."""

    application: str
    share: Share
    number: int
    """Increases from run to run of the share."""

    def new_transactional_id(self) -> str:
        """A transactional id for an emitting process, kept for the life of the process."""
        share = f"{self.share.number}of{self.share.total}"
        process = f"{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:8]}"
        return f"{own_prefix(self.application)}{share}-{process}"


class RunEntry:
    """The run of an emitter; see ``redrive.checkpoints.protocol.Run``."""

    def __init__(self, cluster: Cluster, control_topic: str, run: RunIdentity) -> None:
        self._cluster = cluster
        self._topic = control_topic
        self._run = run

    def register(self, transactional_id: str) -> None:
        """Announce an id to later runs, which fence it before they read positions."""
        key = f"{emitter_prefix(self._run.share)}{transactional_id}"
        register(self._cluster, self._topic, key, {"run": self._run.number})

    def check_current(self) -> None:
        """Check that this run still has its share; raises ``SupersededFault`` if not."""
        check_current(read_entries(self._cluster, self._topic), self._run)


Fencer: TypeAlias = Callable[[str], None]
"""Initialises a transactional id, which fences it and aborts its open transaction."""


class EntryStore(Protocol):
    """The control topic, as a start of a run uses it."""

    @property
    def entries(self) -> Mapping[str, Mapping[str, Any]]:
        """Key and value of each entry."""

    def write(self, entries: Mapping[str, Mapping[str, Any] | None]) -> None:
        """Write entries in one transaction, until readers see them; None removes one."""

    def registered(self, prefix: str) -> Mapping[str, Mapping[str, Any]]:
        """Entries with a key prefix, to the very end of the topic, including open transactions."""


def begin_run(
    store: EntryStore,
    fencer: Fencer,
    *,
    application: str,
    share: Share,
    details: Mapping[str, Any],
) -> RunIdentity:
    """Make a new run the only one that can commit for a share; steps (a) to (d).

    The details are further members of the entry: host, process, token.

    Raises:
        TransientFault: The broker did not answer in time; nothing was emitted, try again.
    """
    others = overlapping(store.entries, share)
    numbers = [*map(_run_number, others.values())]
    # Numbers keep growing even if the entry was removed in between: they start at the clock time.
    number = max([time.time_ns() // 1_000, *(earlier + 1 for earlier in numbers)])
    key = instance_key(share)
    entry = {**details, "run": number}
    store.write({**{other: None for other in others if other != key}, key: entry})  # (a)
    registered = _registered(store, share)  # (b)
    older = {name for instance in others.values() for name in instance.get("ids", ())}
    fence_all(fencer, {*older, *registered.values()})  # (c)
    store.write(dict.fromkeys(registered))  # (d)
    return RunIdentity(application, share, number)


def check_current(entries: Mapping[str, Mapping[str, Any]], run: RunIdentity) -> None:
    """Check that the control topic's entries name this run for its share.

    Raises:
        SupersededFault: A newer run has the share, or a part of it.
        TransientFault: No run has it, so no other took over: check again.
    """
    others = overlapping(entries, run.share)
    newest = max(others.values(), key=_run_number, default={})
    if _run_number(newest) > run.number:
        raise SupersededFault(
            f"a newer run took over the share {run.share}: process {newest.get('pid')} on"
            f" {newest.get('host')}",
            hint="nothing is lost; another instance of the application may have been started",
        )
    if _run_number(others.get(instance_key(run.share), {})) != run.number:
        raise TransientFault(f"the control topic does not show the run of the share {run.share}")


def _run_number(entry: Mapping[str, Any]) -> int:
    return int(entry.get("run") or 0)


def fence_all(fencer: Fencer, ids: Iterable[str]) -> None:
    """Fence ids, some in parallel; after a fault the next start fences the rest.

    Raises:
        TransientFault: An id may not be fenced: the broker did not answer in time, or another
            instance fenced it at the same moment.
    """

    def fence_id(transactional_id: str) -> None:
        try:
            fencer(transactional_id)
        except (FencedFault, OutcomeUnknown) as fault:
            raise TransientFault(fault.message, hint=fault.hint) from fault

    with ThreadPoolExecutor(max_workers=_AT_ONCE) as pool:
        list(pool.map(fence_id, sorted(ids)))


def fencer_of(connection: Connection) -> Fencer:
    """A fencer of ids on a cluster."""
    return partial(fence, connection.librdkafka())


def overlapping(
    entries: Mapping[str, Mapping[str, Any]], share: Share
) -> dict[str, Mapping[str, Any]]:
    """The entries of instances whose share overlaps."""
    instances = {}
    for key, entry in entries.items():
        if key.startswith(_INSTANCE):
            with contextlib.suppress(ValueError):
                if share.overlaps(Share.parse(key.removeprefix(_INSTANCE))):
                    instances[key] = entry
    return instances


def instance_key(share: Share) -> str:
    """Key of the entry of a share."""
    return f"{_INSTANCE}{share}"


def emitter_prefix(share: Share) -> str:
    """The prefix of the keys of a share's emitters."""
    return f"{_EMITTER}{share.number}of{share.total}/"


def new_operator_key(transactional_id: str) -> str:
    """The key under which one opening of an operator's producer is registered.

    Each opening has its own key: a start that fenced one opening removes only its key, not that of
    the next opening, which may exist already.
    """
    return f"{_OPERATOR}{uuid.uuid4().hex[:8]}/{transactional_id}"


def operator_ids(keys: Iterable[str]) -> dict[str, str]:
    """Key and transactional id of the operators' producers among the keys of a control topic."""
    return {
        key: key.removeprefix(_OPERATOR).partition("/")[2]
        for key in keys
        if key.startswith(_OPERATOR)
    }


def _registered(store: EntryStore, share: Share) -> dict[str, str]:
    keys = store.registered(_EMITTER)
    registered = operator_ids(keys)
    for key in keys:
        text, _, name = key.removeprefix(_EMITTER).partition("/")
        with contextlib.suppress(ValueError):
            if share.overlaps(Share.parse(text.replace("of", "/"))):
                registered[key] = name
    return registered
