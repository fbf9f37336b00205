"""MQ's symbolic constants: name to value, value to name.

``constants.txt`` has them. Within a family the names are in the order of their values; where
several share a value, the one that IBM's manuals use today is first and preferred. Names that mark
the ends of a range (``..._FIRST``, ``..._LAST``) are constants like any other. ``MQAT_DEFAULT`` is
left out, as its value depends on the platform.

The values agree in the constant tables of IBM's Go binding (9.4.5) and Python binding (10.0); those
tables have the same names except for two synonyms.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib import resources
from types import MappingProxyType
from typing import Final

MQ_VERSION: Final = "9.4.5"
"""The version of MQ whose constants these are; MQ 10.0 adds none to these families."""


def _families() -> dict[str, Mapping[str, int]]:
    text = resources.files("redrive.messages").joinpath("constants.txt").read_text("ascii")
    families: dict[str, Mapping[str, int]] = {}
    for section in re.sub(r"(?m)^#.*\n", "", text).strip().split("\n\n"):
        family, *words = section.replace(":", "").split()
        pairs = zip(words[::2], words[1::2], strict=True)
        families[family] = MappingProxyType(
            {f"{family}_{name}": int(number) for number, name in pairs}
        )
    return families


FAMILIES: Final[Mapping[str, Mapping[str, int]]] = MappingProxyType(_families())
"""Family to name to value. Synonyms are names like any other."""

_VALUES: Final[Mapping[str, int]] = {
    name: value for family in FAMILIES.values() for name, value in family.items()
}
# Reversed, so that of several names for one value the first in the table is written last.
_NAMES: Final[Mapping[str, Mapping[int, str]]] = {
    family: {value: name for name, value in reversed(list(names.items()))}
    for family, names in FAMILIES.items()
}


def constant_value(name: str) -> int | None:
    """The value of an exact upper-case name such as ``MQRC_Q_FULL``; None if there is none."""
    return _VALUES.get(name)


def constant_name(family: str, value: int) -> str | None:
    """The preferred name of a value in a family such as ``MQRC``; None if there is none."""
    return _NAMES.get(family, {}).get(value)


def constant_family(name: str) -> str | None:
    """``MQRC`` for ``MQRC_Q_FUL``, whether or not the constant exists; None for other prefixes."""
    prefix = name.partition("_")[0]
    return prefix if prefix in FAMILIES else None


def constant_names(*families: str) -> list[str]:
    """The names of some families, or of all if none is given, in alphabetical order."""
    wanted = families or tuple(FAMILIES)
    return sorted(name for family in wanted for name in FAMILIES.get(family, {}))


def reason_name(code: int) -> str:
    """The ``MQRC_`` name of a dead letter's reason, else ``MQFB_``, else digits."""
    return constant_name("MQRC", code) or constant_name("MQFB", code) or str(code)
