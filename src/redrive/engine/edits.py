"""Changes of a message before its put: an operator's edit, or TRANSFORM(name) of a rule.

Preview and job apply the same change to the record of the put, after the dead-letter header is
removed. A change that cannot be applied is a failed attempt.
"""

from __future__ import annotations

import base64
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Final, NamedTuple, Self, TypeAlias

from redrive.messages import Headers
from redrive.messages import own_headers as own
from redrive.messages.constants import constant_value
from redrive.messages.json_patch import JsonPatch
from redrive.messages.reasons import Reason
from redrive.topology.put import Refusal

MAX_EDIT_BYTES: Final = 1024 * 1024
"""Maximum bytes of an edit as JSON, which every process of the job keeps."""
FUNCTION_FAILED: Final = constant_value("MQRC_API_EXIT_ERROR") or 0
"""Reason of an attempt whose function failed."""
FUNCTION_SECONDS: Final = 1.0
"""Seconds that a function may take for one message."""
_SHOWN: Final = 300
"""Maximum characters of an exception in an outcome."""
_PAIR: Final = 2


class Content(NamedTuple):
    """The part of a message that can be changed: its value and its headers."""

    value: bytes | None
    headers: Headers
    """Without Redrive's own."""


class SetHeader(NamedTuple):
    """Sets a header, in place of the first of that name, or after all others."""

    name: str
    value: bytes

    def applied(self, content: Content) -> Content:
        """The content with the header."""
        names = [name for name, _ in content.headers]
        place = names.index(self.name) if self.name in names else len(names)
        headers = [pair for pair in content.headers if pair[0] != self.name]
        headers.insert(place, (self.name, self.value))
        return content._replace(headers=headers)

    def document(self) -> dict[str, Any]:
        """The operation as a JSON object."""
        return {"set_header": self.name, "to": _text(self.value)}

    def __str__(self) -> str:
        return f"header {self.name} set"


class DropHeader(NamedTuple):
    """Removes all headers of a name."""

    name: str

    def applied(self, content: Content) -> Content:
        """The content without the header."""
        return content._replace(headers=[pair for pair in content.headers if pair[0] != self.name])

    def document(self) -> dict[str, Any]:
        """The operation as a JSON object."""
        return {"drop_header": self.name}

    def __str__(self) -> str:
        return f"header {self.name} dropped"


class PatchValue(NamedTuple):
    """Applies a JSON Patch to the value."""

    patch: JsonPatch

    def applied(self, content: Content) -> Content:
        """The content with the patched value.

        Raises:
            ValueError: The patch does not apply.
        """
        return content._replace(value=self.patch.applied(content.value))

    def document(self) -> dict[str, Any]:
        """The operation as a JSON object."""
        return {"json_patch": list(self.patch.document)}

    def __str__(self) -> str:
        return "value patched"


class ReplaceContent(NamedTuple):
    """Replaces value and headers by edited ones."""

    edited: str
    """``digest`` of the original: no other message is replaced."""
    content: Content

    def applied(self, content: Content) -> Content:
        """The new content.

        Raises:
            ValueError: The message is not the one that was edited.
        """
        if digest(content) != self.edited:
            raise ValueError("the message has changed since it was edited")
        return self.content

    def document(self) -> dict[str, Any]:
        """The operation as a JSON object."""
        headers = [[name, _text(raw)] for name, raw in self.content.headers]
        return {"edited": self.edited, "value": _text(self.content.value), "headers": headers}

    def __str__(self) -> str:
        return "edited"


Operation: TypeAlias = SetHeader | DropHeader | PatchValue | ReplaceContent
Change: TypeAlias = Callable[[Content], Content | Refusal]
"""The changed content, or why the attempt fails."""


