"""Dead letters as columns of any DataFrame with Kafka's columns, and what a table does with them.

The rows are read and decided by the code of the job, where they lie: in Spark's Python workers
(``mapInArrow``), on one machine or on a cluster. Nothing is written.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from redrive.collector import collector_paused
from redrive.configuration import HandlerConfiguration, JobConfiguration, LedgerConfiguration
from redrive.configuration.deciders import DeciderFactory, table_of
from redrive.engine.context import SliceContext
from redrive.engine.decision import Decision, Put, action_of
from redrive.engine.facts import BEST_CASE, Answers, Facts
from redrive.engine.message import NO_ATTEMPTS
from redrive.engine.names import HandlerIdentity
from redrive.engine.outcome import column_of
from redrive.engine.rules_decider import RulesDecider
from redrive.errors import EnvironmentFault, NotFoundError, UsageError
from redrive.kafka.connection import Connection
from redrive.messages import DeadLetterDecoder, DeadLetterProfile, Records, read_view
from redrive.messages import own_headers as own
from redrive.messages.dead_letters import valid_time
from redrive.messages.schemes import KNOWN, OwnScheme, Scheme, SchemeTable
from redrive.messages.schemes.scheme import valid_partition
from redrive.printable import counted
from redrive.rules import decode_source, parse
from redrive.rules.patterns import RuleInput

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from redrive.settings import SettingsSource

_Batches: TypeAlias = Iterable[pa.RecordBatch]
_Work: TypeAlias = Callable[[_Batches], Iterator[pa.RecordBatch]]
_Types: TypeAlias = Mapping[str, pa.DataType]
"""The types of columns, by name."""
_Schemes: TypeAlias = tuple[OwnScheme, ...]
_Origins: TypeAlias = tuple[tuple[str, str], ...]
"""Those of ``[schemes]`` in settings."""

_TYPES: Final[Mapping[str, str]] = {
    "key": "binary",
    "value": "binary",
    "topic": "string",
    "partition": "int",
    "offset": "bigint",
    "timestamp": "timestamp",
    "headers": "array<struct<key:string,value:binary>>",
}
"""Spark's type of each column of its Kafka source."""
_MOMENT: Final = pa.timestamp("us", tz="UTC")
_SPARK_TYPES: Final[Mapping[pa.DataType, str]] = {
    pa.string(): "string",
    pa.int32(): "integer",
    pa.int64(): "long",
    _MOMENT: "timestamp",
}
_FAILURE: Final[_Types] = {
    "scheme": pa.string(),
    "error_class": pa.string(),
    "error_root_class": pa.string(),
    "error_message": pa.string(),
    "consumer_group": pa.string(),
    "origin_topic": pa.string(),
    "origin_partition": pa.int32(),
    "origin_offset": pa.int64(),
    "failed_at": _MOMENT,
    "attempts": pa.int64(),
    "hop": pa.int32(),
}
"""The columns of ``dead_letters``."""
_OF_A_PROFILE: Final[Mapping[str, Callable[[DeadLetterProfile], object]]] = {
    "scheme": lambda profile: profile.scheme if profile.is_dead_letter else None,
    "error_class": lambda profile: profile.view.error_class,
    "error_root_class": lambda profile: profile.view.error_root_class,
    "consumer_group": lambda profile: profile.view.consumer_group or None,
    "origin_topic": lambda profile: profile.view.origin.topic,
    "attempts": lambda profile: profile.view.attempts,
    "hop": lambda profile: profile.view.hop,
}
_OF_A_MESSAGE: Final = ("error_message", "origin_partition", "origin_offset", "failed_at")
_DECISION: Final[_Types] = {
    "rule_line": pa.int32(),
    "action": pa.string(),
    "target": pa.string(),
    "delay": pa.int64(),
    "reason": pa.int32(),
    "detail": pa.string(),
}
"""The columns of ``RulesTable.decide``."""
_REMAINS: Final = "REMAINS"
"""The action of a message to which no rule applies, as ``redrive plan`` calls it."""
_OF_A_DECISION: Final[Mapping[str, Callable[[Decision], object]]] = {
    "rule_line": lambda decision: decision.rule.line if decision.rule else None,
    "action": lambda decision: action_of(decision.rule, decision.attempts) or _REMAINS,
    "target": lambda decision: str(decision.target) or None,
    "delay": lambda decision: decision.wait if isinstance(decision, Put) else None,
    "reason": lambda decision: decision.reason or None,
    "detail": lambda decision: decision.detail or None,
}
_NOT_IMPORTABLE: Final = "redrive cannot be imported by Spark's Python worker"
_START: Final = 120.0
"""Seconds for a Python process to import redrive."""
_SHIPPED: Final = (
    "make the driver's version of the package importable on every executor: by an image or an"
    " environment that has it, by --archives (spark.archives) with a packed environment, or by"
    " --py-files with its wheel renamed to .zip, where the executors have what docs/spark.md names"
)
_Shared = TypeVar("_Shared")
_APPLICATION: Final = "frames"
_DECIDERS: Final = 200
"""Maximum topics whose deciders a task keeps."""


