"""The keywords of the rules-table language and their values.

The 23 keywords of IBM's handler are for control data, patterns and actions; they are the same on
all platforms and versions of MQ. docs/rules-language.md describes them. A table whose first clause
is DIALECT(KAFKA) has these and more: the dialect is what it adds to them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import Enum, StrEnum, auto
from functools import cached_property, partial
from types import MappingProxyType
from typing import Final

LARGEST_NUMBER: Final = 999_999_999
"""Upper bound of every number in a table."""

NAME_LENGTH: Final = 48
"""Maximum characters of a queue or queue manager name."""

TOPIC_LENGTH: Final = 249
"""Maximum characters of a topic's name, also used for groups and connectors."""

CLUSTER_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,48}")
"""The name of another cluster, as FWDT and the settings have it."""

_TEXT_LENGTH: Final = 1024
"""Maximum characters of a pattern for a text that is not a name, without asterisks."""


class Dialect(StrEnum):
    """The dialect of a table."""

    IBM = "IBM"
    """IBM's handler: the default."""
    KAFKA = "KAFKA"
    """IBM's language and more, after DIALECT(KAFKA)."""


class KeywordRole(Enum):
    """The part of an entry that a keyword belongs to."""

    CONTROL = auto()
    PATTERN = auto()
    ACTION = auto()


class Value(Enum):
    """The kind of value in parentheses."""

    STRING = auto()
    """A text pattern, with wildcards."""
    NUMBER = auto()
    """A number pattern: digits, a symbolic name, or ``*``."""
    NAME = auto()
    """A queue or queue manager name; in FWDQ and FWDQM also a reference such as ``&DESTQ``."""
    COUNT = auto()
    COUNT_OR_WORD = auto()
    WORD = auto()
    TEXTS = auto()
    """DIALECT(KAFKA): texts with wildcards and regular expressions, one or a list of them."""
    NUMBERS = auto()
    """DIALECT(KAFKA): numbers and comparisons, one or a list of them."""
    TOPIC = auto()
    """DIALECT(KAFKA): a topic's name, with inserts such as ``&TOPIC``."""
    LABEL = auto()
    """DIALECT(KAFKA): a name from the settings."""
    BACKOFF = auto()
    """DIALECT(KAFKA): the first delay, a factor and the longest delay, such as ``30s,2,1h``."""


@dataclass(frozen=True, slots=True)
class Keyword:
    """One keyword of the language."""

    name: str
    role: KeywordRole
    value: Value
    length: int = 0
    """Characters of the field or name; 0 where values have no length."""
    families: tuple[str, ...] = ()
    """Families of symbolic names that are allowed, the usual one first."""
    words: tuple[str, ...] = ()
    references: tuple[str, ...] = ()
    """The special names for a field of the message."""
    minimum: int = 0
    argument: str = ""
    """The argument before the value and a comma, such as the name of a header."""
    units: tuple[tuple[str, int], ...] = ()
    """Letters that may follow a number, and their factors."""
    source: str = ""
    """DIALECT(KAFKA): the attribute of ``RuleInput`` that a pattern without an argument reads."""
    needs_failure: bool = False
    """Whether that comes from the part of the failure that each message has for itself."""
    is_always_there: bool = False
    """Whether every message has this number."""
    grows: bool = False
    """Whether it is a number of seconds that grows while a message waits."""

    @property
    def is_varied(self) -> bool:
        """Whether a pattern reads more of a message than the view that many messages share."""
        return bool(self.argument or self.source) and not self.source.startswith("view.")


def _by_name(keywords: Iterable[Keyword]) -> Mapping[str, Keyword]:
    first = ("DIALECT", "ACTION", "FWDT", "TO")
    ordered = sorted(keywords, key=lambda keyword: (keyword.role.value, keyword.name not in first))
    return MappingProxyType({keyword.name: keyword for keyword in ordered})


_control = partial(Keyword, role=KeywordRole.CONTROL)
_pattern = partial(Keyword, role=KeywordRole.PATTERN)
_action = partial(Keyword, role=KeywordRole.ACTION)
_text = partial(_pattern, value=Value.STRING)
_number = partial(_pattern, value=Value.NUMBER)

KEYWORDS: Final = _by_name(
    (
        _control("INPUTQ", value=Value.NAME, length=NAME_LENGTH),
        _control("INPUTQM", value=Value.NAME, length=NAME_LENGTH),
        _control("RETRYINT", value=Value.COUNT),
        _control("WAIT", value=Value.COUNT_OR_WORD, words=("YES", "NO")),
        _text("APPLIDAT", length=32),
        _text("APPLNAME", length=28),
        _number("APPLTYPE", families=("MQAT",)),
        _text("DESTQ", length=NAME_LENGTH),
        _text("DESTQM", length=NAME_LENGTH),
        _number("FEEDBACK", families=("MQFB", "MQRC")),
        _text("FORMAT", length=8),
        _number("MSGTYPE", families=("MQMT",)),
        _number("PERSIST", families=("MQPER",)),
        _number("REASON", families=("MQRC", "MQFB")),
        _text("REPLYQ", length=NAME_LENGTH),
        _text("REPLYQM", length=NAME_LENGTH),
        _text("USERID", length=12),
        _action("ACTION", value=Value.WORD, words=("DISCARD", "IGNORE", "RETRY", "FWD")),
        _action("FWDQ", value=Value.NAME, length=NAME_LENGTH, references=("&DESTQ", "&REPLYQ")),
        _action("FWDQM", value=Value.NAME, length=NAME_LENGTH, references=("&DESTQM", "&REPLYQM")),
        _action("HEADER", value=Value.WORD, words=("YES", "NO")),
        _action("PUTAUT", value=Value.WORD, words=("DEF", "CTX")),
        _action("RETRY", value=Value.COUNT, minimum=1),
    )
)
"""The keywords of IBM's handler by name, in the order in which a canonical table writes them."""

