"""Frames with Kafka's columns: dead letters as columns, and what a table does with each row."""

from __future__ import annotations

import json
import pickle
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import chain
from pathlib import Path
from textwrap import dedent
from traceback import format_exception_only
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark import cloudpickle
from pyspark.sql.types import ArrayType, StructType
from tests.engine.jobs import DEAD_LETTERS, MemoryJob, at_now
from tests.engine.test_views import HEADERS as FORMS
from tests.engine.test_views import KAFKA_PATTERNS, SINKS, connect, letters_of
from tests.messages.samples import ASCII_LITTLE
from tests.messages.schemes import reference
from tests.outcomes import conftest as outcomes
from tests.outcomes.small_job import SmallJob
from tests.streaming.conftest import Jobs, letter

from redrive.engine.decision import Put
from redrive.errors import ConfigurationError, NotFoundError, UsageError
from redrive.frames import (
    RulesTable,
    _where_importable,
    dead_letters,
    decide_rows,
    read_failures,
    read_table,
)
from redrive.messages import (
    Headers,
    Records,
    TopicPartition,
    decode_dead_letter,
    read_view,
)
from redrive.messages.own_headers import GROUP_TOPIC, GroupTopic
from redrive.settings import read_settings
from redrive.streaming.rows import arrow_batch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

WHEN: Final = 1_700_000_000_000
"""The timestamp of every dead letter, in milliseconds."""
FAILURE: Final = (
    *("scheme", "error_class", "error_root_class", "error_message", "consumer_group"),
    *("origin_topic", "origin_partition", "origin_offset", "failed_at", "attempts", "hop"),
)


def batch_of(
    headers: Sequence[Headers], value: bytes | None = b"x", topic: str = "dlq"
) -> pa.RecordBatch:
    count = len(headers)
    records = Records([b"k"] * count, [value] * count, [*headers], [WHEN] * count, [*range(count)])
    return arrow_batch(TopicPartition(topic, 0), records)


def moment(milliseconds: int | None) -> datetime | None:
    """A time as Arrow gives it."""
    if milliseconds is None:
        return None
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=milliseconds)


def expected(headers: Headers, value: bytes | None) -> dict[str, Any]:
    """The columns of one dead letter by the job's own profile and view of it."""
    profile = decode_dead_letter(value, headers, key=b"k")
    if not profile.is_dead_letter:
        return dict.fromkeys(FAILURE)
    view, failure = read_view(b"k", value, headers), profile.view
    is_time = view.failed_at is not None and 0 < view.failed_at < 10**15
    return {
        "scheme": profile.scheme,
        "error_class": failure.error_class,
        "error_root_class": failure.error_root_class,
        "error_message": view.error_message,
        "consumer_group": failure.consumer_group or None,
        "origin_topic": failure.origin.topic,
        "origin_partition": view.origin.partition,
        "origin_offset": view.origin.offset,
        "failed_at": moment(view.failed_at if is_time else WHEN),
        "attempts": failure.attempts,
        "hop": failure.hop,
    }


def check_failures(headers: Sequence[Headers], value: bytes | None = b"x") -> None:
    """The columns of a batch are those of each message alone."""
    batch = batch_of(headers, value)
    [read] = read_failures([batch])
    assert read.select(batch.schema.names) == batch
    rows = read.select([*FAILURE]).to_pylist()
    assert rows == [expected(pairs, value) for pairs in headers]


@pytest.mark.parametrize("scheme", sorted(reference.SCHEMES))
@settings(max_examples=15)
@given(data=st.data())
def test_columns_of_each_scheme_are_those_of_the_job(scheme: str, data: st.DataObject) -> None:
    headers = data.draw(reference.headers_of(scheme))
    raws = st.binary(max_size=9)
    alike: list[Headers] = [[(name, data.draw(raws)) for name, _ in headers] for _ in range(2)]
    check_failures([headers, *alike])


@settings(max_examples=30)
@given(st.lists(st.sampled_from(sorted(reference.SCHEMES)), max_size=4), st.data())
def test_schemes_may_be_mixed_in_a_batch(schemes: list[str], data: st.DataObject) -> None:
    headers = [data.draw(reference.headers_of(scheme)) for scheme in schemes]
    check_failures([*headers, [], FORMS[0]])


@pytest.mark.parametrize("value", [ASCII_LITTLE + b"body", ASCII_LITTLE[:99], b"", None])
def test_forms_of_ibm_mq_have_their_time(value: bytes | None) -> None:
    times = [("mqdlh.PutDate", b"20260115"), ("mqdlh.PutTime", b"12345678")]
    check_failures([[], [*FORMS[3], *times], [("x", None)]], value)


