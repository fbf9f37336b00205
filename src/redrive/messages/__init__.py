"""What a message is: MQ's fields, dead-letter headers in all their forms, MQ's constants.

It needs neither Spark nor a Kafka client.
"""

from __future__ import annotations

from redrive.messages.constants import constant_value, reason_name
from redrive.messages.cuts import body_length, packed_size, wire_size
from redrive.messages.dead_letter_header import DeadLetterHeader, Representation, encode_header
from redrive.messages.dead_letters import (
    NO_VALID_SCHEME,
    NUMERIC_KEYWORDS,
    PATTERN_KEYWORDS,
    DeadLetterDecoder,
    DeadLetterProfile,
    Form,
    add_header,
    decode_dead_letter,
    new_header,
    original_key,
    read_view,
    remove_header,
    with_original,
    without_stacks,
)
from redrive.messages.fields import MQMD, FieldType, Headers, mqmd_headers, with_mqmd_headers
from redrive.messages.records import (
    INTERNAL,
    OffsetRange,
    OutputRecord,
    Records,
    Refused,
    TopicPartition,
)
from redrive.messages.schemes import DeadLetterView, SchemeTable

__all__ = [
    "INTERNAL", "MQMD", "NO_VALID_SCHEME", "NUMERIC_KEYWORDS", "PATTERN_KEYWORDS",
    "DeadLetterDecoder", "DeadLetterHeader", "DeadLetterProfile", "DeadLetterView", "FieldType",
    "Form", "Headers", "OffsetRange", "OutputRecord", "Records", "Refused", "Representation",
    "SchemeTable", "TopicPartition", "add_header", "body_length", "constant_value", "constants",
    "cuts", "dead_letter_header", "dead_letters", "decode_dead_letter", "encode_header", "fields",
    "json_patch", "mqmd_headers", "new_header", "original_key", "own_headers",
    "packed_size", "read_view", "reason_name", "reasons", "records", "remove_header", "reports",
    "schemes",
    "wire_size", "with_mqmd_headers", "with_original", "without_stacks"
]  # fmt: skip