def dead_letters(frame: DataFrame, settings: SettingsSource | None = None) -> DataFrame:
    """Adds what each dead letter says about its failure, in any scheme that the job reads.

        letters = redrive.dead_letters(
            spark.read.format("kafka")
            .option("kafka.bootstrap.servers", "localhost:9092")
            .option("subscribe", "orders.dlq")
            .option("includeHeaders", "true")
            .load()
        )
        letters.groupBy("error_root_class", "consumer_group").count().show()

    Args:
        frame: A batch or a streaming DataFrame with the columns of Spark's Kafka source, those
            with other names included: ``key`` and ``value`` (binary), ``topic`` (string),
            ``partition`` (int), ``offset`` (bigint), ``timestamp`` (timestamp) and ``headers``
            (array of structs of a key and a value).
        settings: A settings file, or a dict as TOML would give, whose ``[schemes]`` are recognised
            too, with the ``origin_topic`` of each handler. Nothing else of it counts, and no broker
            is asked.

    Returns:
        The same rows, with all their columns, and these, each null where the dead letter does not
        say it, and all null where the message is not a dead letter: ``scheme``, ``error_class``,
        ``error_root_class``, ``error_message``, ``consumer_group``, ``origin_topic``,
        ``origin_partition`` (int), ``origin_offset`` (bigint), ``failed_at`` (timestamp; that of
        the record where the scheme has none), ``attempts`` (bigint; how often the failed program
        tried) and ``hop`` (int; how often the message was dead-lettered).

    Raises:
        UsageError: A column is missing, has another type, or has the name of an added one.
        ConfigurationError: There is an error in the settings; every finding is attached.
    """
    schemes, origins = _reading_of(settings)
    work = partial(read_failures, schemes=schemes, origins=origins)
    return _with_columns(frame, _FAILURE, work)


def _reading_of(settings: SettingsSource | None) -> tuple[_Schemes, _Origins]:
    from redrive.settings import read_settings  # noqa: PLC0415 - Spark's workers do without it

    if settings is None:
        return (), ()
    job = read_settings(settings, asks=False).job
    return job.schemes, job.origins


def read_table(table: str | os.PathLike[str]) -> RulesTable:
    """Reads and checks a rules table.

        table = redrive.read_table("orders.rul")
        table = redrive.read_table("REASON(MQRC_Q_FULL) ACTION(RETRY) RETRY(3)")

    Args:
        table: A path, or the text of a table, which has several lines or parentheses.

    Raises:
        ConfigurationError: The table has errors. Its text and its ``diagnostics`` have every
            finding, with line, column and caret.
        NotFoundError: There is no such file.
    """
    name = os.fspath(table)
    is_path = not isinstance(table, str) or _is_file(table)
    if is_path or ("\n" not in name and "(" not in name):
        path = Path(name)
        if not path.is_file():
            hint = "give the path of a rules table, or its text, which has keywords with (values)"
            raise NotFoundError(f"there is no file {name}", hint=hint)
        return RulesTable(decode_source(path.read_bytes()), name)
    return RulesTable(name)


