"""The configuration of the job: values only, checked by their readers."""

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
from redrive.engine.names import HandlerIdentity, control_topic, outcomes_topic, tables_topic
from redrive.kafka.connection import Connection
from redrive.messages.schemes import OwnScheme, SchemeTable, schemes_id
from redrive.rules import GROUP_TOPIC
from redrive.topology.files import SourceText
from redrive.topology.put import QueueLimits

__all__ = [
    "Conflict", "DataLoss", "EmitterChoice", "HandlerConfiguration", "JobConfiguration",
    "LedgerConfiguration", "LedgerFolder", "OnUndeliverable", "RegistryAccess", "RemoteFolder",
    "deciders", "subscriptions", "transforms"
]  # fmt: skip


class EmitterChoice(StrEnum):
    """Who emits a batch."""

    AUTO = "auto"
    """The driver for small batches, executor lanes for large ones."""
    DRIVER = "driver"
    LANES = "lanes"


class Conflict(StrEnum):
    """What to do when another instance already works on the same share."""

    REFUSE = "refuse"
    TAKE_OVER = "take over"


class DataLoss(StrEnum):
    """What to do when Kafka no longer has the record where the job stands."""

    STOP = "stop"
    CONTINUE = "continue"


class OnUndeliverable(StrEnum):
    """What a channel does with a message that can be put nowhere, not even as a dead letter."""

    STOP_CHANNEL = "stop channel"
    """It keeps the message and stops, as in IBM MQ."""
    KEEP_ASIDE = "keep aside"
    """It keeps the message and goes on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HandlerConfiguration:
    """One handler: a dead-letter queue and the text of its rules table."""

    identity: HandlerIdentity
    rules: str
    """Text of the rules table; parsed again in every process, which keeps pickles small."""
    rules_name: str
    """Where the text came from, for messages."""
    breaker: BreakerSettings | None = None
    """When retries wait for their target; None for never."""
    flood_limit: int = 0
    """The most new dead letters of a minute that are handled; 0 for all."""
    held_keys: bool = False
    """Whether the keys that wait by ORDER(KEY) are written to a topic, for consumers."""
    data_loss: DataLoss | None = None
    """What to do when records are gone; None for what the job does."""
    is_subscribed: bool = False
    """Whether it comes from a subscription, and not from a handler of the settings."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteFolder:
    """A folder in an object store."""

    url: str
    """``s3://bucket/folder``, without credentials."""
    beside: Path
    """Local folder for what belongs to a process that writes there."""
    options: Mapping[str, str] = field(default_factory=dict)
    """Of the library's client for the store; none of them is a secret."""

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
    """Those of the settings, and those of the subscriptions' topics that are known."""
    subscriptions: tuple[Subscription, ...] = ()
    directory: Path
    """Local folder for locks, the running checkpoint and the ledger."""
    ledger: LedgerConfiguration
    share: Share = field(default_factory=lambda: Share(1, 1))
    rebalances: bool = False
    """Whether the live instances share the partitions out among themselves; ``share`` changes."""
    conflict: Conflict = Conflict.REFUSE
    data_loss: DataLoss = DataLoss.STOP
    starting_offsets: str = "earliest"
    """``earliest`` or ``latest``: where a partition starts that was never committed."""
    queue_managers: tuple[str, ...] | None = None
    """Local queue manager names; None means that every name is local."""
    limits: Mapping[str, QueueLimits] = field(default_factory=dict)
    """Limits per queue."""
    topology: tuple[SourceText, ...] = ()
    """Definitions of queue managers, checked; none for the kind ``kafka``."""
    routes_puts: bool = True
    """Whether the job reads the intakes and transmission queues of the topology too. One
    application has to, and no other: each would route every message."""
    only_replays: bool = False
    """Whether the job carries out replays and leaves everything else for its next start."""
    on_undeliverable: OnUndeliverable = OnUndeliverable.STOP_CHANNEL
    schemes: tuple[OwnScheme, ...] = ()
    """Schemes of dead letters beside those that are known, checked."""
    group_topic: str = GROUP_TOPIC
    """The name of the topic of a group's rounds, with ``{topic}`` and ``{group}``."""
    transforms: tuple[TransformConfiguration, ...] = ()
    """What TRANSFORM of rules tables may name, checked."""
    hop_limit: int = 25
    """How often one message is put on a queue before it counts as looping."""
    emitter: EmitterChoice = EmitterChoice.AUTO
    driver_batch_limit: int = 2_000
    """Records above which a batch goes to executor lanes when the choice is ``auto``."""
    slice_records: int = 20_000
    """Records of one lane that one transaction commits at most."""
    slice_bytes: int = 32 * 1024 * 1024
    """Bytes of the records of one lane that one transaction commits at most; a single larger
    record has a transaction of its own."""
    slice_seconds: float = 10.0
    """Seconds after which a transaction takes no further record."""
    max_records_per_batch: int = 200_000
    """Records one micro-batch takes at most from all sources of a kind."""
    reevaluation_rate: float = 5_000
    """Messages a second, parked or remaining, that a changed table looks at again at most."""
    polling_delay: float = 0.01
    """Seconds from a look that found nothing to the next one, besides the wait for a record."""
    cores: int = 2
    """Threads of local Spark, and so lanes that emit at once."""
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
    """The user who asked for this configuration by a restart, ``user@host``; empty for the user of
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
    """Hours before their topic deletes messages from which on that is told; 0 for never."""
    only_handlers: frozenset[str] | None = None
    """Of a job that somebody may see a part of, the names of these handlers; None for all of it."""

    def restricted_to(self, names: frozenset[str]) -> JobConfiguration:
        """The part of the job that some handlers are; whatever is asked about it leaves out others.

        A job does not run with it: it is for views, and for what operators do with these handlers.
        """
        handlers = tuple(one for one in self.handlers if one.identity.name in names)
        return replace(
            self, handlers=handlers, subscriptions=(), routes_puts=False, only_handlers=names
        )

    def with_topics(self, existing: Collection[str]) -> JobConfiguration:
        """The configuration with a handler for each existing topic that a subscription matches.

        A topic that has a handler already keeps that one.
        """
        handlers = {one.identity.topic: one for one in self.handlers if not one.is_subscribed}
        for subscription in self.subscriptions:
            for one in subscription.handlers(self.application, existing)[0]:
                handlers.setdefault(one.identity.topic, one)
        every = tuple(handlers.values())
        return self if every == self.handlers else replace(self, handlers=every)

    @property
    def breakers(self) -> Mapping[str, BreakerSettings]:
        """The settings of breakers by handler, of those that have any."""
        return {one.identity.name: one.breaker for one in self.handlers if one.breaker is not None}

    def data_loss_on(self, topic: str) -> DataLoss:
        """What to do when records of a topic are gone that is read."""
        own = (one.data_loss for one in self.handlers if one.identity.topic == topic)
        return next(filter(None, own), self.data_loss)

    @property
    def flood_limits(self) -> Mapping[str, int]:
        """The flood limits by handler, of those that have one."""
        return {one.identity.name: one.flood_limit for one in self.handlers if one.flood_limit}

    @property
    def is_local(self) -> bool:
        """Whether Spark's executors are threads of the driver."""
        return not self.master or self.master.startswith("local")

    @property
    def scheme_table(self) -> SchemeTable:
        """The known schemes of dead letters, and those of one's own."""
        return SchemeTable(one.scheme() for one in self.schemes)

    @property
    def schemes_id(self) -> str:
        """Stands for the schemes of one's own; empty if there are none."""
        return schemes_id(self.schemes)

    @property
    def own_directory(self) -> Path:
        """What this instance keeps in the directory, which other shares may use too."""
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
        """Compacted topic with every rules table that ever ran."""
        return tables_topic(self.application)


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistryAccess:
    """Where a schema registry is, and how to sign in to it; no job asks it."""

    url: str
    username: str = ""
    """Empty if it asks for none."""
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
