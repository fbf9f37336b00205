"""A disk that is really full, under the job and under the ledger: run by ``make resilience``.

It takes a small disk of its own: a tmpfs in a mount namespace, which Linux lets any user make
unless an administrator forbids it. Where it is forbidden, as in many containers, name the folder of
a small disk instead, such as that of ``docker run --tmpfs /small:size=48m``:
``REDRIVE_SMALL_DISK=/small make resilience``.
"""

from __future__ import annotations

import errno
import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Final, TypeAlias

import pytest
from tests.configurations import write_settings
from tests.conftest import PATIENCE, eventually
from tests.streaming.conftest import Jobs, letter

from redrive.engine.names import outcomes_topic
from redrive.outcomes.table import LedgerTable

SIZE: Final = "48m"
"""Room on the small disk: a job without messages takes a few kilobytes, a ledger some more."""
MakePlace: TypeAlias = Callable[[Path, Path | None], "Place"]
TABLE: Final = "ACTION(RETRY) RETRY(1)\n"


@dataclass
class SmallDisk:
    """A file system that a test may fill."""

    folder: Path
    """Its folder, as the processes on it see it."""
    inside: tuple[str, ...] = ()
    """The command that lets another one see the disk; empty if every process does."""
    outside: Path = Path("/")
    """The root directory of those who see the disk."""
    started: list[subprocess.Popen[bytes]] = field(default_factory=list)

    @property
    def seen(self) -> Path:
        """The folder, as this process sees it."""
        return self.outside / self.folder.relative_to("/")

    def fill(self) -> None:
        """Leave not a byte of room."""
        with (self.seen / "filler").open("ab", buffering=0) as file:
            for size in (1 << 20, 1 << 12, 1):
                with pytest.raises(OSError, match=os.strerror(errno.ENOSPC)):
                    write_for_ever(file, b"x" * size)

    def make_room(self) -> None:
        (self.seen / "filler").unlink()

    def start(self, log: Path, *arguments: str) -> subprocess.Popen[bytes]:
        """Start the product's command on the disk, with what it says in a file elsewhere."""
        with log.open("ab") as file:
            process = subprocess.Popen(
                [*self.inside, sys.executable, "-m", "redrive", *arguments],
                stdout=file,
                stderr=file,
                start_new_session=True,
            )
        self.started.append(process)
        return process

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run the product's command on the disk."""
        command = [*self.inside, sys.executable, "-m", "redrive", *arguments]
        return subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=PATIENCE
        )


def write_for_ever(file: IO[bytes], what: bytes) -> None:
    """Write the same again and again, until something forbids it."""
    while True:
        file.write(what)