def _is_file(text: str) -> bool:
    with contextlib.suppress(OSError, ValueError):  # too long, or with a NUL
        return "\n" not in text and Path(text).is_file()
    return False


class RulesTable:
    """A rules table without errors, made by ``redrive.read_table``."""

    def __init__(self, text: str, name: str = "<text>") -> None:
        """Checks the text of a table; raises ``ConfigurationError`` with every finding."""
        self._text, self._name = text, name
        self._count = len(parse(text, name=name, schemes=None).required().rules)

    def __repr__(self) -> str:
        return f"<RulesTable {self._name}: {counted(self._count, 'rule')}>"

    def decide(self, frame: DataFrame, settings: SettingsSource | None = None) -> DataFrame:
        """Adds what the table does with each dead letter, as the job would at the first attempt.

            redrive.read_table("orders.rul").decide(frame).groupBy("rule_line", "action").count()

        The engine of the job decides. What only a cluster or settings know is assumed:

        * Each row is a dead letter of the topic in its column ``topic``, not tried before: rounds
          and attempts in Redrive's headers do not count.
        * Every target exists, may be written to, and takes the message: there are no limits, no
          definitions of queue managers, and other clusters and transforms exist.
        * No breaker is open, and no earlier message of a key waits, whatever ORDER says.
        * Ages count until Spark handles the row.

        Args:
            frame: As for ``redrive.dead_letters``; its result is one too.
            settings: As for ``redrive.dead_letters``.

        Returns:
            The same rows, with all their columns, and these: ``rule_line`` (int; null if no rule
            applies), ``action`` (``RETRY``, ``FWD``, ``DISCARD``, ``IGNORE``, ``QUARANTINE``, or
            ``REMAINS`` if no rule applies), ``target`` (the topic or queue that it is put to; null
            for none), ``delay`` (bigint; seconds from the failure to the put; null if nothing is
            put), ``reason`` (int; MQ's reason code if the put fails for what the message says; else
            null) and ``detail`` (why it fails, or why nothing is put).

        Raises:
            UsageError: A column is missing, has another type, or has the name of an added one.
            ConfigurationError: There is an error in the settings; every finding is attached.
        """
        schemes, origins = _reading_of(settings)
        work = partial(
            decide_rows, text=self._text, name=self._name, schemes=schemes, origins=origins
        )
        return _with_columns(frame, _DECISION, work)


def _with_columns(frame: DataFrame, added: _Types, work: _Work) -> DataFrame:
    """The frame with columns that the work adds, in Spark's Python workers."""
    from pyspark.sql.types import StructType  # noqa: PLC0415 - slow to import

    _check_columns(frame, added)
    schema = StructType([*frame.schema.fields])
    for name, type_ in added.items():
        schema = schema.add(name, _SPARK_TYPES[type_])
    return frame.mapInArrow(_where_importable(pickle.dumps(work)), schema)


def _where_importable(work: bytes) -> _Work:
    """Pickled work as a function that Spark sends to workers; it says so where they lack redrive.

    Spark pickles this function as code, not by its name, so that it runs without the package.
    """
    problem, hint = _NOT_IMPORTABLE, _SHIPPED

    def run(batches: _Batches) -> Iterator[pa.RecordBatch]:
        try:
            own: _Work = pickle.loads(work)  # noqa: S301 - made by the driver
        except ImportError as error:
            raise ImportError(f"{problem}: {error}\nhint: {hint}") from error
        yield from own(batches)

    return run


