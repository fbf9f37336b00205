"""Replay plans: which remaining messages to replay, and warnings.

A plan changes nothing. It names every message by its origin, so that exactly the planned messages
are replayed later.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Self

import orjson

from redrive.engine.commands import Replay, To
from redrive.engine.edits import NO_EDIT, Edit
from redrive.errors import EnvironmentFault, UsageError
from redrive.masking import Mask
from redrive.operations.replay.changes import Change
from redrive.topology.names import NO_NAMES, Names

_VERSION: Final = 1
_IN_WORDS: Final = {
    To.ORIGINAL: "to their original destinations",
    To.GROUP: "to the topics of the groups that failed",
    To.RULES: "through the rules tables again",
    To.DISCARD: "to be discarded",
    To.ATTEMPT: "to their next attempt, now",
    To.REMAIN: "to the remaining messages, without another attempt",
}
_WITH_EDIT: Final = 2
"""Version of plans with an edit, so that older programs do not apply them."""
_RATE: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?)(?:/s)?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What a plan does with its messages."""

    to: To
    target: Names = NO_NAMES
    """The queue of ``To.QUEUE``."""
    keeps_header: bool = False
    """Whether the dead-letter header stays on messages that go to a queue."""
    rate: float | None = None
    """Messages a second; None for as fast as possible."""
    edit: Edit = NO_EDIT
    """The change of each message before it is put."""

    def __str__(self) -> str:
        """Where the messages go and what changes in them, as text."""
        return f"{self._where}; {self.edit}" if self.edit else self._where

    def replay(self, plan: str, **accepted: Any) -> Replay:  # noqa: ANN401 - members of a replay
        """The replay of a plan with this order; ``accepted`` has further members of ``Replay``."""
        return Replay(
            plan=plan,
            to=self.to,
            queue=self.target.queue,
            queue_manager=self.target.queue_manager,
            keeps_header=self.keeps_header,
            rate=self.rate,
            edit=self.edit,
            **accepted,
        )

    @property
    def _where(self) -> str:
        if self.to is not To.QUEUE:
            return _IN_WORDS[self.to]
        header = " with the dead-letter header" if self.keeps_header else ""
        return f"to {self.target}{header}"


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


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayPlan:
    """The messages, what to do with them, and the findings at the time of planning."""

    plan: str
    application: str
    cluster: str = ""
    """Kafka's id of its cluster; empty in plans of earlier versions."""
    created: str
    """When, as ISO 8601 in UTC."""
    order: Order
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

    @property
    def count(self) -> int:
        """The number of messages."""
        return sum(len(offsets) for places in self.messages.values() for offsets in places.values())

    @property
    def seconds(self) -> float | None:
        """How long it takes at its rate; None without one."""
        return None if self.order.rate is None else self.count / self.order.rate

    def masked(self, mask: Mask) -> Self:
        """The same plan with secrets masked; the operator's target queue is not masked.

        The queue that the operator named stays as it is.
        """
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
        return {
            "redrive_plan": _WITH_EDIT if self.order.edit else _VERSION,
            "plan": self.plan,
            "application": self.application,
            "cluster": self.cluster,
            "created": self.created,
            "to": self.order.to.value,
            "queue": self.order.target.queue,
            "queue_manager": self.order.target.queue_manager,
            "keeps_header": self.order.keeps_header,
            "rate": self.order.rate,
            **({"edit": self.order.edit.document()} if self.order.edit else {}),
            "count": self.count,
            "bytes": self.size,
            "seconds": self.seconds,
            "by_reason": [*map(asdict, self.reasons)],
            "by_exception": [*map(asdict, self.exceptions)],
            "by_group": [*map(asdict, self.groups)],
            "by_target": [*map(asdict, self.targets)],
            "by_handler": [*map(asdict, self.handlers)],
            "warnings": [*map(asdict, self.warnings)],
            **({"changes": [change.document() for change in self.changes]} if self.changes else {}),
            "notes": list(self.notes),
            "messages": {handler: dict(places) for handler, places in self.messages.items()},
        }

    def write(self, path: Path, **more: str) -> None:
        """Write the plan to a file that only its owner may read: an edit has bodies of messages.

        ``more`` are further members, which ``read`` ignores.

        Raises:
            OSError: The file cannot be written.
        """
        text = orjson.dumps({**self.document(), **more}, option=orjson.OPT_INDENT_2) + b"\n"
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
            plan=str(document["plan"]),
            application=str(document["application"]),
            cluster=str(document.get("cluster", "")),
            created=str(document["created"]),
            order=Order(
                to=To(document["to"]),
                target=Names(
                    queue=str(document["queue"]), queue_manager=str(document["queue_manager"])
                ),
                keeps_header=bool(document["keeps_header"]),
                rate=None if rate is None else float(rate),
                edit=Edit.of(document.get("edit", ())),
            ),
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
        )


def new_plan_id() -> str:
    """A unique id."""
    return secrets.token_hex(6)


def parse_target(text: str) -> tuple[To, Names]:
    """``--to``: ``original``, ``group``, ``rules``, or ``QUEUE[@QM]``; raises ``UsageError``."""
    if text in {To.ORIGINAL, To.GROUP, To.RULES}:
        return To(text), NO_NAMES
    queue, _, manager = text.rpartition("@") if "@" in text else (text, "", "")
    if not queue:
        raise UsageError(
            f"--to {text!r} is not a destination",
            hint="give original, group, rules, QUEUE or QUEUE@QM",
        )
    return To.QUEUE, Names(queue=queue, queue_manager=manager)


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
