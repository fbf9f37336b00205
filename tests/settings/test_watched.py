"""What counts as a change of the files that settings are read from."""

import os
from pathlib import Path

import pytest
from tests.settings.conftest import GOOD

from redrive.settings import Option, WatchedFiles

TOPOLOGY = '[topology]\nfiles = ["QM1=qm1.mqsc", "more"]\n'
PATCH = '[transforms.fixed]\njson_patch = "fix.json"\n'


@pytest.fixture
def files(folder: Path) -> WatchedFiles:
    """Settings with everything that is a file of its own."""
    Path("redrive.toml").write_text(f"{GOOD}{TOPOLOGY}{PATCH}")
    Path("qm1.mqsc").write_text("DEFINE QLOCAL(A)\n")
    Path("fix.json").write_text("[]")
    Path("more").mkdir()
    return WatchedFiles(Path("redrive.toml"), (), {})


@pytest.mark.parametrize(
    "name", ["redrive.toml", "orders.rul", "qm1.mqsc", "fix.json", "more/a.yaml"]
)
def test_another_content_of_any_file_is_a_change(files: WatchedFiles, name: str) -> None:
    path = Path(name)
    before = files.digest()
    old = path.read_bytes() if path.exists() else None
    path.write_bytes((old or b"") + b"\n")
    assert files.digest() != before
    if old is None:
        path.unlink()
    else:
        path.write_bytes(old)
    assert files.digest() == before


def test_names_and_times_are_no_change(files: WatchedFiles) -> None:
    before, rules = files.digest(), Path("orders.rul")
    os.utime(rules, (1, 1))
    Path("redrive.log").write_text("a line\n")
    Path("other").write_bytes(rules.read_bytes())
    rules.unlink()
    rules.symlink_to("other")
    assert files.digest() == before


def test_what_is_broken_or_missing_is_a_content_too(files: WatchedFiles) -> None:
    """So that the file that mends it is a change: one that is not there yet, or not TOML."""
    settings, seen = Path("redrive.toml"), {files.digest()}
    settings.write_text(GOOD.replace("orders.rul", "new.rul"))
    seen.add(files.digest())
    Path("new.rul").write_text("ACTION(IGNORE)\n")
    seen.add(files.digest())
    settings.write_text("[application")
    seen.add(files.digest())
    settings.unlink()
    seen.add(files.digest())
    assert len(seen) == 5


def test_options_name_files_too(folder: Path) -> None:
    files = WatchedFiles(None, [Option(("handlers", 0, "rules"), "--rules", "orders.rul")], {})
    before = files.digest()
    Path("orders.rul").write_text("ACTION(DISCARD)\n")
    assert files.digest() != before