def check_workers(spark: SparkSession) -> None:
    """Checks that Spark's Python can import redrive, here and on an executor.

    Spark plans the job's own sources here, without what ``--py-files`` and ``--archives`` bring.

    Raises:
        EnvironmentFault: It cannot; the job would wait for the package without an end.
    """
    from pyspark.errors import PythonException  # noqa: PLC0415 - slow to import

    context: Any = spark.sparkContext
    program, of_java = context.pythonExec, context._jvm.System.getenv("PYTHONPATH")  # noqa: SLF001 - no public name
    command = [program, "-c", "import redrive"]
    environ = os.environ | {"PYTHONPATH": of_java or ""}
    try:
        subprocess.run(
            command, env=environ, capture_output=True, text=True, check=True, timeout=_START
        )
    except (OSError, subprocess.SubprocessError) as error:
        said = (isinstance(error, subprocess.CalledProcessError) and error.stderr) or str(error)
        raise EnvironmentFault(
            f"Spark's Python on this machine cannot import redrive: {said.splitlines()[-1]}",
            hint=f"PYSPARK_PYTHON is {program}: the job needs it on this machine as on executors."
            " Unpack an archive here too; give what --py-files has in PYTHONPATH too",
        ) from error
    casts = [f"CAST(NULL AS {type_}) AS {name}" for name, type_ in _TYPES.items()]
    try:
        dead_letters(spark.range(1).where("id < 0").selectExpr(*casts)).collect()
    except PythonException as error:
        if _NOT_IMPORTABLE not in str(error):
            raise
        raise EnvironmentFault(_NOT_IMPORTABLE, hint=_SHIPPED) from error


def _check_columns(frame: DataFrame, added: Iterable[str]) -> None:
    types = {field.name: field.dataType.simpleString() for field in frame.schema.fields}
    hint = "Spark's Kafka source gives it if the frame is read with the option includeHeaders=true"
    if "headers" not in types:
        raise UsageError("the frame has no column headers", hint=hint)
    if missing := [name for name in _TYPES if name not in types]:
        raise UsageError(
            f"the frame has no column {', '.join(missing)}",
            hint="keep the columns of Spark's Kafka source, or name yours so:"
            f" {', '.join(f'{name} {type_}' for name, type_ in _TYPES.items())}",
        )
    wrong = {name: types[name] for name, type_ in _TYPES.items() if types[name] != type_}
    if wrong:
        listed = (f"{name} is {type_}, not {_TYPES[name]}" for name, type_ in wrong.items())
        raise UsageError(
            f"the frame has columns of other types: {'; '.join(listed)}",
            hint="leave the columns of Spark's Kafka source as they are, without CAST",
        )
    known = {name.lower() for name in types}
    if taken := [name for name in added if name in known]:
        raise UsageError(
            f"the frame already has a column {', '.join(taken)}",
            hint="rename or drop it before: withColumnRenamed, drop",
        )


# -- in Spark's Python workers -------------------------------------------------------------------


def _by_topic(batches: _Batches, origins: _Origins) -> Iterator[tuple[pa.RecordBatch, str]]:
    """The batches, each of the topic beside it where topics have an ``origin_topic``."""
    for batch in batches:
        topics = batch.column("topic").fill_null("")
        for topic in pc.unique(topics).to_pylist() if origins else []:
            yield batch.filter(pc.equal(topics, topic)), topic
        if not origins:
            yield batch, ""


def read_failures(
    batches: _Batches, schemes: _Schemes = (), origins: _Origins = ()
) -> Iterator[pa.RecordBatch]:
    """The batches with the columns of ``dead_letters``, by these schemes besides the known ones."""
    table = SchemeTable((scheme.scheme() for scheme in schemes), origins)
    decoder = DeadLetterDecoder()
    for batch, topic in _by_topic(batches, origins):
        with collector_paused():
            columns = _failures(Records.from_arrow(batch, reads_few=True), decoder, table.at(topic))
        yield _with_arrays(batch, _FAILURE, columns)


