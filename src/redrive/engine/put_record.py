"""The record that a rules table's put writes, made from one message or prepared for many.

Nearly all fresh dead letters of a lane, and instructions to replay some, have the same header names
in the same order, and few distinct profiles. ``PreparedPut`` computes their common part once; each
record then costs one list, one slice and one line of JSON. Other records are made individually.
Both ways write the same records, which tests check.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from redrive.engine.edits import NO_EDIT, Content, Edit, changes
from redrive.engine.put_descriptor import (
    LEFT_TO_QUEUE,
    PERSISTENCE_AS_QUEUE_IS_DEFINED,
    defaults_of,
    with_queue_defaults,
)
from redrive.messages import OutputRecord, original_key, remove_header, without_stacks
from redrive.messages import own_headers as own
from redrive.messages.dead_letters import origin_partition, origin_partition_headers
from redrive.messages.reasons import Reason
from redrive.topology.put import Refusal

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from redrive.engine.context import SliceContext
    from redrive.engine.decision import Put
    from redrive.engine.message import Message
    from redrive.engine.transforms import Transform
    from redrive.messages import DeadLetterProfile, Headers

HEADROOM: Final = 16 * 1024
"""Bytes reserved for headers when a body is compared with a topic's limit."""
_PROBE: Final = bytes(4096)
"""A value longer than any dead-letter header, to find how much of it is removed."""
_UNLIKELY: Final = b"\xff"
"""A header value that no descriptor field has, so that every edit shows."""


def record_of(
    message: Message,
    put: Put,
    partition: int | None,
    facts: SliceContext,
    transforms: Mapping[str, Transform],
) -> tuple[OutputRecord | Refusal, str]:
    """The record of one message's put, or why there is none; and what changed in it.

    ``partition`` is that of the failed record, if the put returns to it. TRANSFORM of the table
    names one of the transforms.
    """
    key, value, headers = message.key, message.value, message.headers
    if put.strip:
        key = original_key(put.profile, key, headers)
        value, headers = remove_header(put.profile, value, headers)
    else:
        headers = without_stacks(put.profile, headers)
    edit = ""
    transform = put.rule.transform if put.rule else ""
    edited = put.replay.edit if put.replay else NO_EDIT
    if transform or edited:
        before = Content(value, headers)
        after = _change(before, transform, edited, transforms)
        if isinstance(after, Refusal):
            return after, ""
        (value, headers), edit = after, changes(before, after)
    headers = [
        *with_queue_defaults(headers, put.destination),
        (own.ID, message.identity.encode("ascii")),
        *put.added_headers(facts.now, partition),
        (own.HOPS, own.number(message.hops + 1)),
    ]
    topic = put.destination.topic
    place = facts.facts.topic(topic).partition(partition)
    return OutputRecord(topic, key, value, headers, message.timestamp, place), edit


def _change(
    content: Content, transform: str, edit: Edit, transforms: Mapping[str, Transform]
) -> Content | Refusal:
    """The content after the transform and the operator's edit, which is last, as in the preview."""
    if transform:
        known = transforms.get(transform)
        if known is None:
            detail = f"the settings have no [transforms.{transform}]"
            return Refusal(Reason.FORMAT_ERROR, detail)
        changed = known.applied(content)
        if isinstance(changed, Refusal):
            return changed
        content = changed
    return edit.applied(content)


def persistence_of(put: Put) -> int:
    """The persistence of a dead letter where it is put."""
    persistence = int(put.profile.fields.get("PERSIST", 0))
    is_defined = persistence != PERSISTENCE_AS_QUEUE_IS_DEFINED
    return persistence if is_defined else put.destination.persistence


def put_bounds(put: Put, facts: SliceContext) -> tuple[int, int, int] | None:
    """Limits within which a put certainly succeeds: longest value, first and last timestamp.

    Returns:
        Bytes and milliseconds; None if each message needs its own check.
    """
    destination, longest = put.destination, put.destination.limits.longest
    topic = facts.facts.topic(destination.topic)
    if destination.is_choice or longest is None or topic.wants_keys or topic.silent:
        return None
    if destination.topic in facts.triggers.by_topic:
        return None
    profile = put.profile
    if put.rule is not None and put.rule.transform:
        return None
    if put.replay is not None and put.replay.edit:
        return None
    depends_on_record = (
        profile.is_wrapped,
        profile.view.pointer,
        put.rounds is not None and profile.drops_headers,
        put.returns and origin_partition_headers(profile) is None,
        put.is_reported,
    )
    if any(depends_on_record):
        return None
    earliest, latest = topic.timestamps(facts.now)
    if put.wait:
        earliest, latest = max(earliest, 1), min(latest, facts.failed_before(put.wait))
    return min(topic.max_message_bytes - HEADROOM, longest), earliest, latest


