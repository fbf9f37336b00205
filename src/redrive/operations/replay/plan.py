"""A plan: which waiting messages, what to do with them, and what that changes in them.

A plan changes nothing. It names every message by its origin, so that exactly the planned messages
are replayed later.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from difflib import SequenceMatcher
from pathlib import Path
from typing import Any, Final, Self, TypeVar

import orjson

from redrive.engine.commands import Replay, To
from redrive.engine.edits import Content, Edit
from redrive.errors import EnvironmentFault, UsageError
from redrive.masking import NO_MASK, Mask
from redrive.messages.json_patch import read_json, write_json
from redrive.printable import plain_text

_VERSION: Final = 1
_WITH_EDIT: Final = 2
"""Version of plans with an edit, so that older programs do not apply them."""
_CONTEXT: Final = 1
"""Lines of context around a changed line."""
_LONGEST: Final = 200
"""Maximum characters of a shown line."""
_MOST_LINES: Final = 60
"""Maximum shown lines of one message."""
_RATE: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?)(?:/s)?")

_Item = TypeVar("_Item", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Part:
    """Messages of a plan that have something in common."""

    name: str
    count: int
    example: str
    """Identity of one of them."""


@dataclass(frozen=True, slots=True)
class Warned:
    """A warning about a plan."""

    code: str
    """For programs, such as ``target-missing``."""
    text: str
    count: int = 0
    """How many messages it concerns; 0 if none in particular."""


@dataclass(frozen=True, slots=True)
class Change:
    """What an edit changes in one message."""

    message: str
    lines: Sequence[str] = ()
    """Lines marked ``-`` (before), ``+`` (after) or neither; empty if nothing changes."""
    problem: str = ""
    """Why the edited message would not be put; empty if it would."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The messages, what to do with them, and the findings at the time of planning."""

    replay: Replay
    """What to do with them, not accepted yet."""
    application: str
    cluster: str = ""
    """Kafka's id of its cluster; empty in plans of earlier versions."""
    created: str
    """Time of planning, as ISO 8601 in UTC."""
    messages: Mapping[str, Mapping[str, Sequence[int]]]
    """Offsets of dead letters by handler and by ``topic:partition``."""
    size: int = 0
    """Bytes of their bodies."""
    reasons: Sequence[Part] = ()
    exceptions: Sequence[Part] = ()
    """By the exception in dead letters' headers; empty if none has one."""
    groups: Sequence[Part] = ()
    """By the consumer group that could not process them; as above."""
    targets: Sequence[Part] = ()
    handlers: Sequence[Part] = ()
    warnings: Sequence[Warned] = ()
    changes: Sequence[Change] = ()
    """What the edit changes in some of the messages, masked."""
    notes: Sequence[str] = field(default_factory=tuple)
    """What could not be read, or was left out."""
    planned_by: str = ""
    """The user of the console who made it; empty for the command line."""

    @property
    def id(self) -> str:
        """Its unique id."""
        return self.replay.plan

    @property
    def count(self) -> int:
        """The number of messages."""
        return sum(len(offsets) for places in self.messages.values() for offsets in places.values())

    @property
    def seconds(self) -> float | None:
        """The time that it takes at its rate; None without one."""
        return None if self.replay.rate is None else self.count / self.replay.rate

    def masked(self, mask: Mask) -> Self:
        """The same plan with secrets masked; the queue that the operator named stays as it is."""
        return replace(
            self,
            exceptions=[replace(part, name=mask.text(part.name)) for part in self.exceptions],
            groups=[replace(part, name=mask.text(part.name)) for part in self.groups],
            targets=[replace(part, name=mask.text(part.name)) for part in self.targets],
            warnings=[replace(warning, text=mask.text(warning.text)) for warning in self.warnings],
            notes=[*map(mask.text, self.notes)],
        )

    def document(self) -> dict[str, Any]:
        """The plan as a JSON object."""
        replay = self.replay
        return {
            "redrive_plan": _WITH_EDIT if replay.edit else _VERSION,
            "plan": self.id,
            "application": self.application,
            "cluster": self.cluster,
            "created": self.created,
            "to": replay.to.value,
            "queue": replay.queue,
            "queue_manager": replay.queue_manager,
            "keeps_header": replay.keeps_header,
            "rate": replay.rate,
            **({"edit": replay.edit.document()} if replay.edit else {}),
            **({"is_undo": True} if replay.is_undo else {}),
            "count": self.count,
            "bytes": self.size,
            "seconds": self.seconds,
            "by_reason": [*map(asdict, self.reasons)],
            "by_exception": [*map(asdict, self.exceptions)],
            "by_group": [*map(asdict, self.groups)],
            "by_target": [*map(asdict, self.targets)],
            "by_handler": [*map(asdict, self.handlers)],
            "warnings": [*map(asdict, self.warnings)],
            **({"changes": [*map(asdict, self.changes)]} if self.changes else {}),
            "notes": list(self.notes),
            "messages": {handler: dict(places) for handler, places in self.messages.items()},
            **({"planned_by": self.planned_by} if self.planned_by else {}),
        }

    def write(self, path: Path) -> None:
        """Write the plan to a file that only its owner may read: an edit has bodies of messages.

        Raises:
            OSError: The file cannot be written.
        """
        text = orjson.dumps(self.document(), option=orjson.OPT_INDENT_2) + b"\n"
        path.touch(mode=0o600)
        path.chmod(0o600)
        path.write_bytes(text)

    @classmethod
    def read(cls, path: Path) -> Self:
        """The plan of a file.

        Raises:
            EnvironmentFault: It cannot be read.
            UsageError: There is no such file, or it is not a plan.
        """
        try:
            text = path.read_bytes()
        except FileNotFoundError as error:
            raise UsageError(
                f"there is no plan {path}", hint="`redrive replay plan ... -o plan.json` writes one"
            ) from error
        except OSError as error:
            raise EnvironmentFault(
                f"{path} cannot be read: {error.strerror}",
                hint="`redrive replay plan ... -o plan.json` writes a plan",
            ) from error
        try:
            return cls._of(orjson.loads(text))
        except (orjson.JSONDecodeError, AttributeError, KeyError, TypeError, ValueError) as error:
            raise UsageError(
                f"{path} is not a replay plan of this version of redrive",
                hint="`redrive replay plan ... -o plan.json` writes one",
            ) from error

    @classmethod
    def _of(cls, document: Mapping[str, Any]) -> Self:
        if document["redrive_plan"] != (_WITH_EDIT if "edit" in document else _VERSION):
            raise ValueError(document["redrive_plan"])
        rate = document["rate"]
        return cls(
            replay=Replay(
                plan=str(document["plan"]),
                to=To(document["to"]),
                queue=str(document["queue"]),
                queue_manager=str(document["queue_manager"]),
                keeps_header=bool(document["keeps_header"]),
                rate=None if rate is None else float(rate),
                edit=Edit.of(document.get("edit", ())),
                is_undo=bool(document.get("is_undo")),
            ),
            application=str(document["application"]),
            cluster=str(document.get("cluster", "")),
            created=str(document["created"]),
            messages={
                str(handler): {
                    str(place): sorted({int(offset) for offset in offsets})
                    for place, offsets in places.items()
                }
                for handler, places in document["messages"].items()
            },
            size=int(document["bytes"]),
            reasons=_read_parts(document, "by_reason"),
            exceptions=_read_parts(document, "by_exception"),
            groups=_read_parts(document, "by_group"),
            targets=_read_parts(document, "by_target"),
            handlers=_read_parts(document, "by_handler"),
            warnings=tuple(
                Warned(str(warning["code"]), str(warning["text"]), int(warning["count"]))
                for warning in document.get("warnings", ())
            ),
            changes=tuple(
                Change(
                    str(change["message"]), tuple(map(str, change["lines"])), str(change["problem"])
                )
                for change in document.get("changes", ())
            ),
            notes=tuple(map(str, document.get("notes", ()))),
            planned_by=str(document.get("planned_by", "")),
        )


