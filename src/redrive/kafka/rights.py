"""A right on a resource of a cluster, as in Kafka's authorizer."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Resource(StrEnum):
    """The kind of resource, as ``kafka-acls`` names its options."""

    TOPIC = "topic"
    GROUP = "group"
    TRANSACTIONAL_ID = "transactional-id"


@dataclass(frozen=True, slots=True, kw_only=True)
class Right:
    """One operation on one resource, or on all resources with a name prefix."""

    resource: Resource
    name: str
    """Its name, or the name prefix."""
    operation: str
    """``Read``, ``Write``, ``Delete`` and ``Alter``, which bring ``Describe`` with them (Kafka's
    documentation, "Authorization and ACLs"); ``Create``, ``Describe``, ``DescribeConfigs``."""
    purpose: str
    """The use of the right, or the job's behaviour without it."""
    is_prefix: bool = False
    """Whether the name is a prefix."""
    is_needed: bool = True
    """Whether the job needs it."""

    def __str__(self) -> str:
        """``Write on topics that begin with redrive-shop-``."""
        kind = self.resource.replace("-", " ")
        named = f"{kind}s that begin with" if self.is_prefix else kind
        return f"{self.operation} on {named} {self.name}"

    def command(self, server: str, principal: str) -> tuple[str, ...]:
        """The words of the ``kafka-acls`` command that grants it.

        Args:
            server: A broker.
            principal: The principal that gets it, such as ``User:shop``.
        """
        pattern = ("--resource-pattern-type", "prefixed") if self.is_prefix else ()
        return (
            *("kafka-acls", "--bootstrap-server", server),
            *("--add", "--allow-principal", principal, "--operation", self.operation),
            *(f"--{self.resource}", self.name, *pattern),
        )
