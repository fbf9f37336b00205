"""The trace of a message, in the header of OpenTelemetry's client instrumentation.

Its form is in W3C Trace Context, section 3.2 (https://www.w3.org/TR/trace-context/). The header
travels like any other; it is only read here, so that an outcome can name the trace.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from redrive.messages.records import Records

TRACEPARENT: Final = "traceparent"
"""Name of the header."""

_FORM: Final = re.compile(
    rb"(?!ff)(?P<version>[0-9a-f]{2})-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}"
)
_FIRST_VERSION: Final = b"00"


def read_traceparent(raw: bytes | None) -> str:
    """The version, trace id, parent id and flags of a header's value, which anyone may write.

    Empty if it does not have this form. Additions of later versions after the flags are left out.
    """
    match = None if raw is None else _FORM.match(raw)
    if match is None or raw is None:
        return ""
    rest = raw[match.end() :]
    if rest and (match["version"] == _FIRST_VERSION or not rest.startswith(b"-")):
        return ""
    return match[0].decode("ascii")


def traceparents(records: Records) -> Sequence[str] | None:
    """The trace of each record; None if none has the header."""
    grid = records.grid
    if grid is None:
        # The last of repeated headers counts.
        column = [dict(headers).get(TRACEPARENT) for headers in records.headers]
        return [*map(read_traceparent, column)] if any(column) else None
    if TRACEPARENT not in grid.layout:
        return None
    last = len(grid.layout) - 1 - grid.layout[::-1].index(TRACEPARENT)
    return [*map(read_traceparent, grid.column(last))]
