"""Acknowledgements: an operator keeps remaining messages on purpose.

The messages do not change. Alerts leave acknowledged messages out; views show them marked. An
acknowledgement is an entry of the application's tables topic, like other commands of operators, and
expires by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, Self, TypeAlias

from redrive.engine.commands import ACKNOWLEDGED, Entry
from redrive.engine.outcome import Result
from redrive.masking import Mask
from redrive.outcomes.selection import Selection, State, time_from
from redrive.outcomes.table import sql_text

if TYPE_CHECKING:
    from redrive.kafka.cluster import Cluster

ReadAcknowledgements: TypeAlias = Callable[["Cluster"], "Sequence[Acknowledgement]"]
"""Reads the acknowledgements in effect; raises ``TransientFault`` if the broker does not answer."""

_UNDONE: Final = "undone_by"


@dataclass(frozen=True, slots=True, kw_only=True)
class Acknowledgement:
    """The acknowledgement of some remaining messages."""

    id: str
    operator: str
    """The operator who made it."""
    note: str
    """The operator's reason."""
    made: datetime
    until: datetime | None
    """When it ends; None for one of version 0.1.0 that never does."""
    covers_new: bool = False
    """Whether it also covers later messages; only of version 0.1.0."""
    selection: Selection = field(default_factory=lambda: Selection(state=State.REMAINING))

    def entry(self) -> Entry:
        """Key and value of its entry."""
        chosen = self.selection
        return f"{ACKNOWLEDGED}{self.id}", {
            "operator": self.operator,
            "note": self.note,
            "made": self.made.timestamp(),
            "until": self.until and self.until.timestamp(),
            "covers_new": self.covers_new,
            "reason": chosen.reason,
            "destination": chosen.destination,
            "rule": chosen.rule,
            "handler": chosen.handler,
            "key": None if chosen.key is None else chosen.key.hex(),
            "since": chosen.looked_since and chosen.looked_since.timestamp(),
            "before": None,
            "failed_since": chosen.since and chosen.since.timestamp(),
            "failed_before": chosen.before and chosen.before.timestamp(),
            "where": chosen.where,
        }

    def undone(self, operator: str) -> Entry:
        """The entry that ends it early."""
        key, value = self.entry()
        return key, {**value, _UNDONE: operator}

    @classmethod
    def of(cls, name: str, value: Mapping[str, Any]) -> Self:
        """Read an entry.

        Raises:
            KeyError: A member is missing.
            TypeError: A member has another type.
            ValueError: A member has an invalid value.
        """
        return cls(
            id=name,
            operator=str(value["operator"]),
            note=str(value["note"]),
            made=_time(value["made"]),
            until=None if value["until"] is None else _time(value["until"]),
            covers_new=bool(value["covers_new"]),
            selection=Selection(
                state=State.REMAINING,
                reason=value["reason"],
                destination=value["destination"],
                rule=value["rule"],
                handler=value["handler"],
                key=None if value["key"] is None else bytes.fromhex(value["key"]),
                since=_time_or_none(value.get("failed_since")),
                before=_time_or_none(value.get("failed_before")),
                looked_since=_time_or_none(value["since"]),
                where=_where(str(value["where"]), _time_or_none(value["before"])),
            ),
        )

    def conditions(self, mask: Mask) -> Iterator[str]:
        """The conditions in SQL on ``letters``; a message is covered if all hold."""
        yield from self.selection.conditions(mask)
        if not self.covers_new:
            yield f"NOT ({time_from(self.made, 'first_time')})"


def acknowledged(acknowledgements: Iterable[Acknowledgement], mask: Mask) -> str:
    """The condition, as SQL on ``letters``, that a message is acknowledged; never NULL."""
    covered = " OR ".join(
        f"({' AND '.join(acknowledgement.conditions(mask))})"
        for acknowledgement in acknowledgements
    )
    if not covered:
        return "FALSE"
    # An operator's condition may fail on rows that it was not written for.
    remains = f"result = {sql_text(Result.REMAINS.value)}"
    return f"(CASE WHEN {remains} THEN coalesce({covered}, FALSE) ELSE FALSE END)"


def no_acknowledgements(_: Cluster) -> Sequence[Acknowledgement]:
    """Reads nothing; for questions that do not need them."""
    return ()


def acknowledgements_of(
    entries: Mapping[str, Mapping[str, Any]], now: datetime
) -> tuple[Acknowledgement, ...]:
    """The acknowledgements in effect at a time, by their end, those without end last.

    The entries are ``States.acknowledged``, by id. Unreadable ones are left out: a later version
    may have written them.
    """
    acknowledgements = []
    for name, value in entries.items():
        try:
            acknowledgement = Acknowledgement.of(name, value)
        except (KeyError, TypeError, ValueError, OverflowError):
            continue
        if (acknowledgement.until is None or acknowledgement.until > now) and _UNDONE not in value:
            acknowledgements.append(acknowledgement)
    never = datetime.max.replace(tzinfo=UTC)
    return tuple(
        sorted(
            acknowledgements,
            key=lambda acknowledgement: (acknowledgement.until or never, acknowledgement.id),
        )
    )


def _where(where: str, before: datetime | None) -> str:
    """The condition, and of version 0.1.0 the time that the last outcome is older than."""
    if before is None:
        return where
    older = f"time < TIMESTAMP '{before:%Y-%m-%d %H:%M:%S.%f}Z'"
    return f"({where}) AND {older}" if where else older


def _time_or_none(seconds: float | None) -> datetime | None:
    return None if seconds is None else _time(seconds)


def _time(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)
