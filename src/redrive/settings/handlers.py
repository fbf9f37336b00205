"""The [[handlers]] and [topology] tables: dead-letter queues, their rules, names of topics."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Final

from redrive.diagnostics import Diagnostic
from redrive.rules import Control, ParseResult, input_queue, input_queue_manager
from redrive.settings.places import KeyPath
from redrive.settings.reader import Table, did_you_mean
from redrive.settings.rules import RulesSource, check_rules
from redrive.streaming.configuration import HandlerConfiguration
from redrive.streaming.handlers import HandlerIdentity
from redrive.topology.names import MAX_TOPIC_NAME, is_reserved, remaining_topic, retry_topic

__all__ = ["NAME_FORM", "NAME_PATTERN", "HandlersReader", "Topology", "read_topology"]

NAME_PATTERN: Final = "[A-Za-z0-9.-]+"
"""Names that become parts of topics: of applications and of handlers."""
NAME_FORM: Final = "letters, digits, dots and hyphens"

_TOPIC: Final = re.compile(r"(?!\.{1,2}$)[A-Za-z0-9._-]+")


class _TopologyKind(StrEnum):
    KAFKA = "kafka"


@dataclass(frozen=True, slots=True)
class Topology:
    """What [topology] says."""

    queue_managers: tuple[str, ...] | None
    """Names that count as local; None for all."""
    dead_letter_queue: str
    """The queue manager's own dead-letter queue (DEADQ); empty if there is none."""


def read_topology(table: Table) -> Topology:
    """The topology that a table describes.

    Args:
        table: The table; what is wrong with it is reported there.
    """
    table.check_keys()
    table.choice("kind", _TopologyKind.KAFKA)
    return Topology(
        table.texts("queue_managers", '["QM1", "QM2"]'), table.text("dead_letter_queue")
    )


@dataclass(slots=True)
class HandlersReader:
    """Reads all handlers, which have to differ in queue and in name."""

    root: Table
    application: str
    topology: Topology
    lenient_rules: bool
    allow_context_authority: bool
    given_rules: RulesSource | None = None
    """A table that is already read, for handlers that name no file."""
    _seen: dict[tuple[str, str], KeyPath] = field(default_factory=dict)
    """Where each queue and each name was first used."""

    def read(self) -> tuple[HandlerConfiguration, ...]:
        """The handlers; what is wrong with them is reported."""
        handlers = tuple(self._handler(table) for table in self.root.tables("handlers"))
        if not self.root.data.get("handlers"):
            self.root.missing(
                "handlers",
                "a dead-letter queue and its rules",
                '[[handlers]] with queue = "ORDERS.DLQ" and rules = "orders.rul"',
            )
        return handlers

    def _handler(self, table: Table) -> HandlerConfiguration:
        table.check_keys()
        source = self._source(table)
        written = table.text("queue")
        result = source.parsed(written) if source else None
        control = result.table.control if result and result.table else Control()
        queue = written or input_queue([], control, self.topology.dead_letter_queue)
        if not queue and not table.has("queue") and result and result.table:
            self._no_queue(table)
        if source and result:
            table.findings.extend(self._findings_of(source, result, queue))
        manager = table.text("queue_manager") or input_queue_manager([], control)
        return HandlerConfiguration(
            identity=self._identity(table, queue, manager),
            rules=source.strict_text() if source else "",
            rules_name=source.name if source else "",
        )

    def _source(self, table: Table) -> RulesSource | None:
        if self.given_rules is not None and not table.has("rules"):
            return replace(self.given_rules, strict=not self.lenient_rules)
        path = table.file("rules")
        if path is None:
            if not table.has("rules"):
                table.missing("rules", "what to do with its messages", 'rules = "orders.rul"')
            return None
        try:
            return RulesSource.from_file(path, strict=not self.lenient_rules)
        except FileNotFoundError:
            hint = _similar_file(path)
            table.error("rules", "MISSING_FILE", f"there is no file {path}", hint=hint)
        except OSError as error:
            table.error("rules", "UNREADABLE_FILE", f"{path} can't be read: {error.strerror}")
        return None

    def _findings_of(
        self, source: RulesSource, result: ParseResult, queue: str
    ) -> tuple[Diagnostic, ...]:
        return check_rules(
            source,
            result,
            queue=queue,
            queue_managers=self.topology.queue_managers,
            allow_context_authority=self.allow_context_authority,
        )

    def _no_queue(self, table: Table) -> None:
        table.missing(
            "queue",
            "its rules table has no INPUTQ, and [topology] no dead_letter_queue",
            'queue = "ORDERS.DLQ"',
        )

    def _has_good_queue(self, table: Table, queue: str) -> bool:
        before = len(table.findings.diagnostics)
        if not _TOPIC.fullmatch(queue) or len(queue) > MAX_TOPIC_NAME:
            table.error(
                "queue",
                "BAD_VALUE",
                f"{queue!r} is no name of a topic, and so of no queue here",
                expected=f"up to {MAX_TOPIC_NAME} letters, digits, dots, hyphens and underscores",
            )
        elif is_reserved(queue):
            table.error(
                "queue",
                "RESERVED",
                f"topic {queue} belongs to Redrive or to Kafka itself",
                hint="name the topic that your dead letters arrive on",
            )
        else:
            self._check_unique(table, "queue", queue)
        return before == len(table.findings.diagnostics)

    def _identity(self, table: Table, queue: str, manager: str) -> HandlerIdentity:
        name = table.pattern("name", NAME_PATTERN, NAME_FORM) or queue
        if queue and self._has_good_queue(table, queue):
            self._check_unique(table, "name", name)
            self._check_topic(table, remaining_topic(self.application, name))
        return HandlerIdentity(
            name=name,
            queue_manager=manager,
            queue=queue,
            topic=queue,
            retry_topic=retry_topic(self.application, name),
            remaining_topic=remaining_topic(self.application, name),
        )

    def _check_unique(self, table: Table, key: str, value: str) -> None:
        first = self._seen.setdefault((key, value), table.path)
        if first == table.path or (key == "name" and not table.has("name")):
            return
        line = table.findings.document.at_value((*first, key)).line
        table.error(
            key,
            "DUPLICATE",
            f"{key} {value} has a handler already, the one at line {line}",
            expected="one handler for each queue, each with its own name",
        )

    def _check_topic(self, table: Table, topic: str) -> None:
        if len(topic) <= MAX_TOPIC_NAME and is_reserved(topic):
            return
        table.error(
            "name",
            "BAD_VALUE",
            f"its topics would have a name like {topic}, which is too long or not unambiguous",
            hint="give the handler a short name of letters and digits",
        )


def _similar_file(path: Path) -> str:
    """A hint with the file that may be meant instead of ``path``."""
    folder = path.parent
    if not folder.is_dir():
        return f"there is no folder {folder} either"
    return did_you_mean(path.name, [entry.name for entry in folder.iterdir() if entry.is_file()])