def test_failures_on_the_topic_of_a_group_name_the_original() -> None:
    place = [("__connect.errors.offset", b"7")]
    headers: list[Headers] = [
        [*connect("orders", is_round=True), *place],
        [*connect("orders"), (GROUP_TOPIC, GroupTopic("orders.sink", "orders", 3).value), *place],
    ]
    check_failures(headers)
    check_failures(headers[:1])
    [row] = next(read_failures([batch_of(headers[:1])])).to_pylist()
    assert (row["origin_topic"], row["origin_partition"], row["origin_offset"]) == (
        "orders", 0, None,
    )  # fmt: skip


def test_topics_of_a_batch_have_their_own_origins() -> None:
    topics = pa.array(["a.dlq", "b.dlq", "a.dlq", None])
    batch = batch_of([[]] * 4)
    batch = batch.set_column(batch.schema.get_field_index("topic"), "topic", topics)
    origins = (("a.dlq", "a"),)
    rows = pa.Table.from_batches(read_failures([batch], origins=origins)).to_pylist()
    assert {(row["topic"], row["scheme"], row["origin_topic"]) for row in rows} == {
        ("a.dlq", "bare", "a"),
        ("b.dlq", None, None),
        (None, None, None),
    }
    decided = decide_rows([batch], text="ACTION(RETRY)\n", name="t", origins=origins)
    targets = pa.Table.from_batches(decided).to_pylist()
    assert sorted(row["target"] or "" for row in targets) == ["", "", "a", "a"]


def test_empty_batches_get_the_columns_too() -> None:
    [read] = read_failures([batch_of([])])
    [decided] = decide_rows([read], text="ACTION(DISCARD)\n", name="t")
    assert (decided.num_rows, decided.schema.names[-6:]) == (0, DECISION)


# -- decisions

DECISION: Final = ["rule_line", "action", "target", "delay", "reason", "detail"]
LETTERS: Final = [
    *letters_of(FORMS[::7], [[]]),
    *SINKS[::5],
    *letters_of([connect("A", is_round=True), []], [[], [("x", b"y")]])[::3],
]
TABLES: Final = {
    "ibm": "REASON(2053) ACTION(RETRY) RETRY(3)\n"
    "DESTQ(A) ACTION(FWD) FWDQ(B) FWDQM(QM2)\nACTION(IGNORE)\n",
    "names": "DESTQ('?') ACTION(FWD) FWDQ(&DESTQ)\nACTION(FWD) FWDQ(&REPLYQ)\n",
    "groups": "DIALECT(KAFKA) RETRYINT(5)\n"
    "SCHEME(connect) ACTION(RETRY) TO(GROUP) RETRY(2) BACKOFF(1s,2,8s)\n"
    "DESTQ(A) ACTION(DISCARD)\nACTION(QUARANTINE)\n",
    "topics": "DIALECT(KAFKA)\nGROUP(connect-sink) ACTION(FWD) FWDT('&TOPIC.&GROUP')\n"
    "ACTION(FWD) FWDT(DLQ)\n",
    "order": "DIALECT(KAFKA) ORDER(KEY)\nACTION(RETRY) RETRY(2)\n",
    **{
        pattern: f"DIALECT(KAFKA)\n{pattern} ACTION(RETRY) RETRY(2)\nACTION(FWD) FWDT('&GROUP.x')\n"
        for pattern in KAFKA_PATTERNS
    },
}


@pytest.mark.parametrize("rules", TABLES.values(), ids=TABLES)
@at_now
def test_decisions_are_those_of_the_job(rules: str) -> None:
    job = MemoryJob(rules)
    batch = arrow_batch(TopicPartition(DEAD_LETTERS, 0), job.part(DEAD_LETTERS, LETTERS).records)
    halves = [batch.slice(0, 50), batch.slice(50)]
    rows = chain.from_iterable(
        decided.select(DECISION).to_pylist()
        for decided in decide_rows(halves, text=rules, name="t.rul")
    )
    each = [job.decide(DEAD_LETTERS, [record])[0] for record in LETTERS]
    assert [*rows] == [
        {
            "rule_line": done.row.rule_line or None,
            "action": done.row.action or "REMAINS",
            "target": str(done.decision.target) or None,
            "delay": done.attempt_now.wait if isinstance(done.attempt_now, Put) else None,
            "reason": done.attempt_now.reason or None,
            "detail": done.attempt_now.detail or None,
        }
        for done in each
    ]


