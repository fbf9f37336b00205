"""The configuration of the job: plain values, checked by their readers."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, TypeAlias

import re2

from redrive.checkpoints.instances import AUTO, Share
from redrive.engine.breaker import BreakerSettings
from redrive.engine.edits import Change, Content, Edit, PatchValue, call_function
from redrive.engine.names import HandlerIdentity, control_topic, outcomes_topic, tables_topic
from redrive.entry_point import imported
from redrive.kafka.connection import Connection, RegistryAccess
from redrive.messages.json_patch import JsonPatch, read_json
from redrive.messages.schemes import OwnScheme, SchemeTable, schemes_id
from redrive.settings_file import (
    Conflict,
    DataLoss,
    EmitterChoice,
    HandlerOptions,
    JobTable,
    ObserveTable,
    OnUndeliverable,
    RetryTable,
    StartTable,
    SupervisionTable,
)
from redrive.topology.layout import SourceText
from redrive.topology.names import MAX_TOPIC_NAME, is_reserved, unescape
from redrive.topology.put import QueueLimits, Refusal

__all__ = [
    "Conflict", "DataLoss", "EmitterChoice", "HandlerConfiguration", "JobConfiguration",
    "LedgerConfiguration", "LedgerFolder", "OnUndeliverable", "RegistryAccess", "RemoteFolder",
    "Subscription", "TransformConfiguration", "deciders", "expression_of",
    "problem_with_expression"
]  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class HandlerConfiguration(HandlerOptions):
    """One handler: a dead-letter queue and the text of its rules table."""

    identity: HandlerIdentity
    rules: str
    """Text of the rules table; parsed again in every process, which keeps pickles small."""
    rules_name: str
    breaker: BreakerSettings | None = None
    """When retries wait for their target; None for never."""
    is_subscribed: bool = False
    """Whether it comes from a subscription rather than a handler of the settings."""
    section: int = field(default=0, compare=False)
    """Index of its ``[[handlers]]`` in the settings, which several handlers may share."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscription:
    """A handler for each topic that matches, now or later."""

    expressions: tuple[str, ...]
    """Expressions of RE2, one of which must match the whole name of a topic."""
    exclude: tuple[str, ...] = ()
    max_topics: int
    handler: HandlerConfiguration
    """The common settings of its handlers, with a placeholder identity."""

    @property
    def name(self) -> str:
        """Its name for users: its expressions, as written in settings."""
        return self.handler.identity.name

    def handlers(
        self, application: str, existing: Collection[str]
    ) -> tuple[tuple[HandlerConfiguration, ...], tuple[str, ...]]:
        """Its handlers, and matching topics beyond ``max_topics``.

        A deleted topic keeps its handler while the handler's own topics exist, where messages may
        wait. Topics handled before come first, so that a new topic never displaces them.
        """
        topics = [topic for _, topic in sorted(self._matching(application, existing))]
        handlers = [
            replace(self.handler, identity=HandlerIdentity.of(application, topic))
            for topic in topics[: self.max_topics]
        ]
        return tuple(handlers), tuple(topics[self.max_topics :])

    def _matching(self, application: str, existing: Collection[str]) -> Iterator[tuple[bool, str]]:
        """The name of each matching topic, and whether it is new to the application."""
        prefix = HandlerIdentity.of(application, "").remaining_topic.removesuffix("-remaining")
        handled = {
            unescape(name.removeprefix(prefix).removesuffix("-remaining"))
            for name in existing
            if name.startswith(prefix) and name.endswith("-remaining")
        }
        for topic in {*existing, *filter(None, handled)}:
            if self._matches(topic) and not is_reserved(topic):
                own = HandlerIdentity.of(application, topic).retry_topic
                if len(own) <= MAX_TOPIC_NAME and is_reserved(own):
                    yield topic not in handled, topic

    def _matches(self, topic: str) -> bool:
        return any(
            _compiled(expression).fullmatch(topic) for expression in self.expressions
        ) and not any(_compiled(expression).fullmatch(topic) for expression in self.exclude)


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteFolder:
    """A folder in an object store."""

    url: str
    """``s3://bucket/folder``, without credentials."""
    beside: Path
    """Local folder for the files of a writing process."""
    options: Mapping[str, str] = field(default_factory=dict)
    """Options of the library's client for the store, without secrets."""

    def __str__(self) -> str:
        return self.url

    @property
    def is_s3(self) -> bool:
        """Whether it speaks S3's protocol."""
        return self.url.startswith(("s3://", "s3a://"))