def _failures(
    records: Records, decoder: DeadLetterDecoder, table: SchemeTable
) -> dict[str, pa.Array]:
    codes, profiles = decoder.decode(records, table)
    distinct, rows = np.unique(codes, return_inverse=True)
    kinds = [profiles[code] for code in distinct.tolist()]
    kind_of = [kinds[row] for row in rows.tolist()]
    columns: dict[str, list[Any]] = {name: [None] * len(records) for name in _OF_A_MESSAGE}
    schemes = {_scheme(kind) for kind in kinds}
    for scheme in schemes - {None}:
        assert scheme is not None
        varying = _varying(scheme, records)
        if len(schemes) == 1:  # nearly always
            columns = varying
            continue
        for name, values in varying.items():
            pairs = zip(values, kind_of, columns[name], strict=True)
            columns[name] = [
                value if _scheme(kind) is scheme else other for value, kind, other in pairs
            ]
    if None in schemes:
        _read_forms(kind_of, records, table, columns["failed_at"])
    if any(kind.group_topic for kind in kinds):
        _name_original(kind_of, columns)
    columns["failed_at"] = [
        _microseconds(valid_time(failed_at) or timestamp) if kind.is_dead_letter else None
        for failed_at, timestamp, kind in zip(
            columns["failed_at"], records.timestamps, kind_of, strict=True
        )
    ]
    arrays = {name: pa.array(columns[name], _FAILURE[name]) for name in _OF_A_MESSAGE}
    return arrays | _spread(_FAILURE, _OF_A_PROFILE, kinds, rows)


def _scheme(profile: DeadLetterProfile) -> Scheme | None:
    """The scheme that says why a message failed; None for MQ's forms, and if there is none."""
    scheme = profile.taken[0] if profile.taken else None
    return scheme if isinstance(scheme, Scheme) else None


def _microseconds(milliseconds: int | None) -> int | None:
    return None if milliseconds is None else 1000 * milliseconds


def _varying(scheme: Scheme, records: Records) -> dict[str, list[Any]]:
    """The attributes of a scheme that differ in nearly every message, in all records."""

    def values(name: str) -> list[Any]:
        raws, read = column_of(scheme, name, records) or ([None] * len(records), None)
        return [raw if raw is None or read is None else read(raw) for raw in raws]

    return {
        "error_message": values("error.message"),
        "origin_partition": [*map(valid_partition, values("origin.partition"))],
        "origin_offset": values("origin.offset"),
        "failed_at": values("failed_at"),
    }


def _read_forms(
    kinds: list[DeadLetterProfile], records: Records, table: SchemeTable, failed_at: list[Any]
) -> None:
    """Fills in the time in MQ's dead-letter headers, which have nothing else that varies."""
    for row, kind in enumerate(kinds):
        if kind.is_dead_letter and _scheme(kind) is None:
            record = records.keys[row], records.values[row], records.headers[row]
            failed_at[row] = read_view(*record, schemes=table).failed_at


def _name_original(kinds: list[DeadLetterProfile], columns: Mapping[str, list[Any]]) -> None:
    """Names the original record of failures on the topics of groups; its offset is unknown."""
    for row, kind in enumerate(kinds):
        if kind.group_topic is not None:
            columns["origin_partition"][row] = kind.group_topic.partition
            columns["origin_offset"][row] = None


def decide_rows(
    batches: _Batches, *, text: str, name: str, schemes: _Schemes = (), origins: _Origins = ()
) -> Iterator[pa.RecordBatch]:
    """The batches with the columns of ``RulesTable.decide``, by a table of this text and name."""
    decisions = _FrameDecisions(text, name, schemes, origins)
    for batch, _ in _by_topic(batches, origins):
        with collector_paused():
            columns = decisions.columns(batch, now=int(time.time() * 1000))
        yield _with_arrays(batch, _DECISION, columns)


