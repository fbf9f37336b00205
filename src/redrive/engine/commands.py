"""Commands of operators to the running job: replays, and states of channels and queues.

Commands are entries of the application's compacted tables topic, so they survive restarts. The held
source and the emitters follow the topic; a change takes effect between two transactions.

A replay is an accepted plan. Its instructions, one record for each message, lie on the replay
topics of the handlers, which the job reads as one more input; the entry here says once what to do
with all of them. The entry also shows that a plan was accepted or cancelled.

A plan about parked messages has no such records: its entry names the parked copies, and the lane
that reads the retry topic carries it out. Nothing else ever takes a message from there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Final

from redrive.engine.edits import NO_EDIT, Edit
from redrive.messages import TopicPartition
from redrive.rules import Action, RetryTo, Rule
from redrive.topology.names import Names
from redrive.topology.put import DynamicQueue

REPLAY: Final = "replay/"
CANCELLED: Final = "cancelled/"

Entry = tuple[str, dict[str, Any]]
"""Key and value of one entry of the tables topic."""
Removal = tuple[str, None]
"""Key with which an entry is removed."""


class To(StrEnum):
    """What a replay does with its messages."""

    ORIGINAL = "original"
    """Put to their original destination, without the dead-letter header."""
    GROUP = "group"
    """Put to the topic of the consumer group that failed, without the header."""
    QUEUE = "queue"
    """Put to a queue that the operator names."""
    RULES = "rules"
    """Evaluated from the first rule, with no attempts counted."""
    DISCARD = "discard"
    """Deleted."""
    ATTEMPT = "attempt"
    """Parked messages: tried now, before they are due; the attempt counts like any other."""
    REMAIN = "remain"
    """Parked messages: not tried again, and kept on the remaining topic."""

    @property
    def is_about_parked(self) -> bool:
        """Whether it applies to parked messages instead of remaining ones."""
        return self in {To.ATTEMPT, To.REMAIN}


_IN_WORDS: Final = {
    To.ORIGINAL: "to their original destinations",
    To.GROUP: "to the topics of the groups that failed",
    To.RULES: "through the rules tables again",
    To.DISCARD: "to be discarded",
    To.ATTEMPT: "to their next attempt, now",
    To.REMAIN: "to the remaining messages, without another attempt",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """The instructions of one replay on one partition of a replay topic."""

    first: int
    """The end of the topic before the first of them was written."""
    count: int
    """The number of instructions on this partition."""
    end: int | None = None
    """The offset after the last of them; None while they are being written."""
    read: int = 0
    """The offset up to which remaining copies became instructions."""
    until: int = 0
    """The end of the remaining topic when the replay was accepted, where reading stops."""
    named: frozenset[int] = frozenset()
    """On a retry topic: the offsets of the selected parked copies."""

    def holds(self, offset: int) -> bool:
        """Whether the record at an offset of the partition may be an instruction."""
        return self.first <= offset and (self.end is None or offset < self.end)


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """What a plan does with its messages and, once it is accepted, by whom and how far."""

    plan: str = ""
    """The id of the plan; empty before it is made."""
    to: To = To.ORIGINAL
    queue: str = ""
    """The queue of ``To.QUEUE``."""
    queue_manager: str = ""
    keeps_header: bool = False
    """Whether the dead-letter header stays on messages that go to a queue."""
    rate: float | None = None
    """Messages per second, over all partitions; None for as fast as possible."""
    edit: Edit = NO_EDIT
    """The edit of each message before it is put."""
    is_undo: bool = False
    """Whether it brings back discarded messages, and no others."""
    operator: str = ""
    """The operator who applied it."""
    purpose: str = ""
    """The reason that the operator gave."""
    accepted: float = 0.0
    """Time of the command, in seconds since 1970."""
    planned: int = 0
    """The number of messages in the plan."""
    instructed: int = 0
    """The number of instructions that exist."""
    placed: int = 0
    """Messages already placed before the plan was applied, by their outcomes."""
    is_complete: bool = False
    """Whether every instruction is written."""
    cancelled_by: str = ""
    """The operator who cancelled it; empty if nobody did."""
    spans: Mapping[TopicPartition, Span] = field(default_factory=dict)

    def __str__(self) -> str:
        """Where the messages go and what changes in them."""
        where = _IN_WORDS.get(self.to, f"to {self.target}")
        if self.to is To.QUEUE and self.keeps_header:
            where += " with the dead-letter header"
        if self.is_undo:
            where += ", although discarded"
        return f"{where}; {self.edit}" if self.edit else where

    @property
    def target(self) -> Names:
        """The queue that the operator named."""
        return Names(queue=self.queue, queue_manager=self.queue_manager)

    @property
    def rule(self) -> Rule | None:
        """The rule that decides its messages; None if a table's rules do, or none does."""
        match self.to:
            case To.RULES | To.ATTEMPT | To.REMAIN:
                return None
            case To.ORIGINAL:
                return Rule(action=Action.RETRY)
            case To.GROUP:
                return Rule(action=Action.RETRY, to=RetryTo.GROUP)
            case To.DISCARD:
                return Rule(action=Action.DISCARD)
            case To.QUEUE:
                return Rule(
                    action=Action.FWD,
                    forward_queue=self.queue,
                    forward_queue_manager=self.queue_manager,
                    header=self.keeps_header,
                )

    def rate_of(self, lane: TopicPartition) -> float | None:
        """Messages per second that may be read from one partition; None for no limit.

        The rate is divided in proportion to the messages, so that all partitions finish together.
        """
        span = self.spans.get(lane)
        if self.rate is None or self.cancelled_by or span is None:
            return None
        total = sum(span.count for span in self.spans.values())
        return self.rate * span.count / total if total else None

    def entry(self) -> Entry:
        """Key and value of its entry; another entry says whether it is cancelled."""
        return f"{REPLAY}{self.plan}", {
            "to": self.to.value,
            "queue": self.queue,
            "queue_manager": self.queue_manager,
            "keeps_header": self.keeps_header,
            "rate": self.rate,
            "operator": self.operator,
            "purpose": self.purpose,
            "accepted": self.accepted,
            "planned": self.planned,
            "instructed": self.instructed,
            "placed": self.placed,
            "is_complete": self.is_complete,
            # Versions without edits must not put such a message: they skip the plan.
            **({"edit": self.edit.document()} if self.edit else {}),
            **({"is_undo": True} if self.is_undo else {}),
            "spans": [
                [
                    *lane,
                    span.first,
                    span.count,
                    span.end,
                    span.read,
                    span.until,
                    *sorted(span.named),
                ]
                for lane, span in self.spans.items()
            ],
        }


