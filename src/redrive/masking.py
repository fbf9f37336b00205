"""Masking of secrets in messages for people and logs.

Only what is shown is masked; what the job puts, parks and keeps is never changed. This module
imports no part of the project.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cached_property
from typing import Any, Final

import re2

MASK: Final = "***"
"""Replaces a secret."""

ERROR_MESSAGE: Final = "error_message"
"""The column that is masked as a whole if it comes from a header that is."""


def _compiled(pattern: str) -> Any:  # noqa: ANN401 - re2 has no types
    options = re2.Options()
    options.log_errors = False
    return re2.compile(pattern.encode(), options)


@dataclass(frozen=True)
class Mask:
    """What to hide."""

    patterns: tuple[str, ...] = ()
    """Expressions of RE2, whose matches are masked everywhere."""
    headers: tuple[str, ...] = ()
    """Names of headers whose values are masked, ignoring case; ``*`` matches any characters."""
    silent_schemes: tuple[str, ...] = ()
    """Schemes that have the message of the exception in such a header."""

    def __bool__(self) -> bool:
        return bool(self.patterns or self.headers)

    @staticmethod
    def problem_with(pattern: str) -> str:
        """Why an expression cannot be used; empty if it can."""
        try:
            match = _compiled(pattern).search(b"")
        except re2.error as error:
            problem = error.args[0] if error.args else ""
            if isinstance(problem, bytes):
                return problem.decode("utf-8", "replace")
            return str(problem)
        return "it matches everywhere, even in an empty text" if match else ""

    @cached_property
    def _expressions(self) -> list[Any]:
        return [_compiled(pattern) for pattern in self.patterns]

    @cached_property
    def _names(self) -> list[str]:
        return [name.lower() for name in self.headers]

    def data(self, data: bytes) -> bytes:
        """Masked bytes."""
        for expression in self._expressions:
            data = expression.sub(MASK.encode(), data)
        return data

    def text(self, text: str) -> str:
        """Masked text."""
        if not self.patterns:
            return text
        return self.data(text.encode("utf-8", "surrogatepass")).decode("utf-8", "surrogatepass")

    def bytes_or_none(self, data: bytes | None) -> bytes | None:
        """A masked key or value."""
        return None if data is None else self.data(data)

    def hides(self, name: str) -> bool:
        """Whether the whole value of a header is masked."""
        return any(fnmatchcase(name.lower(), pattern) for pattern in self._names)

    def header(self, name: str, raw: bytes | None) -> bytes | None:
        """The masked value of a header."""
        if raw is not None and self.hides(name):
            return MASK.encode()
        return self.bytes_or_none(raw)

    def plain(self, value: Any) -> Any:  # noqa: ANN401 - any JSON
        """Masked text, bytes, or JSON values; others are unchanged."""
        match value:
            case str():
                return self.text(value)
            case bytes():
                return self.data(value)
            case Mapping():
                return {name: self.plain(member) for name, member in value.items()}
            case list() | tuple():
                return [self.plain(member) for member in value]
        return value


NO_MASK: Final = Mask()
"""Hides nothing."""
