"""A job with ``--watch`` takes up what a ConfigMap brings, and refuses what is broken."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.commands import redrive
from tests.conftest import eventually
from tests.streaming.conftest import Jobs, letter
from tests.streaming.served_job import ServedJob

KEEPS = "ACTION(IGNORE)\n"
BROKEN = "ACTION(FORWARD)\n"
METRIC = "redrive_last_restart_successful"


class ConfigMap:
    """A folder as the kubelet mounts it: ``..data`` is a link to the files, and is swapped."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._number = 0

    def write(self, **files: str) -> None:
        """Brings files with these contents, all at once."""
        self._number += 1
        version = self.folder / f"..version_{self._number}"
        version.mkdir(parents=True)
        for name, content in files.items():
            (version / name.replace("_", ".")).write_text(content)
            link = self.folder / name.replace("_", ".")
            if not link.is_symlink():
                link.symlink_to(Path("..data") / link.name)
        fresh = self.folder / "..data_tmp"
        fresh.symlink_to(version.name)
        fresh.replace(self.folder / "..data")


@pytest.fixture
def job(tmp_path: Path, bootstrap_servers: str) -> Iterator[ServedJob]:
    """A job that watches its files."""
    served_job = ServedJob(tmp_path, bootstrap_servers, "--watch")
    yield served_job
    served_job.kill()


def test_a_table_that_a_config_map_brings_decides_and_a_broken_one_does_not(
    jobs: Jobs, job: ServedJob, tmp_path: Path
) -> None:
    dlq, target = jobs.topic("dlq"), jobs.topic("orders")
    mounted, settings = ConfigMap(tmp_path / "mounted"), job.settings(dlq)
    forwards = f"ACTION(FWD) FWDQ('{target}') HEADER(NO)\n"

    def metric() -> str:
        lines = job.get("/metrics")[1].splitlines()
        return next(line.rpartition(" ")[2] for line in lines if line.startswith(METRIC))

    def bodies() -> list[bytes]:
        return sorted(jobs.values(target))

    def status() -> str:
        return redrive("status", "-c", path, code=0).stdout

    mounted.write(redrive_toml=settings, orders_rul=KEEPS)
    path = mounted.folder / "redrive.toml"
    job.start(path)
    job.says("handling the dead letters")
    jobs.produce(dlq, [letter(2053, "gone", b"first")])
    job.says("1 remains")

    mounted.write(redrive_toml=settings, orders_rul=forwards)
    job.says("restarted with")
    eventually(lambda: bodies() == [b"first"], "the new table decides what remained")
    assert metric() == "1.0"

    mounted.write(redrive_toml=settings, orders_rul=BROKEN)
    job.says("not restarted, the job continues with the old settings")
    assert "orders.rul:1:8: " in job.log
    eventually(lambda: "settings or tables were refused" in status(), "status tells it")
    assert metric() == "0.0"
    jobs.produce(dlq, [letter(2053, "gone", b"second")])
    eventually(lambda: bodies() == [b"first", b"second"], "the old table goes on")

    mounted.write(redrive_toml=settings, orders_rul=forwards)
    job.says("restarted with", times=2)
    eventually(lambda: metric() == "1.0", "the refusal is over")
    eventually(lambda: "refused" not in status(), "status tells that it is over")
    kept = redrive("tables", "-c", path, "--json", code=0).stdout
    assert kept.count('"hash"') == 2, kept
    job.stopped()