def cancelled_entry(plan: str, operator: str) -> Entry:
    """The entry that cancels the rest of a replay, by plan id."""
    return f"{CANCELLED}{plan}", {"by": operator}


def free_by_order(replays: Iterable[Replay]) -> dict[TopicPartition, int]:
    """The offsets up to which replays read retry topics before messages are due."""
    free: dict[TopicPartition, int] = {}
    for replay in replays:
        if replay.to.is_about_parked and not replay.cancelled_by:
            for lane, span in replay.spans.items():
                free[lane] = max(free.get(lane, 0), span.end or 0)
    return free


def orders_on(lane: TopicPartition, replays: Iterable[Replay]) -> tuple[Replay, ...]:
    """The replays of a partition's parked messages, including cancelled ones; latest first."""
    replays_there = (
        replay for replay in replays if replay.to.is_about_parked and lane in replay.spans
    )
    return tuple(sorted(replays_there, key=lambda replay: replay.accepted, reverse=True))


def read_replays(entries: Mapping[str, Mapping[str, Any]]) -> dict[str, Replay]:
    """The replays among the entries of a tables topic, by the id of their plan.

    Plans that cannot be read are left out: a later version may have written them.
    """
    replays = {}
    for key, value in entries.items():
        if key.startswith(REPLAY):
            plan = key.removeprefix(REPLAY)
            cancelled = entries.get(f"{CANCELLED}{plan}", {})
            replay = _replay(plan, value, str(cancelled.get("by", "")))
            if replay is not None:
                replays[plan] = replay
    return replays


def _replay(plan: str, value: Mapping[str, Any], cancelled_by: str) -> Replay | None:
    try:
        plain = {name: value[name] for name in value if name not in {"to", "spans", "edit"}}
        edit = Edit.of(value.get("edit", ()))
        spans = {
            TopicPartition(topic, number): Span(
                first=first, count=count, end=end, read=read, until=until, named=frozenset(named)
            )
            for topic, number, first, count, end, read, until, *named in value["spans"]
        }
        return Replay(
            plan=plan,
            to=To(value["to"]),
            edit=edit,
            cancelled_by=cancelled_by,
            spans=spans,
            **plain,
        )
    except (AttributeError, KeyError, TypeError, ValueError):
        return None


