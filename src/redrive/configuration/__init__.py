"""The configuration of the job: plain values, checked by their readers."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import TypeAlias

from redrive.checkpoints.instances import AUTO, Share
from redrive.configuration.subscriptions import Subscription
from redrive.configuration.transforms import TransformConfiguration
from redrive.engine.breaker import BreakerSettings
from redrive.engine.decision import TimestampMode
from redrive.engine.names import HandlerIdentity, control_topic, outcomes_topic, tables_topic
from redrive.kafka.connection import Connection
from redrive.messages.schemes import OwnScheme, SchemeTable, schemes_id
from redrive.rules import GROUP_TOPIC
from redrive.topology.layout import SourceText
from redrive.topology.put import QueueLimits

__all__ = [
    "Conflict", "DataLoss", "EmitterChoice", "HandlerConfiguration", "JobConfiguration",
    "LedgerConfiguration", "LedgerFolder", "OnUndeliverable", "RegistryAccess", "RemoteFolder",
    "deciders", "subscriptions", "transforms"
]  # fmt: skip


class EmitterChoice(StrEnum):
    """Where a batch is emitted."""

    AUTO = "auto"
    """The driver for small batches, executor lanes for large ones."""
    DRIVER = "driver"
    LANES = "lanes"


class Conflict(StrEnum):
    """What to do when another instance already works on the same share."""

    REFUSE = "refuse"
    TAKE_OVER = "take over"


class DataLoss(StrEnum):
    """What to do when Kafka no longer has the record at the job's position."""

    STOP = "stop"
    CONTINUE = "continue"


class OnUndeliverable(StrEnum):
    """What a channel does with an undeliverable message that no dead-letter queue accepts."""

    STOP_CHANNEL = "stop channel"
    """It keeps the message and stops, as in IBM MQ."""
    KEEP_ASIDE = "keep aside"
    """It keeps the message and continues."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HandlerConfiguration:
    """One handler: a dead-letter queue and the text of its rules table."""

    identity: HandlerIdentity
    rules: str
    """Text of the rules table; parsed again in every process, which keeps pickles small."""
    rules_name: str
    """The source of the text, for messages."""
    breaker: BreakerSettings | None = None
    """When retries wait for their target; None for never."""
    timestamps: TimestampMode = TimestampMode.AUTO
    """The timestamps of the records that are put."""
    held_keys: bool = False
    """Whether waiting keys of ORDER(KEY) are written to a topic, for consumers."""
    data_loss: DataLoss | None = None
    """What to do about deleted records; None for the job's setting."""
    is_subscribed: bool = False
    """Whether it comes from a subscription rather than a handler of the settings."""
    section: int = field(default=0, compare=False)
    """Index of its ``[[handlers]]`` in the settings, which several handlers may share."""


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


