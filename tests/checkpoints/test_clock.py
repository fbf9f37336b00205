"""The clock of a run: setting the clock of a machine makes no retry early, whatever restarts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.checkpoints.test_epoch import MemoryStore

from redrive.checkpoints import machine
from redrive.checkpoints.clock import begin_clock
from redrive.checkpoints.instances import Share

NOW = 1_000_000.0
"""Seconds since 1970."""
WHOLE, FIRST_HALF, SECOND_HALF = Share(1, 1), Share(1, 2), Share(2, 2)
ROUNDING = 1e-3


@dataclass
class Machine:
    """A machine whose clock anybody may set."""

    true: float = 0.0
    """Seconds that have passed."""
    ahead: float = 0.0
    """Seconds by which the clock on the wall is ahead of the true time."""
    booted: float = -500.0
    """When it booted."""
    boots: int = 0

    def time(self) -> float:
        return NOW + self.true + self.ahead

    def clock_gettime(self, _: int) -> float:
        return self.true - self.booted

    def boot(self) -> str:
        return f"boot {self.boots}"

    def boots_again(self) -> None:
        self.boots, self.booted = self.boots + 1, self.true


@pytest.fixture(scope="module")
def clocks() -> Iterator[SimpleNamespace]:
    """The clocks that the module under test reads; ``machine`` is exchanged by tests."""
    here = SimpleNamespace(machine=Machine())

    def boot() -> str:
        return str(here.machine.boot())

    class Clocks:
        def __getattr__(self, name: str) -> Any:
            return getattr(here.machine, name)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("redrive.checkpoints.clock.time", Clocks())
        patch.setattr(machine, "boot", boot)
        yield here


@pytest.fixture
def host(clocks: SimpleNamespace) -> Machine:
    clocks.machine = Machine()
    return clocks.machine  # type: ignore[no-any-return]


INTERVALS = (1.0, 60.0, 600.0)
"""Seconds that messages wait on three partitions."""
STEPS = st.one_of(
    st.tuples(st.just("passes"), st.floats(0.1, 900)),
    st.tuples(st.just("set"), st.sampled_from([-86_400.0, -600.0, -50.0, 0.0, 50.0, 600.0, 1e9])),
    st.tuples(st.just("parks"), st.sampled_from(INTERVALS)),
    st.tuples(st.just("begins"), st.sampled_from([WHOLE, FIRST_HALF])),
)


@given(st.lists(STEPS, min_size=3, max_size=40))
def test_nothing_is_early_whatever_is_set_and_whatever_restarts(
    clocks: SimpleNamespace, steps: list[tuple[str, Any]]
) -> None:
    clocks.machine = here = Machine()
    store = MemoryStore()
    clock = begin_clock(store, WHOLE)
    parked: list[tuple[float, float, float]] = []
    """Stamp, true time and interval."""
    for what, value in steps:
        if what == "passes":
            here.true += value
        elif what == "set":
            here.ahead = value
        elif what == "parks":
            parked.append((clock.now(), here.true, value))
        else:
            clock = begin_clock(store, value)
        for stamp, true, interval in parked:
            if stamp <= clock.due(interval):
                assert here.true - true >= interval - ROUNDING


@pytest.mark.parametrize("restarts", [False, True], ids=["another run", "another process"])
def test_what_was_parked_before_the_clock_was_set_forward_waits_its_time(
    host: Machine, *, restarts: bool
) -> None:
    store = MemoryStore()
    clock = begin_clock(store, WHOLE)
    stamp = clock.now()
    host.true += 20
    host.ahead += 3600
    clock = begin_clock(MemoryStore(dict(store.entries)) if restarts else store, WHOLE)
    assert abs(clock.behind_wall()) < ROUNDING
    assert stamp <= clock.due(10)
    assert stamp > clock.due(600)
    anew = clock.now()
    host.true += 30
    assert anew <= clock.due(30 - ROUNDING)
    host.true += 549
    assert stamp > clock.due(600)
    host.true += 2
    assert stamp <= clock.due(600)


def test_a_clock_goes_on_exactly_if_nobody_sets_it(host: Machine) -> None:
    store = MemoryStore()
    first = begin_clock(store, WHOLE)
    host.true += 1000
    host.ahead += 0.9
    assert begin_clock(store, WHOLE) == first
    assert len(store.steps) == 1


def test_a_run_has_one_clock_whatever_becomes_of_the_wall(host: Machine) -> None:
    clock = begin_clock(MemoryStore(), WHOLE)
    host.ahead -= 7200
    stamp = clock.now()
    host.true += 60
    host.ahead += 7200
    assert stamp <= clock.due(60)
    assert stamp > clock.due(61)


def test_each_part_of_a_share_goes_on_with_its_clock(host: Machine) -> None:
    store = MemoryStore()
    stamp = begin_clock(store, WHOLE).now()
    host.ahead += 100
    parts = [begin_clock(store, share) for share in (FIRST_HALF, SECOND_HALF)]
    host.true += 30
    assert not any(stamp <= part.due(31) for part in parts)
    steps = len(store.steps)
    assert [begin_clock(store, share) for share in (FIRST_HALF, SECOND_HALF)] == parts
    assert len(store.steps) == steps


def test_a_share_goes_on_with_the_clocks_of_all_that_it_takes_over(host: Machine) -> None:
    store = MemoryStore()
    behind = begin_clock(store, FIRST_HALF)
    host.ahead += 100
    ahead = begin_clock(store, SECOND_HALF)
    stamps = behind.now(), ahead.now()
    whole = begin_clock(store, WHOLE)
    assert list(store.entries) == ["clock/1/1"]
    host.true += 30
    assert not any(stamp <= whole.due(31) for stamp in stamps)
    host.true += 2
    assert all(stamp <= whole.due(31) for stamp in stamps)


def test_after_a_boot_the_wall_is_believed_and_what_is_known_goes_on(host: Machine) -> None:
    store = MemoryStore()
    stamp = begin_clock(store, WHOLE).now()
    host.ahead += 3600
    begin_clock(store, WHOLE)
    host.true += 60
    host.boots_again()
    clock = begin_clock(store, WHOLE)
    assert abs(clock.behind_wall()) < ROUNDING
    assert stamp > clock.due(600)
    host.true += 541
    assert stamp <= clock.due(600)


def test_a_machine_whose_clock_was_wrong_holds_nothing_back_on_another(host: Machine) -> None:
    store = MemoryStore()
    host.ahead += 86_400 * 365
    begin_clock(store, WHOLE)
    host.ahead += 86_400 * 365
    begin_clock(store, WHOLE)
    host.ahead = 0.0
    host.boots_again()
    clock = begin_clock(store, WHOLE)
    host.true += 600
    stamp = clock.now()
    host.true += 60
    assert stamp <= clock.due(60)


def test_a_clock_that_is_set_all_the_time_keeps_a_bounded_entry(host: Machine) -> None:
    store = MemoryStore()
    stamps = []
    for _ in range(100):
        clock = begin_clock(store, WHOLE)
        stamps.append(clock.now())
        host.ahead += 10
        host.true += 1
    clock = begin_clock(store, WHOLE)
    assert len(clock.set_forward) <= 16
    assert not any(stamp <= clock.due(101) for stamp in stamps)
    host.true += 101
    assert all(stamp <= clock.due(101) for stamp in stamps)


@pytest.mark.parametrize("content", [{}, {"boot": 1}, {"boot": "x", "offset": "y"}])
def test_an_entry_that_cannot_be_read_is_written_anew(
    host: Machine, content: Mapping[str, Any]
) -> None:
    store = MemoryStore({"clock/1/1": content})
    assert abs(begin_clock(store, WHOLE).now() - host.time()) < ROUNDING
    assert store.entries["clock/1/1"]["boot"] == host.boot()