class _FrameDecisions:
    """Decides rows by one table: one decider for each topic, and the best case as facts."""

    def __init__(self, text: str, name: str, schemes: _Schemes, origins: _Origins) -> None:
        self._text, self._name, self._schemes = text, name, schemes
        self._origins, self._decoder = dict(origins), DeadLetterDecoder()
        self._facts = Facts(time.monotonic)
        self._context = SliceContext(self._facts, "", 0)
        self._deciders: dict[str, RulesDecider] = {}

    def columns(self, batch: pa.RecordBatch, now: int) -> dict[str, pa.Array]:
        """The columns of the decisions about a batch at a time in milliseconds."""
        self._facts.begin_slice()
        self._context.now = now
        self._context.begin()
        if len(self._deciders) > _DECIDERS:
            self._deciders.clear()
        topics = batch.column("topic").fill_null("").dictionary_encode()
        deciders = [self._decider(topic) for topic in topics.dictionary.to_pylist()]
        records = Records.from_arrow(batch, reads_few=True)
        places = topics.indices.to_numpy().astype(np.int64)
        schemes = deciders[0].schemes if deciders else KNOWN  # those of all topics here
        codes, profiles = self._decoder.decode(records, schemes)
        decided: dict[int, Decision] = {}
        if any(decider.profiles.is_varied for decider in deciders):
            keys = np.empty(len(records), np.int64)
            for row, (place, code) in enumerate(zip(places.tolist(), codes.tolist(), strict=True)):
                decision = self._decide_row(deciders[place], profiles[code], records, row)
                decided[id(decision)] = decision
                keys[row] = id(decision)
            distinct, rows = np.unique(keys, return_inverse=True)
        else:
            count = max(1, len(profiles))
            distinct, rows = np.unique(places * count + codes, return_inverse=True)
            for pair in distinct.tolist():
                decider, profile = deciders[pair // count], profiles[pair % count]
                decided[pair] = self._decide(decider, decider.profiles.shared(profile))
        questions = self._facts.take_questions()
        self._facts.learn(Answers(dict.fromkeys(questions.topics, BEST_CASE)))
        return _spread(_DECISION, _OF_A_DECISION, [decided[key] for key in distinct.tolist()], rows)

    def _decide_row(
        self, decider: RulesDecider, profile: DeadLetterProfile, records: Records, row: int
    ) -> Decision:
        headers = own.without_own(records.headers[row])
        source = RuleInput(
            records.keys[row], records.values[row], headers, records.timestamps[row],
            self._context.now,
        )  # fmt: skip
        return self._decide(decider, decider.profiles.match_first(profile, source))

    def _decide(self, decider: RulesDecider, profile: DeadLetterProfile) -> Decision:
        return decider.decision_of_profile(profile, NO_ATTEMPTS, self._context, hops=0)

    def _decider(self, topic: str) -> RulesDecider:
        decider = self._deciders.get(topic)
        if decider is None:
            handler = HandlerConfiguration(
                identity=HandlerIdentity.of(_APPLICATION, topic),
                rules=self._text,
                rules_name=self._name,
                origin_topic=self._origins.get(topic, ""),
            )
            nowhere = Connection(bootstrap_servers="")
            named = {rule.forward_cluster for rule in table_of(handler).rules}
            job = JobConfiguration(
                application=_APPLICATION,
                connection=nowhere,
                clusters=dict.fromkeys(named - {""}, nowhere),
                handlers=(handler,),
                directory=Path(),
                ledger=LedgerConfiguration(path=Path()),
                schemes=self._schemes,
            )
            made, _ = DeciderFactory(job, self._facts).deciders()[topic]
            assert isinstance(made, RulesDecider)
            decider = self._deciders[topic] = made
        return decider


def _spread(
    types: _Types,
    values: Mapping[str, Callable[[_Shared], object]],
    distinct: Sequence[_Shared],
    rows: npt.NDArray[np.int64],
) -> dict[str, pa.Array]:
    """Columns of all rows, from values of the objects that they share; ``rows`` numbers these."""
    places = pa.array(rows.ravel(), pa.int64())
    return {
        name: pa.array([value(shared) for shared in distinct], types[name]).take(places)
        for name, value in values.items()
    }


def _with_arrays(
    batch: pa.RecordBatch, names: Iterable[str], columns: Mapping[str, pa.Array]
) -> pa.RecordBatch:
    """A batch with further columns, in the order of their names."""
    return pa.RecordBatch.from_arrays(
        [*batch.columns, *(columns[name] for name in names)], names=[*batch.schema.names, *names]
    )
