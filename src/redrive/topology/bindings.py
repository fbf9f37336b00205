"""Bindings: which existing topic a queue lives on, and where a queue manager's topics are.

A YAML file that an administrator writes beside the definitions (design 4)::

    kind: bindings
    queue_managers:
      QM1:
        bootstrap_servers: kafka-a:9092     # another cluster than the job's own
        dead_letter_header: binary          # or headers
        queues:
          ORDERS.IN: {topic: orders, consumer_group: billing}
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from redrive.diagnostics import Diagnostic, has_errors
from redrive.topology.mqe.document import Data, Document, Path, read_document
from redrive.topology.mqe.objects import Location
from redrive.topology.names import MAX_TOPIC_NAME, is_reserved, topic_name

DEAD_LETTER_HEADERS = ("binary", "headers")
"""Forms in which dead letters are written: MQDLH before the body, or message headers."""

_TOPIC = re.compile(r"[A-Za-z0-9._-]+")
_SERVERS = re.compile(r"[^\s,:]+:\d{1,5}(,[^\s,:]+:\d{1,5})*")


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueBinding:
    """What the file says about one queue."""

    topic: str = ""
    """Existing topic; empty for the topic that the names give."""
    consumer_group: str = ""
    """Consumer group whose lag is the queue's depth; empty for a queue that is never full."""
    location: Location | None = field(default=None, compare=False, repr=False)
    """Where it was read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueManagerBinding:
    """What the file says about one queue manager."""

    bootstrap_servers: str = ""
    """Kafka cluster that holds its topics; empty for the job's own."""
    dead_letter_header: str = ""
    """``binary`` or ``headers``; empty for the default of its kind."""
    queues: Mapping[str, QueueBinding] = field(default_factory=dict)
    """Its queues by name."""
    location: Location | None = field(default=None, compare=False, repr=False)
    """Where it was read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bindings:
    """A whole bindings file."""

    queue_managers: Mapping[str, QueueManagerBinding] = field(default_factory=dict)
    """Queue managers by name."""

    def queue(self, queue_manager: str, queue: str) -> QueueBinding | None:
        """The binding of a queue, or None."""
        manager = self.queue_managers.get(queue_manager)
        return manager.queues.get(queue) if manager else None

    def topic(self, queue_manager: str, queue: str) -> str:
        """The topic of a queue: the one it is bound to, or the one its names give."""
        binding = self.queue(queue_manager, queue)
        return (binding and binding.topic) or topic_name(queue_manager, queue)

    def consumer_group(self, queue_manager: str, queue: str) -> str | None:
        """The consumer group for a queue's depth, or None."""
        binding = self.queue(queue_manager, queue)
        return (binding and binding.consumer_group) or None


NO_BINDINGS = Bindings()
"""Every queue lives on the topic its names give."""


@dataclass(frozen=True, slots=True)
class BindingsResult:
    """What reading a bindings file gave."""

    bindings: Bindings | None
    """The bindings; None if anything is an error."""
    diagnostics: tuple[Diagnostic, ...]
    """All findings, in the order of the text."""


def read_bindings(text: str, name: str = "<input>") -> BindingsResult:
    """Read a bindings file; whatever is wrong becomes a finding, all of them at once.

    Args:
        text: YAML text.
        name: Its name for findings.

    Returns:
        The bindings if there is no error, and all findings.
    """
    document = read_document(text, name)
    reader = _Reader(document)
    queue_managers = {} if document.diagnostics else reader.read()
    findings = [*document.diagnostics, *reader.findings]
    bindings = Bindings(queue_managers=queue_managers)
    if not has_errors(findings):
        findings += _topics_used_twice(bindings, document)
    findings.sort(key=lambda finding: (finding.line, finding.column))
    return BindingsResult(None if has_errors(findings) else bindings, tuple(findings))


