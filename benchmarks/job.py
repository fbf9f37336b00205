"""The job against a plain loop and against Spark's own Kafka sink, and how quick and idle it is.

Everything runs on an embedded broker on this machine, one contestant after the other on the same
backlog, each in a process of its own:

    job         Redrive: decode, 20 rules, put, one outcome record each, exactly once
    plain loop  one process, confluent-kafka: the same records, exactly once, no rules
    spark sink  Spark's Kafka source and sink: one record each, at least once

``python -m benchmarks.job`` runs all of it; ``--only latency`` and so on a part, ``--only start
--runs 5`` several starts. ``--json`` for programs. The figures depend on the machine: compare the
ratios of one run.
"""

from __future__ import annotations

import contextlib
import gc
import itertools
import json
import os
import signal
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from benchmarks.clients import Pairs, Sent, create, listener, produce
from benchmarks.command_line import broker, hidden, in_process, parser, show
from confluent_kafka import Consumer, Producer, TopicPartition
from kafka.admin import NewTopic

from redrive.configuration import (
    EmitterChoice,
    HandlerConfiguration,
    JobConfiguration,
    LedgerConfiguration,
)
from redrive.engine.attempts import Resolvers
from redrive.engine.message import NO_ATTEMPTS
from redrive.engine.names import HandlerIdentity
from redrive.engine.rules_decider import RulesDecider
from redrive.kafka.connection import Connection
from redrive.messages import DeadLetterHeader, Headers, decode_dead_letter, encode_header
from redrive.rules import parse
from redrive.streaming.job import run
from redrive.streaming.lifecycle import BatchSummary, JobControl, JobObserver
from redrive.streaming.session import start_session
from redrive.topology.put import Destination

_REST: Final = 20.0
"""Seconds over which the cost of waiting, or of doing nothing, is measured."""
_PLANNERS: Final = 30.0
"""Seconds until Spark has ended its planning processes, which are idle for a minute by then."""
_WRITING: Final = 0.3
"""Cores in use above which the ledger still writes what was parked."""
GIVEN: Final = ("contestant", "servers", "directory", "name")
"""Options for the process of a contestant."""
PARTITIONS: Final = 4
TARGETS: Final = tuple(f"target.{number}" for number in range(5))
REASONS: Final = (2053, 2085, 2035, 2051, 2030)
BODY: Final = bytes(range(64)) * 5 + bytes(8)
"""328 bytes: with the dead-letter header of 172 a message has 500."""

MD: Final[Pairs] = [
    ("JMS_IBM_MQMD_Format", b"MQDEAD"), ("JMS_IBM_MQMD_MsgType", b"8"),
    ("JMS_IBM_MQMD_Persistence", b"1"), ("JMS_IBM_MQMD_UserIdentifier", b"alice"),
    ("JMS_IBM_MQMD_PutApplName", b"payapp"), ("JMS_IBM_MQMD_ReplyToQ", b"REPLIES"),
    ("JMS_IBM_MQMD_ReplyToQMgr", b"QM1"),
]  # fmt: skip
"""Seven headers; the eighth, the message id, differs from message to message."""


def table() -> str:
    """Twenty rules, of which the last five apply."""
    rules = [f"DESTQ(OTHER.{n}.*) REPLYQM(QM{n}) ACTION(DISCARD)" for n in range(15)]
    rules += [
        f"REASON({reason}) ACTION(FWD) FWDQ('{target}') HEADER(NO)"
        for reason, target in zip(REASONS, TARGETS, strict=True)
    ]
    return "WAIT(NO)\n" + "\n".join(rules) + "\n"


def dead_letter(number: int, headers: list[bytes]) -> tuple[bytes, Pairs]:
    """Value and headers of one message of the backlog."""
    return headers[number % 5] + BODY, [*MD, ("JMS_IBM_MQMD_MsgId", b"%048d" % number)]