def test_no_rule_puts_to_the_topic_of_its_row() -> None:
    table = "DIALECT(KAFKA)\nACTION(FWD) FWDT(dlq)\n"
    for topic, reason in {"dlq": 2541, "other.dlq": None}.items():
        [decided] = decide_rows([batch_of([FORMS[0]], topic=topic)], text=table, name="t")
        assert decided.column("reason").to_pylist() == [reason]


def test_other_clusters_and_transforms_are_assumed_to_exist() -> None:
    table = "DIALECT(KAFKA)\nACTION(FWD) FWDT('west:orders') TRANSFORM(mask)\n"
    [decided] = decide_rows([batch_of([FORMS[0]])], text=table, name="t")
    [row] = decided.select(DECISION).to_pylist()
    assert (row["target"], row["reason"], row["detail"]) == ("west:orders", None, None)


# -- tables


def test_table_is_read_from_a_path_or_a_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "orders (1).rul"
    path.write_text("REASON(2053) ACTION(RETRY)\nACTION(IGNORE)\n")
    monkeypatch.chdir(tmp_path)
    for table in (path, str(path), path.name):
        assert repr(read_table(table)) == f"<RulesTable {table}: 2 rules>"
    for text in ("ACTION(DISCARD)", path.read_text()):
        assert isinstance(read_table(text), RulesTable)
    for missing in ("orders.rul", tmp_path / "ACTION(RETRY)"):
        with pytest.raises(NotFoundError, match="there is no file"):
            read_table(missing)


def test_wrong_table_is_refused_with_every_finding_and_its_caret() -> None:
    with pytest.raises(ConfigurationError) as caught:
        read_table("REASON(MQRC_Q_FUL) ACTION(RETRY)\nDESTQ(A) ACTION(DROP)\n")
    assert [finding.line for finding in caught.value.diagnostics] == [1, 2]
    lines = "".join(format_exception_only(caught.value)).splitlines()
    assert lines[0].endswith("<text>: 2 errors in the rules table, nothing was started")
    assert lines[1].startswith("<text>:1:8: error: ")
    assert lines[3] == "    " + " " * 7 + "^" + "~" * 9
    assert lines[-1].startswith("hint: ")


# -- frames


PAIR: Final = StructType().add("key", "string").add("value", "binary")
COLUMNS: Final[dict[str, Any]] = {
    "topic": "string", "partition": "integer", "offset": "long", "timestamp": "timestamp",
    "key": "binary", "value": "binary", "headers": ArrayType(PAIR),
}  # fmt: skip
"""The columns of Spark's Kafka source."""


def frame_with(columns: Mapping[str, Any]) -> Any:
    """As much of a DataFrame as is looked at before Spark plans anything."""
    schema = StructType()
    for name, type_ in columns.items():
        schema = schema.add(name, type_)
    return SimpleNamespace(schema=schema)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"headers": None}, "no column headers\nhint: .* includeHeaders=true"),
        ({"topic": None}, "no column topic\nhint: .*topic string, partition int"),
        ({"key": "string"}, "key is string, not binary\nhint: .*CAST"),
        ({"Scheme": "string", "hop": "long"}, "already has a column scheme, hop\nhint: rename"),
    ],
)
def test_frames_without_the_columns_of_kafka_are_refused(
    columns: Mapping[str, Any], message: str
) -> None:
    changed = {name: type_ for name, type_ in {**COLUMNS, **columns}.items() if type_ is not None}
    with pytest.raises(UsageError, match=message):
        dead_letters(frame_with(changed))


def test_decided_frames_have_no_column_twice() -> None:
    with pytest.raises(UsageError, match="already has a column reason"):
        read_table("ACTION(DISCARD)").decide(frame_with(COLUMNS | {"reason": "integer"}))


