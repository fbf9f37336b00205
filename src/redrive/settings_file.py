"""The tables of ``redrive.toml`` and their keys; each docstring is the key's text in the docs.

The tables of connections are in ``redrive.kafka.connection``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Annotated, Any, Final, Literal, TypeAlias

from pydantic import BeforeValidator, Field

from redrive.engine.decision import TimestampMode
from redrive.forms import MOST, File, FileForm, Flag, Function, TableForm, Text, number, text
from redrive.kafka.connection import KafkaTable, RegistryAccess
from redrive.rules import GROUP_TOPIC

_NAME: Final = "[A-Za-z0-9.-]+"
_HOST: Final = r"([A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])"
_PORT: Final = (
    r"(6553[0-5]|655[0-2][0-9]|65[0-4][0-9]{2}|6[0-4][0-9]{3}|[1-5][0-9]{4}|[1-9][0-9]{0,3})"
)

Place: TypeAlias = Annotated[
    str,
    text('a header such as "x-topic" or a path in the value such as "$.error.class"'),
]
QueueName: TypeAlias = Annotated[str, text("a name or an /expression/")]


def _as_list(value: Any) -> Any:  # noqa: ANN401 - any value of a file
    return (value,) if isinstance(value, str) else value


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


class LogFormat(StrEnum):
    """The format of a log line."""

    TEXT = "text"
    """For people."""
    JSON = "json"
    """One JSON object a line."""


class LogLevel(StrEnum):
    """The lowest level of written lines."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


@dataclass(frozen=True, kw_only=True)
class StartTable(TableForm):
    """The table ``[application]``: what a first start, or another instance, does."""

    on_conflict: Conflict = Conflict.REFUSE
    """If an instance with an overlapping share runs: `"refuse"` to start, or `"take over"`."""
    take_over: Annotated[str, text("the name of an application", _NAME)] = ""
    """Name of an application that has ended: at its first start the job [continues where that
    one stopped](running.md#two-applications-on-one-queue)."""
    beside: Flag = False
    """`true`: a first start on topics of another application handles a copy of everything; else
    it is refused."""


@dataclass(frozen=True, kw_only=True)
class ApplicationTable(StartTable):
    """The table ``[application]``."""

    name: Annotated[
        str,
        text("letters, digits, dots and hyphens", _NAME),
        Field(
            description="consumer group, transactions and topics are named after the application",
            examples=["orders"],
        ),
    ]
    """Letters, digits, dots and hyphens. Consumer group, transactional ids and topics
    (`redrive-<name>-...`) have this name: progress is kept under it."""
    instance: Annotated[
        str,
        text('"auto"; or "1/2" for the first of two instances, "2/2" for the second'),
    ] = "1/1"
    """This instance's share of the partitions, such as `"1/2"`; `"auto"`: live instances [share
    them out](running.md#several-instances)."""
    directory: File = ""
    """Folder for the pid file, Spark's files and the ledger; by default `.redrive/<name>`
    beside the file."""


@dataclass(frozen=True, kw_only=True)
class HandlerOptions(TableForm):
    """The table ``[[handlers]]``: what holds for each of its queues."""

    held_keys: Flag = False
    """With ORDER(KEY): waiting keys are written to a topic, for [consumers that keep the
    order](kafka.md#order-in-the-consumer)."""
    on_data_loss: DataLoss | None = None
    """What it does if it [lost its position](runbook.md#a-handler-that-lost-its-position); by
    default as in [job]."""
    timestamp: TimestampMode = TimestampMode.AUTO
    """Timestamp of puts: `"auto"`, `"keep"` or `"now"`, see [a put lives](#a-put-lives)."""
    origin_topic: Annotated[str, text("the name of a topic", "[A-Za-z0-9._-]{1,249}")] = ""
    """The topic where messages failed whose headers do not name it. A message of no scheme is then
    a dead letter too, of the scheme `bare`, so that its rounds are counted and it can return."""