def dlh() -> list[bytes]:
    """The five dead-letter headers."""
    return [
        encode_header(DeadLetterHeader(reason=reason, dest_q_name=f"Q{reason}", format="MQSTR"))
        for reason in REASONS
    ]


def fill(servers: str, topic: str, count: int) -> None:
    """Writes the backlog."""
    headers = dlh()
    letters = (dead_letter(number, headers) for number in range(count))
    produce(
        servers,
        (
            Sent(topic, number % PARTITIONS, value, pairs, b"k%d" % (number % 1000))
            for number, (value, pairs) in enumerate(letters)
        ),
    )


# -- contestants, each in a process of its own -------------------------------------------------


def measure_job(
    servers: str, directory: str, name: str, emitter: str, rules: str = ""
) -> dict[str, float]:
    """Redrive on the backlog, started in this process; the first batch warms up."""
    marks: list[tuple[float, int]] = []

    class Marks(JobObserver):
        def batch(self, summary: BatchSummary) -> None:
            marks.append((time.monotonic(), summary.records))

    run(configuration_of(servers, directory, name, emitter, rules), JobControl(Marks()))
    (first, _), (last, _) = marks[0], marks[-1]
    records = sum(count for _, count in marks[1:])
    return {"records": records, "seconds": last - first, "batches": len(marks) - 1}


def configuration_of(
    servers: str, directory: str, name: str, emitter: str, rules: str = ""
) -> JobConfiguration:
    """The job's configuration for the backlog."""
    identity = HandlerIdentity(
        name="b", queue_manager="", queue="backlog", topic="backlog",
        retry_topic=f"redrive-{name}-b-retry", remaining_topic=f"redrive-{name}-b-remaining",
        replay_topic=f"redrive-{name}-b-replay",
    )  # fmt: skip
    return JobConfiguration(
        application=name,
        beside=True,  # each measurement handles the whole backlog
        connection=Connection(bootstrap_servers=servers),
        handlers=(
            HandlerConfiguration(identity=identity, rules=rules or table(), rules_name="b.rul"),
        ),
        directory=Path(directory) / name,
        ledger=LedgerConfiguration(path=Path(directory) / "ledger", enabled=False),
        emitter=EmitterChoice(emitter),
        driver_memory="4g",
    )


def measure_plain_loop(servers: str, directory: str, name: str, _: str) -> dict[str, float]:
    """One process that writes the same records in transactions of 10,000, without any rules."""
    del directory
    gc.collect()
    gc.freeze()
    gc.disable()
    consumer = Consumer(
        {
            "bootstrap.servers": servers, "group.id": name, "enable.auto.commit": False,
            "auto.offset.reset": "earliest", "isolation.level": "read_committed",
            "fetch.wait.max.ms": 5, "queued.min.messages": 200_000,
        }
    )  # fmt: skip
    producer = Producer(
        {
            "bootstrap.servers": servers, "transactional.id": name, "linger.ms": 5,
            "compression.type": "lz4", "batch.size": 512 * 1024, "batch.num.messages": 100_000,
            "queue.buffering.max.messages": 1_000_000, "delivery.report.only.error": True,
        }
    )  # fmt: skip
    producer.init_transactions(30)
    lanes = [TopicPartition("backlog", n) for n in range(PARTITIONS)]
    ends = [consumer.get_watermark_offsets(lane)[1] for lane in lanes]
    consumer.assign([TopicPartition("backlog", n, 0) for n in range(PARTITIONS)])
    tails = {
        reason: _outcome_tail(name, reason, t) for reason, t in zip(REASONS, TARGETS, strict=True)
    }
    position = [0] * PARTITIONS
    started, counted, total = 0.0, 0, sum(ends)
    while sum(position) < total:
        messages = consumer.consume(10_000, timeout=1.0)
        if not messages:
            continue
        producer.begin_transaction()
        for message in messages:
            _forward(producer, message, tails, position, f"redrive-{name}-outcomes")
        producer.flush()
        offsets = [TopicPartition("backlog", n, position[n]) for n in range(PARTITIONS)]
        producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata())
        producer.commit_transaction()
        if not started:
            started = time.monotonic()  # the first batch warms up, as for the job
        else:
            counted += len(messages)
    return {"records": counted, "seconds": time.monotonic() - started, "batches": 0}


