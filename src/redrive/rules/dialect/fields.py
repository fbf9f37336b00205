"""What the patterns of DIALECT(KAFKA) look at in one message.

The names are those of the patterns; what a message does not have is left out. Text is UTF-8, and
what is none is shown with U+FFFD.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import orjson

from redrive.rules.dialect.keywords import split_field
from redrive.rules.patterns import FieldValue

if TYPE_CHECKING:
    from redrive.messages.fields import Headers
    from redrive.messages.schemes.view import DeadLetterView

__all__ = ["FieldReader", "JsonPath"]

_STEP: Final = re.compile(
    r"\.([A-Za-z_$][A-Za-z0-9_$-]*)|\[([0-9]{1,9})\]|\['((?:[^'\\]|\\.)*)'\]|\[\"((?:[^\"\\]|\\.)*)\"\]"
)
_NO_JSON: Final = object()


@dataclass(frozen=True, slots=True)
class JsonPath:
    """A way into a JSON value: members and indexes, no wildcards, no filters."""

    steps: tuple[str | int, ...]

    @classmethod
    def of(cls, text: str) -> JsonPath:
        """Read a path such as ``$.order.items[0]['a name']``.

        Raises:
            ValueError: It is none; the text says why.
        """
        if not text.startswith("$"):
            raise ValueError("it does not begin with $")
        steps: list[str | int] = []
        at = 1
        while at < len(text):
            found = _STEP.match(text, at)
            if found is None:
                raise ValueError(f"{text[at : at + 20]} is neither .name nor [number] nor ['name']")
            member, index, single, double = found.groups()
            quoted = single if double is None else double
            name = member if quoted is None else re.sub(r"\\(.)", r"\1", quoted)
            steps.append(name if index is None else int(index))
            at = found.end()
        return cls(tuple(steps))

    def find(self, document: object) -> str | None:
        """The value there as text; None if nothing is there, or null.

        Args:
            document: A JSON value.
        """
        for step in self.steps:
            if isinstance(step, int):
                if not isinstance(document, list) or step >= len(document):
                    return None
                document = document[step]
            elif not isinstance(document, dict) or step not in document:
                return None
            else:
                document = document[step]
        if document is None or isinstance(document, str):
            return document
        return orjson.dumps(document).decode()


@dataclass(slots=True)
class _Message:
    """One message while its fields are read."""

    view: DeadLetterView
    key: bytes | None
    value: bytes | None
    headers: Headers
    timestamp: int
    now: int
    document: object = _NO_JSON
    """The value as JSON, once somebody asked; None if it is none."""

    def json(self) -> object:
        if self.document is _NO_JSON:
            try:
                self.document = orjson.loads(self.value or b"null")
            except orjson.JSONDecodeError:
                self.document = None
        return self.document

    @property
    def age(self) -> int:
        """Whole seconds since the message first failed, as far as anything tells when that was."""
        view = self.view
        told = (view.first_failed_at, view.failed_at, self.timestamp)
        failed_at = next((it for it in told if it is not None), self.now)
        return max(0, (self.now - failed_at) // 1000)


_Read = Callable[[_Message], FieldValue | None]

_PLAIN: Final[Mapping[str, _Read]] = {
    "SCHEME": lambda it: it.view.scheme,
    "TOPIC": lambda it: it.view.origin.topic,
    "PARTITION": lambda it: it.view.origin.partition,
    "GROUP": lambda it: it.view.group,
    "CONNECTOR": lambda it: it.view.connector,
    "STAGE": lambda it: it.view.stage,
    "ERRCLASS": lambda it: it.view.error_class,
    "ROOTCLASS": lambda it: it.view.error_root_class,
    "ERRMSG": lambda it: it.view.error_message,
    "ATTEMPTS": lambda it: it.view.attempts,
    "AGE": lambda it: it.age,
    "SIZE": lambda it: len(it.value or b""),
    "KEY": lambda it: None if it.key is None else _text(it.key),
}


class FieldReader:
    """Reads the fields that a table asks for, and no others.

    Args:
        names: Fields as ``field_name`` writes them; those that IBM's patterns look at are left out.
    """

    def __init__(self, names: Iterable[str]) -> None:
        found = {name: _reader_of(name) for name in sorted(names)}
        self._readers = [(name, read) for name, read in found.items() if read is not None]

    @property
    def names(self) -> tuple[str, ...]:
        """The fields that are read, in the order of ``values``."""
        return tuple(name for name, _ in self._readers)

    def values(  # noqa: PLR0917 - called for every record: a value of its own costs too much
        self,
        view: DeadLetterView,
        key: bytes | None,
        value: bytes | None,
        headers: Headers,
        timestamp: int,
        now: int,
    ) -> tuple[FieldValue | None, ...]:
        """The values of ``names``; None for what the message does not have.

        Args:
            view: What the message says of its failure.
            key: The record's key.
            value: The record's value.
            headers: The record's headers; of a repeated one the last counts.
            timestamp: The record's timestamp, in milliseconds since 1970.
            now: The time of the attempt, in milliseconds since 1970.

        Returns:
            Texts end at their first NUL, as all texts that patterns look at; nothing that a message
            contains makes this raise.
        """
        message = _Message(view, key, value, headers, timestamp, now)
        found = [read(message) for _, read in self._readers]
        return tuple([_normal(it) if isinstance(it, str) else it for it in found])


def _reader_of(name: str) -> _Read | None:
    keyword, argument = split_field(name)
    if keyword == "HEADER":
        return lambda it: _last(it.headers, argument)
    if keyword == "JSON":
        path = JsonPath.of(argument)
        return lambda it: path.find(it.json())
    return _PLAIN.get(keyword)


def _last(headers: Headers, name: str) -> str | None:
    for there, raw in reversed(headers):
        if there == name:
            return None if raw is None else _text(raw)
    return None


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "replace")


def _normal(text: str) -> str:
    """A text as patterns see it: up to the first NUL, without trailing blanks (Q-12, Q-13)."""
    if "\0" in text:
        text = text.partition("\0")[0]
    return text.rstrip(" ")
