"""The job killed under load, and fed with mutated records: short runs of what the long ones do."""

from __future__ import annotations

import random

import pytest
from benchmarks import crash, crash_channels, fuzz


@pytest.mark.timeout(900)
def test_kill_9_under_load_loses_nothing_and_does_nothing_twice() -> None:
    """Every input one final outcome, every put once, order kept, no retry early."""
    seed = random.SystemRandom().randrange(1 << 31)
    findings = crash.run(rounds=1, seed=seed, rate=60, patience=300, plans=0)
    assert findings.are_clean, f"seed {seed}: {findings.line()} {findings}"
    assert findings.inputs > 100


@pytest.mark.timeout(900)
def test_kill_9_while_messages_cross_two_channels_loses_nothing_and_repeats_nothing() -> None:
    """Every put is on its queue once, in order, though the second channel was stopped meanwhile."""
    seed = random.SystemRandom().randrange(1 << 31)
    findings = crash_channels.run(rounds=1, seed=seed, rate=60, patience=300)
    assert findings.are_clean, f"seed {seed}: {findings.line()} {findings}"
    assert findings.inputs > 100


@pytest.mark.timeout(900)
def test_every_mutated_record_has_an_outcome_and_the_job_lives() -> None:
    """Damaged headers, null keys and values, forged headers and large bodies stop nothing."""
    seed = random.SystemRandom().randrange(1 << 31)
    assert fuzz.run(records=1500, seed=seed) == "", f"seed {seed}"
