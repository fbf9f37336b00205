"""Dead letters of Azure Service Bus that a bridge put on Kafka.

Source: the application properties that Service Bus adds to a dead letter. The reason is a code such
as ``MaxDeliveryCountExceeded``; the description is for people.
"""

from __future__ import annotations

from typing import Final

from redrive.messages.schemes.scheme import Part, Scheme

__all__ = ["AZURE_SERVICE_BUS"]

AZURE_SERVICE_BUS: Final = Scheme(
    name="azure-service-bus",
    leading=("DeadLetterReason",),
    names=frozenset({"DeadLetterReason", "DeadLetterErrorDescription", "DeadLetterSource"}),
    parts={
        "origin.topic": (Part("DeadLetterSource"),),
        "error.class": (Part("DeadLetterReason"),),
        "error.message": (Part("DeadLetterErrorDescription"),),
    },
)
"""Azure Service Bus."""