@dataclass(frozen=True, kw_only=True)
class HandlerTable(HandlerOptions):
    """The table ``[[handlers]]``."""

    queue: Annotated[
        tuple[QueueName, ...],
        BeforeValidator(_as_list, json_schema_input_type=str | tuple[str, ...]),
        Field(title="the name of a queue, or a list of names and /expressions/", min_length=1),
    ] = ()
    """The dead-letter queue, which is the topic of this name; by default INPUTQ of the table,
    else `dead_letter_queue` of [topology]. A list, or an expression between slashes, makes [one
    handler for each topic](#many-dead-letter-topics)."""
    exclude: Annotated[tuple[QueueName, ...], Field(title="a list of names and /expressions/")] = ()
    """With an expression: names and expressions of topics to leave out."""
    max_topics: Annotated[int, number("topics", 1, 10000)] = 500
    """With an expression: topics that are read at most. `redrive status` and a warning name the
    others."""
    queue_manager: Annotated[str, text("the name of a queue manager")] = ""
    """Its queue manager, for the ledger and for rules; by default INPUTQM of the table."""
    rules: File = ""
    """File of the rules table; required."""
    name: Annotated[str, text("letters, digits, dots and hyphens", _NAME)] = ""
    """Part of the names of its own topics, `redrive-<application>-<name>-retry`, `-remaining`,
    `-replay`: keep it. By default the queue."""
    breaker: Annotated[int, number("failures that open a breaker; 0 for no breakers", 0, MOST)] = 0
    """Failures without a success after which retries wait for their target
    ([breakers](running.md#breakers)); 0 for never."""
    probe_interval: Annotated[float, number("seconds", 0.1, 86400)] = 30.0
    """Seconds from a returned probe to the next one."""


@dataclass(frozen=True, kw_only=True)
class QueueTable(TableForm):
    """The table ``[queues.NAME]``."""

    put: Literal["enabled", "disabled"] = "enabled"
    """`"disabled"`: every put fails with MQRC_PUT_INHIBITED (2051)."""
    max_message_length: Annotated[int, number("bytes", 0, 104_857_600)] | None = None
    """Bytes of a body; a longer one fails with MQRC_MSG_TOO_BIG_FOR_Q (2030)."""
    max_depth: Annotated[int, number("messages", 0, MOST)] | None = None
    """Messages at which the queue is full; puts fail with MQRC_Q_FULL (2053)."""
    consumer_group: Annotated[str, text("the name of a consumer group")] | None = None
    """The group that reads the queue; what it has not read is the depth. Without one a queue is
    never full."""


@dataclass(frozen=True, kw_only=True)
class OriginParts(TableForm):
    """Where a dead letter says which record failed."""

    topic: Place = ""
    partition: Place = ""
    offset: Place = ""
    timestamp: Place = ""


@dataclass(frozen=True, kw_only=True)
class ErrorParts(TableForm):
    """Where a dead letter says why a record failed."""

    class_: Annotated[Place, Field(alias="class")] = ""
    root_class: Place = ""
    message: Place = ""
    stack: Place = ""


@dataclass(frozen=True, kw_only=True)
class SchemeEntry(TableForm):
    """The table ``[schemes.NAME]``."""

    recognise: Place = ""
    """The place that every such dead letter has; it comes before all known schemes. Either this
    or `assume` is required."""
    assume: Literal["dead letter"] | None = None
    """`"dead letter"`: every message of no other scheme has this one."""
    drops_headers: Flag = False
    """`true`: your program leaves out the headers of the failed record.
    [Rounds](kafka.md#a-retry-is-processing-again) are then read from that record, by topic,
    partition and offset of `origin`."""
    payload: Annotated[
        str,
        text('a path in the value, such as "$.payload" or "$.payload as base64"'),
    ] = ""
    """Path of the original value in an envelope, which RETRY and `HEADER(NO)` put: a text as it
    is, anything else as JSON. `"$.payload as base64"` for bytes, `"$.payload as json"` for a
    text that had its quotes. Without it the record at `origin` is fetched."""
    origin: Annotated[OriginParts, Field(title="origin")] = OriginParts()
    """Table: `topic`, `partition`, `offset`, `timestamp`."""
    error: Annotated[ErrorParts, Field(title="error")] = ErrorParts()
    """Table: `class`, `root_class`, `message`, `stack`."""
    group: Place = ""
    """The consumer group."""
    connector: Place = ""
    """The connector."""
    task: Place = ""
    """The task."""
    stage: Place = ""
    """The step that failed."""
    attempts: Place = ""
    """How often the failed program tried."""
    first_failed_at: Place = ""
    """When it failed first."""
    failed_at: Place = ""
    """When it failed last."""
    disposition: Place = ""
    """What the failed program did with it."""