@dataclass(frozen=True, slots=True)
class Edit:
    """Operations on a message, in order; empty for no change."""

    operations: tuple[Operation, ...] = ()
    name: str = "the edit"
    """What a refusal calls it."""

    def __bool__(self) -> bool:
        return bool(self.operations)

    def __str__(self) -> str:
        return ", ".join(map(str, self.operations))

    def applied(self, content: Content) -> Content | Refusal:
        """The content of a put after all operations, or why one of them cannot be applied."""
        try:
            for operation in self.operations:
                content = operation.applied(content)
        except ValueError as error:
            return Refusal(Reason.FORMAT_ERROR, f"{self.name} does not apply: {error}")
        return content

    def document(self) -> list[dict[str, Any]]:
        """The operations as a JSON array."""
        return [operation.document() for operation in self.operations]

    @classmethod
    def of(cls, document: Sequence[Mapping[str, Any]]) -> Self:
        """Read what ``document`` writes.

        Raises:
            ValueError: It is something else.
        """
        return cls(tuple(map(_operation, document)))


NO_EDIT: Final = Edit()


def _operation(document: Mapping[str, Any]) -> Operation:
    match document:
        case {"set_header": str(name), "to": str(value)}:
            return SetHeader(checked_name(name), _bytes(value) or b"")
        case {"drop_header": str(name)}:
            return DropHeader(checked_name(name))
        case {"json_patch": patch}:
            return PatchValue(JsonPatch.of(patch))
        case {"edited": str(edited), "value": value, "headers": [*headers]}:
            read: Headers = [(checked_name(str(name)), _bytes(raw)) for name, raw in headers]
            return ReplaceContent(edited, Content(_bytes(value), read))
    raise ValueError("the edit has an operation unknown to this version")


def call_function(
    name: str,
    function: Callable[[bytes | None, Headers], Any],
    content: Content,
    *,
    clock: Callable[[], float] = time.monotonic,
) -> Content | Refusal:
    """What a user's function makes of a content; a function that fails is a failed attempt.

    Args:
        name: The name of the transform.
        function: From value and headers to value and headers; it may raise anything.
        content: The content before.
        clock: Seconds.
    """
    began = clock()
    try:
        changed = _content(function(content.value, list(content.headers)))
    except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever a user's function does
        why = f"{type(error).__name__}: {str(error)[:_SHOWN]}"
    else:
        seconds = clock() - began
        if seconds <= FUNCTION_SECONDS:
            return changed
        why = f"it took {seconds:.1f} s, more than {FUNCTION_SECONDS:g} s"
    return Refusal(FUNCTION_FAILED, f"TRANSFORM({name}) failed: {why}")


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


def checked_name(name: str) -> str:
    """The name of a header that an edit may set or drop.

    Raises:
        ValueError: It is empty, or one of Redrive's own.
    """
    if not name or name.startswith(own.PREFIX):
        raise ValueError(f"{name!r} cannot be edited: headers {own.PREFIX}* are Redrive's own")
    return name


def _text(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode("ascii")


def _bytes(text: object) -> bytes | None:
    return None if text is None else base64.b64decode(str(text), validate=True)


def digest(content: Content) -> str:
    """The SHA-256 of a value and its headers."""
    sha = sha256()
    for part in (content.value, *(part for name, raw in content.headers for part in (name, raw))):
        data = part.encode(errors="surrogatepass") if isinstance(part, str) else part
        sha.update(b"-" if data is None else b"%d:%b" % (len(data), data))
    return sha.hexdigest()


def changes(before: Content, after: Content) -> str:
    """The differences in a message, for its outcome: names of headers, hashes of the value.

    Returns:
        A text without any value; empty exactly if nothing is different.
    """
    parts = []
    if names := _changed_names(before.headers, after.headers):
        parts.append(f"headers {', '.join(names)}")
    elif before.headers != after.headers:
        parts.append("order of headers")
    if before.value != after.value:
        parts.append(f"value {_hash(before.value)} -> {_hash(after.value)}")
    return "; ".join(parts)


def _changed_names(before: Headers, after: Headers) -> list[str]:
    names = dict.fromkeys(name for name, _ in (*before, *after))
    return [
        name
        for name in names
        if [raw for other, raw in before if other == name]
        != [raw for other, raw in after if other == name]
    ]


def _hash(value: bytes | None) -> str:
    return "null" if value is None else f"sha256:{sha256(value).hexdigest()}"
