"""The notation of the vectors for IBM MQ: topology lines, puts and expectations."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from tests.topology.mq.routes import PutMessage

from redrive.diagnostics import has_errors
from redrive.topology.mq import objects as mq
from redrive.topology.mq.network import Link, MqNetwork
from redrive.topology.mq.queue_manager import (
    ChannelState,
    ClusterInstance,
    ClusterRoute,
    QueueManager,
    QueueSharingGroup,
)
from redrive.topology.mq.reader import read_mqsc
from redrive.topology.mq.results import Bind, Call, OpenOption, OpenRequest, Persistence
from redrive.topology.mq.script import Command, split_script
from redrive.topology.names import Names

_STATES = {
    "RUNNING": ChannelState.RUNNING,
    "INACTIVE": ChannelState.RUNNING,
    "RETRYING": ChannelState.RETRYING,
    "RETRY": ChannelState.RETRYING,
    "STOPPED": ChannelState.STOPPED,
    "PAUSED": ChannelState.STOPPED,
}
_KEYWORDS = {"ALIAS": mq.AliasQueue.keyword, "QMALIAS": mq.RemoteQueue.keyword, "REMOTE": "QREMOTE"}
_PSEUDO = re.compile(r"\s*(CLQ|CLQM|QSG|SHQ|TOPIC|CHAN)\s*\(", re.IGNORECASE)


@dataclass
class Topology:
    """What the lines of a vector describe."""

    managers: dict[str, QueueManager] = field(default_factory=dict)
    groups: dict[str, QueueSharingGroup] = field(default_factory=dict)
    """By name of the group."""
    shared: dict[str, dict[str, mq.LocalQueue]] = field(default_factory=lambda: defaultdict(dict))
    """By name of the manager that knows them."""
    links: dict[Names, Link] = field(default_factory=dict)
    delays: dict[Names, int] = field(default_factory=dict)
    """How long messages wait on transmission queues, in tenths of a second."""

    def add(self, line: str) -> None:
        """Carry out ``manager: command``."""
        name, _, command = line.partition(":")
        manager = self.manager(name.strip())
        if _PSEUDO.match(command):
            self._pseudo(manager, command.strip())
            return
        result = read_mqsc(command.strip(), base=manager, refuses=False)
        assert not has_errors(result.diagnostics), [
            diagnostic.render() for diagnostic in result.diagnostics
        ]
        self.managers[manager.name] = result.queue_manager

    def manager(self, name: str) -> QueueManager:
        """The manager of this name, an empty one if no line named it before."""
        empty = QueueManager(attributes=mq.QueueManagerAttributes(name=name))
        return self.managers.setdefault(name, empty)

    def network(self) -> MqNetwork:
        """All managers together; a group and its shared queues belong to all its members."""
        for link in self.links.values():
            self.manager(link.queue_manager)
        for group in self.groups.values():
            queues = {
                name: q for member in group.members for name, q in self.shared[member].items()
            }
            for member in set(group.members) & set(self.managers):
                self.managers[member] = replace(
                    self.managers[member], queue_sharing_group=group, shared_queues=queues
                )
        return MqNetwork(self.managers.values(), links=self.links)

    def _pseudo(self, manager: QueueManager, text: str) -> None:
        (command,) = split_script(text)
        given = _values(command)
        keyword, subject = next(iter(given.items()))
        handlers: Mapping[str, Callable[[QueueManager, str, Mapping[str, str]], None]] = {
            "CLQ": self._cluster_queue,
            "CLQM": self._cluster_manager,
            "QSG": self._group,
            "SHQ": self._shared_queue,
            "TOPIC": self._topic,
            "CHAN": self._channel,
        }
        handlers[keyword](manager, subject, given)

    def _cluster_queue(self, at: QueueManager, queue: str, given: Mapping[str, str]) -> None:
        kind = given.get("TYPE", "LOCAL")
        instance = ClusterInstance(
            name=queue,
            route=_route(given.get("ON") or given["QMGR"], given),
            keyword=_KEYWORDS.get(kind, mq.LocalQueue.keyword),
            is_queue_manager_alias=kind in {"QMALIAS", "QMGRALIAS"},
            put_enabled=given.get("PUT") != "DISABLED",
            rank=_number(given, "QRANK", "CLWLRANK"),
            priority=_number(given, "QPRTY", "CLWLPRTY"),
            default_bind=mq.DefaultBind(given.get("DEFBIND", "OPEN")),
            default_persistence=given.get("DEFPSIST") == "YES",
            default_priority=_number(given, "DEFPRTY"),
        )
        known = (*at.known_instances, instance)
        self.managers[at.name] = replace(at, known_instances=known)

    def _cluster_manager(self, at: QueueManager, name: str, given: Mapping[str, str]) -> None:
        self.managers[at.name] = replace(at, known_routes=(*at.known_routes, _route(name, given)))

    def _group(self, at: QueueManager, name: str, given: Mapping[str, str]) -> None:
        members = re.findall(r"[^\s,']+", given.get("MEMBERS", ""))
        members = list(dict.fromkeys([*members, at.name]))
        self.groups[name] = QueueSharingGroup(name=name, members=tuple(members))
        enabled = given.get("IGQ") == "ENABLED"
        attributes = replace(at.attributes, intra_group_queuing=enabled)
        self.managers[at.name] = replace(at, attributes=attributes)

    def _shared_queue(self, at: QueueManager, name: str, given: Mapping[str, str]) -> None:
        attributes = " ".join(f"{key}({value})" for key, value in given.items() if key != "SHQ")
        queue = read_mqsc(f"DEF QL('{name}') {attributes}").queue_manager.queues[name]
        assert isinstance(queue, mq.LocalQueue)
        self.shared[at.name][name] = queue

    def _topic(self, at: QueueManager, name: str, _: Mapping[str, str]) -> None:
        self.managers[at.name] = replace(at, topics={**at.topics, name: mq.Topic(name=name)})

    def _channel(self, at: QueueManager, queue: str, given: Mapping[str, str]) -> None:
        receiver = mq.Channel(
            name=f"{at.name}.{queue}"[:20],
            channel_type=mq.ChannelType.RCVR,
            use_dead_letter_queue=given.get("USEDLQ") != "NO",
            fast_nonpersistent=given.get("NPMSPEED") != "NORMAL",
            message_retries=_number(given, "MRRTY"),
        )
        sent = Names(queue=queue, queue_manager=at.name)
        self.links[sent] = Link(queue_manager=given["TO"], receiver=receiver)
        self.delays[sent] = _number(given, "DELAY")


def read_topology(lines: Iterable[str]) -> Topology:
    topology = Topology()
    for line in lines:
        topology.add(line)
    return topology


def _values(command: Command) -> dict[str, str]:
    return {
        parameter.keyword: (parameter.value or "").strip() for parameter in command.parameters(0)
    }


def _number(given: Mapping[str, str], *keywords: str, default: int = 0) -> int:
    return next((int(given[keyword]) for keyword in keywords if keyword in given), default)


def _route(queue_manager: str, given: Mapping[str, str]) -> ClusterRoute:
    status = given.get("STATUS", "RUNNING")
    return ClusterRoute(
        queue_manager=queue_manager,
        cluster=given.get("CLUSTER", ""),
        channel=given.get("CHANNEL", ""),
        rank=_number(given, "CHRANK"),
        priority=_number(given, "CHPRTY"),
        weight=_number(given, "CHWGHT", "CHWEIGHT", "WEIGHT", "CLWLWGHT", default=50),
        network_priority=_number(given, "NETPRTY"),
        state=_STATES.get(status, ChannelState.STARTING),
        suspended=given.get("SUSPEND", "NO") != "NO",
    )


def open_options(text: str | list[str]) -> OpenOption:
    """``OUTPUT``, ``INPUT,INQUIRE``, ``INPUT_SHARED`` and so on."""
    words = re.findall(r"[A-Z]+", ",".join(text) if isinstance(text, list) else text)
    options = OpenOption(0)
    for word in words:
        options |= OpenOption.__members__.get(word, OpenOption(0))
    return options


def bind_option(text: str) -> Bind:
    """``ON_OPEN``, ``NOT_FIXED``, ``GROUP`` or ``AS_Q_DEF``."""
    plain = text.upper().replace("BIND_", "").replace("MQOO_", "")
    others = {"OPEN": Bind.ON_OPEN, "NOTFIXED": Bind.NOT_FIXED, "ON_GROUP": Bind.GROUP}
    return others[plain] if plain in others else Bind(plain)


def persistence_option(value: str | int | None, default: Persistence) -> Persistence:
    """``PERSISTENT``, ``NOT_PERSISTENT``, ``AS_Q_DEF``, or the number of one."""
    if value is None:
        return default
    if isinstance(value, int):
        return Persistence(value)
    plain = value.upper().replace("NON_", "NOT_").replace("NONPERS", "NOT_PERS")
    return Persistence[plain]


def depths_at(depth: Mapping[str, int] | None, at: str) -> dict[str, dict[str, int]]:
    """``{QUEUE: n}`` at the first manager, or ``{QUEUE@MANAGER: n}``, by manager."""
    depths: dict[str, dict[str, int]] = defaultdict(dict)
    for name, number in (depth or {}).items():
        queue, _, manager = name.partition("@")
        depths[manager or at][queue] = number
    return depths


def matches(expected: Any, *actual: Any) -> bool:
    """Whether one of the actual values is the expected one; ``~`` starts a regular expression."""
    if isinstance(expected, str) and expected.startswith("~"):
        return any(re.search(expected[1:], str(value)) is not None for value in actual)
    return expected in actual


def check_answers(expect: Mapping[str, Any], answers: Mapping[str, tuple[Any, ...]]) -> None:
    """Whatever a vector asks that has an answer is as it says; ``..._one_of`` lists several."""
    asked = {key: key.removesuffix("_one_of") for key in expect}
    assert answers.keys() & asked.values()
    for key, name in asked.items():
        wanted = [expect[key]] if name == key else expect[key]
        answer = answers.get(name, ())
        assert name not in answers or any(
            matches(alternative, *answer) for alternative in wanted
        ), (key, answer)


def request_of(put: Mapping[str, Any]) -> OpenRequest:
    return OpenRequest(
        queue=put.get("oq") or "",
        queue_manager=put.get("oqm") or "",
        options=open_options(put.get("opts", "OUTPUT")),
        call=Call.MQPUT1 if put.get("call") == "MQPUT1" else Call.MQOPEN,
        bind=bind_option(put.get("bind", "ON_OPEN")),
        dynamic_queue=put.get("dyn", "AMQ.*") or "",
    )


def message_of(put: Mapping[str, Any], default: Persistence) -> PutMessage:
    """The message of a vector's put, with the persistence of one about which nothing is said."""
    return PutMessage(
        length=put.get("length", 0),
        persistence=persistence_option(put.get("persistence"), default),
        reply_to=Names(
            queue=(put.get("replyq") or "").rstrip(" "),
            queue_manager=(put.get("replyqm") or "").rstrip(" "),
        ),
    )
