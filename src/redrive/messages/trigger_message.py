"""Trigger messages: MQ's structure MQTM, which tells a trigger monitor what to start.

The fields and the message descriptor are those of "MQTM - Trigger message" (q100760).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from redrive.messages.constants import constant_value
from redrive.messages.dead_letter_header import UTF8_LITTLE_ENDIAN
from redrive.messages.fields import (
    FieldType,
    Headers,
    layout,
    mqmd_headers,
    put_moment,
    unique_identifier,
)

MQTM: Final = layout(
    ("StrucId", FieldType.CHAR, 4),
    ("Version", FieldType.LONG, 4),
    ("QName", FieldType.CHAR, 48),
    ("ProcessName", FieldType.CHAR, 48),
    ("TriggerData", FieldType.CHAR, 64),
    ("ApplType", FieldType.LONG, 4),
    ("ApplId", FieldType.CHAR, 256),
    ("EnvData", FieldType.CHAR, 128),
    ("UserData", FieldType.CHAR, 128),
)
"""The trigger message, version 1, by field name."""
TRIGGER_FORMAT: Final = "MQTRIG"
"""MQFMT_TRIGGER."""
_UNLIMITED: Final = -1
"""MQEI_UNLIMITED."""


def encode_trigger_message(fields: Mapping[str, str | int]) -> bytes:
    """The 684 bytes of a trigger message: integers little-endian, texts in UTF-8.

    Args:
        fields: Values by MQ's field names, without StrucId and Version. A text that is too long
            is cut between two characters.
    """
    values = {"StrucId": "TM  ", "Version": 1, **fields}
    written = bytearray()
    for name, field in MQTM.items():
        value = values.get(name, field.default)
        if isinstance(value, int):
            written += value.to_bytes(field.length, "little", signed=True)
        else:
            whole = value.encode()[: field.length].decode("utf-8", "ignore").encode()
            written += whole.ljust(field.length)
    return bytes(written)


def trigger_headers(*, queue_manager: str, priority: int, source: str, now: int) -> Headers:
    """The message descriptor of a trigger message.

    Args:
        queue_manager: The manager that makes it.
        priority: DEFPRTY of the initiation queue.
        source: Identifies its cause, so that the same message has the same MsgId.
        now: The time of the put, in milliseconds since 1970.
    """
    form = UTF8_LITTLE_ENDIAN
    fields: dict[str, str | int] = {
        "MsgType": constant_value("MQMT_DATAGRAM") or 0,
        "Expiry": _UNLIMITED,
        "Encoding": form.encoding,
        "CodedCharSetId": form.ccsid,
        "Format": TRIGGER_FORMAT,
        "Priority": priority,
        "Persistence": 0,
        "MsgId": unique_identifier(queue_manager, f"{source} trigger"),
        "ReplyToQMgr": queue_manager,
        "PutApplType": constant_value("MQAT_QMGR") or 0,
        "PutApplName": queue_manager[:28],
        **put_moment(now),
    }
    return list(mqmd_headers(fields).items())
