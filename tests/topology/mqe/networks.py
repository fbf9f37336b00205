"""Generated networks: few names, so that definitions meet, hide each other and form loops."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import TypeVar

from hypothesis import strategies as st

from redrive.topology.mqe.objects import (
    AliasConnection,
    AnyConnection,
    AnyQueue,
    BridgeQueue,
    CodeBase,
    DirectConnection,
    Discovery,
    HomeServerQueue,
    Mode,
    MqeDefinition,
    MqeListener,
    MqeLocalQueue,
    MqeNetwork,
    MqeQueueManager,
    MqeRemoteQueue,
    NullConnection,
    Options,
    QueueManagerAlias,
    QueuePurpose,
    Security,
    StoreAndForwardQueue,
    ViaConnection,
)
from redrive.topology.mqe.reader import check_network

_D = TypeVar("_D", bound=MqeDefinition)
MANAGERS = ("QM1", "QM2", "QM3")
MANAGER_NAMES = (*MANAGERS, "VIRT")
QUEUES = ("A", "B")

# Pools of whole definitions: one choice each, so that examples are made fast and shrink well.
_PAIRS = tuple(itertools.product(QUEUES, MANAGER_NAMES))
_OTHER = {"A": ("B",), "B": ("A",)}
_QUEUE_POOL: tuple[AnyQueue, ...] = (
    *(MqeLocalQueue(name=name) for name in QUEUES),
    *(MqeLocalQueue(name=name, aliases=_OTHER[name]) for name in QUEUES),
    *(MqeRemoteQueue(name=name, queue_manager=manager) for name, manager in _PAIRS),
    *(MqeRemoteQueue(name=n, queue_manager=m, aliases=_OTHER[n]) for n, m in _PAIRS),
    *(MqeRemoteQueue(name=n, queue_manager=m, mode=Mode.ASYNC) for n, m in _PAIRS),
    *(
        StoreAndForwardQueue(name="S", queue_manager=hop, targets=(target,))
        for hop, target in itertools.product(MANAGER_NAMES, MANAGER_NAMES)
    ),
    *(HomeServerQueue(name="S", queue_manager=server) for server in MANAGERS),
    *(BridgeQueue(name=name, queue_manager="VIRT") for name in QUEUES),
)
_CONNECTION_POOL: tuple[AnyConnection, ...] = (
    # Direct connections come often: they are what lets a message get anywhere.
    *(DirectConnection(name=name) for name in MANAGERS * 6),
    DirectConnection(name="VIRT"),
    *(DirectConnection(name=name, aliases=("VIRT",)) for name in MANAGERS),
    *(ViaConnection(name=name, via=via) for name, via in itertools.permutations(MANAGER_NAMES, 2)),
    *(AliasConnection(name="VIRT", of=name) for name in MANAGERS),
    NullConnection(name="VIRT"),
    NullConnection(name="QM1"),
)
_ALIAS_POOL = tuple(
    QueueManagerAlias(name=name, of=of) for name, of in itertools.product(MANAGER_NAMES, repeat=2)
)


@st.composite
def _queue_manager(draw: st.DrawFn, name: str) -> MqeQueueManager:
    connections = draw(st.lists(st.sampled_from(_CONNECTION_POOL), max_size=3))
    return MqeQueueManager(
        name=name,
        code_base=draw(st.sampled_from((CodeBase.JAVA, CodeBase.JAVA, CodeBase.JAVA, CodeBase.C))),
        queues=tuple(draw(st.lists(st.sampled_from(_QUEUE_POOL), min_size=1, max_size=4))),
        connections=tuple({connection.name: connection for connection in connections}.values()),
        aliases=tuple(draw(st.lists(st.sampled_from(_ALIAS_POOL), max_size=1))),
    )


_options = st.builds(
    Options,
    discovery=st.sampled_from((Discovery.JAVA, Discovery.JAVA, Discovery.OFF)),
    alias_chains=st.booleans(),
    home_server_names=st.booleans(),
)


@st.composite
def networks(draw: st.DrawFn) -> MqeNetwork:
    """Networks of three managers, sound or not."""
    managers = tuple(draw(_queue_manager(name)) for name in MANAGERS)
    return MqeNetwork(queue_managers=managers, options=draw(_options))


def sound_networks() -> st.SearchStrategy[MqeNetwork]:
    """Networks of three managers that a job starts with."""
    drawn = networks().map(_with_names_once)
    return drawn.filter(
        lambda network: all(finding.severity != "error" for finding in check_network(network))
    )


def _with_names_once(network: MqeNetwork) -> MqeNetwork:
    managers = (
        replace(
            manager,
            queues=tuple({queue.name: queue for queue in manager.queues}.values()),
            aliases=tuple(alias for alias in manager.aliases if alias.name != alias.of),
        )
        for manager in network.queue_managers
    )
    return replace(network, queue_managers=tuple(managers))


PUTS = tuple(itertools.product(MANAGERS, QUEUES, ("", *MANAGER_NAMES)))
"""Manager, queue and queue manager name of every put that can be made on such a network."""


def links() -> st.SearchStrategy[frozenset[tuple[str, str]]]:
    """Links that are down."""
    pairs = st.sampled_from(tuple(itertools.product(MANAGERS, MANAGER_NAMES)))
    return st.lists(pairs, max_size=1).map(frozenset)


# Networks with every attribute, for their text form

_text = st.text(
    st.characters(
        codec="utf-8", exclude_categories=("Cs", "Cc"), exclude_characters="\ufffe\uffff"
    ),
    max_size=12,
)
_name = st.text(
    st.characters(min_codepoint=0x21, max_codepoint=0x7E, exclude_characters="{}[]#():;,'\"="),
    min_size=1,
    max_size=8,
) | st.sampled_from(("NO", "on", "null", "~", "1", "0x1F", "1e3", "true", "-", "?", "!a"))
_count = st.none() | st.integers(min_value=0, max_value=2**40)
_port = st.none() | st.integers(min_value=0, max_value=65535)
_security = st.builds(Security, authenticator=_text, cryptor=_text, compressor=_text)
_names = st.lists(_name, max_size=3, unique=True).map(tuple)


def _several(definitions: st.SearchStrategy[_D]) -> st.SearchStrategy[tuple[_D, ...]]:
    return st.lists(definitions, max_size=3, unique_by=lambda definition: definition.name).map(
        tuple
    )


_local = st.builds(
    MqeLocalQueue,
    name=_name,
    role=st.sampled_from((QueuePurpose.ORDINARY, QueuePurpose.ADMINISTRATION)),
    **dict.fromkeys(("description", "message_store", "creation_date"), _text),
    **dict.fromkeys(("expiry", "maximum_message_size", "maximum_messages"), _count),
    priority=st.none() | st.integers(min_value=0, max_value=9),
    security=_security,
    active=st.booleans(),
)
_texts = dict.fromkeys(("description", "adapter", "address", "channel"), _text)
_manager = st.builds(
    MqeQueueManager,
    name=_name,
    description=_text,
    code_base=st.sampled_from(CodeBase),
    queues=_several(_local),
    connections=_several(st.builds(DirectConnection, name=_name, port=_port, **_texts)),
    listeners=_several(st.builds(MqeListener, name=_name, adapter=_text, port=_port)),
)


def described_networks() -> st.SearchStrategy[MqeNetwork]:
    """Networks with arbitrary attributes and names that YAML could take for something else."""
    return st.builds(MqeNetwork, queue_managers=st.tuples(_manager), options=_options)
