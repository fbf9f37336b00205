"""The rules table as a Python program without Redrive reads it: an ordered loop over its rules.

Only the standard library is used, because contestants run this in environments of their own.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias

Test: TypeAlias = Callable[[str], object]
"""True of a text that a rule takes."""

HEADERS: Final = {
    "TOPIC": "kafka_dlt-original-topic",
    "GROUP": "kafka_dlt-original-consumer-group",
    "ROOTCLASS": "kafka_dlt-exception-cause-fqcn",
}
"""Field of a Spring dead letter -> the header that it is in."""
STACK_TRACE: Final = "kafka_dlt-exception-stacktrace"
"""The header that stays behind: forwarded records are found where they came from."""
PLACES: Final = {"DESTQ": (12, 60), "DESTQM": (60, 108)}
"""Text field of MQDLH -> its first byte and the one behind its last."""
REASON: Final = (8, 12)
"""Bytes of MQDLH with the reason, the least significant one first."""


class Route(NamedTuple):
    """What a rule says."""

    target: str
    rule: bytes
    """Its line in the table, in digits."""


class Router:
    """Finds the first rule that takes a record.

    Args:
        file: The rules as JSON, which ``benchmarks.peers.dlq_route`` writes.
    """

    def __init__(self, file: Path) -> None:
        rules = json.loads(file.read_text(encoding="utf-8"))
        names = rules["fields"]
        self._is_spring = rules["form"] == "spring"
        self._headers = [HEADERS.get(name, "") for name in names]
        self._rules = [
            (
                [(names.index(name), _test(text)) for name, text in rule["when"].items()],
                Route(rule["target"], str(rule["line"]).encode()),
            )
            for rule in rules["rules"]
        ]

    @property
    def targets(self) -> list[str]:
        """Every target, that of the last rule last."""
        return list(dict.fromkeys(route.target for _, route in self._rules))

    def route(self, value: bytes, headers: Iterable[tuple[str, bytes]]) -> Route:
        """The target of a record, and the rule that chose it."""
        return self.first(
            self._of_headers(headers) if self._is_spring else _of_dead_letter_header(value)
        )

    def first(self, fields: Sequence[str]) -> Route:
        """The first rule that takes a record with these fields."""
        for tests, route in self._rules:
            for index, test in tests:
                if not test(fields[index]):
                    break
            else:
                return route
        raise LookupError("the last rule takes every record")

    def forwarded(
        self, place: tuple[str, int, int], value: bytes, headers: Iterable[tuple[str, bytes]]
    ) -> tuple[str, list[Any]]:
        """Target and headers of the record to write.

        Args:
            place: Topic, partition and offset of the record.
            value: Its value.
            headers: Its headers.
        """
        kept = list(headers)
        target, rule = self.route(value, kept)
        kept = [header for header in kept if header[0] != STACK_TRACE]
        identity = ":".join(map(str, place)).encode()
        return target, [*kept, ("redrive.id", identity), ("redrive.rule", rule)]

    def _of_headers(self, headers: Iterable[tuple[str, bytes]]) -> Sequence[str]:
        values = dict(headers)
        return [values.get(name, b"").decode() for name in self._headers]


@cache
def router_of(file: str) -> Router:
    """The router of a file, which a process makes once."""
    return Router(Path(file))


def _test(text: str) -> Test:
    """A test for a text with or without wildcards."""
    if not is_wildcard(text):
        return text.__eq__
    parts = {"*": ".*", "?": "."}
    return re.compile(
        "".join(parts.get(character) or re.escape(character) for character in text), re.DOTALL
    ).fullmatch


def is_wildcard(text: str) -> bool:
    """Whether a value of a rule has wildcards."""
    return "*" in text or "?" in text


def _of_dead_letter_header(value: bytes) -> Sequence[str]:
    texts = [value[begin:end].rstrip(b" \0").decode() for begin, end in PLACES.values()]
    return [*texts, str(int.from_bytes(value[slice(*REASON)], "little"))]