def _outcome_tail(name: str, reason: int, target: str) -> tuple[str, str]:

    parsed = parse(table()).table
    if parsed is None:
        raise ValueError("the table of the benchmark has errors")
    identity = configuration_of("x", "x", name, "auto").handlers[0].identity
    handler = RulesDecider(
        identity,
        parsed,
        Resolvers(lambda _m, q, _s: Destination(topic=q, queue=q, queue_manager="")),
        hop_limit=25,
    )
    headers = dict(zip(REASONS, dlh(), strict=True))
    pairs: Headers = [(key, value) for key, value in MD if isinstance(value, bytes)]
    profile = decode_dead_letter(headers[reason] + BODY, pairs)
    return target, handler.decide_profile(profile, NO_ATTEMPTS, hops=0).members


def _forward(
    producer: Producer,
    message: Any,  # noqa: ANN401 - its stub allows None where a consumed record has none
    tails: dict[int, tuple[str, str]],
    position: list[int],
    out: str,
) -> None:
    value, partition, offset = message.value(), message.partition(), message.offset()
    target, members = tails[int.from_bytes(value[8:12], "little")]
    here = f"backlog:{partition}:{offset}"
    identity = here.encode()
    headers = message.headers()
    headers[0] = ("JMS_IBM_MQMD_Format", b"MQSTR")
    headers += [
        ("redrive.id", identity), ("redrive.rule", b"20"),
        ("redrive.table", b"0123456789abcdef"), ("redrive.hops", b"1"),
    ]  # fmt: skip
    key, now = message.key(), message.timestamp()[1]
    outcome = (
        f'{{"outcome":"{here}","message":"{here}","origin":"{here}","topic":"backlog",'
        f'"partition":{partition},"time":{now},"offset":{offset},"size":500,"hop":0,'
        f'"key":"{key.decode()}",{members}}}'
    )
    while True:
        try:
            producer.produce(target, value[172:], key, headers=headers, timestamp=now)
            producer.produce(out, outcome.encode(), identity, timestamp=now)
            break
        except BufferError:
            producer.poll(0.05)
    position[partition] = offset + 1


def measure_spark_sink(servers: str, directory: str, name: str, _: str) -> dict[str, float]:
    """Spark's own Kafka source and sink with the target in an expression: no rules, no outcomes."""
    configuration = configuration_of(servers, directory, name, "auto")
    configuration.directory.mkdir(parents=True, exist_ok=True)
    # The job's options suit the planning of many batches; a million rows want the best code.
    spark = start_session(configuration, java_options=["-XX:+UseParallelGC"])
    cases = " ".join(
        f"WHEN substring(value, 9, 4) = X'{reason.to_bytes(4, 'little').hex()}' THEN '{target}'"
        for reason, target in zip(REASONS, TARGETS, strict=True)
    )
    query = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", "backlog")
        .option("startingOffsets", "earliest")
        .option("includeHeaders", "true")
        .option("maxOffsetsPerTrigger", "200000")
        .option("kafka.fetch.max.wait.ms", "1")
        .load()
        .selectExpr(
            f"CASE {cases} END AS topic", "key", "substring(value, 173) AS value", "headers"
        )
        .writeStream.format("kafka")
        .option("kafka.bootstrap.servers", servers)
        .option("kafka.batch.size", "262144")
        .option("kafka.linger.ms", "5")
        .option("kafka.compression.type", "lz4")
        .option("checkpointLocation", (configuration.directory / "sink").as_uri())
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    progress = [p for p in query.recentProgress if p["numInputRows"]][1:]
    seconds = sum(p["durationMs"]["triggerExecution"] for p in progress) / 1000
    return {
        "records": sum(p["numInputRows"] for p in progress),
        "seconds": seconds,
        "batches": len(progress),
    }


