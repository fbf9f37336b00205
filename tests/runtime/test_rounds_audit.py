"""The audit of rounds under kill -9 finds what is planted, and nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from benchmarks.reconciliation import Findings
from benchmarks.rounds import STEADY, Course, Rounds

IDENTITY = "crash.dlq:0:0"


def found(failures: int, puts: Sequence[int], forwarded: int) -> Findings:
    """What is found in the course of one event, whose processing fails at once after each put.

    Args:
        failures: How often its processing fails.
        puts: Times of its puts, in milliseconds; the first failure is at 0.
        forwarded: How often it was put on the next queue.
    """
    course = Course([(put, IDENTITY) for put in puts], [0, *puts][:failures], forwarded)
    program, scene = Rounds(seed=1), SimpleNamespace(load=SimpleNamespace(acknowledged=1))
    consumer: Any = SimpleNamespace(
        events={0: (STEADY, failures, "spring")}, courses={0: course}, stop=lambda: None
    )
    program.consumer = consumer
    return program.audit(scene)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("failures", "puts", "forwarded"),
    [(1, [2000], 0), (2, [2500, 4500], 0), (99, [2000, 4000, 6000], 1)],
)
def test_rounds_as_the_rules_say_are_not_complained_of(
    failures: int, puts: list[int], forwarded: int
) -> None:
    """RETRY(3) with a RETRYINT of two seconds, and another queue for what never recovers."""
    assert found(failures, puts, forwarded).are_clean


@pytest.mark.parametrize(
    ("failures", "puts", "forwarded", "what"),
    [
        (2, [2000], 0, "lost"),
        (99, [2000, 4000, 6000], 0, "lost"),
        (1, [2000, 4000], 0, "duplicated"),
        (99, [2000, 4000, 6000, 8000], 1, "duplicated"),
        (99, [2000, 4000, 6000], 2, "duplicated"),
        (1, [2000], 1, "duplicated"),
        (2, [2000, 3999], 0, "early"),
    ],
)
def test_whatever_is_planted_is_found(
    failures: int, puts: list[int], forwarded: int, what: str
) -> None:
    findings = found(failures, puts, forwarded)
    assert not findings.are_clean
    assert len(getattr(findings, what)) == 1
