"""What is deployed, in the judgement of the programs that take it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.deploy.test_units import UNIT


def test_the_unit_is_one_to_systemd(tmp_path: Path) -> None:
    copy = tmp_path / UNIT.name
    copy.write_text(UNIT.read_text().replace("/opt/redrive/bin/redrive", sys.executable))
    verified = subprocess.run(
        ["systemd-analyze", "verify", copy], capture_output=True, text=True, check=False
    )
    assert (verified.returncode, verified.stderr) == (0, "")


def test_the_unit_takes_from_the_job_what_it_does_not_need() -> None:
    """Exposure, from 0 to 10, is at most 3."""
    done = subprocess.run(
        ["systemd-analyze", "security", "--offline=true", "--threshold=30", "--no-pager", UNIT],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