_CHANNEL: Final = "channel/"
_QUEUE: Final = "queue/"
_RELEASE: Final = "release/"
_DISCOVERED: Final = "discovered/"
_DYNAMIC: Final = "dynamic/"
_RESUME: Final = "resume/"
ACKNOWLEDGED: Final = "acknowledged/"
STATE_KINDS: Final = (
    *(_CHANNEL, _QUEUE, _RELEASE, _DISCOVERED, _DYNAMIC, _RESUME),
    *(REPLAY, CANCELLED, ACKNOWLEDGED),
)


def channel_entry(
    queue_manager: str, channel: str, *, is_running: bool, because: str = ""
) -> Entry:
    """The entry that starts or stops a channel.

    Args:
        queue_manager: The sending manager; for a home-server queue, the one that pulls.
        channel: Name of the channel, or of the connection in MQ Everyplace.
        is_running: Whether it moves messages.
        because: Why the job stopped it; empty if an operator did.
    """
    why = {"because": because} if because else {}
    key, at = _key_at(_CHANNEL, queue_manager, channel)
    return key, {"running": is_running, **why, **at}


def queue_entry(*, queue: str, queue_manager: str, put_enabled: bool) -> Entry:
    """The entry that enables or disables puts to a queue and overrides its definition.

    Args:
        queue: The queue: local, alias or remote.
        queue_manager: The manager that owns the queue; empty for a queue of kind ``kafka``.
        put_enabled: Whether puts are allowed.
    """
    key, at = _key_at(_QUEUE, queue_manager, queue)
    return key, {"put": put_enabled, **at}


def release_entry(lane: TopicPartition, offset: int) -> Entry:
    """The entry that releases the messages of one partition once (``triggerTransmission``).

    Messages below the offset are released, whatever the state of the channel.
    """
    return f"{_RELEASE}{lane.topic}/{lane.partition}", {"offset": offset}


def discovered_entry(at: str, queue: str, queue_manager: str) -> Entry:
    """The entry of a definition that queue discovery created at a manager.

    ``at`` is the manager that has the definition, ``queue_manager`` that of the queue.
    """
    key = f"{_DISCOVERED}{at}/{queue}@{queue_manager}"
    return key, {"at": at, "queue": queue, "queue_manager": queue_manager}


def dynamic_entry(queue: DynamicQueue) -> Entry:
    """The entry of a dynamic queue: its creation, or the end of its lease."""
    key, at = _key_at(_DYNAMIC, queue.queue_manager, queue.queue)
    return key, {"model": queue.model, "until": queue.until, **at}


def removal(entry: Entry) -> Removal:
    """The removal of an entry."""
    return entry[0], None


def _key_at(kind: str, queue_manager: str, name: str) -> tuple[str, dict[str, str]]:
    return f"{kind}{queue_manager}/{name}", {"at": queue_manager} if "/" in queue_manager else {}


class ResumeFrom(StrEnum):
    """Where a stopped handler resumes."""

    OLDEST = "oldest"
    """At the oldest record."""
    LATEST = "latest"
    """After the last record."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Resume:
    """An operator's answer to lost positions: the handler of a topic resumes."""

    topic: str
    """The topic that the handler reads."""
    lanes: Mapping[TopicPartition, int]
    """The lanes, each with the time at which its loss was found, in milliseconds since 1970."""
    begin: ResumeFrom
    operator: str = ""
    purpose: str = ""
    """The reason that the operator gave."""

    def answers(self, lane: TopicPartition, found_at: int) -> bool:
        """Whether it is about the loss of a lane found at a time."""
        return self.lanes.get(lane) == found_at

    def entry(self) -> Entry:
        """Key and value of its entry."""
        return f"{_RESUME}{self.topic}", {
            "lanes": [[*lane, found_at] for lane, found_at in self.lanes.items()],
            "from": self.begin.value,
            "operator": self.operator,
            "purpose": self.purpose,
        }


def _read_resumes(entries: Mapping[str, Mapping[str, Any]]) -> dict[str, Resume]:
    resumes = (
        _resume(key.removeprefix(_RESUME), value)
        for key, value in entries.items()
        if key.startswith(_RESUME)
    )
    return {resume.topic: resume for resume in resumes if resume is not None}


def _resume(topic: str, value: Mapping[str, Any]) -> Resume | None:
    try:
        lanes = {
            TopicPartition(name, number): found_at for name, number, found_at in value["lanes"]
        }
        begin, operator = ResumeFrom(value["from"]), str(value["operator"])
        purpose = str(value["purpose"])
    except (KeyError, TypeError, ValueError):
        return None
    return Resume(topic=topic, lanes=lanes, begin=begin, operator=operator, purpose=purpose)


