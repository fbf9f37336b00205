"""The page of recipes, typed in its order: it prints what the page shows, and does what it says."""

from __future__ import annotations

import doctest
import re
import shlex
import shutil
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from subprocess import Popen
from typing import Any

import pytest
from deltalake import DeltaTable
from kafka import KafkaAdminClient
from tests.commands import json_of, python, redrive
from tests.conftest import PATIENCE, KafkaClient, eventually
from tests.security.test_secrets import running
from tests.streaming.test_kafka_page import files_of

from redrive.broker import EmbeddedBroker

PAGE = Path(__file__).parents[2] / "docs" / "recipes.md"
RECIPES = dict(re.findall(r"^## \d+\. (.+)\n((?:(?!## ).*\n)+)", PAGE.read_text(), re.MULTILINE))
BACKOFF = "BACKOFF(30s,2,10m)"
"""The delays of the page, which a test can't wait for."""
EARLIER_TABLE = "3f2a9c"
"""The hash of a table on the page, to which somebody goes back."""
HOUR = 3_600_000
LETTERS = (
    (37, 0, 2, "billing", "org.shop.CurrencyException", "unknown currency EU"),
    (5, 0, 9 * 24, "billing", "org.shop.CustomerException", "no customer 17"),
    (3, 0, 2, "billing", "org.shop.SchemaException", "no field amount"),
    (4, 0, 2, "shipping", "java.lang.IllegalStateException", "the depot is closed"),
    (1, 1, 1, "billing", "java.net.SocketTimeoutException", "Read timed out"),
)
"""How many dead letters, on which partition, hours ago, of which group, and why."""


def dead_letter(group: str, error: str, message: str, offset: int, **record: Any) -> dict[str, Any]:
    """What Spring's ``DeadLetterPublishingRecoverer`` writes about a record of ``orders``."""
    failure = {
        "original-topic": b"orders",
        "original-partition": bytes(4),
        "original-offset": offset.to_bytes(8, "big"),
        "original-consumer-group": group.encode(),
        "exception-fqcn": error.encode(),
        "exception-message": message.encode(),
    }
    headers = [(f"kafka_dlt-{name}", value) for name, value in failure.items()]
    return {**record, "headers": [*record.get("headers", ()), *headers]}


def all_letters() -> Iterator[dict[str, Any]]:
    """Those that are there when the job begins."""
    number = 0
    for count, partition, hours, group, error, message in LETTERS:
        when = int(time.time() * 1000) - hours * HOUR
        for _ in range(count):
            number = 4711 if partition else number + 1
            record = {"partition": partition, "timestamp_ms": when, "key": b"order-%d" % number}
            record["value"] = b'{"order":%d,"currency":"EU"}' % number
            yield dead_letter(group, error, message, number, **record)


@dataclass
class Shop:
    """The folder of the job ``orders``, which runs, and its broker."""

    folder: Path
    kafka: KafkaClient
    job: Popen[bytes]

    def type(self, recipe: str) -> str:
        """Writes the files of a recipe and types its commands; what differs from the page."""
        text = RECIPES[recipe]
        for name, content in files_of(text).items():
            (self.folder / name).write_text(content.replace(BACKOFF, "BACKOFF(1s,1,1s)"))
        typed = re.findall(r"^\$ (.*)\n((?:(?!\$ |```).*\n)*)", text, re.MULTILINE)
        assert 1 <= len(typed) <= 3
        assert "--where" not in text
        return "".join(self._difference(*step) for step in typed)

    def _difference(self, command: str, printed: str) -> str:
        BEFORE.get(command, _nothing)(self)
        program, *words = shlex.split(command.replace(EARLIER_TABLE, self._earlier_table()))
        if program == "python" or words[0] == "run":
            module = () if program == "python" else ("-m", program)
            answer = python(*module, *words, code=0, cwd=self.folder).stdout
        else:
            code = 2 if words[0] == "plan" else 0  # something changes for the messages
            answer = redrive(*words, typed="y\n", code=code).stdout
        AFTER.get(command, _nothing)(self)
        is_same = doctest.OutputChecker().check_output(printed, answer, doctest.ELLIPSIS)
        return "" if is_same else f"$ {command}\n{answer}"

    def _earlier_table(self) -> str:
        if not (self.folder / "orders-new.rul").exists():
            return EARLIER_TABLE
        tables = json_of("tables")["tables"]
        return next(str(table["hash"]) for table in tables if not table["current"])

    def save_new_table(self) -> None:
        shutil.copy(self.folder / "orders-new.rul", self.folder / "orders.rul")

    def wait_for(self, count: int, exception: str, result: str) -> None:
        """Waits until so many dead letters have a result."""
        words = ("ls", "--status", result, "--exception", exception, "--limit", "100")
        eventually(lambda: len(json_of(*words)["dead_letters"]) == count, f"{count} {result}")

    def puts(self, topic: str, key: str = "") -> list[Any]:
        """What was put to a topic."""
        return [record for record in self.kafka.read(topic) if key.encode() in record.key]

    def last_put(self, topic: str, key: str, count: int) -> Any:
        """Waits until there are so many puts; the last one."""
        eventually(lambda: len(self.puts(topic, key)) >= count, f"put {count} to {topic}")
        return self.puts(topic, key)[-1]