def test_executor_without_the_package_says_how_to_ship_it() -> None:
    """Spark pickles what runs there as code; the package is hidden from the other process."""
    dumps: Callable[[object], bytes] = cloudpickle.dumps
    pickled = dumps(_where_importable(pickle.dumps(read_failures)))
    program = (
        f"import pickle, sys\nsys.modules['redrive'] = None\nlist(pickle.loads({pickled!r})([]))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert "ImportError: redrive cannot be imported by Spark's Python worker: " in done.stderr
    assert "--py-files" in done.stderr
    assert "spark.archives" in done.stderr


small_job = outcomes.small_job
BILLING: Final = """\
[schemes.billing]
recognise = "failed-class"
error.class = "failed-class"
error.message = "$.text"
"""


def test_frames_of_a_topic_say_what_the_job_says(small_job: SmallJob, spark: SparkSession) -> None:
    """Batch and streaming, of a topic with four schemes, under a table that matches messages."""
    dlq, target = small_job.identity.topic, small_job.target
    rules = (
        "DIALECT(KAFKA)\nKEY('k1*') ACTION(DISCARD)\nSCHEME(connect) ACTION(RETRY) RETRY(3)\n"
        f"SCHEME(redrive) ACTION(FWD) FWDT({target})\nSCHEME(billing) ACTION(QUARANTINE)\n"
    )
    path = Path(small_job.config_file)
    path.with_name("orders.rul").write_text(rules)
    path.write_text(path.read_text() + BILLING)
    small_job.produce(
        record | {"key": f"k{number}".encode(), "partition": number % 2}
        for number in range(3, 13)
        for record in (
            {"value": b"x", "headers": connect(target)},
            letter(2053, "A"),
            {"value": None, "headers": [("mqdlh.Reason", b"2085"), ("x", b"1")]},
            {"value": b'{"text": "no money"}', "headers": [("failed-class", b"NotPaid")]},
            {"value": b"no dead letter"},
        )
    )
    configuration = read_settings(path).job
    job = SmallJob(configuration, target, "", small_job.kafka)
    job.step(int(time.time() * 1000))
    job.close()
    said = sorted(
        (
            outcome["partition"], outcome["offset"], outcome["form"],
            outcome.get("error_class") or None, outcome.get("error_message"),
            outcome.get("consumer_group") or None,
            outcome.get("rule_line") or None, outcome.get("action") or "REMAINS",
            outcome.get("target_queue") or None, outcome.get("reason") or None,
        )
        for outcome in map(json.loads, job.kafka.values(configuration.outcomes_topic))
    )  # fmt: skip
    assert Counter(outcome[7] for outcome in said) == {
        "DISCARD": 12, "RETRY": 7, "FWD": 7, "QUARANTINE": 7, "REMAINS": 17,
    }  # fmt: skip

    def source(reader: Any) -> DataFrame:
        options = {
            "kafka.bootstrap.servers": job.kafka.bootstrap_servers, "subscribe": dlq,
            "startingOffsets": "earliest", "includeHeaders": "true",
        }  # fmt: skip
        frame: DataFrame = reader.format("kafka").options(**options).load()
        return read_table(rules).decide(dead_letters(frame, path), path)

    def check(frame: DataFrame) -> None:
        rows = sorted(
            (
                row.partition, row.offset, row.scheme or "none",
                row.error_root_class, row.error_message, row.consumer_group,
                row.rule_line, row.action, row.target, row.reason,
            )
            for row in frame.collect()
        )  # fmt: skip
        assert rows == said

    check(source(spark.read))
    query = (
        source(spark.readStream).writeStream.format("memory").queryName("decided")
        .trigger(availableNow=True).start()
    )  # fmt: skip
    try:
        assert query.awaitTermination(300)
        check(spark.table("decided"))
    finally:
        query.stop()


def test_examples_of_the_page_run(jobs: Jobs, monkeypatch: pytest.MonkeyPatch) -> None:
    """The blocks of docs/spark.md about frames, one after the other."""
    page = (Path(__file__).parents[2] / "docs" / "spark.md").read_text(encoding="utf-8")
    about = page[page.index("## Dead letters as columns") : page.index("## On a cluster")]
    blocks = re.findall(r"(?:^    .*\n|^\n)+", about, flags=re.MULTILINE)
    program = dedent("".join(blocks))
    dlq = jobs.topic("orders.dlq")
    jobs.produce(dlq, [{"value": b"x", "headers": connect("orders")}, letter(2053, "A")])
    (jobs.folder / "orders.rul").write_text("REASON(2053) ACTION(RETRY)\nACTION(IGNORE)\n")
    monkeypatch.chdir(jobs.folder)
    program = program.replace("localhost:9092", jobs.bootstrap_servers).replace("orders.dlq", dlq)
    names: dict[str, Any] = {"spark": jobs.spark}
    exec(program, names)  # noqa: S102 - it is the page's
    counted = names["decided"].groupBy("action").count().collect()
    assert sorted((row.action, row["count"]) for row in counted) == [("IGNORE", 1), ("RETRY", 1)]
