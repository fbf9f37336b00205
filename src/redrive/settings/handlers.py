"""The [[handlers]] tables: dead-letter queues, their rules, names of topics."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import re2

from redrive.configuration import (
    HandlerConfiguration,
    Subscription,
    expression_of,
    problem_with_expression,
)
from redrive.diagnostics import Severity, did_you_mean
from redrive.engine.breaker import BreakerSettings
from redrive.engine.names import HandlerIdentity, retry_topic
from redrive.forms import KeyPath, keys_of
from redrive.messages.schemes.reading import BARE
from redrive.rules import Control, input_queue, input_queue_manager
from redrive.settings.findings import Findings, Section
from redrive.settings.rules import RulesSource, check_rules
from redrive.settings_file import HandlerOptions, HandlerTable, SettingsFile, TopologyTable
from redrive.topology.files import SUFFIXES, DefinitionFile, named_sources
from redrive.topology.files import read_topology as read_definitions
from redrive.topology.layout import SourceText, Topology
from redrive.topology.mq.objects import LocalQueue
from redrive.topology.mqe.objects import MqeLocalQueue
from redrive.topology.names import MAX_TOPIC_NAME, is_reserved

_EXAMPLE: Final = '["qm1.mqsc", "QM2=other.mqsc", "bindings.yaml"]'
_OF_KAFKA: Final = ("queue_managers", "dead_letter_queue")
"""Keys only for topologies without definitions."""


@dataclass(frozen=True, kw_only=True)
class TopologySettings(TopologyTable):
    """The table [topology], with its files read."""

    texts: tuple[SourceText, ...] = ()
    """The content of the definition files; empty for the kind ``kafka``."""
    has_files: bool = False
    """Whether queue managers are defined in files, even with errors."""
    definitions: Topology | None = None
    """The definitions; None for the kind ``kafka``, and if they have errors."""

    def own_dead_letter_queue(self, queue_manager: str) -> str:
        """The dead-letter queue of a queue manager; empty if it has none."""
        if self.definitions is None:
            return self.dead_letter_queue
        manager = self.definitions.mq.queue_managers.get(queue_manager)
        if manager is not None:
            return manager.attributes.dead_letter_queue
        in_mqe = self.definitions.mqe.queue_manager(queue_manager)
        return next((queue.name for queue in in_mqe.dead_letter_queues), "") if in_mqe else ""


def local_queues(topology: Topology, queue_manager: str) -> list[str]:
    """The queues of a manager that applications read, without transmission queues."""
    manager = topology.mq.queue_managers.get(queue_manager)
    if manager is None:
        in_mqe = topology.mqe.queue_manager(queue_manager)
        queues = in_mqe.queues if in_mqe else ()
        return [queue.name for queue in queues if isinstance(queue, MqeLocalQueue)]
    return [
        queue.name
        for queue in manager.every_queue.values()
        if isinstance(queue, LocalQueue) and not queue.is_transmission_queue
    ]


def read_topology(section: Section[TopologyTable]) -> TopologySettings:
    """The topology of a table; errors, also in its files, are reported in the section."""
    table = section.value
    if not section.has("files"):
        if table.kind in {"mq", "mqe"}:
            purpose = f"queue managers of kind {table.kind} are defined in files"
            section.missing("files", purpose, _EXAMPLE)
        return TopologySettings(**vars(table))
    if table.kind == "kafka":
        section.error(
            "kind",
            "CONFLICT",
            "queue managers of kind kafka have no definitions, but files are given",
            hint="remove kind: the files define it",
        )
    for key in _OF_KAFKA:
        if section.has(key):
            hint = "the definitions have it"
            section.without_effect(key, f"{key} has no effect with files", hint=hint)
    texts = tuple(_texts(section))
    result = read_definitions(texts)
    accepts = table.failed_commands == "accept"
    diagnostics = result.accepting_failures() if accepts else result.diagnostics
    # Notes are for redrive check.
    section.findings.extend(
        diagnostic for diagnostic in diagnostics if diagnostic.severity is not Severity.NOTE
    )
    if result.topology is not None and texts:
        _check_kind(section, result.topology)
    unused: dict[str, Any] = {"queue_managers": None, "dead_letter_queue": ""}
    return TopologySettings(
        **{**vars(table), **unused}, texts=texts, has_files=True, definitions=result.topology
    )


def _check_kind(section: Section[TopologyTable], topology: Topology) -> None:
    kind = section.value.kind
    defined = {"mq": bool(topology.mq.queue_managers), "mqe": bool(topology.mqe.queue_managers)}
    kinds = [kind for kind, is_there in defined.items() if is_there]
    if not kinds:
        section.error("files", "NO_QUEUE_MANAGER", "the files define no queue manager")
    elif kind in defined and kinds != [kind]:
        section.error(
            "kind",
            "CONFLICT",
            f"kind is {kind}, and the files define queue managers of kind {' and '.join(kinds)}",
            hint="remove kind: the files define it",
        )


def _texts(section: Section[TopologyTable]) -> Iterator[SourceText]:
    for index, written in enumerate(section.value.files):
        path = (*section.path, "files", index)
        for source in _sources(section.findings, path, written):
            try:
                data = source.path.read_bytes()
            except OSError as problem:
                message = f"{source.path} can't be read: {problem.strerror}"
                section.findings.error(path, "UNREADABLE_FILE", message)
            else:
                yield SourceText(str(source.path), data, source.queue_manager)


def _sources(findings: Findings, path: KeyPath, written: str) -> Iterable[DefinitionFile]:
    named = named_sources(written, partial(findings.document.path_of, path))
    if not named.path.exists():
        hint = similar_file(named.path)
        findings.error(path, "MISSING_FILE", f"there is no file {named.path}", hint=hint)
        return ()
    if not named.sources:
        message = f"folder {named.path} holds no files that end in {', '.join(SUFFIXES)}"
        findings.error(path, "MISSING_FILE", message)
    return named.sources


def similar_file(path: Path) -> str:
    """A hint with a similar file that may be meant instead of ``path``."""
    folder = path.parent
    if not folder.is_dir():
        return f"there is no folder {folder} either"
    return did_you_mean(path.name, [entry.name for entry in folder.iterdir() if entry.is_file()])


_STAND_IN: Final = "ACTION(IGNORE)\n"
_TOPIC: Final = re.compile(r"(?!\.{1,2}$)[A-Za-z0-9._-]+")


@dataclass(slots=True)
class HandlersReader:
    """Reads all handlers, which must have different queues and names."""

    root: Section[SettingsFile]
    topology: TopologySettings
    rules: RulesSource | None = None
    """A table already read, for handlers without a file."""
    without_tables: bool = False
    """Whether a table that ignores every message replaces those of the files."""
    _first_use: dict[tuple[str, str], KeyPath] = field(default_factory=dict)

    def read(self) -> tuple[tuple[HandlerConfiguration, ...], tuple[Subscription, ...]]:
        """The handlers and the subscriptions; errors are reported in the section."""
        handlers: list[HandlerConfiguration] = []
        subscriptions: list[Subscription] = []
        for section in self.root.inners(self.root.value.handlers, "handlers"):
            queues = section.value.queue
            names = [queue for queue in queues if expression_of(queue) is None]
            self._check_list(section)
            if not queues:
                handlers.append(self._handler(section, ""))
            handlers += [self._handler(section, queue) for queue in names]
            if len(names) < len(queues):
                subscriptions.append(self._subscription(section))
        written = self.root.findings.document.data.get("handlers")
        if not written and not self.topology.has_files:
            self.root.findings.error_at_key(
                ("handlers",),
                "MISSING",
                "the settings need handlers: a dead-letter queue and its rules",
                expected='[[handlers]] with queue = "ORDERS.DLQ" and rules = "orders.rul"',
            )
        return tuple(handlers), tuple(subscriptions)

    def _check_list(self, section: Section[HandlerTable]) -> None:
        queues = section.value.queue
        is_open = any(expression_of(queue) is not None for queue in queues)
        if (is_open or len(queues) > 1) and section.has("name"):
            section.bad_value(
                "name",
                "several queues can't share a name",
                expected="no name: each handler has the name of its queue",
            )
        if is_open and self.topology.has_files:
            section.bad_value(
                "queue",
                "expressions are only for topics, and the topology defines the queues",
                expected="names of local queues",
            )
        for key in ("exclude", "max_topics"):
            if section.has(key) and not is_open:
                section.without_effect(
                    key,
                    "the handler names its queues",
                    hint=r"use an expression: queue = '/.*\.dlq/'",
                )
        for key, written in (("queue", queues), ("exclude", section.value.exclude)):
            for expression in filter(None, map(expression_of, written)):
                if problem := problem_with_expression(expression):
                    section.bad_value(
                        key,
                        f"invalid expression /{expression}/: {problem}",
                        expected="a regular expression of RE2 for whole names of topics",
                    )

    def _subscription(self, section: Section[HandlerTable]) -> Subscription:
        table = section.value
        written = [queue for queue in table.queue if expression_of(queue) is not None]
        name = written[0] if len(written) == 1 else f"{written[0]} and {len(written) - 1} more"
        return Subscription(
            expressions=tuple(filter(None, map(expression_of, written))),
            exclude=tuple(
                re2.escape(topic) if (expression := expression_of(topic)) is None else expression
                for topic in table.exclude
            ),
            max_topics=table.max_topics,
            handler=self._handler(section, "", subscription=name),
        )

    def _handler(
        self, section: Section[HandlerTable], written: str, *, subscription: str = ""
    ) -> HandlerConfiguration:
        """The handler of one of the queues as written; empty if the table names none."""
        file, table = self.root.value, section.value
        source = self._source(section)
        schemes = [*file.schemes, *([BARE.name] if table.origin_topic else [])]
        result = source.parsed(written, schemes) if source else None
        control = result.table.control if result and result.table else Control()
        manager = self._manager(section, control)
        queue = written or input_queue([], control, self.topology.own_dead_letter_queue(manager))
        if subscription:
            queue = ""
        elif not queue and not section.has("queue") and result and result.table:
            owner = "its queue manager no DEADQ"
            if not self.topology.has_files:
                owner = "[topology] no dead_letter_queue"
            purpose = f"its rules table has no INPUTQ, and {owner}"
            section.missing("queue", purpose, 'queue = "ORDERS.DLQ"')
        if source and result:
            local = (manager,) if self.topology.has_files else self.topology.queue_managers
            findings = check_rules(
                source,
                result,
                queue=queue,
                queue_managers=local,
                allow_context_authority=file.job.allow_context_authority,
                transforms=file.transforms,
                clusters=file.clusters,
            )
            section.findings.extend(findings)
        _check_held_keys(section, control)
        if table.origin_topic and (subscription or table.origin_topic == queue):
            section.bad_value(
                "origin_topic",
                "topics of an expression have no common origin"
                if subscription
                else f"{queue} is the dead-letter queue itself",
                expected="the topic whose messages failed, for queues with names",
            )
        return HandlerConfiguration(
            **{name: getattr(table, name) for name in keys_of(HandlerOptions)},
            identity=HandlerIdentity.of("", "", name=subscription, manager=manager)
            if subscription
            else self._identity(section, queue, manager),
            rules=source.strict_text() if source else "",
            rules_name=source.name if source else "",
            breaker=_breaker(section),
            is_subscribed=bool(subscription),
            section=int(section.path[-1]),
        )

    def _manager(self, section: Section[HandlerTable], control: Control) -> str:
        named = section.text("queue_manager") or input_queue_manager([], control)
        definitions = self.topology.definitions
        if definitions is None:
            return named
        names = definitions.manager_names
        if not named and len(names) == 1:
            return names[0]
        if not named and not section.has("queue_manager"):
            purpose = "the topology has several, of which one has the dead-letter queue"
            section.missing("queue_manager", purpose, f"one of {', '.join(names)}")
        elif named and named not in names:
            section.error(
                "queue_manager",
                "UNKNOWN_QUEUE_MANAGER",
                f"the topology defines no queue manager {named}",
                expected=f"one of {', '.join(names)}",
                hint=did_you_mean(named, names),
            )
            return ""
        return named

    def _source(self, section: Section[HandlerTable]) -> RulesSource | None:
        if self.rules is not None and not section.has("rules"):
            return replace(self.rules, strict=not self.root.value.job.lenient_rules)
        path = section.file("rules")
        if path is None:
            if not section.has("rules"):
                section.missing("rules", "what to do with its messages", 'rules = "orders.rul"')
            return None
        if self.without_tables:
            return RulesSource(_STAND_IN, str(path))
        try:
            return RulesSource.from_file(path, strict=not self.root.value.job.lenient_rules)
        except FileNotFoundError:
            hint = similar_file(path)
            section.error("rules", "MISSING_FILE", f"there is no file {path}", hint=hint)
        except OSError as error:
            section.error("rules", "UNREADABLE_FILE", f"{path} cannot be read: {error.strerror}")
        return None

    def _is_local_queue(self, section: Section[HandlerTable], queue: str, manager: str) -> bool:
        definitions = self.topology.definitions
        if definitions is None or not manager:
            return False  # already reported
        binding = definitions.bindings.queue_managers.get(manager)
        if binding and binding.bootstrap_servers:
            section.error(
                "queue_manager",
                "OTHER_CLUSTER",
                f"queue manager {manager} is bound to another Kafka cluster",
                hint="a job handles the dead letters of its own cluster; run one there",
            )
            return False
        known = local_queues(definitions, manager)
        if queue in known:
            self._check_unique(section, "queue", queue, manager)
            return True
        section.error(
            "queue",
            "UNKNOWN_QUEUE",
            f"queue manager {manager} has no local queue {queue} that applications read",
            expected="a local queue, not an alias, a remote definition or a transmission queue",
            hint=did_you_mean(queue, known),
        )
        return False

    def _has_good_queue(self, section: Section[HandlerTable], queue: str) -> bool:
        before = len(section.findings.diagnostics)
        if not _TOPIC.fullmatch(queue) or len(queue) > MAX_TOPIC_NAME:
            section.bad_value(
                "queue",
                f"{queue!r} is not a valid name of a topic, and so of a queue here",
                expected=f"up to {MAX_TOPIC_NAME} letters, digits, dots, hyphens and underscores",
            )
        elif is_reserved(queue):
            section.error(
                "queue",
                "RESERVED",
                f"topic {queue} belongs to Redrive or to Kafka itself",
                hint="name the topic of your dead letters",
            )
        else:
            self._check_unique(section, "queue", queue)
        return before == len(section.findings.diagnostics)

    def _identity(
        self, section: Section[HandlerTable], queue: str, manager: str
    ) -> HandlerIdentity:
        is_defined = self.topology.has_files
        # No name of a queue manager or queue has an @, so that default names differ.
        default = f"{queue}@{manager}" if is_defined else queue
        name = section.text("name") or default
        is_good = queue and (
            self._is_local_queue(section, queue, manager)
            if is_defined
            else self._has_good_queue(section, queue)
        )
        if is_good:
            self._check_unique(section, "name", name)
            topic = retry_topic(self.root.value.application.name, name)
            if len(topic) > MAX_TOPIC_NAME or not is_reserved(topic):
                section.bad_value(
                    "name",
                    f"its topics would have a name like {topic}, too long or ambiguous",
                    hint="give the handler a short name of letters and digits",
                )
        topic, definitions = queue, self.topology.definitions
        if definitions:
            topic = definitions.topic(queue=queue, queue_manager=manager)
        return HandlerIdentity.of(
            self.root.value.application.name, topic, name=name, queue=queue, manager=manager
        )

    def _check_unique(
        self, section: Section[HandlerTable], key: str, value: str, manager: str = ""
    ) -> None:
        full_name = f"{value}@{manager}".removesuffix("@")
        first = self._first_use.setdefault((key, full_name), section.path)
        if first == section.path or (key == "name" and not section.has("name")):
            return
        line = section.findings.document.at_value((*first, key)).line
        section.error(
            key,
            "DUPLICATE",
            f"{key} {full_name} already has a handler, at line {line}",
            expected="one handler for each queue, each with its own name",
        )


def _breaker(section: Section[HandlerTable]) -> BreakerSettings | None:
    table = section.value
    if section.has("probe_interval") and not table.breaker:
        section.without_effect(
            "probe_interval",
            "the handler has no breakers",
            hint="breaker = 20 opens one after 20 failures without a success",
        )
    return BreakerSettings(table.breaker, table.probe_interval) if table.breaker else None


def _check_held_keys(section: Section[HandlerTable], control: Control) -> None:
    """Report waiting keys that are wanted where no key ever waits."""
    if section.value.held_keys and section.has("rules") and not control.is_ordered:
        section.error(
            "held_keys",
            "NEEDS_ORDER",
            "no key ever waits, as the rules table has no ORDER(KEY)",
            expected="DIALECT(KAFKA) ORDER(KEY) in the control entry of the table",
        )