CONTESTANTS: Final[dict[str, tuple[Callable[..., dict[str, float]], str]]] = {
    "plain loop": (measure_plain_loop, ""),
    "job, lanes": (measure_job, "lanes"),
    "spark sink": (measure_spark_sink, ""),
}
STEADY: Final = "spark sink, steady"
"""No contestant of the throughput: it runs until it is killed."""


# -- what is measured --------------------------------------------------------------------------


def throughput(servers: str, directory: str, count: int, runs: int) -> dict[str, Any]:
    """Records a second of each contestant, and what each does with a record."""
    create(
        servers,
        NewTopic("backlog", PARTITIONS, 1),
        *(NewTopic(target, 2, 1) for target in TARGETS),
    )
    fill(servers, "backlog", count)
    rates: dict[str, list[float]] = {name: [] for name in CONTESTANTS}
    numbers = itertools.count(1)
    for _ in range(runs):
        for contestant in CONTESTANTS:
            name = f"bench{next(numbers)}"
            create(servers, NewTopic(f"redrive-{name}-outcomes", 4, 1))
            place = "--servers", servers, "--directory", directory, "--name", name
            measured = in_process("benchmarks.job", contestant, *place)
            rates[contestant].append(measured["records"] / measured["seconds"])
    median = {name: statistics.median(values) for name, values in rates.items()}
    written = {name: 1 if name == "spark sink" else 2 for name in CONTESTANTS}
    return {
        "unit": "records/s",
        "backlog": count,
        "runs": {name: [round(rate) for rate in values] for name, values in rates.items()},
        "input": {name: round(rate) for name, rate in median.items()},
        "of the plain loop, input": {
            name: round(rate / median["plain loop"], 2) for name, rate in median.items()
        },
        "of the spark sink, written": {
            name: round(rate * written[name] / median["spark sink"], 2)
            for name, rate in median.items()
        },
    }


@contextlib.contextmanager
def running_job(
    servers: str, directory: Path, rules: dict[str, str], more: str = ""
) -> Iterator[Any]:
    """``redrive run`` as an operator starts it, with more lines of settings if there are any."""
    directory.mkdir(parents=True, exist_ok=True)
    text = f'[application]\nname = "{directory.name}"\ndirectory = "job"\n'
    text += f'[kafka]\nbootstrap_servers = "{servers}"\n'
    for number, (queue, rule) in enumerate(rules.items()):
        (directory / f"{number}.rul").write_text(rule)
        text += f"[[handlers]]\nqueue = '{queue}'\nrules = '{number}.rul'\n"
    (directory / "redrive.toml").write_text(text + more)
    with (directory / "log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "redrive", "run", "-c", str(directory / "redrive.toml")],
            stdout=log, stderr=log, start_new_session=True,
        )  # fmt: skip
    try:
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)


def percentiles(values: list[float]) -> dict[str, float]:
    """p50, p95, p99 and the extremes, in milliseconds."""
    cut = statistics.quantiles(values, n=100)
    return {
        "count": len(values),
        "p50": round(cut[49]),
        "p95": round(cut[94]),
        "p99": round(cut[98]),
        "min": round(min(values)),
        "max": round(max(values)),
    }


