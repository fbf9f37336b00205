"""A naive reading of Table 1 of MQOPEN's name resolution, to compare the library with.

Written from the rows of the table and from the list of reason codes (resolution specification
B.3 and B.5), not from the procedure that the library follows: the rows are tried one after the
other, each with the condition of its columns, on plain dictionaries. Slow and without memory of how
it got anywhere; only opens for output.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

Thing: TypeAlias = Mapping[str, Any]
"""An object: ``kind`` (QL, QR, QA, QM) and its attributes; missing ones have their defaults."""

CLUSTER_QUEUE = "SYSTEM.CLUSTER.TRANSMIT.QUEUE"
GROUP_QUEUE = "SYSTEM.QSG.TRANSMIT.QUEUE"


@dataclass
class World:
    """What one queue manager knows."""

    name: str = "QM1"
    things: dict[str, Thing] = field(default_factory=dict)
    """Its objects by name."""
    instances: list[Thing] = field(default_factory=list)
    """Cluster queues elsewhere: ``queue``, ``manager``, and what workload management looks at."""
    managers: set[str] = field(default_factory=set)
    """Cluster queue managers besides those that hold instances."""
    default: str = ""
    """DEFXMITQ."""
    use: str = "LOCAL"
    """CLWLUSEQ of the manager."""
    group: str = ""
    """Name of its queue-sharing group."""
    members: set[str] = field(default_factory=set)
    shared: set[str] = field(default_factory=set)
    """Shared queues."""
    group_queuing: bool = False
    """IGQ."""


@dataclass(frozen=True)
class Found:
    """Where names lead."""

    managers: frozenset[str]
    """Managers that may be chosen."""
    queue: str
    transmission_queue: str = ""


@dataclass(frozen=True)
class PerMessage:
    """A cluster queue that is not bound to an instance."""

    queue: str


@dataclass(frozen=True)
class Error:
    """A reason code, and the other one where the specification leaves it open."""

    code: int


Outcome: TypeAlias = Found | PerMessage | Error


@dataclass(frozen=True)
class Question:
    """One open for output."""

    world: World
    oqm: str
    oq: str
    bound: bool = True
    put1: bool = False
    base_of_alias: str = ""
    """The alias whose base is looked for, in the second pass of R5 to R7."""
    alias_cluster: bool = False
    """Whether that alias has CLUSTER."""
    by_manager_alias: str = ""
    """``local`` or ``any`` in the second pass of R13 to the own manager."""

    @property
    def blank(self) -> bool:
        return self.oqm == ""

    @property
    def local(self) -> bool:
        return self.oqm != "" and self.oqm in {self.world.name, self.world.group}

    @property
    def thing(self) -> Thing | None:
        shared = self.oq in self.world.shared
        return self.world.things.get(self.oq) or ({"kind": "QL"} if shared else None)

    @property
    def named(self) -> Thing | None:
        """The object that the queue manager name matches."""
        shared = self.oqm in self.world.shared
        return self.world.things.get(self.oqm) or ({"kind": "QL"} if shared else None)

    @property
    def known(self) -> list[Thing]:
        return [one for one in self.world.instances if one["queue"] == self.oq]

    def is_a(self, kind: str) -> bool:
        return self.thing is not None and self.thing["kind"] == kind


def is_transmission_queue(thing: Thing | None) -> bool:
    return thing is not None and thing["kind"] == "QL" and thing.get("usage") == "XMITQ"


def ask(question: Question) -> Outcome:
    """The first row whose columns fit."""
    q = question
    if q.blank or q.local:
        if q.oq in q.world.shared and q.oq in q.world.things:
            return Error(2343)
        return next(row(q) for fits, row in LOCAL_ROWS if fits(q))
    return next(row(q) for fits, row in REMOTE_ROWS if fits(q))


# Rows with a blank or local queue manager name


def row_1_3(q: Question) -> Outcome:
    return Found(frozenset({q.world.name}), q.oq)


def row_2(q: Question) -> Outcome:
    assert q.thing is not None
    return workload(q, q.thing) if q.known else row_1_3(q)


def row_4(q: Question) -> Outcome:
    if q.base_of_alias:
        return Error(2001)
    if q.by_manager_alias == "local" or q.put1:
        return Error(2057)
    return Found(frozenset({q.world.name}), "(generated)")


def row_5_6_7(q: Question) -> Outcome:
    assert q.thing is not None
    alias = q.thing
    if q.base_of_alias:
        # The base is a locally defined alias; only row 7 forgives it, for the alias's own name.
        own_name = q.base_of_alias == q.oq and q.alias_cluster and q.blank
        return workload(q, None) if own_name and q.known else Error(2001)
    again = Question(
        q.world,
        q.oqm,
        alias["target"],
        q.bound,
        q.put1,
        base_of_alias=q.oq,
        alias_cluster=bool(alias.get("cluster")),
        by_manager_alias=q.by_manager_alias,
    )
    return ask(again)


def row_8(q: Question) -> Outcome:
    assert q.thing is not None
    definition = q.thing
    if q.by_manager_alias:
        return Error(2085)  # row 13 must not lead to a remote queue; the code is our reading
    if not definition.get("rname"):
        return Error(2184)
    manager = definition.get("rqmname", "")
    if manager in {"", q.world.name} or (q.world.group and manager == q.world.group):
        return Error(2087)
    return carried(q.world, manager, definition["rname"], definition.get("xmitq", ""))


def row_9(q: Question) -> Outcome:
    return workload(q, None)


def row_10(q: Question) -> Outcome:
    return Error(2082 if q.base_of_alias else 2085)


Row: TypeAlias = tuple[Callable[[Question], bool], Callable[[Question], Outcome]]

LOCAL_ROWS: list[Row] = [
    (lambda q: q.is_a("QL") and not (q.thing or {}).get("cluster"), row_1_3),
    (lambda q: q.is_a("QL") and q.blank, row_2),
    (lambda q: q.is_a("QL") and q.local, row_1_3),
    (lambda q: q.is_a("QM"), row_4),
    (lambda q: q.is_a("QA"), row_5_6_7),
    (lambda q: q.is_a("QR"), row_8),
    (lambda q: q.thing is None and q.blank and bool(q.known), row_9),
    (lambda _: True, row_10),
]


# Rows with another queue manager name


def row_12(q: Question) -> Outcome:
    return Found(frozenset({q.oqm}), q.oq, q.oqm)


def row_13(q: Question) -> Outcome:
    assert q.named is not None
    manager = q.named.get("rqmname", "")
    if manager == "" or manager in {q.world.name, q.world.group}:
        by = "any" if manager == "" else "local"
        return ask(Question(q.world, manager, q.oq, q.bound, q.put1, by_manager_alias=by))
    return carried(q.world, manager, q.oq, q.named.get("xmitq", ""))


def row_14_15(q: Question) -> Outcome:
    return carried(q.world, q.oqm, q.oq, "")


REMOTE_ROWS: list[Row] = [
    (lambda q: q.oqm in q.world.members and q.oq in q.world.shared, row_1_3),  # R11
    (lambda q: q.oq == "", lambda _: Error(2184)),
    (lambda q: is_transmission_queue(q.named), row_12),
    (lambda q: (q.named or {}).get("kind") == "QL", lambda _: Error(2092)),
    (lambda q: (q.named or {}).get("kind") == "QR" and not (q.named or {}).get("rname"), row_13),
    (lambda q: q.named is not None, lambda _: Error(2087)),
    (lambda _: True, row_14_15),
]


def carried(  # noqa: C901, PLR0911 - one line for each case of the list
    world: World, manager: str, queue: str, named: str
) -> Outcome:
    """The transmission queue column of rows 8, 13, 14 and 15."""
    away = frozenset({manager})
    things: dict[str, Thing] = {name: {"kind": "QL"} for name in world.shared} | world.things
    if named:
        if named not in things:
            return Error(2196)
        if things[named]["kind"] != "QL":
            return Error(2091)
        return Found(away, queue, named) if is_transmission_queue(things[named]) else Error(2092)
    if manager in things:
        if things[manager]["kind"] != "QL":
            return Error(2091)
        usable = is_transmission_queue(things[manager])
        return Found(away, queue, manager) if usable else Error(2092)
    if manager in world.managers or any(one["manager"] == manager for one in world.instances):
        return Found(away, queue, CLUSTER_QUEUE)
    if world.group_queuing and manager in world.members:
        return Found(away, queue, GROUP_QUEUE)
    if not world.default:
        return Error(2087)
    if world.default not in things:
        return Error(2199 if world.default == CLUSTER_QUEUE else 2197)
    if things[world.default]["kind"] != "QL":
        return Error(2198)
    usable = is_transmission_queue(things[world.default])
    return Found(away, queue, world.default) if usable else Error(2199)


def workload(q: Question, local: Thing | None) -> Outcome:
    """Cluster workload management, test by test."""
    own = {"manager": q.world.name, **local} if local else None
    able = [one for one in [*q.known, *([own] if own else [])] if one.get("put", True)]
    if not q.bound and not q.put1:
        return PerMessage(q.oq)
    if not able and own is None:
        return Error(2270 if q.put1 else 2268)
    if not able:
        return Found(frozenset({q.world.name}), q.oq)
    if own is not None and own in able:
        use = own.get("clwluseq", "QMGR")
        if use == "LOCAL" or (use == "QMGR" and q.world.use == "LOCAL"):
            return Found(frozenset({q.world.name}), q.oq)
    for test in ("chrank", "qrank", "awake", "state", "netprty", "chprty", "qprty"):
        best = max(one.get(test, 0) for one in able)
        able = [one for one in able if one.get(test, 0) == best]
    managers = frozenset(one["manager"] for one in able)
    if managers == {q.world.name}:
        return Found(managers, q.oq)
    in_group = q.world.group_queuing and len(managers) == 1 and managers <= q.world.members
    return Found(managers, q.oq, GROUP_QUEUE if in_group else CLUSTER_QUEUE)