def new_plan_id() -> str:
    """A unique id."""
    return secrets.token_hex(6)


def parse_target(text: str) -> Replay:
    """``--to``: ``original``, ``group``, ``rules``, or ``QUEUE[@QM]``; raises ``UsageError``."""
    if text in {To.ORIGINAL, To.GROUP, To.RULES}:
        return Replay(to=To(text))
    queue, _, manager = text.rpartition("@") if "@" in text else (text, "", "")
    if not queue:
        raise UsageError(
            f"--to {text!r} is not a destination",
            hint="give original, group, rules, QUEUE or QUEUE@QM",
        )
    return Replay(to=To.QUEUE, queue=queue, queue_manager=manager)


def parse_rate(text: str) -> float:
    """``--rate``: messages a second, such as ``50/s`` or ``0.5/s``; raises ``UsageError``."""
    match = _RATE.fullmatch(text.strip())
    if match is None or float(match[1]) <= 0:
        raise UsageError(
            f"--rate {text} is not a rate", hint="give messages a second, such as 50/s"
        )
    return float(match[1])


def places_of(origins: Iterable[str]) -> dict[str, list[int]]:
    """Offsets by ``topic:partition``, from ``topic:partition:offset``."""
    places: dict[str, list[int]] = {}
    for origin in origins:
        place, _, offset = origin.rpartition(":")
        places.setdefault(place, []).append(int(offset))
    return {place: sorted(offsets) for place, offsets in sorted(places.items())}


def _read_parts(document: Mapping[str, Any], name: str) -> tuple[Part, ...]:
    return tuple(
        Part(str(part["name"]), int(part["count"]), str(part["example"]))
        for part in document.get(name, ())
    )


# -- what an edit changes -------------------------------------------------------------------------


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
