"""The demo from the wheel: Spark, a broker and the job, with nothing of the checkout."""

from __future__ import annotations

from tests.release.conftest import Run

from redrive.java import cache_directory


def test_the_demo_of_the_wheel_reconciles(run: Run) -> None:
    answer = run(
        "redrive", "demo", "--messages", "300", "--fast", REDRIVE_CACHE=str(cache_directory())
    )
    assert answer.returncode == 0, answer.stdout + answer.stderr
    assert "0 lost, 0 duplicated" in answer.stdout