LedgerFolder: TypeAlias = Path | RemoteFolder
"""A folder of this machine, or one in an object store."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerConfiguration:
    """The projection of outcome records into a Delta table."""

    enabled: bool = True
    path: LedgerFolder
    interval: float = 20.0
    """Seconds between two appends."""


@dataclass(frozen=True, slots=True)
class TransformConfiguration:
    """One ``[transforms.NAME]``, checked."""

    name: str
    patch: bytes = b""
    """The text of a JSON Patch; empty if it is a function."""
    function: str = ""
    """``package.module:function``."""

    def applied(self, content: Content) -> Content | Refusal:
        """The changed content, or why the attempt fails.

        Raises:
            ConfigurationError: The function cannot be imported in this process.
        """
        return _change(self)(content)


@lru_cache(maxsize=256)
def _change(transform: TransformConfiguration) -> Change:
    if transform.function:
        return partial(call_function, transform.name, imported(transform.function))
    patch = JsonPatch.of(read_json(transform.patch))
    return Edit((PatchValue(patch),), f"TRANSFORM({transform.name})").applied


@dataclass(frozen=True, kw_only=True)
class JobConfiguration(StartTable, JobTable, RetryTable, SupervisionTable, ObserveTable):
    """One run of the job."""

    application: str
    """Stable name: consumer group, transactional ids and topics are derived from it."""
    connection: Connection
    clusters: Mapping[str, Connection] = field(default_factory=dict)
    """Other clusters that FWDT may name."""
    handlers: tuple[HandlerConfiguration, ...]
    """Those of the settings, and of the subscriptions' known topics."""
    subscriptions: tuple[Subscription, ...] = ()
    directory: Path
    """Local folder for locks, the running checkpoint and the ledger."""
    ledger: LedgerConfiguration
    share: Share = field(default_factory=lambda: Share(1, 1))
    rebalances: bool = False
    """Whether the live instances distribute the partitions; then ``share`` changes."""
    queue_managers: tuple[str, ...] | None = None
    """Local queue manager names; None means that every name is local."""
    limits: Mapping[str, QueueLimits] = field(default_factory=dict)
    topology: tuple[SourceText, ...] = ()
    """Checked definitions of queue managers; empty for the kind ``kafka``."""
    routes_puts: bool = True
    """Whether the job also reads the intakes and transmission queues of the topology. Exactly one
    application must, as each would put every message."""
    only_replays: bool = False
    """Whether the job only carries out replays and leaves the rest for its next start."""
    on_undeliverable: OnUndeliverable = OnUndeliverable.STOP_CHANNEL
    schemes: tuple[OwnScheme, ...] = ()
    """Checked schemes of dead letters in addition to the built-in ones."""
    transforms: tuple[TransformConfiguration, ...] = ()
    """The checked transforms that TRANSFORM of rules tables may name."""
    operator: str = ""
    """The user who requested this configuration by a restart, ``user@host``; empty for the user of
    the process."""
    only_handlers: frozenset[str] | None = None
    """The names of visible handlers, for a user who may see only part of the job; else None."""

    def restricted_to(self, names: frozenset[str]) -> JobConfiguration:
        """The part of the job with some handlers; views of it leave out others.

        No job runs with it: it is for views, and for operators' commands about these handlers.
        """
        handlers = tuple(handler for handler in self.handlers if handler.identity.name in names)
        return replace(
            self, handlers=handlers, subscriptions=(), routes_puts=False, only_handlers=names
        )

    def with_topics(self, existing: Collection[str]) -> JobConfiguration:
        """The configuration with a handler for each existing topic that a subscription matches.

        A topic that already has a handler keeps it.
        """
        handlers = {
            handler.identity.topic: handler
            for handler in self.handlers
            if not handler.is_subscribed
        }
        for subscription in self.subscriptions:
            for handler in subscription.handlers(self.application, existing)[0]:
                handlers.setdefault(handler.identity.topic, handler)
        every = tuple(handlers.values())
        return self if every == self.handlers else replace(self, handlers=every)

    @property
    def breakers(self) -> Mapping[str, BreakerSettings]:
        """The settings of breakers, by handler."""
        return {
            handler.identity.name: handler.breaker
            for handler in self.handlers
            if handler.breaker is not None
        }

    def data_loss_on(self, topic: str) -> DataLoss:
        """What to do about deleted records of a topic."""
        own = (handler.on_data_loss for handler in self.handlers if handler.identity.topic == topic)
        return next(filter(None, own), self.on_data_loss)

    @property
    def is_local(self) -> bool:
        """Whether Spark's executors are threads of the driver."""
        return not self.master or self.master.startswith("local")

    @property
    def scheme_table(self) -> SchemeTable:
        """The built-in schemes of dead letters, those of the settings, and handlers' origins."""
        return _scheme_table(self.schemes, self.origins)

    @property
    def origins(self) -> tuple[tuple[str, str], ...]:
        """The topics of handlers with an ``origin_topic``, each with that topic."""
        return tuple(
            (topic, handler.origin_topic)
            for handler in self.handlers
            if handler.origin_topic
            for topic in (handler.identity.topic, *handler.identity.own_topics)
        )

    def schemes_id(self, handler: HandlerConfiguration) -> str:
        """An id of how a handler's dead letters are read; empty if by built-in schemes only."""
        return schemes_id(self.schemes, handler.origin_topic)

    @property
    def own_directory(self) -> Path:
        """This instance's folder in the directory, which other shares may use too."""
        fixed = f"{self.share.number}-of-{self.share.total}"
        return self.directory / (AUTO if self.rebalances else fixed)

    @property
    def instance(self) -> str:
        """The setting: ``auto``, or a fixed share such as ``1/2``."""
        return AUTO if self.rebalances else str(self.share)

    @property
    def outcomes_topic(self) -> str:
        """Topic of the outcome records."""
        return outcomes_topic(self.application)

    @property
    def control_topic(self) -> str:
        """Compacted topic with the identity of tables and instances."""
        return control_topic(self.application)

    @property
    def tables_topic(self) -> str:
        """Compacted topic with every rules table that has run."""
        return tables_topic(self.application)


@lru_cache(maxsize=16)
def _scheme_table(
    schemes: tuple[OwnScheme, ...], origins: tuple[tuple[str, str], ...]
) -> SchemeTable:
    return SchemeTable((scheme.scheme() for scheme in schemes), origins)


def expression_of(written: str) -> str | None:
    """The expression in ``/expression/``, as in settings; None if the text is a name."""
    is_expression = len(written) > 1 and written.startswith("/") and written.endswith("/")
    return written[1:-1] if is_expression else None


def problem_with_expression(expression: str) -> str:
    """Why an expression cannot be used; empty if it can."""
    try:
        _compiled(expression)
    except re2.error as error:
        problem = error.args[0] if error.args else ""
        return problem.decode("utf-8", "replace") if isinstance(problem, bytes) else str(problem)
    return ""


@lru_cache(maxsize=1_000)
def _compiled(expression: str) -> Any:  # noqa: ANN401 - re2 has no types
    options = re2.Options()
    options.log_errors = False
    return re2.compile(expression, options)