@dataclass(frozen=True, kw_only=True)
class TransformTable(TableForm):
    """The table ``[transforms.NAME]``."""

    json_patch: Annotated[str, text("a file with a JSON Patch")] = ""
    """File with a JSON Patch (RFC 6902), as for
    [replays](running.md#change-it-then-send-it)."""
    python: Function = ""
    """`"package.module:function"`, which gets value and headers and returns both."""


@dataclass(frozen=True, kw_only=True)
class TopologyTable(TableForm):
    """The table ``[topology]``."""

    kind: Literal["kafka", "mq", "mqe"] | None = None
    """By default that of the files. `"kafka"`, without files: every topic is a queue of its
    name; a name without a topic fails with MQRC_UNKNOWN_OBJECT_NAME (2085). `"mq"`, `"mqe"`:
    files define queue managers."""
    files: Annotated[
        tuple[Text, ...],
        Field(
            title='a list of files, such as ["qm1.mqsc", "QM2=other.mqsc", "bindings.yaml"]',
            min_length=1,
        ),
    ] = ()
    """List of definitions."""
    failed_commands: Literal["refuse", "accept"] = "refuse"
    """`"accept"`: a job starts although commands of scripts failed, each with a warning; their
    effect is missing."""
    on_undeliverable: OnUndeliverable = OnUndeliverable.STOP_CHANNEL
    """If a receiver can put a message nowhere, not even on a dead-letter queue, the channel
    keeps it and stops until `redrive channel start`; with `"keep aside"` it goes on."""
    queue_managers: (
        Annotated[tuple[str, ...], Field(title='a list of names, such as ["QM1", "QM2"]')] | None
    ) = None
    """Without files: queue managers that count as local, by default all; puts to others fail
    with MQRC_UNKNOWN_REMOTE_Q_MGR (2087)."""
    dead_letter_queue: Annotated[str, text("the name of a queue")] = ""
    """Without files: the dead-letter queue (DEADQ) of handlers that have neither a queue nor
    INPUTQ."""


@dataclass(frozen=True, kw_only=True)
class JobTable(TableForm):
    """The table ``[job]``."""

    hop_limit: Annotated[int, number("", 1, MOST)] = 25
    """How often a message is put on a queue before it counts as going in circles: attempts
    fail, or it is [quarantined](messages.md#where-it-goes-and-what-goes-with-it)."""
    emitter: EmitterChoice = EmitterChoice.AUTO
    """Who writes: `"driver"` (quick for small batches), `"lanes"` (Spark's Python workers) or
    `"auto"`, by the number of rows. Workers always write a batch that may be larger than 16
    MB."""
    max_records_per_batch: Annotated[int, number("records", 1, MOST)] = 200_000
    """Most records of one batch, from all sources of a kind."""
    reevaluation_rate: Annotated[float, number("messages a second", 1, MOST)] = 5_000
    """Messages a second that an instance looks at again at most after a table changed; new dead
    letters do not wait behind them."""
    driver_batch_limit: Annotated[int, number("records", 0, MOST)] = 8_000
    """Records above which `"auto"` chooses lanes."""
    slice_records: Annotated[int, number("records", 1, MOST)] = 20_000
    """Most records of one partition in one transaction."""
    slice_bytes: Annotated[int, number("bytes", 1, MOST)] = 32 * 1024 * 1024
    """Most bytes of them; a larger record has a transaction of its own."""
    slice_seconds: Annotated[float, number("seconds", 0.1, 60)] = 10.0
    """Seconds after which a transaction takes no further record."""
    starting_offsets: Literal["earliest", "latest"] = "earliest"
    """Where a new partition begins: `"earliest"` or `"latest"`."""
    on_data_loss: DataLoss = DataLoss.STOP
    """If records were deleted before they were handled, or a topic was recreated: `"stop"` its
    handler, or `"continue"` with the oldest there is."""
    polling_delay: Annotated[float, number("seconds", 0, 60)] = 0.01
    """Seconds from a look that found nothing to the next one."""
    cores: Annotated[int, number("", 1, 1024)] = 2
    """Threads of the local Spark."""
    master: Annotated[
        str,
        Field(
            title='"local[4]", "spark://host:7077", "k8s://https://host:6443" or "yarn"',
            min_length=1,
            pattern=(
                r"\A(local(\[(\*|[1-9][0-9]*)(, *[1-9][0-9]*)?\])?"
                r"|local-cluster\[[0-9]+, *[0-9]+, *[0-9]+\]|yarn"
                rf"|spark://({_HOST}:{_PORT}(,(?=.)|$))+"
                r"|k8s://(https?://)?[A-Za-z0-9.\[\]:-]+(/\S*)?)\Z"
            ),
        ),
    ] = ""
    """Another Spark master than `local[cores]`."""
    driver_memory: Annotated[str, text("such as 512m or 2g", r"[1-9][0-9]*[mg]")] = "2g"
    """Heap of the Java process."""
    spark_ui: Flag = False
    """`true`: Spark serves its web page, by default at port 4040."""
    watch: Flag = False
    """`true`: the job [restarts by itself](running.md#files-that-are-watched) when its files
    change."""
    spark_properties: Annotated[
        Mapping[
            Annotated[
                str,
                Field(
                    title='names that begin with spark., in quotes: "spark.executor.memory" = "4g"',
                    pattern=r"\Aspark\..",
                ),
            ],
            str,
        ],
        Field(title="[job.spark_properties]"),
    ] = field(default_factory=dict, repr=False)
    """Table of further properties of Spark: `"spark.executor.memory" = "4g"`."""
    enrichment: Annotated[
        str,
        text(
            '"package.module:function", from DataFrame to DataFrame',
            r"[A-Za-z0-9_.]+:[A-Za-z0-9_]+",
        ),
    ] = ""
    """`"package.module:function"`, which [enriches](#enrichment) every DataFrame before the
    decision."""
    allow_context_authority: Flag = False
    """`true`: PUTAUT(CTX) is carried out with the job's own authority, and recorded."""
    lenient_rules: Flag = False
    """`true`: clauses need not be separated, as z/OS reads them."""


