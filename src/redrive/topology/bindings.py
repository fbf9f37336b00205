"""Bindings: the existing topics of queues, and the clusters of queue managers' topics.

An administrator writes a YAML file next to the definitions; ``bindings.json`` is its schema::

    kind: bindings
    queue_managers:
      QM1:
        bootstrap_servers: kafka-a:9092     # another cluster than the job's own
        dead_letter_header: binary          # or headers
        queues:
          ORDERS.IN: {topic: orders, consumer_group: billing}
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from redrive.diagnostics import UNKNOWN_LOCATION, Diagnostic, Severity, SourceLocation, in_order
from redrive.forms import KeyPath
from redrive.schemas import Schema
from redrive.topology.document import Document, read_document
from redrive.topology.names import is_reserved, topic_name

_SCHEMA = Schema.load("redrive.topology", "bindings.json")


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueBinding:
    """The binding of one queue."""

    topic: str = ""
    """Existing topic; empty for the topic derived from the names."""
    consumer_group: str = ""
    """Consumer group whose lag is the queue's depth; empty for a queue that is never full."""
    location: SourceLocation = field(default=UNKNOWN_LOCATION, compare=False, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueManagerBinding:
    """The bindings of one queue manager."""

    bootstrap_servers: str = ""
    """Kafka cluster that holds its topics; empty for the job's own."""
    dead_letter_header: str = ""
    """``binary`` or ``headers``; empty for the default of its kind."""
    queues: Mapping[str, QueueBinding] = field(default_factory=dict)
    location: SourceLocation = field(default=UNKNOWN_LOCATION, compare=False, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bindings:
    """A whole bindings file."""

    queue_managers: Mapping[str, QueueManagerBinding] = field(default_factory=dict)

    def queue(self, *, queue: str, queue_manager: str) -> QueueBinding | None:
        """The binding of a queue, or None."""
        manager = self.queue_managers.get(queue_manager)
        return manager.queues.get(queue) if manager else None

    def topic(self, *, queue: str, queue_manager: str) -> str:
        """The topic of a queue: the bound one, or the one derived from its names."""
        binding = self.queue(queue=queue, queue_manager=queue_manager)
        return (binding and binding.topic) or topic_name(queue=queue, queue_manager=queue_manager)

    def consumer_group(self, *, queue: str, queue_manager: str) -> str | None:
        """The consumer group for a queue's depth, or None."""
        binding = self.queue(queue=queue, queue_manager=queue_manager)
        return (binding and binding.consumer_group) or None


NO_BINDINGS = Bindings()
"""No bindings: every queue is on the topic derived from its names."""


@dataclass(frozen=True, slots=True)
class BindingsResult:
    """The result of reading a bindings file."""

    bindings: Bindings | None
    """The bindings; None if anything is an error."""
    diagnostics: tuple[Diagnostic, ...]


def read_bindings(text: str, name: str = "<input>") -> BindingsResult:
    """Read a bindings file; errors become findings, and then there are no bindings."""
    document = read_document(text, name)
    findings = list(document.diagnostics) or [
        document.flaw(one) for one in _SCHEMA.flaws(document.data)
    ]
    bindings = None
    if not findings:
        bindings = _bindings(document)
        findings = list(_topic_findings(bindings, document))
    return BindingsResult(None if findings else bindings, in_order(findings))


def _bindings(document: Document) -> Bindings:
    top: Any = document.data
    return Bindings(
        queue_managers={
            name: _queue_manager(document, ("queue_managers", name), data or {})
            for name, data in (top.get("queue_managers") or {}).items()
        }
    )


def _queue_manager(
    document: Document, path: KeyPath, data: Mapping[str, Any]
) -> QueueManagerBinding:
    queues = {}
    for queue, one in (data.get("queues") or {}).items():
        # A name of digits is written without quotes.
        names = {key: str(value) for key, value in (one or {}).items() if value is not None}
        queues[queue] = QueueBinding(**names, location=document.keys[(*path, "queues", queue)])
    return QueueManagerBinding(
        bootstrap_servers=data.get("bootstrap_servers") or "",
        dead_letter_header=data.get("dead_letter_header") or "",
        queues=queues,
        location=document.keys[path],
    )


def _topic_findings(bindings: Bindings, document: Document) -> Iterator[Diagnostic]:
    seen: dict[tuple[str, str], str] = {}
    for name, manager in bindings.queue_managers.items():
        for queue, binding in manager.queues.items():
            if not binding.topic:
                continue
            if is_reserved(binding.topic):
                path = ("queue_managers", name, "queues", queue, "topic")
                yield document.values[path].finding(
                    Severity.ERROR,
                    "BAD_VALUE",
                    f"topic {binding.topic} belongs to Redrive or to Kafka itself",
                    expected="an existing topic",
                )
            this = f"{queue}@{name}"
            # Kafka treats names that differ only in . and _ as the same.
            key = (manager.bootstrap_servers, binding.topic.replace("_", "."))
            if key in seen:
                yield binding.location.finding(
                    Severity.ERROR,
                    "ONE_TOPIC",
                    f"{this} and {seen[key]} are on one topic, {binding.topic}",
                    hint="give each queue a topic of its own",
                )
            seen.setdefault(key, this)
