"""Look-ups in MQ's symbolic constants: name to value, value to name.

The families are the ones that rules tables may name (rules-table specification 9.2):

    MQRC  reason codes           MQMT   message types
    MQFB  feedback codes         MQPER  persistence
    MQAT  application types
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from redrive.messages.constant_tables import MQ_VERSION, MQAT, MQFB, MQMT, MQPER, MQRC

__all__ = [
    "FAMILIES",
    "MQ_VERSION",
    "constant_family",
    "constant_name",
    "constant_names",
    "constant_value",
    "reason_name",
]

FAMILIES: Final[Mapping[str, Mapping[str, int]]] = MappingProxyType(
    {
        "MQRC": MappingProxyType(MQRC),
        "MQFB": MappingProxyType(MQFB),
        "MQMT": MappingProxyType(MQMT),
        "MQPER": MappingProxyType(MQPER),
        "MQAT": MappingProxyType(MQAT),
    }
)
"""Family -> name -> value. Synonyms are names like any other."""

_VALUES: Final[Mapping[str, int]] = {
    name: value for family in FAMILIES.values() for name, value in family.items()
}

# Reversed, so that of several names for one value the first in the table is the last one written.
_NAMES: Final[Mapping[str, Mapping[int, str]]] = {
    family: {value: name for name, value in reversed(list(names.items()))}
    for family, names in FAMILIES.items()
}


def constant_value(name: str) -> int | None:
    """The value of a symbolic constant.

    Args:
        name: An exact upper-case name of any family, such as ``MQRC_Q_FULL``.

    Returns:
        Its value, or None if no family has this name.
    """
    return _VALUES.get(name)


def constant_name(family: str, value: int) -> str | None:
    """The preferred name of a value in a family.

    Args:
        family: ``MQRC``, ``MQFB``, ``MQMT``, ``MQPER`` or ``MQAT``.
        value: The number to name.

    Returns:
        The name, such as ``MQRC_Q_FULL``, or None if the family is unknown or does not name
        this value.
    """
    return _NAMES.get(family, {}).get(value)


def constant_family(name: str) -> str | None:
    """The family that a name belongs to by its prefix, whether or not the constant exists.

    Args:
        name: An upper-case name such as ``MQRC_Q_FUL``.

    Returns:
        ``MQRC`` for that name; None if the prefix is of no family.
    """
    prefix = name.partition("_")[0]
    return prefix if prefix in FAMILIES else None


def constant_names(*families: str) -> list[str]:
    """All names of some families in alphabetical order, for instance to suggest a similar one.

    Args:
        families: Family names; none means all families. Unknown ones are ignored.

    Returns:
        The names, sorted.
    """
    wanted = families or tuple(FAMILIES)
    return sorted(name for family in wanted for name in FAMILIES.get(family, {}))


def reason_name(code: int) -> str:
    """The name of a dead letter's reason, which is a reason code or a feedback code.

    Args:
        code: The value of MQDLH.Reason (rules-table specification 8.1).

    Returns:
        The ``MQRC_`` name, else the ``MQFB_`` name, else the number as text.
    """
    return constant_name("MQRC", code) or constant_name("MQFB", code) or str(code)