def latency(servers: str, directory: str, seconds: float) -> dict[str, Any]:
    """Start to first outcome, produce to visible at 200 records/s beside Spark's sink, rest."""
    create(servers, NewTopic("quick.dlq", PARTITIONS, 1), NewTopic("quick", 2, 1))
    producer = Producer({"bootstrap.servers": servers, "linger.ms": 0})
    send_timed(producer, "quick.dlq")
    consumer = listener(servers, ["quick"])
    quick_job = servers, Path(directory) / "quick-job", {"quick.dlq": "ACTION(RETRY)\n"}
    with running_job(*quick_job) as job:
        first = until_outcome(consumer)
        time.sleep(_WARM)
        idle = used_cores(job.pid, _REST)
        time.sleep(_PLANNERS)
        resident = sum(map(resident_bytes, cpu_seconds(job.pid)))
        delays = steady_delays(producer, consumer, "quick.dlq", seconds)
        os.killpg(job.pid, signal.SIGKILL)
    consumer = listener(servers, ["quick"])  # a busy machine leaves outcomes that were not read
    send_timed(producer, "quick.dlq")
    with running_job(*quick_job):
        again = until_outcome(consumer)
    sink = sink_delays(servers, directory, seconds)
    return {
        "unit": "ms",
        "start to first outcome, s": round(first, 1),
        "the same after kill -9, s": round(again, 1),
        "idle, cores": round(idle, 3),
        "resident at rest, MB": round(resident / 1e6),
        "produce to visible": percentiles(delays),
        "the same by Spark's own source and sink": percentiles(sink),
    }


def starts(servers: str, directory: str, runs: int) -> dict[str, Any]:
    """Start to first outcome, of new applications and then after kill -9, several times.

    Processor time is that of all processes of the job that live at the first outcome.
    """
    create(servers, NewTopic("quick", 2, 1))
    producer = Producer({"bootstrap.servers": servers, "linger.ms": 0})
    kinds = "first start", "after kill -9"
    wall: dict[str, list[float]] = {kind: [] for kind in kinds}
    spent: dict[str, list[float]] = {kind: [] for kind in kinds}
    for number in range(runs):
        queue = f"start{number}.dlq"
        create(servers, NewTopic(queue, PARTITIONS, 1))
        place = servers, Path(directory) / f"start-{number}", {queue: "ACTION(RETRY)\n"}
        for kind in kinds:
            consumer = listener(servers, ["quick"])
            send_timed(producer, queue)
            producer.flush()
            with running_job(*place) as job:
                wall[kind].append(round(until_outcome(consumer), 1))
                spent[kind].append(round(sum(cpu_seconds(job.pid).values()), 1))
                os.killpg(job.pid, signal.SIGKILL)
            consumer.close()
    figures = {"wall": wall, "processor time": spent}
    medians = {
        f"{name}, {kind}": statistics.median(times)
        for name, by_kind in figures.items()
        for kind, times in by_kind.items()
    }
    return {"unit": "s", **figures, "median": medians, "load": os.getloadavg()[0]}


def until_outcome(consumer: Consumer) -> float:
    """Seconds until a record comes."""
    begun = time.monotonic()
    while consumer.poll(0.1) is None:
        pass
    return time.monotonic() - begun


def sink_delays(servers: str, directory: str, seconds: float) -> list[float]:
    """Produce to visible, in milliseconds, by a query of Spark's own source and sink."""
    create(servers, NewTopic("plain.in", PARTITIONS, 1), NewTopic("plain.out", 2, 1))
    producer = Producer({"bootstrap.servers": servers, "linger.ms": 0})
    consumer = listener(servers, ["plain.out"])
    command = [sys.executable, "-m", "benchmarks.job", "--contestant", STEADY]
    command += ["--servers", servers, "--directory", directory, "--name", "steady-sink"]
    with subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    ) as process:
        try:
            send_timed(producer, "plain.in")
            while consumer.poll(0.1) is None:
                if process.poll() is not None:
                    raise SystemExit("Spark's own query ended")
            time.sleep(_WARM)
            return steady_delays(producer, consumer, "plain.in", seconds)
        finally:
            os.killpg(process.pid, signal.SIGKILL)


