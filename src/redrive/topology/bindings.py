"""Bindings: the existing topics of queues, and the clusters of queue managers' topics.

An administrator writes a YAML file next to the definitions::

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
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

from pydantic import BeforeValidator, Field

from redrive.diagnostics import UNKNOWN_LOCATION, Diagnostic, Severity, in_order
from redrive.forms import FileForm, KeyPath, Location, TableForm
from redrive.topology.names import is_reserved, topic_name

if TYPE_CHECKING:
    from redrive.topology.document import DefinitionDocument

_NOTHING: Final = BeforeValidator(lambda value: {} if value is None else value)
"""A key without a value stands for an empty table."""


def _as_text(value: Any) -> Any:  # noqa: ANN401 - any value of a file
    is_number = isinstance(value, int) and not isinstance(value, bool)
    return str(value) if is_number else value


_NAME: Final = BeforeValidator(_as_text)
"""A name of digits is written without quotes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueBinding(TableForm):
    """The binding of one queue."""

    topic: (
        Annotated[
            str,
            _NAME,
            Field(title="an existing topic", pattern=r"\A(?!\.{1,2}\Z)[A-Za-z0-9._-]{1,249}\Z"),
        ]
        | None
    ) = None
    """Existing topic; None for the topic derived from the names."""
    consumer_group: Annotated[str, _NAME, Field(title="the name of a consumer group")] | None = None
    """Consumer group whose lag is the queue's depth; None for a queue that is never full."""
    location: Location = field(default=UNKNOWN_LOCATION, compare=False, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueManagerBinding(TableForm):
    """The bindings of one queue manager."""

    bootstrap_servers: (
        Annotated[
            str,
            Field(
                title="host:port, several separated by commas",
                pattern=r"\A[^\s,:]+:[0-9]{1,5}(,[^\s,:]+:[0-9]{1,5})*\Z",
            ),
        ]
        | None
    ) = None
    """Kafka cluster that holds its topics; None for the job's own."""
    dead_letter_header: Literal["binary", "headers"] | None = None
    """None for the default of its kind."""
    queues: Annotated[
        Mapping[str, Annotated[QueueBinding, _NOTHING, Field(title="a queue")]],
        _NOTHING,
        Field(title="queues by name"),
    ] = field(default_factory=dict)
    location: Location = field(default=UNKNOWN_LOCATION, compare=False, repr=False)


@dataclass(frozen=True, kw_only=True)
class _BindingsFile(TableForm):
    kind: Annotated[Literal["bindings"], Field(title="kind: bindings, or kind: mqe")]
    queue_managers: Annotated[
        Mapping[str, Annotated[QueueManagerBinding, _NOTHING, Field(title="a queue manager")]],
        _NOTHING,
        Field(title="queue managers by name"),
    ] = field(default_factory=dict)


FORM: Final = FileForm(_BindingsFile, "a bindings file")


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
    diagnostics: tuple[Diagnostic, ...]


def read_bindings(text: str, name: str = "<input>") -> BindingsResult:
    """Read a bindings file; errors become findings, and then there are no bindings."""
    from redrive.topology.document import read_document  # noqa: PLC0415 - YAML is slow to import

    document = read_document(text, name)
    findings = list(document.diagnostics) or [
        document.flaw(flaw) for flaw in FORM.flaws(document.data)
    ]
    bindings = None
    if not findings:
        bindings = _bindings(document)
        findings = list(_topic_findings(bindings, document))
    return BindingsResult(None if findings else bindings, in_order(findings))


def _bindings(document: DefinitionDocument) -> Bindings:
    def located(queues: Mapping[str, QueueBinding], path: KeyPath) -> Mapping[str, QueueBinding]:
        return {
            name: replace(queue, location=document.keys[(*path, name)])
            for name, queue in queues.items()
        }

    return Bindings(
        queue_managers={
            name: replace(
                manager,
                queues=located(manager.queues, ("queue_managers", name, "queues")),
                location=document.keys["queue_managers", name],
            )
            for name, manager in FORM.value(document.data).queue_managers.items()
        }
    )


def _topic_findings(bindings: Bindings, document: DefinitionDocument) -> Iterator[Diagnostic]:
    seen: dict[tuple[str | None, str], str] = {}
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
