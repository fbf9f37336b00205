"""The schemes in which dead letters say why and where they failed.

``known`` has those of other programs; ``reading`` finds the schemes of a message, and reads the
outermost one as a ``DeadLetterView``.
"""

from __future__ import annotations

from redrive.messages.schemes.own import OwnScheme, PartPlace, PlaceError, schemes_id
from redrive.messages.schemes.reading import GROUP_SCHEMES, KNOWN, SCHEME_NAMES, SchemeTable
from redrive.messages.schemes.scheme import (
    NO_SCHEME,
    DeadLetterView,
    Message,
    Scheme,
    consumer_group,
)

__all__ = [
    "GROUP_SCHEMES", "KNOWN", "NO_SCHEME", "SCHEME_NAMES", "DeadLetterView", "Message", "OwnScheme",
    "PartPlace", "PlaceError", "Scheme", "SchemeTable", "consumer_group", "known",
    "own", "reading", "scheme", "schemes_id"
]  # fmt: skip