def run_steady_sink(servers: str, directory: str, name: str, _: str) -> dict[str, float]:
    """Spark's own Kafka source and sink, as fast as it goes, until it is killed."""
    configuration = configuration_of(servers, directory, name, "auto")
    configuration.directory.mkdir(parents=True, exist_ok=True)
    query = (
        start_session(configuration)
        .readStream.format("kafka")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", "plain.in")
        .option("startingOffsets", "earliest")
        .option("includeHeaders", "true")
        .option("kafka.fetch.max.wait.ms", "1")
        .load()
        .selectExpr("'plain.out' AS topic", "key", "value", "headers")
        .writeStream.format("kafka")
        .option("kafka.bootstrap.servers", servers)
        .option("checkpointLocation", (configuration.directory / "sink").as_uri())
        .trigger(processingTime="0 seconds")
        .start()
    )
    query.awaitTermination()
    return {}


def send_timed(producer: Producer, topic: str) -> None:
    """Sends one dead letter of 500 bytes that begins with the time of now."""
    headers: Pairs = [("mqdlh.Reason", b"2053"), ("mqdlh.DestQName", b"quick")]
    producer.produce(topic, b"%017.3f" % (time.time() * 1000) + b"x" * 483, headers=headers)
    producer.poll(0)


def steady_delays(
    producer: Producer, consumer: Consumer, topic: str, seconds: float
) -> list[float]:
    """Delays at 200 records/s, in milliseconds, from the 20th second on."""
    delays: list[float] = []
    stop = threading.Event()
    reader = threading.Thread(target=_collect_delays, args=(consumer, delays, stop))
    reader.start()
    for number in range(int((seconds + _SETTLING) * _RATE)):
        send_timed(producer, topic)
        time.sleep(max(0.0, begun_at(number, _RATE) - time.monotonic()))
    producer.flush()
    time.sleep(2)
    stop.set()
    reader.join()
    return delays[int(_SETTLING * _RATE) :]


_RATE: Final = 200
"""Records a second of a steady stream."""
_SETTLING: Final = 20.0
"""Seconds of it that are not counted."""
_WARM: Final = 45.0
"""Seconds after which Java has compiled what an idle job needs, and the ledger has been begun."""
_begun: list[float] = []


def begun_at(number: int, rate: float) -> float:
    """When record ``number`` of a steady stream is to be sent."""
    if number == 0:
        _begun[:] = [time.monotonic()]
    return _begun[0] + number / rate


def _collect_delays(consumer: Consumer, delays: list[float], stop: threading.Event) -> None:
    while not stop.is_set():
        message = consumer.poll(0.2)
        if message is not None and message.error() is None:
            delays.append(time.time() * 1000 - float((message.value() or b"")[:17]))


def resident_bytes(pid: int) -> int:
    """Memory of a process, what it shares with others by its share (PSS), from /proc."""
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    return 0


def used_cores(leader: int, seconds: float) -> float:
    """Processor time of a process and its descendants, for some seconds, in cores."""
    before = cpu_seconds(leader)
    time.sleep(seconds)
    after = cpu_seconds(leader)
    # Process by process: one that ended meanwhile would make the sum too small.
    return sum(spent - before.get(pid, 0.0) for pid, spent in after.items()) / seconds


