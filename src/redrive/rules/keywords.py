"""The 23 keywords of the rules-table language and what each of them takes.

Facts of rules-table specification 2 (control), 3 (patterns) and 4 (actions). The set is the same
on all platforms and versions of MQ.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, StrEnum, auto
from types import MappingProxyType
from typing import Final

__all__ = [
    "ACTION_KEYWORDS",
    "KEYWORDS",
    "LARGEST_NUMBER",
    "NAME_LENGTH",
    "PATTERN_KEYWORDS",
    "Dialect",
    "Keyword",
    "Role",
    "Value",
]

LARGEST_NUMBER: Final = 999_999_999
"""Upper bound of every number in a table (specification 5.1, convention 15)."""

NAME_LENGTH: Final = 48
"""Characters of a queue or queue manager name."""


class Dialect(StrEnum):
    """Whose language a table is written in."""

    IBM = "IBM"
    """That of IBM's handler: every table that does not say otherwise."""
    KAFKA = "KAFKA"
    """The same with the words of ``redrive.rules.dialect``: DIALECT(KAFKA) comes first."""


class Role(Enum):
    """Which part of an entry a keyword belongs to."""

    CONTROL = auto()
    PATTERN = auto()
    ACTION = auto()


class Value(Enum):
    """What stands between the parentheses."""

    STRING = auto()
    """A text pattern, with wildcards."""
    NUMBER = auto()
    """A number pattern: digits, a symbolic name, or ``*``."""
    NAME = auto()
    """A queue or queue manager name; in FWDQ and FWDQM also a reference such as ``&DESTQ``."""
    COUNT = auto()
    """Digits."""
    COUNT_OR_WORD = auto()
    """Digits or one of the words."""
    WORD = auto()
    """One of the words."""
    TEXTS = auto()
    """DIALECT(KAFKA): texts with wildcards and regular expressions, one or a list of them."""
    NUMBERS = auto()
    """DIALECT(KAFKA): numbers and comparisons, one or a list of them."""
    TOPIC = auto()
    """DIALECT(KAFKA): a topic's name, with inserts such as ``&TOPIC``."""
    BACKOFF = auto()
    """DIALECT(KAFKA): the first delay, a factor and the longest delay, such as ``30s,2,1h``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Keyword:
    """One keyword of the language."""

    name: str
    role: Role
    value: Value
    length: int = 0
    """Characters of the field or name; 0 where values have no length."""
    families: tuple[str, ...] = ()
    """Families of symbolic names that are allowed (question Q-15), the usual one first."""
    words: tuple[str, ...] = ()
    """Words that are allowed."""
    references: tuple[str, ...] = ()
    """The special names that stand for a field of the message."""
    minimum: int = 0
    """Lower bound of a number."""
    structure: str = ""
    """Structure that a pattern looks at: ``md`` for MQMD, ``dlh`` for MQDLH."""
    field: str = ""
    """Field of that structure, as MQ spells it."""
    argument: str = ""
    """What stands in front of the value and a comma, such as the name of a header."""
    units: tuple[tuple[str, int], ...] = ()
    """Letters that may follow a number, and what they multiply it by."""
    is_varied: bool = False
    """Whether nearly every message has another value, so that none is worth remembering."""


def _text(name: str, structure: str, field: str, length: int) -> Keyword:
    return Keyword(
        name=name,
        role=Role.PATTERN,
        value=Value.STRING,
        length=length,
        structure=structure,
        field=field,
    )


def _number(name: str, structure: str, field: str, *families: str) -> Keyword:
    return Keyword(
        name=name,
        role=Role.PATTERN,
        value=Value.NUMBER,
        families=families,
        structure=structure,
        field=field,
    )


def _name(name: str, role: Role, *references: str) -> Keyword:
    return Keyword(
        name=name, role=role, value=Value.NAME, length=NAME_LENGTH, references=references
    )


def _word(name: str, *words: str) -> Keyword:
    return Keyword(name=name, role=Role.ACTION, value=Value.WORD, words=words)


_ALL: Final = (
    _name("INPUTQ", Role.CONTROL),
    _name("INPUTQM", Role.CONTROL),
    Keyword(name="RETRYINT", role=Role.CONTROL, value=Value.COUNT),
    Keyword(name="WAIT", role=Role.CONTROL, value=Value.COUNT_OR_WORD, words=("YES", "NO")),
    _text("APPLIDAT", "md", "ApplIdentityData", 32),
    _text("APPLNAME", "md", "PutApplName", 28),
    _number("APPLTYPE", "md", "PutApplType", "MQAT"),
    _text("DESTQ", "dlh", "DestQName", NAME_LENGTH),
    _text("DESTQM", "dlh", "DestQMgrName", NAME_LENGTH),
    _number("FEEDBACK", "md", "Feedback", "MQFB", "MQRC"),
    _text("FORMAT", "dlh", "Format", 8),
    _number("MSGTYPE", "md", "MsgType", "MQMT"),
    _number("PERSIST", "md", "Persistence", "MQPER"),
    _number("REASON", "dlh", "Reason", "MQRC", "MQFB"),
    _text("REPLYQ", "md", "ReplyToQ", NAME_LENGTH),
    _text("REPLYQM", "md", "ReplyToQMgr", NAME_LENGTH),
    _text("USERID", "md", "UserIdentifier", 12),
    _word("ACTION", "DISCARD", "IGNORE", "RETRY", "FWD"),
    _name("FWDQ", Role.ACTION, "&DESTQ", "&REPLYQ"),
    _name("FWDQM", Role.ACTION, "&DESTQM", "&REPLYQM"),
    _word("HEADER", "YES", "NO"),
    _word("PUTAUT", "DEF", "CTX"),
    Keyword(name="RETRY", role=Role.ACTION, value=Value.COUNT, minimum=1),
)

KEYWORDS: Final[Mapping[str, Keyword]] = MappingProxyType({word.name: word for word in _ALL})
"""Every keyword by its name, in the order in which a canonical table writes them."""


def _of(role: Role) -> Mapping[str, Keyword]:
    return MappingProxyType({name: word for name, word in KEYWORDS.items() if word.role is role})


PATTERN_KEYWORDS: Final = _of(Role.PATTERN)
ACTION_KEYWORDS: Final = _of(Role.ACTION)
