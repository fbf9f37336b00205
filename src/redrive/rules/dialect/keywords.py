"""The words of a dialect: IBM's 23, and those that DIALECT(KAFKA) has beside them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from types import MappingProxyType
from typing import Final

from redrive.rules.keywords import KEYWORDS, Dialect, Keyword, Role, Value

__all__ = [
    "IBM_VOCABULARY",
    "INSERTS",
    "KAFKA_PATTERNS",
    "KAFKA_VOCABULARY",
    "TOPIC_LENGTH",
    "Vocabulary",
    "dialect_of",
    "field_name",
    "field_order",
    "pattern_keyword",
    "split_field",
]

TOPIC_LENGTH: Final = 249
"""Characters of a topic's name; names of groups and connectors get the same."""

TEXT_LENGTH: Final = 1024
"""Characters of a pattern for a text that is no name, asterisks not counted."""

INSERTS: Final = ("&TOPIC", "&GROUP", "&CONNECTOR")
"""What FWDT replaces by a field of the message."""

_NAMES_OF_TOPICS: Final = {"INPUTQ", "FWDQ", "DESTQ", "REPLYQ"}
"""IBM's keywords whose queues are topics on Kafka: their names are as long as Kafka's."""

_SECONDS: Final = (("s", 1), ("m", 60), ("h", 3_600), ("d", 86_400))
_BYTES: Final = (("k", 1 << 10), ("m", 1 << 20), ("g", 1 << 30))


def _name(name: str, field: str) -> Keyword:
    return Keyword(
        name=name, role=Role.PATTERN, value=Value.TEXTS, length=TOPIC_LENGTH, field=field
    )


def _text(name: str, field: str, *, argument: str = "", is_varied: bool = False) -> Keyword:
    return Keyword(
        name=name,
        role=Role.PATTERN,
        value=Value.TEXTS,
        length=TEXT_LENGTH,
        field=field,
        argument=argument,
        is_varied=is_varied,
    )


def _number(
    name: str, field: str, units: tuple[tuple[str, int], ...] = (), *, is_varied: bool = False
) -> Keyword:
    return Keyword(
        name=name,
        role=Role.PATTERN,
        value=Value.NUMBERS,
        field=field,
        units=units,
        is_varied=is_varied,
    )


_PATTERNS: Final = (
    _name("SCHEME", "scheme"),
    _name("TOPIC", "origin.topic"),
    _number("PARTITION", "origin.partition"),
    _name("GROUP", "group"),
    _name("CONNECTOR", "connector"),
    _name("STAGE", "stage"),
    _text("ERRCLASS", "error.class"),
    _text("ROOTCLASS", "error.root_class"),
    _text("ERRMSG", "error.message", is_varied=True),
    _number("ATTEMPTS", "attempts"),
    _number("AGE", "first_failed_at", _SECONDS, is_varied=True),
    _number("SIZE", "value", _BYTES, is_varied=True),
    _text("KEY", "key", is_varied=True),
    _text("HEADER", "headers", argument="name", is_varied=True),
    _text("JSON", "value", argument="path", is_varied=True),
)


@dataclass(frozen=True)
class Vocabulary:
    """The keywords of one dialect."""

    dialect: Dialect
    keywords: Mapping[str, Keyword]
    """Those that take a value, by name, in the order in which a canonical table writes them."""
    with_argument: Mapping[str, Keyword]
    """Those that take an argument, a comma and a value; HEADER is one of each kind."""

    @cached_property
    def names(self) -> tuple[str, ...]:
        """All words."""
        return tuple(dict.fromkeys([*self.keywords, *self.with_argument]))

    @cached_property
    def actions(self) -> tuple[str, ...]:
        """The words of actions."""
        return tuple(name for name, it in self.keywords.items() if it.role is Role.ACTION)


def _kafka_keywords() -> dict[str, Keyword]:
    dialect = Keyword(
        name="DIALECT", role=Role.CONTROL, value=Value.WORD, words=(Dialect.KAFKA.value,)
    )
    words = {dialect.name: dialect}
    for keyword in KEYWORDS.values():
        length = TOPIC_LENGTH if keyword.name in _NAMES_OF_TOPICS else keyword.length
        words[keyword.name] = replace(keyword, length=length)
        if keyword.name == "USERID":  # the last of IBM's patterns
            words.update({it.name: it for it in _PATTERNS if not it.argument})
    action = words["ACTION"]
    words["ACTION"] = replace(action, words=(*action.words, "QUARANTINE"))
    forward = Keyword(
        name="FWDT", role=Role.ACTION, value=Value.TOPIC, length=TOPIC_LENGTH, references=INSERTS
    )
    backoff = Keyword(name="BACKOFF", role=Role.ACTION, value=Value.BACKOFF, units=_SECONDS)
    order = [*words]
    order.insert(order.index("FWDQ"), forward.name)
    words |= {forward.name: forward, backoff.name: backoff}
    return {name: words[name] for name in (*order, backoff.name)}


IBM_VOCABULARY: Final = Vocabulary(Dialect.IBM, KEYWORDS, MappingProxyType({}))
"""The words of IBM's handler."""

KAFKA_VOCABULARY: Final = Vocabulary(
    Dialect.KAFKA,
    MappingProxyType(_kafka_keywords()),
    MappingProxyType({it.name: it for it in _PATTERNS if it.argument}),
)
"""The words of DIALECT(KAFKA)."""

KAFKA_PATTERNS: Final = {
    it.name: it
    for it in (*KAFKA_VOCABULARY.keywords.values(), *KAFKA_VOCABULARY.with_argument.values())
    if it.role is Role.PATTERN
}
"""The keywords of patterns in DIALECT(KAFKA), IBM's 13 among them."""

_ORDER: Final = {name: index for index, name in enumerate(KAFKA_PATTERNS)}
_FIRST: Final = re.compile(r"[ \t,]*DIALECT[ \t]*\(", re.IGNORECASE)


def dialect_of(entry: str) -> Dialect:
    """The dialect of a table.

    Args:
        entry: The text of its first entry.
    """
    return Dialect.KAFKA if _FIRST.match(entry) else Dialect.IBM


def field_name(keyword: Keyword, argument: str = "") -> str:
    """The name under which a pattern and a message's value for it stand.

    Args:
        keyword: A pattern keyword.
        argument: Its argument, such as a header's name.

    Returns:
        ``TOPIC``, or with an argument ``HEADER(name)``.
    """
    return f"{keyword.name}({argument})" if argument else keyword.name


def split_field(name: str) -> tuple[str, str]:
    """The keyword and the argument of ``field_name``; the argument is empty if there is none."""
    keyword, _, argument = name.partition("(")
    return keyword, argument.removesuffix(")")


def pattern_keyword(name: str) -> Keyword:
    """The keyword of a field, whichever dialect has it.

    Raises:
        KeyError: No pattern looks at a field of this name.
    """
    return KAFKA_PATTERNS[split_field(name)[0]]


def field_order(name: str) -> tuple[int, str]:
    """Sorts the fields of a rule as a canonical table writes them."""
    keyword, argument = split_field(name)
    return _ORDER[keyword], argument
