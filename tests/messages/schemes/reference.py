"""A naive reading of dead letters by the table ``headers.yaml``, and samples for it.

It looks at one message at a time, one name at a time, and knows no layouts.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml
from hypothesis import strategies as st

from redrive.messages import Headers
from redrive.messages.schemes.scheme import ENCODINGS, Reader, root_cause, time

SCHEMES: dict[str, dict[str, str]] = yaml.safe_load(
    Path(__file__).with_name("headers.yaml").read_text("utf-8")
)
"""Scheme -> its leading header, and the headers of each part."""
SECOND = {
    "karafka": "source_offset",
    "wolverine": "exception-message",
    "spring-cloud-stream": "x-original-offset",
}
"""Schemes whose leading header other programs have too, and a second one."""
FIRST_IS_NEWEST = {"smallrye-dead-letter"}


def attempts(raw: bytes) -> int | None:
    """Spring's attempts: one byte or four, capped."""
    number = raw[0] if len(raw) == 1 else ENCODINGS["int32be"](raw)
    return min(number, 32767) if isinstance(number, int) and number >= 0 else None


READERS: dict[str, Reader] = {
    **ENCODINGS, "cause": root_cause, "time": time, "attempts": attempts
}  # fmt: skip


def places(scheme: str) -> dict[str, list[tuple[str, Reader]]]:
    """Part -> headers that tell it, in order of preference."""
    texts = {part: text for part, text in SCHEMES[scheme].items() if part != "leading"}
    return {
        part: [_place(*place.split(" as ")) for place in texts[part].split(", ")] for part in texts
    }


def _place(header: str, encoding: str = "text") -> tuple[str, Reader]:
    return header, READERS[encoding]


def read(scheme: str, headers: Headers, *, oldest: bool = False) -> dict[str, Any]:
    """What the newest headers of one scheme tell, or the oldest, by part."""
    wanted = 0 if (scheme in FIRST_IS_NEWEST) is not oldest else -1
    parts: dict[str, Any] = {}
    for part, headers_of_part in places(scheme).items():
        values = [
            decode(raw)
            for name, decode in headers_of_part
            for raw in [raw for header, raw in headers if header == name][wanted:][:1]
            if raw is not None
        ]
        parts[part] = next((value for value in values if value is not None), None)
    partition = parts.get("origin.partition")
    if partition is not None and not -1 <= partition < 2**31:
        parts["origin.partition"] = None
    return parts


_raws = st.one_of(
    st.none(),
    st.sampled_from([b"", b"orders", b"a.B: c", b"x\nCaused by: c.D: e", b"2026-01-15T12:34:56Z"]),
    st.sampled_from([b"\xff\xfe", b"-1", b" 7 ", b"3000000000", b"99999999999999999999"]),
    st.integers(-(2**63), 2**63 - 1).map(lambda number: str(number).encode()),
    st.integers(0, 2**31 - 1).map(lambda number: number.to_bytes(4, "big")),
    st.integers(0, 2**63 - 1).map(lambda number: number.to_bytes(8, "big")),
    st.integers(-(2**47), 2**47 - 1).map(lambda number: number.to_bytes(6, "big", signed=True)),
    st.binary(max_size=9),
)


@st.composite
def headers_of(draw: st.DrawFn, scheme: str) -> Headers:
    """Headers of one scheme, repeated and malformed, the leading one, and some others."""
    names = sorted({name for places_of in places(scheme).values() for name, _ in places_of})
    chosen = draw(st.lists(st.sampled_from([*names, "trace", "content-type"]), max_size=12))
    for name in (SCHEMES[scheme]["leading"], SECOND.get(scheme)):
        if name is not None:
            chosen.insert(draw(st.integers(0, len(chosen))), name)
    return [(name, draw(_raws)) for name in chosen]