def cpu_seconds(leader: int) -> dict[int, float]:
    """CPU time so far of a process and all its descendants, by process, from /proc."""
    parents, spent = {}, {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
                parents[int(entry.name)] = int(fields[1])
                spent[int(entry.name)] = int(fields[11]) + int(fields[12])
    family, grown = {leader}, True
    while grown:
        children = {pid for pid, parent in parents.items() if parent in family} - family
        family |= children
        grown = bool(children)
    tick = os.sysconf("SC_CLK_TCK")
    return {pid: spent[pid] / tick for pid in family if pid in spent}


def punctuality(servers: str, directory: str, parked: int, seconds: float) -> dict[str, Any]:
    """Due time to visible outcome of retries, while many others wait; then what waiting costs."""
    create(servers, NewTopic("patient.dlq", PARTITIONS, 1), NewTopic("prompt.dlq", PARTITIONS, 1))
    producer = Producer({"bootstrap.servers": servers, "linger.ms": 5})
    headers: Pairs = [("mqdlh.Reason", b"2053"), ("mqdlh.DestQName", b"nowhere")]
    for number in range(parked):
        producer.produce("patient.dlq", b"x" * 500, headers=headers, partition=number % PARTITIONS)
        if number % 10_000 == 0:
            producer.flush()
    producer.flush()
    rules = {
        "patient.dlq": "RETRYINT(3600)\nACTION(RETRY) RETRY(9)\n",
        "prompt.dlq": "RETRYINT(3)\nACTION(RETRY) RETRY(2)\n",
    }
    errors: list[float] = []
    with running_job(servers, Path(directory) / "punctual", rules) as job:
        outcomes = "redrive-punctual-outcomes"
        await_topic(servers, outcomes)
        consumer = listener(servers, [outcomes])
        seen, due = 0, {}
        deadline = time.monotonic() + seconds + 120 + parked / 2000
        sent = False
        while time.monotonic() < deadline:
            message = consumer.poll(0.2)
            if not sent and seen >= parked:
                sent, deadline = True, time.monotonic() + seconds + 8
                threading.Thread(
                    target=_trickle, args=(producer, headers, seconds), daemon=True
                ).start()
            if message is None or message.error() is not None:
                continue
            outcome = json.loads(message.value() or b"{}")
            if outcome["queue"] == "patient.dlq":
                seen += 1
            elif outcome["result"] == "parked":
                due[outcome["origin"]] = outcome["time"] + 3000
            elif outcome["origin"] in due:
                errors.append(time.time() * 1000 - due.pop(outcome["origin"]))
        while used_cores(job.pid, 5.0) > _WRITING:
            pass
        waiting = used_cores(job.pid, _REST)
    begun = len(errors) // 5
    return {
        "unit": "ms",
        "parked": seen,
        # The ledger makes its first append meanwhile: of all that is parked.
        "due to visible, first fifth": percentiles(errors[:begun]),
        "due to visible, later": percentiles(errors[begun:]),
        "waiting, cores": round(waiting, 3),
    }


def _trickle(producer: Producer, headers: Pairs, seconds: float) -> None:
    for _ in range(int(seconds * 10)):
        producer.produce("prompt.dlq", b"y" * 500, headers=headers)
        producer.poll(0)
        time.sleep(0.1)
    producer.flush()


def await_topic(servers: str, topic: str) -> None:
    """Waits until there is a topic."""
    producer = Producer({"bootstrap.servers": servers})
    while topic not in producer.list_topics(timeout=10).topics:
        time.sleep(0.2)


def main() -> int:
    """The command line."""
    asked = parser(__doc__, records=1_000_000, parked=100_000, runs=1, seconds=30.0)
    asked.add_argument("--only", choices=["throughput", "latency", "punctuality", "start"])
    arguments = hidden(asked, *GIVEN).parse_args()
    if arguments.contestant:
        every = {**CONTESTANTS, STEADY: (run_steady_sink, "")}
        measure, option = every[arguments.contestant]
        place = arguments.servers, arguments.directory, arguments.name, option
        print(json.dumps(measure(*place)))
        return 0
    report: dict[str, Any] = {}
    parts: dict[str, Callable[[str, str], dict[str, Any]]] = {
        "start": lambda s, f: starts(s, f, arguments.runs),
        "latency": lambda s, f: latency(s, f, arguments.seconds),
        "punctuality": lambda s, f: punctuality(s, f, arguments.parked, arguments.seconds),
        "throughput": lambda s, f: throughput(s, f, arguments.records, arguments.runs),
    }
    for name, part in parts.items():
        if arguments.only in {None, name}:
            with broker() as (folder, servers):
                report[name] = part(servers, str(folder))
            if not arguments.json:
                print(f"{name}: {json.dumps(report[name], indent=2)}", flush=True)
    if arguments.json:
        show(report)
    return 0


if __name__ == "__main__":
    sys.exit(main())