def mounted(folder: Path) -> tuple[SmallDisk, subprocess.Popen[bytes]]:
    """A small disk that only processes in a mount namespace of its own see, and who keeps it."""
    unshare, enter = shutil.which("unshare"), shutil.which("nsenter")
    assert unshare is not None, "no unshare (util-linux): name a small disk in REDRIVE_SMALL_DISK"
    assert enter is not None, "no nsenter (util-linux): name a small disk in REDRIVE_SMALL_DISK"
    script = f'mount -t tmpfs -o size={SIZE} redrive "$0" && echo mounted && exec sleep infinity'
    keeper = subprocess.Popen(
        [unshare, "--user", "--map-root-user", "--mount", "sh", "-c", script, str(folder)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    assert keeper.stdout is not None
    said = keeper.stdout.readline()
    assert said == b"mounted\n", (
        f"nobody may mount a file system here ({said.decode().strip()}): name the folder of a small"
        " disk in REDRIVE_SMALL_DISK"
    )
    target = ("--target", str(keeper.pid), "--user", "--mount", "--preserve-credentials", "--wd=.")
    return SmallDisk(folder, (enter, *target), Path(f"/proc/{keeper.pid}/root")), keeper


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    """A small disk, and an end of whatever was started on it."""
    named = os.environ.get("REDRIVE_SMALL_DISK")
    keeper = None
    if named:
        disk = SmallDisk(Path(named).absolute())
    else:
        (tmp_path / "small").mkdir()
        disk, keeper = mounted(tmp_path / "small")
    try:
        yield disk
    finally:
        for process in disk.started:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        for left in disk.seen.iterdir():
            shutil.rmtree(left) if left.is_dir() else left.unlink()
        if keeper is not None:
            keeper.kill()
            keeper.communicate()


@dataclass
class Place:
    """A job whose folder, or whose ledger, is on the small disk."""

    settings: Path
    log: Path
    dlq: str
    target: str
    application: str

    def log_says(self, *words: str) -> bool:
        """Whether one line of the log has all these words."""
        lines = self.log.read_text().splitlines() if self.log.exists() else []
        return any(all(word in line for word in words) for line in lines)


@pytest.fixture
def place(jobs: Jobs, tmp_path: Path) -> MakePlace:
    """Make settings: ``place(directory of the job, folder of the ledger or None)``."""

    def make(directory: Path, ledger: Path | None) -> Place:
        dlq, target = jobs.topic("dlq", partitions=2), jobs.topic("target")
        name = dlq.replace(".", "-")
        kept = "enabled = false" if ledger is None else f'path = "{ledger}"\ninterval = 1'
        settings = write_settings(
            tmp_path, handlers={"h": dlq}, rules=TABLE, application=name, directory=directory,
            servers=jobs.bootstrap_servers,
            more=f"[supervision]\nstalled_after = 10\n[ledger]\n{kept}\n",
        )  # fmt: skip
        return Place(settings, tmp_path / "job.log", dlq, target, name)

    return make


def letters(place: Place, numbers: range) -> list[dict[str, Any]]:
    """Numbered dead letters, each for the target."""
    return [letter(2053, place.target, b"%d" % n, partition=n % 2) for n in numbers]


def audit(job: Place, count: int, jobs: Jobs) -> None:
    """Every dead letter has one outcome and was put once."""
    eventually(lambda: len(jobs.read(job.target)) >= count, "all were put", every=1)
    assert sorted(map(int, jobs.values(job.target))) == list(range(count))
    outcomes = map(json.loads, jobs.values(outcomes_topic(job.application)))
    origins = [outcome["origin"] for outcome in outcomes]
    assert len(origins) == len(set(origins)) == count


def start_and_fill(jobs: Jobs, disk: SmallDisk, job: Place) -> subprocess.Popen[bytes]:
    """Start a job, and fill the disk when it has handled 20 dead letters."""
    process = disk.start(job.log, "run", "-c", str(job.settings))
    jobs.produce(job.dlq, letters(job, range(20)))
    eventually(lambda: len(jobs.read(job.target)) == 20, "the first were handled", every=1)
    disk.fill()
    return process


def test_the_job_goes_on_by_itself_when_there_is_room_again(
    jobs: Jobs, disk: SmallDisk, place: MakePlace
) -> None:
    job = place(disk.folder / "job", None)
    process = start_and_fill(jobs, disk, job)
    jobs.produce(job.dlq, letters(job, range(20, 60)))
    full = (f"the job's folder {disk.folder}/job cannot be written", "No space left on device")
    eventually(lambda: job.log_says(*full, "free disk space"), "the log said so", every=1)

    def status() -> str:
        return disk.run("status", "-c", str(job.settings)).stdout

    eventually(lambda: "stalled" in status(), "status reports a stalled job", every=2)
    assert all(words in status() for words in full)
    assert disk.run("status", "-c", str(job.settings), "--check").returncode == 1
    assert process.poll() is None
    disk.make_room()
    audit(job, 60, jobs)
    eventually(lambda: "stalled" not in status(), "all is well again", every=2)
    assert disk.run("status", "-c", str(job.settings), "--check").returncode == 0


def test_a_job_that_died_on_a_full_disk_goes_on_once_it_is_started_with_room(
    jobs: Jobs, disk: SmallDisk, place: MakePlace
) -> None:
    job = place(disk.folder / "job", None)
    process = start_and_fill(jobs, disk, job)
    jobs.produce(job.dlq, letters(job, range(20, 40)))
    eventually(lambda: job.log_says("No space left on device"), "the disk was missed", every=1)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    refused = disk.run("run", "-c", str(job.settings))
    assert refused.returncode == 1
    assert "cannot be written: No space left on device" in refused.stderr
    assert "free disk space there" in refused.stderr
    disk.make_room()
    disk.start(job.log, "run", "-c", str(job.settings))
    audit(job, 40, jobs)


def test_a_ledger_without_room_is_written_later(
    jobs: Jobs, disk: SmallDisk, place: MakePlace, tmp_path: Path
) -> None:
    job = place(tmp_path / "job", disk.folder / "ledger")
    disk.start(job.log, "run", "-c", str(job.settings))
    jobs.produce(job.dlq, letters(job, range(20)))
    copies = (tmp_path / f"ledger-{number}" for number in itertools.count())
    eventually(lambda: len(rows_of(disk, next(copies))) == 20, "the first are in it", every=1)
    disk.fill()
    jobs.produce(job.dlq, letters(job, range(20, 60)))
    audit(job, 60, jobs)
    full = (f"{disk.folder}/ledger", "No space left on device")
    eventually(lambda: job.log_says("the ledger", *full), "the log said so", every=1)
    status = disk.run("status", "-c", str(job.settings), "--check")
    assert all(words in status.stdout for words in full)
    assert status.returncode == 0, "the job itself is well"
    disk.make_room()
    eventually(lambda: len(rows_of(disk, next(copies))) == 60, "all are in the ledger", every=1)
    assert max(Counter(rows_of(disk, next(copies))).values()) == 1


def rows_of(disk: SmallDisk, copy: Path) -> list[str]:
    """The outcomes that the ledger on a disk holds, which is copied to be read."""
    ledger = disk.seen / "ledger"
    if not list(ledger.glob("_delta_log/*.json")):
        return []
    # The log first: what it names is there by then.
    shutil.copytree(ledger / "_delta_log", copy / "_delta_log")
    shutil.copytree(ledger, copy, dirs_exist_ok=True, ignore=lambda *_: {"_delta_log"})
    table = LedgerTable.open(copy)
    return [] if table is None else [row["outcome"] for row in table.rows("", columns="outcome")]