class PreparedPut:
    """Writes the dead letters of one profile that one decision puts to a queue."""

    __slots__ = (
        "_added", "_columns", "_edits", "_endings", "_gaps", "_left", "_now", "_topic", "cut",
        "decision", "earliest", "hops", "is_counted_by_body", "latest", "may_lack_rounds", "room",
        "topic",
    )  # fmt: skip

    def __init__(
        self,
        put: Put,
        layout: Sequence[str],
        bounds: tuple[int, int, int],
        facts: SliceContext,
        *,
        hops: int,
        may_lack_rounds: bool = False,
        is_counted_by_body: bool = False,
    ) -> None:
        """Prepare puts of messages with these header names, without Redrive's own, in order.

        ``bounds`` are those of ``put_bounds``, ``hops`` Redrive's earlier puts of every message.
        ``may_lack_rounds`` is whether messages that may be rounds need an individual decision. For
        ``is_counted_by_body`` see ``AttemptCounter``.
        """
        self.decision = put
        self.may_lack_rounds = may_lack_rounds
        self.is_counted_by_body = is_counted_by_body
        self.hops = hops
        self.topic = put.destination.topic
        self.room, self.earliest, self.latest = bounds
        self.cut = 0
        self._edits: list[tuple[int, tuple[str, bytes | None]]] = []
        self._gaps: list[int] = []
        self._added: Headers = []
        self._now, self._topic = facts.now, facts.facts.topic(self.topic)
        deciding = origin_partition_headers(put.profile) if put.returns else None
        self._columns = [index for index, name in enumerate(layout) if name in (deciding or ())]
        self._endings: dict[object, tuple[int, Headers]] = {}
        defaults = defaults_of(put.destination)
        self._left = [
            (index, LEFT_TO_QUEUE[name], (name, defaults[name]))
            for index, name in enumerate(layout)
            if name in LEFT_TO_QUEUE
        ]
        self._prepare_edits(put.profile, layout, strip=put.strip)

    def record(self, message: Message) -> OutputRecord | None:
        """The record of one message; None if its put needs an individual decision."""
        value, timestamp = message.value, message.timestamp
        if value is None or len(value) > self.room or not self.earliest <= timestamp <= self.latest:
            return None
        partition, headers = self.place(message.headers, message.identity.encode("ascii"))
        body = value[self.cut :]
        return OutputRecord(self.topic, message.key, body, headers, timestamp, partition)

    def place(self, headers: Headers, identity: bytes) -> tuple[int, Headers]:
        """The partition to write to, or -1, and the headers.

        ``headers`` are those of the dead letter without Redrive's own.
        """
        deciding = tuple([headers[index] for index in self._columns])
        ending = self._endings.get(deciding)
        if ending is None:
            ending = self._endings[deciding] = self._ending(headers)
        written = headers.copy()
        for index, left, default in self._left:
            if written[index][1] == left:
                written[index] = default
        for index, pair in self._edits:
            raw = written[index][1]
            if raw is None or raw.rstrip(b" ") != pair[1]:  # an equal value stays as it is
                written[index] = pair
        for index in self._gaps:
            del written[index]
        written += self._added
        written.append((own.ID, identity))
        written += ending[1]
        return ending[0], written

    def _ending(self, headers: Headers) -> tuple[int, Headers]:
        """The partition to write to, and Redrive's headers after the identity."""
        put = self.decision
        partition = origin_partition(put.profile, None, None, headers) if put.returns else None
        added = put.added_headers(self._now, partition)
        added.append((own.HOPS, own.number(self.hops + 1)))
        return self._topic.partition(partition), added

    def _prepare_edits(
        self, profile: DeadLetterProfile, layout: Sequence[str], *, strip: bool
    ) -> None:
        """Derive the edits for every record of this layout from one message."""
        probe: Headers = [(name, _UNLIKELY) for name in layout]
        value: bytes | None = _PROBE
        if strip:
            value, kept = remove_header(profile, value, probe)
        else:
            kept = without_stacks(profile, probe)
        self.cut = len(_PROBE) - len(value or b"")
        position = {id(pair): index for index, pair in enumerate(probe)}
        survivors = [position.get(id(pair)) for pair in kept]
        taken = 0
        for pair, index in zip(kept, survivors, strict=True):
            if index is not None:
                self._gaps += range(taken, index)
                taken = index + 1
            elif taken < len(layout) and layout[taken] == pair[0]:
                self._edits.append((taken, pair))
                taken += 1
            else:
                self._added.append(pair)
        self._gaps += range(taken, len(layout))
        self._gaps.reverse()
