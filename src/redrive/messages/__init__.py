"""What a message is: MQ's fields, dead-letter headers in all their forms, MQ's constants.

Nothing here knows of Spark or of a Kafka client.
"""

from __future__ import annotations

from redrive.messages.constants import (
    FAMILIES,
    MQ_VERSION,
    constant_family,
    constant_name,
    constant_names,
    constant_value,
    reason_name,
)

__all__ = [
    "FAMILIES",
    "MQ_VERSION",
    "constant_family",
    "constant_name",
    "constant_names",
    "constant_value",
    "reason_name",
]
