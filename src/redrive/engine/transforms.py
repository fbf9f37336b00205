"""Transforms of a rules table: what TRANSFORM(name) changes in a message before its put."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeAlias

from redrive.engine.edits import Content, checked_name
from redrive.messages.constants import constant_value
from redrive.messages.json_patch import JsonPatch
from redrive.messages.reasons import Reason
from redrive.topology.put import Refusal

FUNCTION_FAILED: Final = constant_value("MQRC_API_EXIT_ERROR") or 0
"""Reason of an attempt whose function failed."""
FUNCTION_SECONDS: Final = 1.0
"""Seconds that a function may take for one message."""
_SHOWN: Final = 300
"""Maximum characters of an exception in an outcome."""
_PAIR: Final = 2

TransformFunction: TypeAlias = Callable[[bytes | None, list[tuple[str, bytes | None]]], Any]
"""From value and headers to value and headers."""


class Transform(Protocol):
    """Changes one message."""

    def applied(self, content: Content) -> Content | Refusal:
        """The changed content, or why the attempt fails."""


@dataclass(frozen=True, slots=True)
class PatchTransform:
    """A JSON Patch of the value."""

    name: str
    patch: JsonPatch

    def applied(self, content: Content) -> Content | Refusal:
        """See ``Transform.applied``."""
        try:
            return content._replace(value=self.patch.applied(content.value))
        except ValueError as error:
            return Refusal(Reason.FORMAT_ERROR, f"TRANSFORM({self.name}) does not apply: {error}")


@dataclass(frozen=True, slots=True)
class FunctionTransform:
    """A user's function; what it raises or returns can fail the attempt, but not the job."""

    name: str
    function: TransformFunction
    clock: Callable[[], float] = time.monotonic

    def applied(self, content: Content) -> Content | Refusal:
        """See ``Transform.applied``."""
        began = self.clock()
        try:
            changed = _content(self.function(content.value, list(content.headers)))
        except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever a user's function does
            return self._refusal(f"{type(error).__name__}: {str(error)[:_SHOWN]}")
        seconds = self.clock() - began
        if seconds > FUNCTION_SECONDS:
            return self._refusal(f"it took {seconds:.1f} s, more than {FUNCTION_SECONDS:g} s")
        return changed

    def _refusal(self, why: str) -> Refusal:
        return Refusal(FUNCTION_FAILED, f"TRANSFORM({self.name}) failed: {why}")


def _content(returned: object) -> Content:
    """The checked result of a function.

    Raises:
        TypeError: It is not a value and headers.
        ValueError: A header is Redrive's own.
    """
    if not isinstance(returned, tuple) or len(returned) != _PAIR:
        raise TypeError("it did not return a pair of value and headers")
    value, headers = returned
    if not isinstance(value, bytes | None) or not isinstance(headers, Sequence):
        raise TypeError("it did not return a pair of bytes and a list of headers")
    checked: list[tuple[str, bytes | None]] = []
    for header in headers:
        match header:
            case (str(name), bytes() | None as raw):
                checked.append((checked_name(name), raw))
            case _:
                raise TypeError("it returned a header that is not a pair of text and bytes")
    return Content(value, checked)