@dataclass(frozen=True, slots=True)
class States:
    """All states at one moment; channels and queues without an entry follow their definitions."""

    running: Mapping[tuple[str, str], bool] = field(default_factory=dict)
    """Whether channels run, by queue manager and channel."""
    why_stopped: Mapping[tuple[str, str], str] = field(default_factory=dict)
    """Why the job stopped channels, by the same keys; channels stopped by operators have none."""
    put_enabled: Mapping[tuple[str, str], bool] = field(default_factory=dict)
    """Whether puts are allowed, by queue manager and queue."""
    releases: Mapping[TopicPartition, int] = field(default_factory=dict)
    """Offsets below which messages are released."""
    discovered: frozenset[tuple[str, str, str]] = frozenset()
    """Remote definitions that were created: the manager, the queue and its own manager."""
    dynamic_queues: frozenset[DynamicQueue] = frozenset()
    """Queues made from model queues, including those whose lease has ended and that still have
    their messages."""
    resumes: Mapping[str, Resume] = field(default_factory=dict)
    """The last resume of each handler, by the topic that it reads."""
    replays: Mapping[str, Replay] = field(default_factory=dict)
    """Accepted plans, by id."""
    acknowledged: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Entries of acknowledgements, by id; decisions do not use them."""

    def as_of(self, now: int) -> States:
        """The states without dynamic queues closed at a time, in ms since 1970."""
        if all(queue.is_open(now) for queue in self.dynamic_queues):
            return self
        is_open = frozenset(queue for queue in self.dynamic_queues if queue.is_open(now))
        return replace(self, dynamic_queues=is_open)

    @property
    def definitions(self) -> tuple[object, ...]:
        """All changes that affect where puts go; equal for states that resolve the same."""
        return self.put_enabled, self.discovered, self.dynamic_queues, self.stopped

    @property
    def stopped(self) -> frozenset[tuple[str, str]]:
        """The stopped channels and connections."""
        return frozenset(channel for channel, is_running in self.running.items() if not is_running)

    def moves(
        self, channel: tuple[str, str], via: Iterable[tuple[str, str]], *, is_running: bool
    ) -> bool:
        """Whether a channel moves messages: it runs, and so does every connection that it uses.

        ``is_running`` applies if no operator started or stopped the channel.
        """
        return self.running.get(channel, is_running) and self.stopped.isdisjoint(via)


NO_STATES = States()
"""The states without any entry."""


def states_of(entries: Mapping[str, Mapping[str, Any]]) -> States:
    """The states in the entries of a tables topic; entries of other kinds are ignored."""
    running: dict[tuple[str, str], bool] = {}
    why_stopped: dict[tuple[str, str], str] = {}
    put_enabled: dict[tuple[str, str], bool] = {}
    releases: dict[TopicPartition, int] = {}
    discovered: set[tuple[str, str, str]] = set()
    dynamic: set[DynamicQueue] = set()
    for key, value in entries.items():
        kind, _, rest = key.partition("/")
        owner, _, name = rest.partition("/") if kind != "release" else rest.rpartition("/")
        at = str(value.get("at", ""))
        if "/" in at and rest.startswith(f"{at}/"):
            owner, name = at, rest.removeprefix(f"{at}/")
        match f"{kind}/", value:
            case "channel/", {"running": bool(state)}:
                running[owner, name] = state
                if not state and value.get("because"):
                    why_stopped[owner, name] = str(value["because"])
            case "queue/", {"put": bool(state)}:
                put_enabled[owner, name] = state
            case "release/", {"offset": int(offset)} if name.isdecimal():
                releases[TopicPartition(owner, int(name))] = offset
            case (
                "discovered/",
                {"at": str(at), "queue": str(queue), "queue_manager": str(manager)},
            ):
                discovered.add((at, queue, manager))
            case "dynamic/", {"model": str(model), "until": int() | None as until}:
                dynamic.add(DynamicQueue(owner, name, model, until))
    replays = read_replays(entries)
    for lane, end in free_by_order(replays.values()).items():
        releases[lane] = max(end, releases.get(lane, 0))
    return States(
        running=running,
        why_stopped=why_stopped,
        put_enabled=put_enabled,
        releases=releases,
        discovered=frozenset(discovered),
        dynamic_queues=frozenset(dynamic),
        resumes=_read_resumes(entries),
        replays=replays,
        acknowledged={
            key.removeprefix(ACKNOWLEDGED): value
            for key, value in entries.items()
            if key.startswith(ACKNOWLEDGED)
        },
    )