PATTERN_KEYWORDS: Final = _by_name(
    keyword for keyword in KEYWORDS.values() if keyword.role is KeywordRole.PATTERN
)

_SECONDS: Final = (("s", 1), ("m", 60), ("h", 3_600), ("d", 86_400))
_BYTES: Final = (("k", 1 << 10), ("m", 1 << 20), ("g", 1 << 30))

_name_in_kafka = partial(_pattern, value=Value.TEXTS, length=TOPIC_LENGTH)
_text_in_kafka = partial(_pattern, value=Value.TEXTS, length=_TEXT_LENGTH)
_number_in_kafka = partial(_pattern, value=Value.NUMBERS)
_growing_in_kafka = partial(_number_in_kafka, units=_SECONDS, is_always_there=True, grows=True)

_INSERTS: Final = ("&TOPIC", "&GROUP", "&CONNECTOR")
_CHANGED: Final = (
    replace(KEYWORDS["ACTION"], words=(*KEYWORDS["ACTION"].words, "QUARANTINE")),
    # Queues are topics on Kafka, with Kafka's maximum length.
    *(
        replace(KEYWORDS[name], length=TOPIC_LENGTH)
        for name in ("INPUTQ", "DESTQ", "REPLYQ", "FWDQ")
    ),
)
_ADDED: Final = (
    _control("DIALECT", value=Value.WORD, words=(Dialect.KAFKA.value,)),
    _control("ORDER", value=Value.WORD, words=("KEY",)),
    _name_in_kafka("SCHEME", source="view.scheme"),
    _name_in_kafka("TOPIC", source="view.origin.topic"),
    _number_in_kafka("PARTITION", source="partition", needs_failure=True),
    _name_in_kafka("GROUP", source="view.group"),
    _name_in_kafka("CONNECTOR", source="view.connector"),
    _name_in_kafka("STAGE", source="view.stage"),
    _text_in_kafka("ERRCLASS", source="view.error_class"),
    _text_in_kafka("ROOTCLASS", source="view.error_root_class"),
    _text_in_kafka("ERRMSG", source="error_message", needs_failure=True),
    _number_in_kafka("ATTEMPTS", source="view.attempts"),
    _growing_in_kafka("AGE", source="age", needs_failure=True),
    _number_in_kafka("SIZE", source="size", units=_BYTES, is_always_there=True),
    _text_in_kafka("KEY", source="key_text"),
    _action("FWDT", value=Value.TOPIC, length=TOPIC_LENGTH, references=_INSERTS),
    _action("TO", value=Value.WORD, words=("TOPIC", "GROUP")),
    _action("BACKOFF", value=Value.BACKOFF, units=_SECONDS),
    _action("TRANSFORM", value=Value.LABEL, length=NAME_LENGTH),
)
_WITH_ARGUMENT: Final = (
    _text_in_kafka("HEADER", argument="name"),
    _text_in_kafka("JSON", argument="path"),
)


@dataclass(frozen=True)
class Vocabulary:
    """The keywords of one dialect."""

    dialect: Dialect
    keywords: Mapping[str, Keyword]
    """Keywords with a value, by name, in canonical order."""
    with_argument: Mapping[str, Keyword]
    """Keywords with an argument, a comma and a value; HEADER is in both."""

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The names of all keywords."""
        return tuple(dict.fromkeys([*self.keywords, *self.with_argument]))


IBM: Final = Vocabulary(Dialect.IBM, KEYWORDS, MappingProxyType({}))

KAFKA: Final = Vocabulary(
    Dialect.KAFKA,
    _by_name({**KEYWORDS, **_by_name((*_CHANGED, *_ADDED))}.values()),
    _by_name(_WITH_ARGUMENT),
)

KAFKA_PATTERNS: Final = _by_name(
    keyword
    for keyword in (*KAFKA.keywords.values(), *KAFKA.with_argument.values())
    if keyword.role is KeywordRole.PATTERN
)
"""The keywords of patterns in DIALECT(KAFKA), including IBM's 13."""

GROWING: Final = frozenset(name for name, keyword in KAFKA_PATTERNS.items() if keyword.grows)
"""Fields whose patterns may begin or cease to match while a message waits."""

_ORDER: Final = {name: index for index, name in enumerate(KAFKA_PATTERNS)}
_DIALECT_FIRST: Final = re.compile(r"[ \t,]*DIALECT[ \t]*\(", re.IGNORECASE)


def vocabulary_of(entry: str) -> Vocabulary:
    """The vocabulary of a table by its first entry."""
    return KAFKA if _DIALECT_FIRST.match(entry) else IBM


def field_name(keyword: Keyword, argument: str = "") -> str:
    """The name of a field: ``TOPIC``, or with an argument ``HEADER(name)``."""
    return f"{keyword.name}({argument})" if argument else keyword.name


def split_field(name: str) -> tuple[str, str]:
    """The keyword and the argument of ``field_name``; the argument is empty if there is none."""
    keyword, _, argument = name.partition("(")
    return keyword, argument.removesuffix(")")


def pattern_keyword(name: str) -> Keyword:
    """The keyword of a field, in any dialect.

    Raises:
        KeyError: No pattern has a field of this name.
    """
    return KAFKA_PATTERNS[split_field(name)[0]]


def field_order(name: str) -> tuple[int, str]:
    """Sort key for fields in canonical order."""
    keyword, argument = split_field(name)
    return _ORDER[keyword], argument
