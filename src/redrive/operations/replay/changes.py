"""What an edit changes in some messages of a plan, as the job would put them."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from itertools import takewhile
from typing import TYPE_CHECKING, Any, Final, TypeVar

from redrive.engine.context import SliceContext
from redrive.engine.edits import NO_EDIT, Content
from redrive.engine.sources import DeadLetterSource, PartitionRecords, SourceKind
from redrive.errors import RedriveError
from redrive.masking import NO_MASK, Mask
from redrive.messages import DeadLetterDecoder, Records
from redrive.messages import own_headers as own
from redrive.messages.constants import reason_name
from redrive.messages.json_patch import read_json, write_json
from redrive.outcomes.history import Lost, find_record
from redrive.printable import plain_text

if TYPE_CHECKING:
    from redrive.configuration import HandlerConfiguration
    from redrive.engine.commands import Replay
    from redrive.engine.deciders import Decided
    from redrive.engine.facts import Answers, Facts, Questions
    from redrive.engine.rules_decider import RulesDecider
    from redrive.kafka.cluster import Cluster
    from redrive.kafka.records import StoredRecord
    from redrive.operations.replay.plan import Order
    from redrive.outcomes.rows import Row

_CONTEXT: Final = 1
"""Lines of context around a changed line."""
_LONGEST: Final = 200
"""Maximum characters of a shown line."""
_MOST_LINES: Final = 60
"""Maximum shown lines of one message."""

_Item = TypeVar("_Item", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Change:
    """What an edit changes in one message."""

    message: str
    lines: Sequence[str] = ()
    """Lines marked ``-`` (before), ``+`` (after) or neither; empty if nothing changes."""
    problem: str = ""
    """Why the edited message would not be put; empty if it would."""

    def document(self) -> dict[str, Any]:
        """The change as a JSON object."""
        return {"message": self.message, "lines": list(self.lines), "problem": self.problem}


class Preview:
    """Decides single messages as the job would; nothing is written."""

    def __init__(
        self,
        cluster: Cluster,
        handlers: Mapping[str, HandlerConfiguration],
        deciders: Mapping[str, RulesDecider],
        facts: Facts,
        answers: Callable[[Questions], Answers],
    ) -> None:
        self._cluster = cluster
        self._handlers = handlers
        self._deciders = deciders
        self._facts = facts
        self._answers = answers

    def content(self, row: Row, order: Order) -> Content:
        """The content of a replay without an edit; raises ``RedriveError`` if there is none."""
        content = self._put(row, self._record(row), order, is_edited=False)
        if isinstance(content, str):
            raise RedriveError(
                f"{row.message} would not be put: {content}",
                hint="--to names another destination",
            )
        return content

    def changes(self, rows: Sequence[Row], order: Order, mask: Mask) -> Iterator[Change]:
        """What an edit changes in the first, the middle and the last of one or more messages."""
        for number in sorted({0, len(rows) // 2, len(rows) - 1}):
            row = rows[number]
            try:
                record = self._record(row)
                before = self._put(row, record, order, is_edited=False)
                after = self._put(row, record, order, is_edited=True)
            except RedriveError as error:
                yield Change(row.message, problem=mask.text(error.message))
                continue
            yield change_of(row.message, before, after, mask)

    def _record(self, row: Row) -> StoredRecord:
        record = find_record(self._cluster, self._handlers[row.handler], row)
        if isinstance(record, Lost):
            raise RedriveError(f"{row.message} can't be read: {record.reason}")
        return record

    def _put(
        self, row: Row, record: StoredRecord, order: Order, *, is_edited: bool
    ) -> Content | str:
        chosen = order if is_edited else replace(order, edit=NO_EDIT)
        replay = chosen.replay(str(is_edited))
        _, decision, records = self._decide(row.handler, record, replay)
        if not records:
            reason = f"{reason_name(decision.reason)}: " if decision.reason else ""
            return f"{reason}{decision.detail or f'the rules say {decision.result}'}"
        put = records[0][1]
        # The put appends its own headers, the identity first.
        kept = takewhile(lambda pair: pair[0] != own.ID, put.headers or [])
        return Content(put.value, list(kept))

    def _decide(self, handler: str, record: StoredRecord, replay: Replay) -> Decided:
        decider = self._deciders[handler]
        is_letter = record.lane.topic == decider.identity.topic
        kind = SourceKind.DEAD_LETTERS if is_letter else SourceKind.REMAINING
        records = Records(
            [record.key], [record.value], [record.headers], [record.timestamp], [record.offset]
        )
        part = PartitionRecords(record.lane, decider, kind, records)
        source = DeadLetterSource(decider, DeadLetterDecoder(schemes=decider.schemes))
        source.load(part, 0)
        message, attempts, _ = source.read(0)

        def decide() -> Decided:
            facts = SliceContext(self._facts, "", int(time.time() * 1000))
            return decider.decide(message, attempts, facts, replay=replay)

        return self._facts.answered(decide, self._answers)


def change_of(
    message: str, before: Content | str, after: Content | str, mask: Mask = NO_MASK
) -> Change:
    """The change of a message: its put, or why there is none, before and after the edit."""
    for content in (after, before):
        if isinstance(content, str):
            return Change(message, problem=mask.text(content))
    assert isinstance(before, Content)
    assert isinstance(after, Content)
    lines = [*_header_lines(before, after, mask), *_value_lines(before.value, after.value, mask)]
    if (more := len(lines) - _MOST_LINES) > 0:
        lines[_MOST_LINES:] = [f"... {more} more lines"]
    return Change(message, tuple(lines))


def _header_lines(before: Content, after: Content, mask: Mask) -> Iterator[str]:
    for sign, (name, raw) in _diff(before.headers, after.headers, 0):
        yield _cut(f"{sign} {name}: {header_text(mask.header(name, raw))}")


def _value_lines(before: bytes | None, after: bytes | None, mask: Mask) -> Iterator[str]:
    if before == after:
        return
    old, new = (_lines(mask.bytes_or_none(content)) for content in (before, after))
    if old == new:
        hidden = mask.bytes_or_none(before) == mask.bytes_or_none(after)
        yield "  value: changed where it is masked" if hidden else "  value: written differently"
    for sign, line in _diff(old, new, _CONTEXT):
        yield _cut(f"{sign} {mask.text(line)}")


def _diff(
    before: Sequence[_Item], after: Sequence[_Item], context: int
) -> Iterator[tuple[str, _Item]]:
    matcher = SequenceMatcher(None, before, after)
    for group in matcher.get_grouped_opcodes(context):
        for tag, first, end, new_first, new_end in group:
            if tag == "equal":
                yield from ((" ", item) for item in before[first:end])
            else:
                yield from (("-", item) for item in before[first:end])
                yield from (("+", item) for item in after[new_first:new_end])


def _lines(value: bytes | None) -> list[str]:
    """A value in lines: indented JSON, text, or for binary its length and bytes."""
    if value is None:
        return ["null"]
    text = value_text(value)
    return [f"{len(value)} bytes: 0x{value.hex()}"] if text is None else text.split("\n")


def value_text(value: bytes | None) -> str | None:
    """A value for display and editing: indented JSON, or text; None if it is binary."""
    if not value:
        return ""
    try:
        document = read_json(value)
        if isinstance(document, dict | list):
            return write_json(document, indent=2).decode()
    except (ValueError, RecursionError):
        pass
    return plain_text(value)


def header_text(raw: bytes | None) -> str:
    """The value of a header on one line; ``0x`` and hex digits if it is not plain text."""
    if raw is None:
        return "(null)"
    text = plain_text(raw, "\t")
    is_plain = text is not None and text == text.strip() and not text.startswith(("0x", "(null)"))
    return text if text is not None and is_plain else f"0x{raw.hex()}"


def _cut(line: str) -> str:
    return line if len(line) <= _LONGEST else f"{line[:_LONGEST]}..."
