"""A ledger in an object store: many machines may write, and each outcome is there once."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from threading import Barrier, Event

import pytest
from tests.commands import redrive
from tests.outcomes.s3_server import BUCKET, S3, SECRET
from tests.outcomes.samples import ledger_at, outcome, rows
from tests.outcomes.small_job import SmallJob, dead_letter

from redrive.configuration import RemoteFolder
from redrive.errors import AlreadyRunningError, EnvironmentFault
from redrive.outcomes.rows import Row, row_of
from redrive.outcomes.storage import explained, locked
from redrive.outcomes.table import LedgerTable, arrow_of, remove

BRIDGED = 25.0
"""Seconds: less than an outage that a writer bridges."""
OUTCOMES = rows([outcome(number) for number in range(240)])
"""What is to be projected: by partition, in the order of offsets."""


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Iterator[S3]:
    """An S3, and credentials for it in the environment."""
    with S3.running(monkeypatch) as running:
        yield running


@pytest.fixture
def folder(store: S3, tmp_path: Path) -> RemoteFolder:
    """Where the ledger is."""
    return store.folder("team/ledger", tmp_path / "beside")


def waiting(positions: dict[int, int]) -> list[Row]:
    """The outcomes that a ledger with these positions lacks."""
    return [
        row for row in OUTCOMES if row.outcomes_offset >= positions.get(row.outcomes_partition, 0)
    ]


def project(folder: RemoteFolder, size: int, started: Callable[[], object] = lambda: None) -> int:
    """Projects everything, as often as others come first; how often that was."""
    times, begun = 0, False
    while True:
        table = LedgerTable.create(folder)
        left = waiting(table.positions())
        if not begun:
            begun = True
            started()
        try:
            for start in range(0, len(left), size):
                table.append([arrow_of(left[start : start + size])])
        except AlreadyRunningError:
            times += 1
        else:
            return times


def check(folder: RemoteFolder) -> None:
    """Each outcome is in the ledger once."""
    table = ledger_at(folder)
    held = Counter(
        (row.outcomes_partition, row.outcomes_offset)
        for row in table.outcomes("SELECT * FROM ledger")
    )
    assert held == Counter((row.outcomes_partition, row.outcomes_offset) for row in OUTCOMES)


def test_of_four_writers_at_once_each_outcome_comes_from_one(folder: RemoteFolder) -> None:
    together = Barrier(4)
    with ThreadPoolExecutor(4) as pool:
        done = [pool.submit(project, folder, size, together.wait) for size in (15, 20, 24, 30)]
        times = [future.result() for future in done]
    assert sum(times) > 0
    check(folder)


def test_a_commit_whose_answer_is_lost_is_not_made_twice(folder: RemoteFolder, store: S3) -> None:
    lost: list[str] = []

    def loses(method: str, key: str) -> bool:
        if method == "PUT" and key.endswith("3.json") and not lost:
            lost.append(key)
            return True
        return False

    store.lost = loses
    assert project(folder, 40) == 0
    assert lost == ["team/ledger/_delta_log/00000000000000000003.json"]
    check(folder)


def test_a_writer_that_is_killed_before_its_commit_has_written_nothing(
    folder: RemoteFolder, store: S3
) -> None:
    project_by = (
        "import sys; from tests.outcomes.test_object_store import *\n"
        "url, beside, endpoint = sys.argv[1:]\n"
        "options = {'endpoint': endpoint, 'region': 'us-east-1', 'allow_http': 'true'}\n"
        "project(RemoteFolder(url=url, beside=Path(beside), options=options), 40)\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", project_by, folder.url, str(folder.beside), store.url]
    )

    def kills(method: str, key: str) -> bool:
        if method == "PUT" and key.endswith("3.json") and process.poll() is None:
            os.kill(process.pid, signal.SIGKILL)
            process.wait()
            return True
        return False

    store.dropped = kills
    assert process.wait() == -signal.SIGKILL
    files = [key for key in store.objects if key.endswith(".parquet")]
    table = ledger_at(folder)
    assert table.size == 80 < 40 * len(files)
    assert project(folder, 40) == 0
    check(folder)


def test_an_outage_of_twenty_seconds_is_waited_out(folder: RemoteFolder, store: S3) -> None:
    """503 for every request meanwhile; the append takes as long, and nothing is there twice."""
    table = LedgerTable.create(folder)
    store.unavailable(20)
    asked = store.asked.total()
    table.append([arrow_of(OUTCOMES)])
    assert store.asked.total() > asked + 3
    check(folder)


def test_a_ledger_is_made_anew_in_its_place(folder: RemoteFolder) -> None:
    project(folder, 20)
    table = ledger_at(folder)
    assert table.compact().files_after < table.compact().files_before + 1
    check(folder)
    remove(folder)
    anew = ledger_at(folder)
    assert (anew.positions(), anew.identity != table.identity) == ({}, True)
    project(folder, 100)
    check(folder)


def test_a_rebuild_elsewhere_ends_the_writer_that_knows_the_old_ledger(
    folder: RemoteFolder,
) -> None:
    table = LedgerTable.create(folder)
    table.append([arrow_of(OUTCOMES[:120])])
    remove(folder)
    with pytest.raises(AlreadyRunningError):
        table.append([arrow_of(OUTCOMES[120:])])
    project(folder, 100)
    check(folder)


def test_a_store_that_is_away_is_named(
    folder: RemoteFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    away = replace(folder, options={**folder.options, "endpoint": "http://127.0.0.1:1"})
    monkeypatch.setattr("redrive.outcomes.storage._READER", {"max_retries": "1"})
    with pytest.raises(EnvironmentFault, match="s3://ledgers/team/ledger") as refused:
        LedgerTable.open(away)
    assert "127.0.0.1:1" in refused.value.message
    assert "credentials in the environment" in refused.value.hint
    problem = repr(refused.value) + refused.value.message
    assert SECRET not in problem
    assert "\n" not in refused.value.message


@pytest.mark.parametrize("fault", ["refuses", "is_silent", "is_unavailable"])
def test_reader_gives_up_on_a_store_that_does_not_answer(
    folder: RemoteFolder, store: S3, fault: str
) -> None:
    project(folder, 240)
    returned = Event()
    match fault:
        case "refuses":
            folder = replace(folder, options={**folder.options, "endpoint": "http://127.0.0.1:1"})
        case "is_silent":
            store.dropped = lambda _method, _key: returned.wait(60)
        case _:
            store.unavailable(60)
    begun = time.monotonic()
    with pytest.raises(EnvironmentFault) as fault_of_store:
        LedgerTable.open(folder)
    assert time.monotonic() - begun < BRIDGED
    assert "\n" not in fault_of_store.value.message
    returned.set()


def test_reader_waits_for_a_slow_answer_while_the_store_answers_others(
    folder: RemoteFolder, store: S3, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("redrive.outcomes.storage.GLIMPSE", 0.05)
    project(folder, 240)
    probed = Event()

    def is_slow(_method: str, key: str) -> bool:
        if key.endswith("1.json"):
            assert probed.wait(20), "the store was not asked whether it answers"
        elif "_no_table" in key:
            probed.set()
        return False

    store.dropped = is_slow
    table = ledger_at(folder)
    assert table.size == len(OUTCOMES)
    assert probed.is_set()


def test_panic_of_the_library_is_a_fault_of_the_ledger(folder: RemoteFolder) -> None:
    class PanicException(BaseException):
        pass

    with (
        pytest.raises(EnvironmentFault, match="cannot be used: the library failed: no entry found"),
        explained(folder),
    ):
        raise PanicException("no entry\nfound")
    with pytest.raises(KeyboardInterrupt), explained(folder):
        raise KeyboardInterrupt


def test_credentials_may_come_from_a_file(
    folder: RemoteFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of AWS's own form, as a Secret is mounted; then no variable holds any."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    file = tmp_path / "credentials"
    file.write_text("[default]\naws_access_key_id = k\naws_secret_access_key = s\n")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(file))
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    project(folder, 240)
    check(folder)


def test_two_processes_of_one_machine_still_have_one_lock(folder: RemoteFolder) -> None:
    with locked(folder):
        assert (folder.beside / "lock").exists()
    assert not (Path.cwd() / "s3:").exists()


def test_commands_read_it_from_anywhere(small_job: SmallJob, store: S3, now: int) -> None:
    settings, topic = Path(small_job.config_file), small_job.configuration.outcomes_topic
    settings.write_text(
        f'{settings.read_text()}[ledger]\npath = "s3://{BUCKET}/far"\nendpoint = "{store.url}"\n'
        'region = "us-east-1"\nallow_http = true\n'
    )
    small_job.produce([dead_letter(1, "2030", partition=0) for _ in range(3)])
    small_job.step(now)
    LedgerTable.create(store.folder("far", settings.parent / "beside")).append(
        [
            arrow_of([row_of(record.value, record.timestamp, record.partition, record.offset)])
            for record in small_job.kafka.read(topic)
        ]
    )

    def output_of(*arguments: str) -> str:
        answer = redrive(*arguments, "-c", settings, code=0)
        assert SECRET not in answer.output
        return answer.output

    message = f"{small_job.identity.topic}:0:0"
    answer = json.loads(output_of("status", "--json"))
    assert (answer["outcomes"], answer["unprojected"], answer["notes"]) == (3, 0, [])
    assert message in output_of("history", message)
    assert message in output_of("ls", "--status", "remaining")
    assert "files merged into" in output_of("ledger", "compact")
    assert message in output_of("ls", "--status", "remaining")
    assert not list(Path.cwd().glob("s3*"))

    store.unavailable(BRIDGED * 10)
    begun = time.monotonic()
    answer = json.loads(output_of("status", "--json"))
    assert time.monotonic() - begun < BRIDGED
    assert (answer["handlers"][0]["remaining"]["number"], answer["outcomes"]) == (3, None)
    assert "the ledger in s3://ledgers/far cannot be used: " in answer["notes"][0]
    for asked in (("groups",), ("ls",), ("history", message)):
        begun = time.monotonic()
        refused = redrive(*asked, "-c", settings, code=1)
        assert time.monotonic() - begun < BRIDGED
        assert refused.stderr.startswith("error: the ledger in s3://")
