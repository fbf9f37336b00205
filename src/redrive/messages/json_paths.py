"""Paths into JSON values: the singular queries of RFC 9535, with hyphens in names."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

import orjson

__all__ = ["JsonPath"]

_STEP: Final = re.compile(
    r"\.((?:[^\W\d]|\$)[\w$-]*)|\[([0-9]{1,9})\]"
    r"|\['((?:[^'\\]|\\.)*)'\]|\[\"((?:[^\"\\]|\\.)*)\"\]"
)


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
