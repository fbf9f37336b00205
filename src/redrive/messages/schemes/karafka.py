"""Karafka Pro's dead-letter topics (Ruby).

Source: Karafka's strategy ``Dlq::Default`` and its change log. All values are text; headers are a
map, so none is repeated. The names began with ``original-``, then with ``original_``, now with
``source_``. Where the key of the record is the number of the partition, a header has the original.
"""

from __future__ import annotations

from itertools import chain
from typing import Final

from redrive.messages.schemes.encodings import Reader, decimal, text
from redrive.messages.schemes.scheme import LastHeaders, Part, Scheme

__all__ = ["KARAFKA"]

_NAMES: Final = ("topic", "partition", "offset", "consumer_group", "attempts", "key", "trace_id")


def _spellings(name: str) -> tuple[str, ...]:
    return f"source_{name}", f"original_{name}", f"original-{name.replace('_', '-')}"


def _parts(name: str, read: Reader = text) -> tuple[Part, ...]:
    return tuple(Part(header, read) for header in _spellings(name))


def _key(key: bytes | None, headers: LastHeaders) -> bytes | None:
    # A record without a key has an empty header.
    found = next((headers[name] for name in _spellings("key") if name in headers), key)
    return found or None


KARAFKA: Final = Scheme(
    name="karafka",
    leading=_spellings("topic"),
    names=frozenset(chain.from_iterable(map(_spellings, _NAMES))),
    original_key=_key,
    parts={
        "origin.topic": _parts("topic"),
        "origin.partition": _parts("partition", decimal),
        "origin.offset": _parts("offset", decimal),
        "group": _parts("consumer_group"),
        "attempts": _parts("attempts", decimal),
    },
)
"""Karafka."""