@dataclass(frozen=True, kw_only=True)
class RetryTable(TableForm):
    """The table ``[retry]``."""

    group_topic: Annotated[
        str,
        Field(
            title='a topic\'s name with {topic} and {group}, such as "{topic}.{group}.retry"',
            pattern=r"\A[A-Za-z0-9._-]*(\{topic\}[A-Za-z0-9._-]+\{group\}|\{group\}[A-Za-z0-9._-]+\{topic\})[A-Za-z0-9._-]*\Z",
        ),
    ] = GROUP_TOPIC
    """Name of the topic of [RETRY TO(GROUP)](kafka.md#a-round-is-for-the-group-that-failed):
    `{topic}` and `{group}` once each, with something between them. `redrive explain` and
    `redrive test` without settings take the default."""


@dataclass(frozen=True, kw_only=True)
class SupervisionTable(TableForm):
    """The table ``[supervision]``."""

    stalled_after: Annotated[float, number("seconds", 1, 86400)] = 60.0
    """Seconds without progress, while there is work, after which the job is stalled."""
    exit_after: Annotated[float, number("seconds", 0, 86400)] = 900.0
    """Seconds stalled after which the process ends with exit code 75; 0 for never."""
    wait_for_broker: Flag = False
    """Whether a [start](running.md#starting) waits for a broker, as with `--wait`."""


@dataclass(frozen=True, kw_only=True)
class ObserveTable(TableForm):
    """The table ``[observe]``."""

    listen: Annotated[
        str,
        text('host:port, such as "127.0.0.1:9464"', rf"{_HOST}:{_PORT}"),
    ] = ""
    """Address and port of [metrics and health checks](watching.md#metrics-and-health), such as
    `"127.0.0.1:9464"`. Each job of a machine needs its own port."""
    retention_alarm: Annotated[float, number("hours", 0, 8760)] = 24.0
    """Hours before a topic deletes unhandled messages from which to warn; 0 for never."""