class _Reader:
    """Turns the data of a document into bindings."""

    def __init__(self, document: Document) -> None:
        self._document = document
        self.findings: list[Diagnostic] = []

    def read(self) -> dict[str, QueueManagerBinding]:
        top = self._members((), self._document.data, {"kind", "queue_managers"})
        if top.get("kind") != "bindings":
            where = self._document.values.get(("kind",))
            message = f"kind {top.get('kind')!r} is unknown" if where else "the kind is missing"
            self._error("KIND", message, where, expected="kind: bindings, or kind: mqe")
        managers = self._mapping(("queue_managers",), top.get("queue_managers"))
        return {name: self._manager(name, data) for name, data in managers.items()}

    def _manager(self, name: str, data: Data) -> QueueManagerBinding:
        path: Path = ("queue_managers", name)
        known = {"bootstrap_servers", "dead_letter_header", "queues"}
        members = self._members(path, data, known)
        queues = self._mapping((*path, "queues"), members.get("queues"))
        return QueueManagerBinding(
            bootstrap_servers=self._text(
                (*path, "bootstrap_servers"), members, _servers_problem, "host:port, ..."
            ),
            dead_letter_header=self._text(
                (*path, "dead_letter_header"), members, _header_problem, "binary or headers"
            ),
            queues={
                queue: self._queue((*path, "queues", queue), it) for queue, it in queues.items()
            },
            location=self._document.keys.get(path),
        )

    def _queue(self, path: Path, data: Data) -> QueueBinding:
        members = self._members(path, data, {"topic", "consumer_group"})
        return QueueBinding(
            topic=self._text((*path, "topic"), members, _topic_problem, "an existing topic"),
            consumer_group=self._text(
                (*path, "consumer_group"), members, lambda _: "", "the name of a consumer group"
            ),
            location=self._document.keys.get(path),
        )

    def _members(self, path: Path, data: Data, known: set[str]) -> Mapping[str, Any]:
        members = self._mapping(path, data)
        for key in members.keys() - known:
            close = difflib.get_close_matches(key, known, n=1)
            self._error(
                "UNKNOWN_KEY",
                f"there is no key {key!r} here",
                self._document.keys.get((*path, key)),
                expected=f"one of {', '.join(sorted(known))}",
                hint=f"did you mean {close[0]!r}?" if close else "",
            )
        return members

    def _mapping(self, path: Path, data: Data) -> Mapping[str, Any]:
        if data is None or isinstance(data, dict):
            return data or {}
        message = f"{path[-1]} has to be a mapping" if path else "bindings are a mapping"
        self._error("WRONG_TYPE", message, self._document.values.get(path), expected="key: value")
        return {}

    def _text(
        self,
        path: Path,
        members: Mapping[str, Any],
        problem_of: Callable[[str], str],
        expected: str,
    ) -> str:
        value = members.get(str(path[-1]))
        if value is None:
            return ""
        problem = "is no text" if isinstance(value, list | dict) else problem_of(str(value))
        if problem:
            message = f"{path[-1]} {problem}"
            where = self._document.values.get(path)
            self._error("BAD_VALUE", message, where, expected=expected)
            return ""
        return str(value)

    def _error(
        self, code: str, message: str, where: Location | None, *, expected: str = "", hint: str = ""
    ) -> None:
        where = where or Location(self._document.file, 1, 1)
        self.findings.append(
            self._document.error(code, message, where, expected=expected, hint=hint)
        )


def _servers_problem(value: str) -> str:
    return "" if _SERVERS.fullmatch(value) else f"{value!r} is no list of addresses"


def _header_problem(value: str) -> str:
    return "" if value in DEAD_LETTER_HEADERS else f"{value!r} is no form of a dead-letter header"


def _topic_problem(value: str) -> str:
    if not _TOPIC.fullmatch(value) or value in {".", ".."}:
        return f"{value!r} is no name that Kafka allows"
    if len(value) > MAX_TOPIC_NAME:
        return f"has {len(value)} characters, and Kafka allows {MAX_TOPIC_NAME}"
    return f"{value!r} is reserved" if is_reserved(value) else ""


def _topics_used_twice(bindings: Bindings, document: Document) -> Iterator[Diagnostic]:
    """Two queues on one topic of one cluster: what one of them holds would be read by both."""
    seen: dict[tuple[str, str], str] = {}
    for name, manager in bindings.queue_managers.items():
        for queue, binding in manager.queues.items():
            if not binding.topic:
                continue
            this = f"{queue}@{name}"
            # Kafka takes names that differ in . and _ only for the same.
            key = (manager.bootstrap_servers, binding.topic.replace("_", "."))
            if key in seen:
                yield document.error(
                    "ONE_TOPIC",
                    f"{this} and {seen[key]} are on one topic, {binding.topic}",
                    binding.location or Location(document.file, 1, 1),
                    hint="give each queue a topic of its own",
                )
            seen.setdefault(key, this)