def _nothing(_: Shop) -> None:
    pass


def await_four_rounds(shop: Shop) -> None:
    """A consumer fails whenever it gets the message; after four rounds nobody gets it again."""
    headers: list[Any] = []
    for topic, count in (*(("orders", number) for number in range(1, 5)), ("orders.parking", 1)):
        letter = dead_letter(*LETTERS[-1][3:], count, key=b"order-9", value=b"{}", headers=headers)
        shop.kafka.produce("orders.dlq", [letter])
        headers = shop.last_put(topic, "order-9", count).headers
    assert len(shop.puts("orders", "order-9")) == 4


def stop_the_job(shop: Shop) -> None:
    shop.job.send_signal(signal.SIGTERM)
    shop.job.wait(PATIENCE)
    shop.kafka.produce("orders.dlq", [dead_letter(*LETTERS[1][3:], 10, key=b"order-10")])


def await_ledger(shop: Shop) -> None:
    """The ledger has all failures: those from before, and five of the message in rounds."""
    path = shop.folder / ".redrive" / "orders" / "ledger"
    columns = ["outcome", "origin"]

    def failures() -> int:
        rows = DeltaTable(path).to_pyarrow_table(columns=columns).to_pylist()
        return sum(row["outcome"] == row["origin"] for row in rows)

    eventually(lambda: failures() == 55, "the ledger is up to date")


Checks = Mapping[str, Callable[[Shop], None]]
RESTART = "redrive restart"
BEFORE: Checks = {
    f"{RESTART} --plan": lambda shop: shop.save_new_table(),
    "python failures.py": await_ledger,
    "redrive run --once": stop_the_job,
}
AFTER: Checks = {
    RESTART: await_four_rounds,
    f"{RESTART} --plan": lambda shop: shop.wait_for(3, "SchemaException", "forwarded"),
}
"""What a test does, or waits for, before and after commands of the page."""


def euros_are_back(shop: Shop) -> None:
    assert sum(record.value.endswith(b'"EUR"}') for record in shop.puts("orders")) == 37


def old_ones_are_gone(shop: Shop) -> None:
    shop.wait_for(5, "CustomerException", "discarded")


def one_group_has_them(shop: Shop) -> None:
    assert len(shop.puts("orders.shipping.retry")) == 4
    assert shop.puts("orders", "order-46") == []


DONE: Checks = {
    "Fix a field in 37 messages, and resend them": euros_are_back,
    "Discard what is older than a week": old_ones_are_gone,
    "Replay to one group": one_group_has_them,
}
"""What is true after a recipe."""


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    """The job that the page goes on with: as ``redrive init`` writes it."""
    folder = tmp_path_factory.mktemp("shop")
    with (
        EmbeddedBroker(tmp_path_factory.mktemp("broker")) as broker,
        closing(KafkaAdminClient(bootstrap_servers=broker.bootstrap_servers)) as admin,
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.chdir(folder)
        kafka = KafkaClient(broker.bootstrap_servers, admin, "")
        kafka.create("orders.dlq", partitions=2, config={"retention.ms": "-1"})
        kafka.create("orders", "orders.parking")
        kafka.produce("orders.dlq", all_letters())
        words = ("init", "orders.dlq", "--bootstrap-server", broker.bootstrap_servers)
        redrive(*words, "--yes", code=0)
        with Path("redrive.toml").open("a") as settings:
            settings.write("\n[ledger]\ninterval = 1\n")
        with running(folder, "run") as job:
            eventually(lambda: kafka.read("orders"), "the backlog is handled", every=0.5)
            yield Shop(folder, kafka, job)


@pytest.mark.parametrize("recipe", RECIPES)
def test_a_recipe_prints_what_the_page_shows_and_does_it(shop: Shop, recipe: str) -> None:
    assert shop.type(recipe) == ""
    DONE.get(recipe, _nothing)(shop)


def test_the_page_has_ten_recipes() -> None:
    assert len(RECIPES) == 10
