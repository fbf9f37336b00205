"""Share groups' dead-letter topics, which the broker writes.

Source: KIP-1191 and the broker's ``ShareGroupDLQStateManager``. All values are text. The topic is a
topic id where the name is gone. Key and value are there only if the group copies them; else the
dead letter is a pointer to its original.
"""

from __future__ import annotations

from typing import Final

from redrive.messages.schemes.encodings import decimal
from redrive.messages.schemes.scheme import Part, Scheme, origin_headers

__all__ = ["SHARE_GROUP"]

_PREFIX: Final = "__dlq.errors."

SHARE_GROUP: Final = Scheme(
    name="share-group",
    leading=(f"{_PREFIX}topic",),
    prefixes=(_PREFIX,),
    can_point=True,
    parts={
        **origin_headers(_PREFIX),
        "group": (Part(f"{_PREFIX}group"),),
        "attempts": (Part(f"{_PREFIX}delivery.count", decimal),),
        "error.message": (Part(f"{_PREFIX}message"),),
    },
)
"""Share groups."""