@dataclass(frozen=True, slots=True, kw_only=True)
class JobConfiguration:
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
    conflict: Conflict = Conflict.REFUSE
    take_over: str = ""
    """The application whose positions a first start on its topics continues; empty for none."""
    beside: bool = False
    """Whether a first start on topics that other applications handle handles a copy of all."""
    data_loss: DataLoss = DataLoss.STOP
    starting_offsets: str = "earliest"
    """``earliest`` or ``latest``: where a partition without a committed offset starts."""
    queue_managers: tuple[str, ...] | None = None
    """Local queue manager names; None means that every name is local."""
    limits: Mapping[str, QueueLimits] = field(default_factory=dict)
    """Limits per queue."""
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
    group_topic: str = GROUP_TOPIC
    """The form of the name of a group's topic, with ``{topic}`` and ``{group}``."""
    transforms: tuple[TransformConfiguration, ...] = ()
    """The checked transforms that TRANSFORM of rules tables may name."""
    hop_limit: int = 25
    """How often one message is put to a queue before it counts as looping."""
    emitter: EmitterChoice = EmitterChoice.AUTO
    driver_batch_limit: int = 2_000
    """Records above which a batch goes to executor lanes when the choice is ``auto``."""
    slice_records: int = 20_000
    """Maximum records of one lane in one transaction."""
    slice_bytes: int = 32 * 1024 * 1024
    """Maximum bytes of records of one lane in one transaction; a single larger record has its own
    transaction."""
    slice_seconds: float = 10.0
    """Seconds after which a transaction takes no further record."""
    max_records_per_batch: int = 200_000
    """Maximum records of a micro-batch from all sources of a kind."""
    reevaluation_rate: float = 5_000
    """Maximum parked or remaining messages a second that a changed table evaluates again."""
    polling_delay: float = 0.01
    """Seconds between two checks without new records, besides the wait for a record."""
    cores: int = 2
    """Threads of local Spark, and so of lanes that emit in parallel."""
    master: str = ""
    """Spark master; empty for ``local[cores]``."""
    driver_memory: str = "2g"
    spark_ui: bool = False
    """Whether Spark serves its own web page."""
    spark_properties: Mapping[str, str] = field(default_factory=dict, repr=False)
    """More properties of Spark; every name begins with ``spark.``. Values may be secrets."""
    enrichment: str = ""
    """``package.module:function``: from DataFrame to DataFrame, before the decision; empty for
    none."""
    operator: str = ""
    """The user who requested this configuration by a restart, ``user@host``; empty for the user of
    the process."""
    stalled_after: float = 60.0
    """Seconds without progress, while there is work, after which the job counts as stalled."""
    exit_after: float = 900.0
    """Seconds stalled after which the process ends with exit code 75, so that a supervisor starts
    it again; 0 for never."""
    watch: bool = False
    """Whether the job restarts by itself when its settings, tables or definitions change."""
    wait_for_broker: bool = False
    """Whether a start waits until a broker answers, instead of ending with an error."""
    listen: str = ""
    """``host:port`` of the page with metrics; empty for none."""
    retention_alarm: float = 24.0
    """Hours before their deletion from which to warn about waiting messages; 0 for never."""
    only_handlers: frozenset[str] | None = None
    """The names of visible handlers, for a user who may see only part of the job; else None."""

    def restricted_to(self, names: frozenset[str]) -> JobConfiguration:
        """The part of the job with some handlers; views of it leave out others.

        No job runs with it: it is for views, and for operators' commands about these handlers.
        """
        handlers = tuple(one for one in self.handlers if one.identity.name in names)
        return replace(
            self, handlers=handlers, subscriptions=(), routes_puts=False, only_handlers=names
        )

    def with_topics(self, existing: Collection[str]) -> JobConfiguration:
        """The configuration with a handler for each existing topic that a subscription matches.

        A topic that already has a handler keeps it.
        """
        handlers = {one.identity.topic: one for one in self.handlers if not one.is_subscribed}
        for subscription in self.subscriptions:
            for one in subscription.handlers(self.application, existing)[0]:
                handlers.setdefault(one.identity.topic, one)
        every = tuple(handlers.values())
        return self if every == self.handlers else replace(self, handlers=every)

    @property
    def breakers(self) -> Mapping[str, BreakerSettings]:
        """The settings of breakers, by handler."""
        return {one.identity.name: one.breaker for one in self.handlers if one.breaker is not None}

    def data_loss_on(self, topic: str) -> DataLoss:
        """What to do about deleted records of a topic."""
        own = (one.data_loss for one in self.handlers if one.identity.topic == topic)
        return next(filter(None, own), self.data_loss)

    @property
    def is_local(self) -> bool:
        """Whether Spark's executors are threads of the driver."""
        return not self.master or self.master.startswith("local")

    @property
    def scheme_table(self) -> SchemeTable:
        """The built-in schemes of dead letters, and those of the settings."""
        return SchemeTable(one.scheme() for one in self.schemes)

    @property
    def schemes_id(self) -> str:
        """An id of the settings' schemes; empty if there are none."""
        return schemes_id(self.schemes)

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


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistryAccess:
    """The address of a schema registry, and how to sign in; not used by jobs."""

    url: str
    username: str = ""
    """Empty without a login."""
    password: str = field(default="", repr=False)
    oauth_endpoint: str = ""
    """See ``Connection``, as the next four."""
    oauth_client_id: str = ""
    oauth_client_secret: str = field(default="", repr=False)
    oauth_scope: str = ""
    oauth_ca_file: str = ""
    ssl_ca_file: str = ""
    """Authorities to trust; empty for those of the machine."""
    ssl_certificate_file: str = ""
    """See ``Connection``, as the next two."""
    ssl_key_file: str = ""
    ssl_key_password: str = field(default="", repr=False)