@dataclass(frozen=True, kw_only=True)
class LedgerSettings(TableForm):
    """The table ``[ledger]``."""

    enabled: Flag = True
    """Whether outcomes are written into a Delta table."""
    path: Annotated[
        str,
        text("the path of a folder, relative to this one, or s3://bucket/folder"),
    ] = ""
    """Folder of the table, or `"s3://bucket/folder"` [in an object
    store](#a-ledger-in-an-object-store). By default `ledger` in the job's folder."""
    interval: Annotated[float, number("seconds", 0.1, 86400)] = 20.0
    """Seconds between two appends; `redrive status` and `redrive history` read the rest from
    the outcomes topic."""
    endpoint: Annotated[
        str, Field(title="such as https://minio.example:9000", pattern=r"\Ahttps?://[^/@]+/?\Z")
    ] = ""
    """An S3 of your own: `"https://minio.example:9000"`; by default AWS."""
    region: Text = ""
    """Its region, such as `"eu-central-1"`; by default that of the environment."""
    allow_http: Flag = False
    """Whether `endpoint` may be without TLS."""


@dataclass(frozen=True, kw_only=True)
class LogTable(TableForm):
    """The table ``[log]``."""

    format: LogFormat = LogFormat.TEXT
    """`"text"` for people, `"json"` for programs."""
    level: LogLevel = LogLevel.INFO
    """The least severe lines: `"debug"`, `"info"`, `"warning"`, `"error"`."""
    file: File = ""
    """File to append to, which logrotate may move at any time; by default standard error."""


@dataclass(frozen=True, kw_only=True)
class MaskTable(TableForm):
    """The table ``[mask]``."""

    patterns: Annotated[
        tuple[Text, ...], Field(title='a list of regular expressions, such as ["[0-9]{16}"]')
    ] = ()
    """List of regular expressions (RE2). What they find is masked in keys, headers, bodies,
    error messages, names of targets and log lines."""
    headers: Annotated[
        tuple[Text, ...],
        Field(title='a list of names of headers, such as ["authorization", "x-*-key"]'),
    ] = ()
    """List of headers whose value is masked, in any case, `*` for any characters. So is what it
    says of a failure in `redrive show` and `redrive identify`, and the exception's message in
    every outcome."""


@dataclass(frozen=True, kw_only=True)
class SettingsFile(TableForm):
    """``redrive.toml``."""

    application: Annotated[ApplicationTable, Field(title="[application]")]
    kafka: Annotated[KafkaTable, Field(title="[kafka]")]
    handlers: Annotated[
        tuple[Annotated[HandlerTable, Field(title="[[handlers]]")], ...],
        Field(title="a list of tables, each beginning with [[handlers]]"),
    ] = ()
    queues: Annotated[
        Mapping[str, Annotated[QueueTable, Field(title='[queues."NAME"]')]], Field(title="[queues]")
    ] = field(default_factory=dict)
    schemes: Annotated[
        Mapping[str, Annotated[SchemeEntry, Field(title="[schemes.NAME]")]],
        Field(title="[schemes]"),
    ] = field(default_factory=dict)
    transforms: Annotated[
        Mapping[str, Annotated[TransformTable, Field(title="[transforms.NAME]")]],
        Field(title="[transforms]"),
    ] = field(default_factory=dict)
    clusters: Annotated[
        Mapping[str, Annotated[KafkaTable, Field(title="[clusters.NAME]")]],
        Field(title="[clusters]"),
    ] = field(default_factory=dict)
    topology: Annotated[TopologyTable, Field(title="[topology]")] = TopologyTable()
    job: Annotated[JobTable, Field(title="[job]")] = field(default_factory=JobTable)
    retry: Annotated[RetryTable, Field(title="[retry]")] = RetryTable()
    supervision: Annotated[SupervisionTable, Field(title="[supervision]")] = SupervisionTable()
    observe: Annotated[ObserveTable, Field(title="[observe]")] = ObserveTable()
    ledger: Annotated[LedgerSettings, Field(title="[ledger]")] = LedgerSettings()
    log: Annotated[LogTable, Field(title="[log]")] = LogTable()
    mask: Annotated[MaskTable, Field(title="[mask]")] = MaskTable()
    schema_registry: Annotated[RegistryAccess, Field(title="[schema_registry]")] = field(
        default_factory=RegistryAccess
    )


_REMOVED: Final = {
    "flood_limit": "the alert RedriveNewDeadLetters reports a flood, and breaker makes retries wait"
}
FORM: Final = FileForm(SettingsFile, "the file", "table", _REMOVED)
"""The form of ``redrive.toml``."""
