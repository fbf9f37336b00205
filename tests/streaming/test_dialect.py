"""A table in DIALECT(KAFKA) in the job, on a real broker and a real Spark."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import replace
from threading import Event
from typing import Any

import pytest
from confluent_kafka import Producer
from kafka import KafkaConsumer
from tests.conftest import eventually
from tests.engine.failed_processing import GROUPS, SCHEMES, dropping, envelope, nameless
from tests.streaming.conftest import Jobs

from redrive.configuration import EmitterChoice, JobConfiguration
from redrive.configuration.transforms import TransformConfiguration
from redrive.engine.breaker import BreakerSettings
from redrive.messages import OutputRecord
from redrive.messages import own_headers as own
from redrive.rules import parse
from redrive.rules.backoff import JITTER

DROPPING = (dropping(envelope), dropping(nameless))
"""They leave out the headers of the record; the second does not name the record either."""
Failures = Mapping[tuple[str, bytes], Sequence[int]]
"""Milliseconds of the failures, by topic and value of a record."""


def connect(topic: str, error: str, **record: Any) -> dict[str, Any]:
    """A record that a sink of Kafka Connect could not write, an hour ago unless told else."""
    told = {
        "topic": topic,
        "partition": "1",
        "offset": "7",
        "connector.name": "sink",
        "task.id": "0",
        "stage": "TASK_PUT",
        "class.name": "org.acme.Sink",
        "exception.class.name": "org.acme.WriteException",
        "exception.message": error,
    }
    headers = [(f"__connect.errors.{name}", text.encode()) for name, text in told.items()]
    hour_ago = int(time.time() * 1000) - 3_600_000
    return {"headers": [("x", b"1"), *headers], "timestamp_ms": hour_ago, **record}


@pytest.mark.parametrize("emitter", [EmitterChoice.DRIVER, EmitterChoice.LANES])
def test_each_dead_letter_goes_where_its_own_text_and_body_say(
    jobs: Jobs, emitter: EmitterChoice
) -> None:
    """Expressions, JSON, size, inserts, a transformation; back to its partition, in both ways."""
    dlq, orders, slow = (
        jobs.topic("dlq", partitions=2),
        jobs.topic("orders", partitions=3),
        jobs.topic("slow"),
    )
    sink = jobs.topic("dead-sink")
    table = (
        "DIALECT(KAFKA) WAIT(NO) RETRYINT(1)\n"
        f"ERRMSG(/timed? ?out/) TOPIC({orders}) ACTION(RETRY)\n"
        "JSON('$.n',/^[02468]$/) ACTION(DISCARD)\n"
        f"SIZE(>100) ACTION(FWD) FWDT('{slow}')\n"
        f"CONNECTOR(?*) ACTION(FWD) FWDT('{sink.removesuffix('sink')}&CONNECTOR') HEADER(NO)"
        " TRANSFORM(seen)\n"
    )
    records = [
        connect(
            orders,
            ("timeout", "broken")[number % 2],
            value=b'{"n": %d%s}' % (number % 10, b" " * (100 if number % 4 == 3 else 0)),
            key=b"k%d" % number,
        )
        for number in range(40)
    ]
    records += [connect(orders, "broken", value=b'{"n": 4}'), {"value": b"no dead letter"}]
    jobs.produce(dlq, records)
    seen = TransformConfiguration("seen", b'[{"op": "add", "path": "/seen", "value": true}]')
    configuration = jobs.configure({dlq: table}, emitter=emitter, transforms=(seen,))
    jobs.start(configuration).join()
    assert {one.value.endswith(b',"seen":true}') for one in jobs.read(sink)} == {True}
    put = jobs.read(orders)
    assert len(put) == 20
    assert {record.partition for record in put} == {1}
    assert [h for h in put[0].headers if not h[0].startswith("redrive.")] == [("x", b"1")]
    assert (len(jobs.read(slow)), len(jobs.read(sink))) == (10, 10)
    results = Counter(outcome["result"] for outcome in jobs.outcomes(configuration))
    # Connect's dead letters have the record's time, so each waits its delay from the first look on.
    assert results == {
        "parked": 20, "retried": 20, "forwarded": 20, "discarded": 1, "remains": 1,
    }  # fmt: skip


def test_age_moves_a_message_on_and_quarantine_outlasts_the_table(jobs: Jobs) -> None:
    """Retried while it is young, forwarded once it is old; what is quarantined stays for good."""
    dlq, old = jobs.topic("dlq"), jobs.topic("old")
    table = (
        "DIALECT(KAFKA) WAIT(NO) RETRYINT(1)\n"
        "KEY(bad) ACTION(QUARANTINE)\n"
        "KEY(kept) ACTION(IGNORE)\n"
        f"AGE(>4s) ACTION(FWD) FWDT('{old}')\n"
        "ACTION(RETRY) RETRY(1000)\n"
    )
    now = int(time.time() * 1000)
    jobs.produce(
        dlq,
        [
            connect("nowhere", "e", value=b"v", key=key, timestamp_ms=now)
            for key in (b"bad", b"kept", b"young")
        ],
    )
    first = jobs.configure({dlq: table})
    jobs.start(first).join()
    (forwarded,) = jobs.read(old)
    assert forwarded.key == b"young"
    course = [
        outcome
        for outcome in jobs.outcomes(first)
        if outcome["offset"] >= 0 and outcome["attempt"] > 0
    ]
    assert [it["result"] for it in course][-1] == "forwarded"
    assert course[-1]["time"] - now > 4000
    (handler,) = first.handlers
    later = replace(first, handlers=(replace(handler, rules="WAIT(NO)\nACTION(DISCARD)\n"),))
    jobs.start(later).join()
    copies = {record.key: record.value for record in jobs.read(handler.identity.remaining_topic)}
    assert copies == {f"{dlq}:0:0".encode(): b"v", f"{dlq}:0:1".encode(): None}


def test_each_delay_of_a_backoff_is_on_time_and_a_new_table_waits_for_none(jobs: Jobs) -> None:
    """Never early, every one; what waits for an hour is decided at once by a changed table."""
    dlq, letters = jobs.topic("dlq", partitions=2), 40
    table = "DIALECT(KAFKA) WAIT(NO)\nACTION(RETRY) RETRY(3) BACKOFF(1s,2,2s)\n"
    jobs.produce(
        dlq,
        [connect("nowhere", "e", value=b"v", partition=number % 2) for number in range(letters)],
    )
    first = jobs.configure({dlq: table})
    jobs.start(first).join()
    (handler,) = first.handlers
    waited = parse(table).required().backoff_partitions
    due = {
        f"{handler.identity.backoff_topic}:{it.partition}:{it.offset}": it.timestamp
        + 1000 * waited.seconds(it.partition)
        for it in jobs.read(handler.identity.backoff_topic)
    }
    outcomes = jobs.outcomes(first)
    assert Counter(it["attempt"] for it in outcomes) == {1: letters, 2: letters, 3: letters}
    late = [it["time"] - due[it["outcome"]] for it in outcomes if it["outcome"] in due]
    assert len(late) == 2 * letters
    assert min(late) >= 0

    def with_table(rules: str) -> JobConfiguration:
        return replace(first, handlers=(replace(handler, rules=rules),))

    running = jobs.start(with_table(table.replace("1s,2,2s", "1h,1,1h").replace("(NO)", "(YES)")))
    eventually(lambda: len(jobs.outcomes(first)) == 4 * letters, "all wait for an hour")
    running.stop()
    jobs.start(with_table("WAIT(NO)\nACTION(DISCARD)\n")).join()
    results = Counter(outcome["result"] for outcome in jobs.outcomes(first))
    # Twice by the first table; what then remained once more by the second, until the third came.
    assert results == {"parked": 3 * letters, "remains": letters, "discarded": letters}


def test_under_order_a_message_waits_behind_an_earlier_one_of_its_key(jobs: Jobs) -> None:
    """The first of each key fails twice, and goes on before the second; without keys it does not.

    However often the job looks, one outcome says that a message waits behind another.
    """
    dlq, done = jobs.topic("dlq", partitions=2), jobs.topic("done")
    table = (
        "DIALECT(KAFKA) ORDER(KEY) WAIT(NO) RETRYINT(1)\n"
        "TOPIC(nowhere) ACTION(RETRY) RETRY(2) BACKOFF(1s,2,2s)\n"
        f"ACTION(FWD) FWDT('{done}') HEADER(NO)\n"
    )
    keys = [None, *(b"k%d" % number for number in range(6))]
    jobs.produce(
        dlq,
        [
            connect(topic, "e", value=value, key=key, partition=number % 2)
            for topic, value in (("nowhere", b"first"), ("elsewhere", b"second"))
            for number, key in enumerate(keys)
        ],
    )
    configuration = jobs.configure({dlq: table})
    jobs.start(configuration).join()
    found = defaultdict(list)
    for record in jobs.read(done):
        found[record.key].append(record.value)
    assert found.pop(None) == [b"second", b"first"]
    assert found == {key: [b"first", b"second"] for key in keys if key}
    outcomes = jobs.outcomes(configuration)
    held = Counter(
        outcome["message"] for outcome in outcomes if "waits behind" in outcome["detail"]
    )
    assert len(held) == len(keys) - 1
    assert set(held.values()) == {1}


@contextmanager
def failing_consumer(
    servers: str, dlq: str, *topics: str, is_well: Event | None = None
) -> Iterator[Future[Failures]]:
    """A consumer whose processing fails twice, or always, and that writes dead letters.

    The value of a record says in which way, and how often: ``connect always``. Nothing fails once
    the event is set.

    Yields:
        The failures, once the consumer has ended with the context.
    """
    failures: defaultdict[tuple[str, bytes], list[int]] = defaultdict(list)
    schemes = {scheme.__name__: scheme for scheme in (*SCHEMES, *DROPPING)}
    is_over = Event()

    def dead_letters(records: Sequence[Any]) -> Iterator[OutputRecord]:
        for record in records if is_well is None or not is_well.is_set() else ():
            known, (scheme, how_often, *_) = (
                failures[record.topic, record.value],
                record.value.decode().split(),
            )
            if how_often == "always" or len(known) < 2:
                known.append(int(time.time() * 1000))
                failed = OutputRecord(
                    record.topic, record.key, record.value, list(record.headers), record.timestamp
                )
                yield schemes[scheme](failed, record.offset, known[-1])

    def run() -> Failures:
        producer = Producer({"bootstrap.servers": servers, "log_level": 0})
        settings: dict[str, Any] = {"auto_offset_reset": "earliest", "enable_auto_commit": False}
        consumer = KafkaConsumer(
            *topics,
            bootstrap_servers=servers,
            isolation_level="read_committed",
            metadata_max_age_ms=500,  # a topic may come later
            **settings,
        )
        with closing(consumer):
            while not is_over.is_set():
                for records in consumer.poll(timeout_ms=100).values():
                    for dead_letter in dead_letters(records):
                        more: Any = {
                            "headers": dead_letter.headers,
                            "timestamp": dead_letter.timestamp,
                        }
                        producer.produce(dlq, dead_letter.value, dead_letter.key, **more)
                producer.flush()
        return failures

    with ThreadPoolExecutor(1) as threads:
        try:
            yield threads.submit(run)
        finally:
            is_over.set()


def test_what_fails_in_processing_has_its_rounds_and_no_more(jobs: Jobs) -> None:
    """Whatever writes the dead letters: each round after its delay, then the next rule once."""
    dlq, dead = jobs.topic("dlq"), jobs.topic("dead")
    delays = {jobs.topic("growing"): (1, 2, 2), jobs.topic("steady"): (1, 1, 1)}
    growing, steady = delays
    table = (
        "DIALECT(KAFKA) RETRYINT(1)\n"
        f"TOPIC({growing}) ACTION(RETRY) RETRY(3) BACKOFF(1s,2,2s)\n"
        f"TOPIC({steady}) ACTION(RETRY) RETRY(3)\n"
        f"ACTION(FWD) FWDT('{dead}')\n"
    )
    names = [scheme.__name__ for scheme in SCHEMES]
    values = [f"{name} {often}".encode() for name in names for often in ("always", "twice")]
    hour_ago = int(time.time() * 1000) - 3_600_000
    for topic in delays:
        jobs.produce(topic, [{"key": b"k", "value": it, "timestamp_ms": hour_ago} for it in values])
    running = jobs.start(jobs.configure({dlq: table}))
    with failing_consumer(jobs.bootstrap_servers, dlq, *delays) as processing:
        running.wait_for_records(1)
        eventually(
            lambda: len(jobs.read(dead)) >= len(values) or running.error or processing.done(),
            "all that always fail are given up",
        )
        running.stop()
    failures = processing.result()
    given_up = Counter(jobs.values(dead))
    assert given_up == {value: len(delays) for value in values if value.endswith(b"always")}
    for topic, seconds in delays.items():
        puts: defaultdict[bytes, list[int]] = defaultdict(list)
        for record in jobs.read(topic):
            rounds = own.read_own(record.headers).rounds
            puts[record.value] += [rounds.put_at] if rounds else []
        # What recovered had to come again before the others were given up, or never.
        assert {value: len(times) for value, times in puts.items()} == {
            value: 3 if value.endswith(b"always") else 2 for value in values
        }
        least = 1000 * (1 - JITTER if topic == growing else 1)
        for value, times in puts.items():
            rounds_of = zip(failures[topic, value], times, seconds, strict=False)
            early = [put - failed < least * delay for failed, put, delay in rounds_of]
            assert not any(early), (topic, value)


def test_only_the_group_that_failed_sees_its_rounds(jobs: Jobs) -> None:
    """Every other group reads each message once; the topics of groups are made on demand."""
    dlq, dead, orders = jobs.topic("dlq"), jobs.topic("dead"), jobs.topic("orders", partitions=3)
    table = (
        "DIALECT(KAFKA) RETRYINT(1)\n"
        f"TOPIC({orders}) ACTION(RETRY) TO(GROUP) RETRY(3)\n"
        f"TOPIC({orders}) ACTION(FWD) FWDT('{dead}')\n"
    )
    groups = {one.__name__: group for one, group in GROUPS.items() if one in SCHEMES}
    values = [f"{name} always".encode() for name in groups]
    jobs.produce(orders, [{"key": b"k", "value": value, "partition": 0} for value in values])
    theirs = [f"{orders}.{group}.retry" for group in sorted({*groups.values()})]
    configuration = jobs.configure({dlq: table})
    running = jobs.start(configuration)
    with failing_consumer(jobs.bootstrap_servers, dlq, orders, *theirs) as processing:
        eventually(
            lambda: len(jobs.read(dead)) >= len(values) or running.error or processing.done(),
            "all are given up",
        )
        running.stop()
    processing.result()
    assert Counter(jobs.values(orders)) == dict.fromkeys(values, 1)
    assert Counter(jobs.values(dead)) == dict.fromkeys(values, 1)
    rounds = [record for topic in theirs for record in jobs.read(topic)]
    assert {(it.topic, it.value) for it in rounds} == {
        (f"{orders}.{group}.retry", f"{name} always".encode()) for name, group in groups.items()
    }
    outcomes = jobs.outcomes(configuration)
    put = Counter(outcome["message"] for outcome in outcomes if outcome["result"] == "retried")
    # A broker that is busy may not have the new topic in time: that put is a failed attempt.
    failed = Counter(
        outcome["message"]
        for outcome in outcomes
        if outcome["result"] == "parked" and outcome["reason"]
    )
    assert put == Counter(own.read_own(it.headers).identity for it in rounds)
    assert put + failed == dict.fromkeys(put, 3)
    assert {(it.partition, it.key) for it in rounds} == {(0, b"k")}
    made = [topic for topic in jobs.admin.list_topics() if topic.startswith(f"{orders}.")]
    assert sorted(made) == theirs
    assert {len(it["partitions"]) for it in jobs.admin.describe_topics(theirs)} == {3}


def with_breaker(configuration: JobConfiguration, failures: int) -> JobConfiguration:
    """The configuration with breakers that probe every second."""
    (handler,) = configuration.handlers
    settings = BreakerSettings(failures, probe_interval=1.0)
    return replace(configuration, handlers=(replace(handler, breaker=settings),))


@pytest.mark.parametrize("emitter", [EmitterChoice.DRIVER, EmitterChoice.LANES])
def test_while_a_target_is_away_its_retries_wait_and_use_up_no_attempt(
    jobs: Jobs, emitter: EmitterChoice
) -> None:
    """More looks than RETRY allows; once the topic is there each is placed by its first attempt."""
    dlq, letters = jobs.topic("dlq", partitions=2), 500
    target = f"{dlq}.target"
    jobs.produce(
        dlq, [connect(target, "e", value=b"%d" % n, partition=n % 2) for n in range(letters)]
    )
    table = "DIALECT(KAFKA) RETRYINT(1)\nACTION(RETRY) RETRY(2)\nACTION(DISCARD)\n"
    configuration = with_breaker(jobs.configure({dlq: table}, emitter=emitter), 20)
    running = jobs.start(configuration)

    def opened() -> list[object]:
        return [facts["state"] for message, facts in running.warnings if "breaker" in message]

    def closed() -> list[object]:
        return [facts for message, facts in running.notices if "breaker" in message]

    running.wait_for_records(4 * letters)
    jobs.create(target, partitions=2)
    eventually(lambda: len(jobs.read(target)) >= letters or running.error, "all are placed")
    # Another run of the query, or a worker that sees the topic later, opens it once more.
    eventually(lambda: len(closed()) >= len(opened()) or running.error, "each breaker closed")
    running.stop()
    placed = jobs.read(target)
    assert Counter(it.value for it in placed) == {b"%d" % n: 1 for n in range(letters)}
    rounds = [own.read_own(it.headers).rounds for it in placed]
    assert {one and one.by_rule for one in rounds} == {((0, 1),)}
    outcomes = jobs.outcomes(configuration)
    assert Counter(outcome["result"] for outcome in outcomes)["retried"] == letters
    assert {outcome["reason"] for outcome in outcomes} == {0}
    waited = [outcome["detail"] for outcome in outcomes if outcome["result"] == "parked"]
    assert all(
        "breaker open since" in why and "puts in a row were refused" in why for why in waited
    )
    assert set(opened()) == {"open"}
    assert len(closed()) == len(opened())


def test_while_all_rounds_of_a_group_fail_only_probes_go(jobs: Jobs) -> None:
    """However long the consumer fails, no message runs out of rounds; then all are processed."""
    dlq, dead, orders = jobs.topic("dlq"), jobs.topic("dead"), jobs.topic("orders")
    values = [b"spring always %d" % number for number in range(30)]
    jobs.produce(orders, [{"key": b"k", "value": value} for value in values])
    table = f"DIALECT(KAFKA) RETRYINT(1)\nACTION(RETRY) RETRY(4)\nACTION(FWD) FWDT('{dead}')\n"
    configuration = with_breaker(jobs.configure({dlq: table}), 10)
    running, is_well = jobs.start(configuration), Event()

    def all_were_put() -> bool:
        last = {outcome["message"]: outcome["result"] for outcome in jobs.outcomes(configuration)}
        return set(last.values()) == {"retried"}

    def probes() -> int:
        return sum("probe" in outcome["detail"] for outcome in jobs.outcomes(configuration))

    with failing_consumer(jobs.bootstrap_servers, dlq, orders, is_well=is_well) as processing:
        eventually(lambda: probes() >= 3 or running.error or processing.done(), "probes went")
        is_well.set()
        eventually(lambda: running.error or all_were_put(), "nothing waits any more")
        running.stop()
    processing.result()
    assert jobs.read(dead) == []
    counted: Counter[bytes] = Counter()
    for it in jobs.read(orders):
        rounds = own.read_own(it.headers).rounds
        if rounds is not None:
            counted[it.value] = max(counted[it.value], sum(n for _, n in rounds.by_rule))
    assert set(counted) == set(values)
    assert max(counted.values()) <= 3
