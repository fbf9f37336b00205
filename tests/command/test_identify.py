"""``redrive identify`` on a real broker."""

from __future__ import annotations

import json
import re
import tomllib
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaAdminClient
from tests.cases import cases_beside
from tests.commands import json_of, redrive
from tests.configurations import write_settings
from tests.conftest import KafkaClient, eventually
from tests.security.test_secrets import running

CONNECT = [
    ("__connect.errors.topic", b"orders"),
    ("__connect.errors.partition", b"3"),
    ("__connect.errors.offset", b"42"),
    ("__connect.errors.connector.name", b"jdbc-sink"),
    ("__connect.errors.exception.class.name", b"org.apache.kafka.connect.errors.DataException"),
]
RETRY_TOPIC = [
    ("kafka_original-topic", b"shipments"),
    ("kafka_original-partition", bytes(4)),
    ("kafka_dlt-original-consumer-group", b"ship"),
    ("kafka_exception-cause-fqcn", b"java.net.SocketTimeoutException"),
]


@pytest.fixture
def topic(kafka: KafkaClient, folder: Path) -> str:
    """Six dead letters of Connect's, three of Spring's, one of no scheme."""
    name = kafka.unique_name("dlq")
    kafka.create(name)
    kinds = [CONNECT] * 6 + [RETRY_TOPIC] * 3
    kafka.produce(name, [{"value": b"{}", "key": b"k", "headers": headers} for headers in kinds])
    kafka.produce(name, [{"value": b"no dead letter", "headers": [("x-error", b"a.B: boom")]}])
    return name


def test_a_partition_without_a_leader_is_left_out_and_named(
    topic: str, bootstrap_servers: str, admin: KafkaAdminClient, without_leader: Callable[..., None]
) -> None:
    admin.create_partitions({topic: 2})
    without_leader(f"{topic}:1")
    server = ("--bootstrap-server", bootstrap_servers)
    result = redrive("identify", topic, *server)
    assert f"{topic}: the newest 10 messages" in result.stdout
    assert f"without a leader: {topic}:1" in result.stderr
    result = redrive("identify", f"{topic}:1:0", *server)
    assert (result.exit_code, f"no broker leads {topic}:1" in result.stderr) == (1, True)


def test_schemes_of_the_settings_are_known(topic: str, bootstrap_servers: str) -> None:
    scheme = '[schemes.mine]\nrecognise = "x-error"\nerror.class = "x-error as class"\n'
    write_settings(Path(), topic, servers=bootstrap_servers, more=scheme)
    answer = json_of("identify", topic)
    assert answer["schemes"][-1]["scheme"] == "mine"
    assert answer["schemes"][-1]["errors"] == {"a.B": 1}


def test_errors_that_do_not_concern_the_topic_are_a_note(
    topic: str, bootstrap_servers: str
) -> None:
    broken = (
        '[schemes.mine]\nrecognise = "x-error"\n'
        '[transforms.fix]\npython = "no.such.module:change"\n'
        '[job]\nenrichment = "no.such.module:enrich"\n'
    )
    settings = write_settings(Path(), topic, servers=bootstrap_servers, more=broken)
    result = redrive("identify", topic, code=0)
    assert "mine  1 (10.0%)" in result.stdout
    assert "errors that do not matter here" in result.stderr
    assert "no.such.module" in result.stderr
    settings.write_text(settings.read_text("utf-8").replace('"x-error"', '"$."'), "utf-8")
    result = redrive("identify", topic, code=1)
    assert "$." in result.stderr


def test_a_topic_is_browsed_without_any_definitions(topic: str, bootstrap_servers: str) -> None:
    server = ("--bootstrap-server", bootstrap_servers)
    text = redrive("browse", topic, *server, "--count", "1").stdout
    assert f"{topic}:0:0" in text
    assert "dead letter (connect): MQRC_FORMAT_ERROR (2110), was for orders, by jdbc-sink" in text
    assert "error: org.apache.kafka.connect.errors.DataException" in text
    last = json_of("browse", topic, *server, "--from", "latest")
    assert [record["offset"] for record in last] == list(range(10))
    assert last[-1]["dead_letter"] is None
    wrong = redrive("browse", f"{topic}x", *server)
    assert (wrong.exit_code, f"did you mean {topic}?" in wrong.stderr) == (1, True)


def test_init_writes_a_job_that_runs_as_it_is(topic: str, bootstrap_servers: str) -> None:
    words = ("init", topic, "--bootstrap-server", bootstrap_servers)
    assert "nobody can answer here: give --yes" in redrive(*words, code=1).stderr
    answer = redrive(*words, typed="y\n", code=0)
    assert "would be: 3 retried, 7 left by IGNORE" in answer.stdout
    assert "redrive run starts the job" in answer.stdout
    assert "nothing to report" in redrive("check", "redrive.toml", code=0).stdout
    assert Path(f"{topic.removesuffix('.dlq')}.rul").exists()


def test_init_replaces_nothing_unasked(topic: str, bootstrap_servers: str) -> None:
    words = ("init", topic, "--bootstrap-server", bootstrap_servers)
    Path("redrive.toml").write_text("# mine\n")
    refused = redrive(*words, "--yes", code=2)
    assert "redrive.toml: exists already" in refused.stderr
    declined = redrive(*words, typed="n\n", code=1)
    assert "Replace redrive.toml?" in declined.output
    assert Path("redrive.toml").read_text() == "# mine\n"
    assert list(Path().glob("*.rul")) == []


