"""Vectors as networks of a running job: numbered names, definitions as files, the put.

All vectors share one job, so every name by which managers find each other gets a number behind it.
What cannot be said in definitions, or asks about something else than a put, has no network; each
such case tells why.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from tests.conformance import mq_notation
from tests.conformance.mq_notation import open_options, persistence_option
from tests.conformance.vectors import Vector, vector_id
from tests.topology.mqe import notation, texts

from redrive.topology.files import read_topology
from redrive.topology.layout import SourceText, Topology
from redrive.topology.mq.network import MqNetwork
from redrive.topology.mq.queue_manager import ClusterInstance
from redrive.topology.mq.results import OpenOption, Persistence
from redrive.topology.mqe.objects import MqeNetwork

LONGEST = 16 * 1024 * 1024
"""Bytes of the longest message that is put; the topics of a test take no more."""

_NAME = r"[A-Za-z0-9._/%]"
_LINE = re.compile(r"\s*([^:\s]+)\s*:\s*(.*)", re.DOTALL)
_GIVEN = re.compile(r"([A-Za-z]+)\s*(?:\(\s*'?([^)']*?)'?\s*\))?")
_PSEUDO = re.compile(r"(CLQ|CLQM|QSG|SHQ|TOPIC|CHAN)\s*\(", re.IGNORECASE)
_MQ_NAMES = re.compile(
    r"\b(?:TO|ON|QMGR|CLQM|CLUSTER|NAMES|CHANNEL|CHL)\s*\(([^)]*)\)", re.IGNORECASE
)
_MQE_NAMES = re.compile(r"@([^()\s]+)|\b(?:CONN|VIA|QMALIAS|IS|DOWN|QME)\s*\(([^)]*)\)")
_OF_CHANNELS = {
    "CHRANK": "CLWLRANK", "CHPRTY": "CLWLPRTY", "NETPRTY": "NETPRTY", "CHWGHT": "CLWLWGHT",
    "CHWEIGHT": "CLWLWGHT", "WEIGHT": "CLWLWGHT",
}  # fmt: skip
"""What the notation says of the channel to a cluster queue, as an attribute of the channel."""
_OF_QUEUES = {
    "QRANK": "CLWLRANK", "CLWLRANK": "CLWLRANK", "QPRTY": "CLWLPRTY", "CLWLPRTY": "CLWLPRTY",
    "PUT": "PUT", "DEFBIND": "DEFBIND", "DEFPSIST": "DEFPSIST", "DEFPRTY": "DEFPRTY",
}  # fmt: skip
"""What it says of the queue itself."""
_PERSISTENCE = {"mq_open": Persistence.AS_Q_DEF, "mq_routes": Persistence.PERSISTENT}
"""What holds if nothing is said: on a way over several managers no message must get lost."""
_OF_BOTH = {"CLQ", "CLQM", "ON", "QMGR", "CLUSTER", "TYPE", "SUSPEND", "STATUS"}

Command: TypeAlias = tuple[str, str]
"""A queue manager and an MQSC command for it."""


class InexpressibleError(Exception):
    """A vector that no job can be asked; the text says why."""


@dataclass(frozen=True, kw_only=True)
class Numbered:
    """A vector whose names no other vector has, as definitions and a put."""

    id: str
    """Its name as that of a test."""
    vector: Vector
    at: str
    """The queue manager on which the put is made."""
    queue_manager: str
    queue: str
    length: int | None
    """Bytes of the message; None if the vector does not say."""
    persistence: Persistence | None = None
    """Of the message; None if it has no such field."""
    scripts: tuple[SourceText, ...] = ()
    """MQSC, one script for each queue manager."""
    network: MqeNetwork | None = None
    """Queue managers of MQ Everyplace."""
    down: frozenset[tuple[str, str]] = frozenset()
    """Links of MQ Everyplace that cannot be used."""

    @property
    def body(self) -> bytes:
        """What is put."""
        text = str(self.vector["put"].get("body", self.id)).encode()
        return (
            text if self.length is None else (text * (self.length // len(text) + 1))[: self.length]
        )

    @property
    def topology(self) -> Topology:
        """The definitions of this vector alone."""
        network = () if self.network is None else (network_text([self.network]),)
        result = read_topology([*self.scripts, *network])
        if result.topology is None or result.failures:
            problems = [
                diagnostic.message
                for diagnostic in result.diagnostics
                if diagnostic.severity == "error"
            ]
            raise InexpressibleError(f"definitions with which no job starts: {problems}")
        return result.topology


def network_text(networks: Iterable[MqeNetwork]) -> SourceText:
    """Networks of MQ Everyplace in one file, as a topology has one at most."""
    managers = tuple(manager for network in networks for manager in network.queue_managers)
    text = texts.network_text(MqeNetwork(queue_managers=managers))
    return SourceText("networks.yaml", text.encode())


def numbered(stem: str, vector: Vector, number: int) -> Numbered:
    """A vector as a network of its own.

    Args:
        stem: The file that it is from.
        vector: The vector.
        number: What comes behind its names; different for each vector of a job.

    Raises:
        InexpressibleError: It is none that a job can be asked.
    """
    lines, put = vector["topology"], vector["put"]
    is_of_mqe = stem.startswith("mqe")
    pattern = _MQE_NAMES if is_of_mqe else _MQ_NAMES
    names = {name for line in lines for name in _names(line, pattern)}
    names |= {put[key] for key in ("at", "destQM") if put.get(key)}
    changed: Vector = _renamed(vector, names, number)
    return _of_mqe(stem, changed) if is_of_mqe else _of_mq(stem, changed, number)


def _names(line: str, pattern: re.Pattern[str]) -> Iterator[str]:
    manager, _ = _split(line)
    yield manager
    for match in pattern.finditer(line):
        yield from re.findall(f"{_NAME}+", " ".join(filter(None, match.groups())))


def _split(line: str) -> Command:
    match = _LINE.fullmatch(line)
    if match is None:
        raise InexpressibleError(f"not a line of a topology: {line!r}")
    return match[1], match[2].strip()


def _renamed(value: Any, names: Iterable[str], number: int) -> Any:
    """A value in which names, wherever they stand as a whole word, have the number behind them."""
    words = "|".join(re.escape(name) for name in sorted(names, key=len, reverse=True))
    whole = re.compile(f"(?<!{_NAME})({words})(?!{_NAME})")

    def change(original: Any) -> Any:
        match original:
            case str():
                return whole.sub(rf"\g<1>.{number}", original)
            case list():
                return [change(item) for item in original]
            case dict():
                return {key: change(item) for key, item in original.items()}
        return original

    return {**value, **{key: change(value[key]) for key in ("topology", "put", "expect")}}


# IBM MQ


def _of_mq(stem: str, vector: Vector, number: int) -> Numbered:
    put: Mapping[str, Any] = vector["put"]
    if open_options(put.get("opts", "OUTPUT")) != OpenOption.OUTPUT:
        raise InexpressibleError("it asks about an open for something else than putting")
    if put.get("depth"):
        raise InexpressibleError("queues with a depth before the put")
    if put.get("expiry_tenths") is not None:
        raise InexpressibleError("how long it waits on the way is not the vector's to say")
    scripts = _Scripts(number)
    lines = [_split(line) for line in vector["topology"]]
    # What others know of a queue comes behind its own definition.
    for manager, command in sorted(lines, key=lambda line: bool(_PSEUDO.match(line[1]))):
        scripts.add(manager, command)
    at = put.get("at") or lines[0][0]
    scripts.commands.setdefault(at, [])
    case = Numbered(
        id=vector_id(stem, vector),
        vector=vector,
        at=at,
        queue_manager=put.get("oqm") or "",
        queue=put.get("oq") or "",
        length=_possible(put.get("length")),
        persistence=persistence_option(put.get("persistence"), _PERSISTENCE[stem]),
        scripts=tuple(
            SourceText(f"{name}.mqsc", "\n".join(commands).encode(), name)
            for name, commands in scripts.commands.items()
        ),
    )
    if any(command.upper().startswith("CLQ") for _, command in lines):
        _check_clusters(case, lines)
    return case


def _check_clusters(case: Numbered, lines: Iterable[Command]) -> None:
    """Refuse what one queue manager alone knows, as definitions tell all members the same."""
    networks = mq_notation.read_topology(case.vector["topology"]).network(), case.topology.mq

    def owned(network: MqNetwork, name: str) -> set[str]:
        return set(network.queue_managers[name].queues)

    def known(network: MqNetwork, name: str) -> set[str | ClusterInstance]:
        at, hosts = network.queue_managers[name], case.topology.manager_names
        queues = {queue for host in hosts for queue in owned(case.topology.mq, host)}
        instances = {
            replace(instance, keyword="", route=replace(instance.route, channel=""))
            for queue in queues
            for instance in network.instances(at, queue)
        }
        return instances | {host for host in hosts if host != name and network.routes(at, host)}

    for name, command in lines:
        is_knowledge = command.upper().startswith("CLQ")
        if is_knowledge or not _PSEUDO.match(command):
            compared = known if is_knowledge else owned
            first, second = (compared(network, name) for network in networks)
            if first != second:
                raise InexpressibleError(f"clusters of which {name} alone knows")


def _possible(length: int | None) -> int | None:
    if length is not None and length > LONGEST:
        raise InexpressibleError(f"{length} bytes are more than a topic of the tests takes")
    return length


@dataclass
class _Scripts:
    """The scripts of a vector's queue managers, in which channels and clusters are real ones."""

    number: int
    commands: dict[str, list[str]] = field(default_factory=dict)
    """By queue manager."""
    _channels: dict[tuple[str, str], str] = field(default_factory=dict)
    """Cluster-receiver channels by queue manager and cluster."""

    def add(self, manager: str, command: str) -> None:
        """Take one line of a vector."""
        match = _PSEUDO.match(command)
        if match is None:
            self._tell(manager, command)
            return
        given = {word.upper(): value or "" for word, value in _GIVEN.findall(command)}
        others: Mapping[str, Callable[[str, dict[str, str]], object]] = {
            "CHAN": self._channel,
            "CLQ": self._cluster_queue,
            "CLQM": self._cluster_member,
            "TOPIC": self._topic,
        }
        if match[1].upper() not in others:
            raise InexpressibleError("no script tells of a queue-sharing group")
        others[match[1].upper()](manager, given)

    def _tell(self, manager: str, command: str) -> None:
        self.commands.setdefault(manager, []).append(command)

    def _topic(self, manager: str, given: dict[str, str]) -> None:
        self._tell(manager, f"DEFINE TOPIC('{given['TOPIC']}') TOPICSTR('{given['TOPIC']}')")

    def _channel(self, manager: str, given: dict[str, str]) -> None:
        """``CHAN(xmitq) TO(manager)``: a sender and a receiver of one name."""
        if "DELAY" in given:
            raise InexpressibleError("no script tells how long messages wait for a channel")
        name = f"TO.{self.number}.{sum(map(len, self.commands.values()))}"
        both = f"NPMSPEED({given.get('NPMSPEED') or 'FAST'})"
        queue, to = given["CHAN"], given["TO"]
        self._tell(
            manager, f"DEFINE CHANNEL({name}) CHLTYPE(SDR) XMITQ('{queue}') CONNAME('{to}') {both}"
        )
        use = given.get("USEDLQ") or "YES"
        # The product's default would make a vector of a disabled queue last for ten seconds.
        retry = f"MRRTY({given.get('MRRTY') or 0}) MRTMR({given.get('MRTMR') or 1000})"
        self._tell(to, f"DEFINE CHANNEL({name}) CHLTYPE(RCVR) USEDLQ({use}) {both} {retry}")

    def _cluster_queue(self, manager: str, given: dict[str, str]) -> None:
        """``CLQ(queue) ON(manager) CLUSTER(name)``: the queue is defined there."""
        host = self._cluster_member(manager, given)
        if self._defines(host, given["CLQ"]):
            return
        name, cluster = f"'{given['CLQ']}'", given["CLUSTER"]
        kind = given.get("TYPE") or "LOCAL"
        if kind not in {"LOCAL", "ALIAS"}:
            raise InexpressibleError(f"nothing is said about what cluster queues of {kind} lead to")
        definition = f"DEFINE QLOCAL({name})"
        if kind == "ALIAS":
            base = f"'{given['CLQ']}.BASE'"
            self._tell(host, f"DEFINE QLOCAL({base})")
            definition = f"DEFINE QALIAS({name}) TARGET({base})"
        attributes = _attributes(given, _OF_QUEUES)
        self._tell(host, f"{definition} CLUSTER('{cluster}') {attributes}")

    def _defines(self, manager: str, queue: str) -> bool:
        definition = re.compile(rf"DEF\w*\s+Q\w+\s*\(\s*'?{re.escape(queue)}'?\s*\)", re.IGNORECASE)
        return any(definition.match(command) for command in self.commands.get(manager, ()))

    def _cluster_member(self, manager: str, given: dict[str, str]) -> str:
        """``CLQM(manager) CLUSTER(name)``: both managers are in the cluster."""
        if unknown := given.keys() - _OF_CHANNELS.keys() - _OF_QUEUES.keys() - _OF_BOTH:
            raise InexpressibleError(f"no script tells {sorted(unknown)} of another manager")
        if (given.get("STATUS") or "RUNNING") not in {"RUNNING", "INACTIVE"}:
            raise InexpressibleError("no script tells the status of a cluster channel")
        host = given.get("CLQM") or given.get("ON") or given["QMGR"]
        cluster = given["CLUSTER"]
        self._join(manager, cluster)
        channel = self._join(host, cluster)
        if attributes := _attributes(given, _OF_CHANNELS):
            self._tell(host, f"ALTER CHANNEL({channel}) CHLTYPE(CLUSRCVR) {attributes}")
        if given.get("SUSPEND", "NO") != "NO":
            self._tell(host, f"SUSPEND QMGR CLUSTER('{cluster}')")
        return host

    def _join(self, manager: str, cluster: str) -> str:
        """The cluster-receiver channel of a member."""
        if (manager, cluster) not in self._channels:
            name = f"CLUS.{self.number}.{len(self._channels)}"
            self._channels[manager, cluster] = name
            kind = f"CHLTYPE(CLUSRCVR) CLUSTER('{cluster}') CONNAME('{manager}') MRRTY(0)"
            self._tell(manager, f"DEFINE CHANNEL({name}) {kind}")
        return self._channels[manager, cluster]


def _attributes(given: Mapping[str, str], meant: Mapping[str, str]) -> str:
    return " ".join(f"{meant[word]}({given[word]})" for word in given if word in meant)


# MQ Everyplace


def _of_mqe(stem: str, vector: Vector) -> Numbered:
    put: Mapping[str, Any] = vector["put"]
    if others := put.keys() - {"at", "destQM", "destQ", "then", "repeat", "length"}:
        raise InexpressibleError(f"{sorted(others)} are no fields of a record that is put")
    read = notation.read_topology(vector["topology"], maxmsg_counts="length" not in put)
    return Numbered(
        id=vector_id(stem, vector),
        vector=vector,
        at=put.get("at") or read.first,
        queue_manager=put.get("destQM") or "",
        queue=put["destQ"],
        length=_possible(put.get("length")),
        network=read.network,
        down=frozenset(read.conditions.down),
    )
