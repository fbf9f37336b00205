"""Trigger messages: what a put on a queue with TRIGGER causes, in the same transaction.

A trigger message that the initiation queue refuses is dead-lettered; if that also fails it is
dropped, while the message stays put ("When triggering does not work"). A trigger message causes no
further one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from redrive.engine.decision import Decision, with_detail
from redrive.engine.facts import DepthQuestion
from redrive.engine.put_descriptor import PRIORITY
from redrive.engine.putter import Effect
from redrive.messages import OutputRecord, add_header, constant_value, new_header
from redrive.messages.fields import read_long
from redrive.messages.reasons import Reason
from redrive.messages.trigger_message import trigger_headers
from redrive.topology.put import Destination, Refusal

if TYPE_CHECKING:
    from redrive.engine.context import Entry, SliceContext
    from redrive.engine.deciders import Decided
    from redrive.topology.triggers import Trigger


@dataclass(slots=True)
class SliceTriggers:
    """The triggers of the topology, and the puts that one slice counts for them."""

    by_topic: Mapping[str, Trigger]
    """Triggers by the topic of their queue."""
    _puts: Counter[str] = field(default_factory=Counter)
    _with_detail: dict[tuple[int, str], tuple[Decision, Decision]] = field(default_factory=dict)
    """Decisions by id and added detail: without and with it."""

    def begin(self) -> None:
        """Drop the counts."""
        self._puts.clear()
        self._with_detail.clear()

    def follow(self, decided: Decided, entry: int, source: str, facts: SliceContext) -> Decided:
        """A decision with the trigger messages that its puts cause.

        ``source`` is ``topic:partition:offset`` of the input, ``entry`` its number.
        """
        triggered: list[Entry] = []
        details = []
        for _, record in decided.records:
            trigger = self.by_topic.get(record.topic)
            if trigger is not None and self._is_due(trigger, record, facts):
                written, detail = _trigger_message(trigger, entry, source, facts)
                triggered += written
                details.append(detail)
        if not details:
            return decided
        decision = self._add_detail(decided.decision, "; ".join(details))
        return decided._replace(decision=decision, records=(*decided.records, *triggered))

    def _is_due(self, trigger: Trigger, record: OutputRecord, facts: SliceContext) -> bool:
        priority = read_long(dict(record.headers or []).get(PRIORITY))
        if priority < trigger.lowest_priority:
            return False
        wanted = trigger.depth
        if not wanted:
            return True
        earlier = self._puts[record.topic]
        self._puts[record.topic] += 1
        question = DepthQuestion(record.topic, trigger.consumer_group, wanted)
        depth = facts.facts.depth(question)
        if 0 < depth < wanted <= depth + earlier + 1:
            # Offsets were counted, including markers; now the messages must be counted.
            depth = facts.facts.depth(question._replace(limit=depth))
        return depth + earlier + 1 == wanted

    def _add_detail(self, decision: Decision, detail: str) -> Decision:
        key = id(decision), detail
        known = self._with_detail.get(key)
        if known is None:
            known = self._with_detail[key] = decision, with_detail(decision, detail)
        return known[1]


def _trigger_message(
    trigger: Trigger, entry: int, source: str, facts: SliceContext
) -> tuple[list[Entry], str]:
    """The trigger message or its dead letter, and its queue or why there is none."""
    place = trigger.initiation_queue
    where = f"{place.queue}@{place.queue_manager}"
    if not facts.facts.topic(place.topic).exists:
        topic = f"{place.topic} does not exist; redrive topology apply creates it"
        return [], f"no trigger message: {topic}"
    headers = trigger_headers(
        queue_manager=trigger.queue_manager,
        priority=place.priority,
        source=f"{source} {trigger.queue}",
        now=facts.now,
    )
    record = OutputRecord(place.topic, trigger.queue.encode(), trigger.message, headers, facts.now)
    number = Effect.TRIGGER.entry(entry)
    refusal = _refusal(number, record, place, facts)
    if refusal is None:
        return [(number, record)], f"trigger message on {where}"
    why = f"{where} refuses it: {refusal.reason} {refusal.detail}"
    place_of_dead = trigger.dead_letters
    if isinstance(place_of_dead, Refusal):
        return [], f"no trigger message: {why}; no dead letter, because {place_of_dead.detail}"
    number = Effect.DEAD_TRIGGER.entry(entry)
    record = _dead_letter(trigger, record, refusal, place_of_dead, facts.now)
    refused = _refusal(number, record, place_of_dead, facts)
    if refused is not None:
        return [], f"no trigger message: {why}; no dead letter, because {refused.detail}"
    return [(number, record)], f"trigger message on {place_of_dead.queue}, because {why}"


def _refusal(
    number: int, record: OutputRecord, place: Destination, facts: SliceContext
) -> Refusal | None:
    topic = facts.facts.topic(place.topic)
    if not topic.exists:
        return Refusal(Reason.UNKNOWN_OBJECT_NAME, f"{place.topic} does not exist")
    if not topic.may_write:
        return Refusal(Reason.NOT_AUTHORIZED, f"this user may not write to {place.topic}")
    return facts.check(number, record, 0, place)


def _dead_letter(
    trigger: Trigger, record: OutputRecord, refusal: Refusal, place: Destination, now: int
) -> OutputRecord:
    headers = record.headers or []
    header = new_header(
        headers,
        reason=refusal.reason,
        queue=trigger.initiation_queue.queue,
        queue_manager=trigger.queue_manager,
        timestamp=now,
        put_appl_name=trigger.queue_manager,
        put_appl_type=constant_value("MQAT_QMGR") or 0,
    )
    value, written = add_header(header, record.value, headers, form=trigger.dead_letter_form)
    return record._replace(topic=place.topic, value=value, headers=written)