def test_init_guesses_a_scheme_where_none_is_known(
    kafka: KafkaClient, bootstrap_servers: str, folder: Path
) -> None:
    topic = kafka.unique_name("failed")
    kafka.create(topic)
    document = b'{"error_class": "java.net.ConnectException", "topic": "orders", "payload": {}}'
    kafka.produce(topic, [{"value": document}] * 4)
    answer = redrive("init", topic, "--bootstrap-server", bootstrap_servers, "--yes", code=0)
    assert "would be: 4 retried" in answer.stdout
    settings = (folder / "redrive.toml").read_text()
    assert f"# Guessed from {topic}:0:0" in settings
    assert 'error.class = "$.error_class"' in settings


MOST_LINES = 2
"""Lines of a guess that a person has to change, at most."""
ROUNDS = """DIALECT(KAFKA) RETRYINT(1)
TOPIC({topic}) ACTION(RETRY) RETRY(2) BACKOFF(1s,1,1s)
ACTION(IGNORE)
"""


def test_dead_letters_without_headers_have_their_rounds_and_return(
    kafka: KafkaClient, bootstrap_servers: str, folder: Path
) -> None:
    """A service fails at each delivery, and writes only key and value to its dead-letter topic."""
    topic = kafka.unique_name("orders")
    queue, keys = f"{topic}.dlq", [b"a", b"b", b"c"]
    kafka.create(topic, queue, partitions=1)
    kafka.produce(queue, [{"key": key, "value": b"body of " + key} for key in keys])
    answer = redrive("init", queue, "--bootstrap-server", bootstrap_servers, "--yes", code=0)
    assert f"  topics   {topic} (3)" in answer.stdout
    assert "SCHEME(bare)" in Path(f"{topic}.rul").read_text()
    settings = (folder / "redrive.toml").read_text()
    assert f'3 messages without a topic.\norigin_topic = "{topic}"' in settings
    (folder / "redrive.toml").write_text(f"{settings}\n[ledger]\ninterval = 1\n")
    Path(f"{topic}.rul").write_text(ROUNDS.format(topic=topic))

    def last_puts(number: int) -> list[Any]:
        """Waits until each message was put so many times."""
        count = number * len(keys)
        eventually(lambda: len(kafka.read(topic)) >= count, f"put {number}", every=0.5)
        return kafka.read(topic)[count - len(keys) :]

    with running(folder, "run"):
        for number in (1, 2):
            failed = last_puts(number)
            kafka.produce(queue, [{"key": put.key, "value": put.value} for put in failed])
        eventually(lambda: len(json_of("ls")["dead_letters"]) == len(keys), "they remain")
        assert Counter(put.key for put in kafka.read(topic)) == dict.fromkeys(keys, 2)
        [group] = json_of("groups")["groups"]
        assert (group["count"], group["destination"]) == (len(keys), topic)
        assert json_of("identify", queue)["schemes"][0]["topics"] == {topic: 9}
        assert json_of("browse", queue, "-c", "redrive.toml", "--from", "latest")[0]["dead_letter"]
        redrive("replay", "now", "--topic", topic, typed="y\n", code=0)
        replayed = {put.key: put.value for put in last_puts(3)}
    assert replayed == {key: b"body of " + key for key in keys}


@cases_beside(__file__)
def test_init_is_right_up_to_two_lines(
    kafka: KafkaClient,
    bootstrap_servers: str,
    folder: Path,
    *,
    shop: str,
    headers: dict[str, str],
    value: object,
    origin_topic: bool,
    right: str | dict[str, Any],
) -> None:
    """Its guess about one message of a shop, beside what a person would write into the settings."""
    topic = kafka.unique_name(shop)
    kafka.create(topic, f"{topic}.dlq")
    body = value if isinstance(value, bytes) else _in_bytes(value, topic)
    pairs = [(name, _in_bytes(text, topic)) for name, text in headers.items()]
    kafka.produce(f"{topic}.dlq", [{"value": body, "headers": pairs}])
    words = ("init", f"{topic}.dlq", "--bootstrap-server", bootstrap_servers, "--yes")
    answer = redrive(*words, code=0).stdout
    settings = tomllib.loads((folder / "redrive.toml").read_text())
    drafts = [*settings.get("schemes", {}).values()]
    actual = {key: place for draft in drafts for key, place in _flat(draft)}
    actual |= {key: text for key, text in settings["handlers"][0].items() if key == "origin_topic"}
    expected: dict[str, Any] = {"origin_topic": topic} if origin_topic else {}
    if isinstance(right, str):
        assert f"\n{right}  1 (100.0%)" in answer
    else:
        expected |= right
        if actual.get("recognise") in right.get("recognise", ()):
            expected["recognise"] = actual["recognise"]
    changed = {key for key in expected | actual if expected.get(key) != actual.get(key)}
    assert len(drafts) <= 1
    assert len(changed) <= MOST_LINES, (changed, actual)
    assert ("schema id 42: set [schema_registry]" in answer) is isinstance(value, bytes)


def _in_bytes(value: object, topic: str) -> bytes:
    """A text, or JSON, of a message whose origin is a topic."""
    text = value if isinstance(value, str) else json.dumps(value)
    return re.sub(r"\borders\b", topic, text).encode()


def _flat(table: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in table.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value
