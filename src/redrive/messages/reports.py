"""Report messages: the reports that a message requests, and how they are written.

The Report field of a message descriptor requests messages about the message's fate, which go to its
reply-to queue (MQMD, fields Report and Feedback). This module reads the options and writes such
messages; the put determines when one is due.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final

from redrive.messages.constants import constant_value
from redrive.messages.fields import (
    DEADLINE,
    MQMD_PREFIX,
    Headers,
    counted_down,
    mqmd_fields,
    mqmd_headers,
    put_moment,
    unique_identifier,
    with_mqmd_headers,
)
from redrive.messages.own_headers import PREFIX

_PASS_CORREL_ID: Final = 0x40
_PASS_MSG_ID: Final = 0x80
_PASS_DISCARD_AND_EXPIRY: Final = 0x4000
_DISCARD: Final = 0x08000000
_ACTIVITY: Final = 0x00000004
# MQRO_..._WITH_DATA and ..._WITH_FULL_DATA, in units of the option without data.
_WITH_DATA: Final = 3
_WITH_FULL_DATA: Final = 7
_SOME_DATA: Final = 100
"""Bytes of the body in a report with data."""
_UNLIMITED: Final = -1
"""MQEI_UNLIMITED."""
_REPORT_TYPE: Final = constant_value("MQMT_REPORT") or 0
_QUEUE_MANAGER_TYPE: Final = constant_value("MQAT_QMGR") or 0
_DESCRIBES_DATA: Final = ("Format", "Encoding", "CodedCharSetId")
_KEPT: Final = (
    "Priority", "Persistence", "UserIdentifier", "AccountingToken", "ApplIdentityData",
)  # fmt: skip
"""Fields that a report copies from its message."""


class ReportKind(Enum):
    """The subject of a report; the value is its MQRO option without data."""

    EXCEPTION = 0x01000000
    """The message could not be put to its destination."""
    EXPIRATION = 0x00200000
    """It expired and was discarded."""
    ARRIVAL = 0x00000100
    """It is on its queue (COA)."""
    DELIVERY = 0x00000800
    """An application has taken it from there (COD)."""

    def __str__(self) -> str:
        """``exception``, ``expiration``, ``arrival`` or ``delivery``."""
        return self.name.lower()


_ASKING: Final = {
    "EXCEPTION": ReportKind.EXCEPTION,
    "EXPIRATION": ReportKind.EXPIRATION,
    "COA": ReportKind.ARRIVAL,
    "COD": ReportKind.DELIVERY,
}
_FEEDBACK: Final[dict[ReportKind, int]] = {
    kind: constant_value(f"MQFB_{name}") or 0
    for name, kind in _ASKING.items()
    if kind is not ReportKind.EXCEPTION
}
"""Feedback of each kind; an exception has the reason code instead."""
_KINDS: Final = {code: kind for kind, code in _FEEDBACK.items()}
_DATA: Final = {"": 1, "_WITH_DATA": _WITH_DATA, "_WITH_FULL_DATA": _WITH_FULL_DATA}
REPORT_OPTIONS: Final = {
    **{
        f"{name}{data}": kind.value * factor
        for name, kind in _ASKING.items()
        for data, factor in _DATA.items()
    },
    "ACTIVITY": _ACTIVITY,
    "PASS_CORREL_ID": _PASS_CORREL_ID,
    "PASS_MSG_ID": _PASS_MSG_ID,
    "PASS_DISCARD_AND_EXPIRY": _PASS_DISCARD_AND_EXPIRY,
    "DISCARD_MSG": _DISCARD,
}
"""The options of the field Report by their names, without ``MQRO_``."""


@dataclass(frozen=True, slots=True)
class ReportOptions:
    """The Report field of a message."""

    value: int = 0
    """Sum of the MQRO options."""

    def asks_for(self, kind: ReportKind) -> bool:
        """Whether a report of this kind is requested, with or without data."""
        return bool(self.value & kind.value)

    @property
    def discards(self) -> bool:
        """Whether a message that cannot be put is to be discarded (MQRO_DISCARD_MSG)."""
        return bool(self.value & _DISCARD)

    def data(self, kind: ReportKind, body: bytes | None) -> bytes:
        """The part of a body in a report."""
        level = (self.value // kind.value) & _WITH_FULL_DATA
        if level == _WITH_FULL_DATA:
            return body or b""
        return (body or b"")[:_SOME_DATA] if level == _WITH_DATA else b""

    @property
    def passes_discard_and_expiry(self) -> bool:
        """Whether the report has the rest of the message's Expiry, and its MQRO_DISCARD_MSG."""
        return bool(self.value & _PASS_DISCARD_AND_EXPIRY)


def kind_of_report(headers: Headers) -> ReportKind:
    """The kind of a report, by the Feedback of its headers."""
    return _KINDS.get(int(mqmd_fields(headers)["Feedback"]), ReportKind.EXCEPTION)


def report_message(
    kind: ReportKind,
    value: bytes | None,
    headers: Headers,
    *,
    feedback: int,
    queue_manager: str,
    identity: str,
    timestamp: int,
    now: int,
) -> tuple[bytes, Headers]:
    """The report about a message (MQMD, fields Report, MsgType, Feedback, Expiry and MsgId).

    Args:
        kind: What is reported.
        value: The message's body.
        headers: Its headers; those of applications are in the report too, as MQCOPY_REPORT has it.
        feedback: Why it could not be put, an MQRC value; only for an exception.
        queue_manager: The reporting manager.
        identity: ``topic:partition:offset`` of the message, so that a repeated decision makes the
            same report.
        timestamp: When the message was put, in milliseconds since 1970.
        now: The time of the report, in milliseconds since 1970.

    Returns:
        Body and headers of the report, for the message's reply-to queue.
    """
    before = mqmd_fields(counted_down(headers, timestamp, now))
    options = ReportOptions(int(before["Report"]))
    data = options.data(kind, value)
    new_identifier = unique_identifier(queue_manager, f"{identity} {kind}")
    kept = [*_KEPT, *(_DESCRIBES_DATA if data else ())]
    fields = {
        **{name: before[name] for name in kept},
        "MsgId": before["MsgId"] if options.value & _PASS_MSG_ID else new_identifier,
        "CorrelId": before["CorrelId" if options.value & _PASS_CORREL_ID else "MsgId"],
        "Report": options.value & _DISCARD if options.passes_discard_and_expiry else 0,
        "MsgType": _REPORT_TYPE,
        "Feedback": _FEEDBACK.get(kind, feedback),
        "Expiry": (options.passes_discard_and_expiry and before["Expiry"]) or _UNLIMITED,
        "ReplyToQMgr": queue_manager,
        "PutApplType": _QUEUE_MANAGER_TYPE,
        "PutApplName": queue_manager,
        **put_moment(now),
    }
    plain = [
        pair
        for pair in headers
        if not pair[0].startswith((MQMD_PREFIX, PREFIX, "mqdlh.")) and pair[0] != DEADLINE
    ]
    return data, with_mqmd_headers(plain, mqmd_headers(fields))
