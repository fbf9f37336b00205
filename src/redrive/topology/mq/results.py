"""Requests to name resolution and its results, as values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Flag, IntEnum, StrEnum, auto
from typing import Final, NamedTuple, TypeAlias

from redrive.diagnostics import SourceLocation
from redrive.messages.reasons import Reason
from redrive.topology.mq.objects import Definition, Queue
from redrive.topology.mq.queue_manager import ClusterInstance, ClusterRoute
from redrive.topology.names import NO_NAMES, Names
from redrive.topology.put import UNLIMITED, QueueLimits


class OpenOption(Flag):
    """What an object is opened for."""

    INPUT = auto()
    BROWSE = auto()
    INQUIRE = auto()
    SET = auto()
    OUTPUT = auto()


NEEDS_LOCAL_QUEUE = OpenOption.INPUT | OpenOption.BROWSE | OpenOption.SET
NEEDS_NAMES = OpenOption.INPUT | OpenOption.BROWSE | OpenOption.OUTPUT
"""Options with which an application gets the resolved names."""


class Call(StrEnum):
    """The call: MQPUT1 opens and puts in one."""

    MQOPEN = "MQOPEN"
    MQPUT1 = "MQPUT1"


class Bind(StrEnum):
    """When an instance of a cluster queue is chosen."""

    AS_Q_DEF = "AS_Q_DEF"
    ON_OPEN = "ON_OPEN"
    NOT_FIXED = "NOT_FIXED"
    GROUP = "GROUP"


class Persistence(IntEnum):
    """MQPER: whether a message survives a restart of its queue manager."""

    NOT_PERSISTENT = 0
    PERSISTENT = 1
    AS_Q_DEF = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenRequest:
    """The arguments of MQOPEN or MQPUT1 that affect resolution."""

    queue: str
    queue_manager: str = ""
    options: OpenOption = OpenOption.OUTPUT
    call: Call = Call.MQOPEN
    bind: Bind = Bind.AS_Q_DEF
    dynamic_queue: str = "AMQ.*"
    """DynamicQName: name of the queue made from a model queue."""
    seed: int = 0
    """Determines the choice among equal cluster queues, and the generated part of dynamic names."""
    from_cluster_channel: bool = False


def job_request(
    queue: str, queue_manager: str = "", *, seed: int = 0, from_cluster_channel: bool = False
) -> OpenRequest:
    """The open with which the job makes every put, and all views predict it.

    Names and message come together on an intake and over a channel, so it is MQPUT1: a model queue
    ends with 2057.
    """
    return OpenRequest(
        queue=queue,
        queue_manager=queue_manager,
        call=Call.MQPUT1,
        seed=seed,
        from_cluster_channel=from_cluster_channel,
    )


Used: TypeAlias = Definition | ClusterInstance | ClusterRoute
"""What a step can use: an object, or a cluster's knowledge of one elsewhere."""


_DESTINATION: Final = ("TARGET", "TARGTYPE", "RNAME", "RQMNAME", "XMITQ", "STREAMQ", "STRMQOS")
"""Attributes that say where a definition leads."""
_AT_FAULT: Final[Mapping[int, str]] = {
    Reason.MSG_TOO_BIG_FOR_Q: "MAXMSGL",
    Reason.PUT_INHIBITED: "PUT",
    Reason.Q_FULL: "MAXDEPTH",
    Reason.XMIT_Q_USAGE_ERROR: "USAGE",
    Reason.UNKNOWN_DEF_XMIT_Q: "DEFXMITQ",
    Reason.DEF_XMIT_Q_USAGE_ERROR: "USAGE",
}
"""The attribute of the definition at fault, by reason; for other reasons, where it leads."""


def location_of(definition: Used, reason: int = Reason.NONE) -> SourceLocation:
    """The last command that set where a definition leads, or what is at fault for a reason."""
    if not isinstance(definition, Definition):
        return definition.location
    keyword = _AT_FAULT.get(reason)
    return definition.set_at(*([keyword] if keyword else _DESTINATION))


class Step(NamedTuple):
    """One step of a resolution."""

    queue_manager: str
    row: str
    """Row of the resolution table, such as ``R8``; see docs/resolution.md."""
    rule: str
    definition: Used | None
    before: Names
    after: Names

    @property
    def location(self) -> SourceLocation | None:
        """File and line of the command that says where the definition used leads."""
        return None if self.definition is None else location_of(self.definition)


class TargetKind(StrEnum):
    """What a name resolved to."""

    NOTHING = "nothing"
    LOCAL = "local queue"
    DYNAMIC = "dynamic queue"
    REMOTE = "queue of another manager"
    PER_MESSAGE = "cluster queue, chosen for each message"
    TOPIC = "topic"


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolution:
    """The result of one open at one queue manager."""

    opened_at: str
    """Name of the queue manager that resolved the names."""
    steps: tuple[Step, ...]
    reason: Reason = Reason.NONE
    detail: str = ""
    at_fault: Used | None = None
    """The definition to check if it failed, if any."""
    advice: str = ""
    target: TargetKind = TargetKind.NOTHING
    resolved_queue: str = ""
    resolved_queue_manager: str = ""
    destination: Names = NO_NAMES
    """Names that the message is put to, or that travel with it on a transmission queue."""
    transmission_queue: str = ""
    next_queue_manager: str = ""
    """The manager to which a cluster or shared transmission queue leads; empty otherwise."""
    channel: str = ""
    """The cluster channel to it; empty outside a cluster or without a name."""
    path: tuple[Queue | ClusterInstance, ...] = ()
    """Every object on the path, first to last; PUT(DISABLED) on any stops a put."""
    limits: QueueLimits = UNLIMITED
    default_persistence: bool = False
    """DEFPSIST of the first object on the path."""
    default_priority: int = 0
    """DEFPRTY of the first object on the path."""
    cap_expiry: int | None = None
    """The lowest CAPEXPRY of the path, in tenths of a second; None if no object has one."""
    is_choice: bool = False
    """Whether workload management chose among several instances, so that the seed mattered."""
    binds_groups: bool = False
    """Whether messages of one group go to one instance: DEFBIND(GROUP) of the first object."""

    @property
    def is_failed(self) -> bool:
        """Whether the open failed."""
        return self.reason is not Reason.NONE

    @property
    def put_queue(self) -> str:
        """The queue of this manager that a put writes to; empty for topics and failures."""
        return self.transmission_queue or self.destination.queue

    @property
    def fault(self) -> Used | None:
        """The definition to check if the open failed, or if a put that follows it does."""
        if self.is_failed or not self.path:
            return self.at_fault
        return next((used for used in self.path if not used.put_enabled), self.path[-1])
