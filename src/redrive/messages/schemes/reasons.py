"""The reason code for a failure that is known by the class of an exception."""

from __future__ import annotations

from typing import Final

from redrive.messages.constant_tables import MQRC
from redrive.messages.schemes.view import DeadLetterView

__all__ = ["REASONS", "reason_of"]

REASONS: Final = {
    "DataException": "MQRC_FORMAT_ERROR",
    "DeserializationException": "MQRC_FORMAT_ERROR",
    "JsonParseException": "MQRC_FORMAT_ERROR",
    "MessageConversionException": "MQRC_FORMAT_ERROR",
    "SerializationException": "MQRC_FORMAT_ERROR",
    "RecordTooLargeException": "MQRC_MSG_TOO_BIG_FOR_Q",
    "AuthorizationException": "MQRC_NOT_AUTHORIZED",
    "TopicAuthorizationException": "MQRC_NOT_AUTHORIZED",
    "TimeoutException": "MQRC_Q_MGR_NOT_AVAILABLE",
    "UnknownTopicOrPartitionException": "MQRC_UNKNOWN_OBJECT_NAME",
}
"""Exception without its package -> reason code. Ours: no standard maps them."""


def reason_of(view: DeadLetterView) -> int:
    """The reason code for what a dead letter tells of its failure.

    Args:
        view: The innermost cause counts before the exception that wraps it, which often says
            nothing but that there was one.

    Returns:
        The reason of the first of the two that has one, else MQRC_UNEXPECTED_ERROR.
    """
    for told in (view.error_root_class, view.error_class):
        simple = (told or "").rpartition(".")[2].rpartition("$")[2]
        if simple in REASONS:
            return MQRC[REASONS[simple]]
    return MQRC["MQRC_UNEXPECTED_ERROR"]
