"""Paths into JSON values: the singular queries of RFC 9535, with hyphens in names."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Final

import orjson

_STEP: Final = re.compile(
    r"\.((?:[^\W\d]|\$)[\w$-]*)|\[([0-9]{1,9})\]"
    r"|\['((?:[^'\\]|\\.)*)'\]|\[\"((?:[^\"\\]|\\.)*)\"\]"
)


@dataclass(frozen=True, slots=True)
class JsonPath:
    """A path into a JSON value: members and indexes, no wildcards, no filters."""

    steps: tuple[str | int, ...]

    @classmethod
    def of(cls, text: str) -> JsonPath:
        """Read a path such as ``$.order.items[0]['a name']``.

        Raises:
            ValueError: It is not a path; the text says why.
        """
        if not text.startswith("$"):
            raise ValueError("it does not begin with $")
        steps: list[str | int] = []
        at = 1
        while at < len(text):
            match = _STEP.match(text, at)
            if match is None:
                raise ValueError(f"{text[at : at + 20]} is neither .name nor [number] nor ['name']")
            member, index, single, double = match.groups()
            quoted = single if double is None else double
            name = member if quoted is None else re.sub(r"\\(.)", r"\1", quoted)
            steps.append(name if index is None else int(index))
            at = match.end()
        return cls(tuple(steps))

    def find(self, document: object) -> str | None:
        """The value there as text; None if it is missing or null."""
        try:
            value = self.follow(document)
        except LookupError:
            return None
        return value if value is None or isinstance(value, str) else orjson.dumps(value).decode()

    def follow(self, document: object) -> Any:  # noqa: ANN401 - any JSON
        """The value there, unchanged.

        Raises:
            LookupError: Nothing is there.
        """
        value: Any = document
        for step in self.steps:
            match value, step:
                case (dict(), str()) | (list(), int()):
                    value = value[step]
                case _:
                    raise LookupError(step)
        return value
