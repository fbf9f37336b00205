"""A run begins so that nobody of an older one can emit afterwards."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from typing import Any

import pytest

from redrive.checkpoints.epoch import (
    RunIdentity,
    begin_run,
    check_current,
    emitter_prefix,
    instance_key,
    new_operator_key,
    operator_ids,
)
from redrive.checkpoints.instances import Share
from redrive.errors import RedriveError, SupersededFault, TransientFault

WHOLE, FIRST_HALF, SECOND_HALF = Share(1, 1), Share(1, 2), Share(2, 2)
FAR_AHEAD = 1 << 60
"""A number of a run, as a machine whose clock goes wrong would choose it."""


class MemoryStore:
    """A control topic in memory, which notes what is asked of it."""

    def __init__(self, entries: Mapping[str, Mapping[str, Any]] | None = None) -> None:
        self.entries: dict[str, Mapping[str, Any]] = dict(entries or {})
        self.steps: list[str] = []
        self.registers_meanwhile = ""
        """Key of an emitter that registers just before the registered ones are read."""

    def write(self, entries: Mapping[str, Mapping[str, Any] | None]) -> None:
        for key, value in entries.items():
            self.steps.append(f"{'remove' if value is None else 'write'} {key}")
            self.entries.pop(key, None)
            if value is not None:
                self.entries[key] = value

    def registered(self, prefix: str) -> Mapping[str, Mapping[str, Any]]:
        if self.registers_meanwhile:
            self.entries[self.registers_meanwhile] = {"run": 1}
        self.steps.append("read")
        return {key: value for key, value in self.entries.items() if key.startswith(prefix)}

    def fence(self, transactional_id: str) -> None:
        self.steps.append(f"fence {transactional_id}")


def begin(store: MemoryStore, share: Share = WHOLE) -> RunIdentity:
    return begin_run(store, store.fence, application="app", share=share, details={"host": "here"})


def emitter(share: Share, name: str) -> str:
    return f"{emitter_prefix(share)}{name}"


def test_a_run_takes_its_steps_in_the_order_of_the_protocol() -> None:
    store = MemoryStore({emitter(WHOLE, "old"): {"run": 7}})
    run = begin(store)
    assert store.steps == ["write instance/1/1", "read", "fence old", "remove emitter/1of1/old"]
    assert store.entries == {"instance/1/1": {"host": "here", "run": run.number}}
    assert (run.application, run.share) == ("app", WHOLE)


def test_an_emitter_that_registers_after_the_entry_is_written_is_fenced_too() -> None:
    store = MemoryStore()
    store.registers_meanwhile = emitter(WHOLE, "late")
    begin(store)
    assert "fence late" in store.steps
    assert emitter(WHOLE, "late") not in store.entries


def test_ids_that_an_older_version_kept_in_its_entry_are_fenced() -> None:
    store = MemoryStore({instance_key(WHOLE): {"run": 3, "ids": ["lane-0", "lane-1"]}})
    begin(store)
    assert sorted(store.steps[2:]) == ["fence lane-0", "fence lane-1"]


def test_numbers_grow_whatever_the_clock_says() -> None:
    store = MemoryStore()
    numbers = [begin(store).number for _ in range(3)]
    assert numbers == sorted(set(numbers))
    store.entries.clear()
    assert begin(store).number > numbers[-1]
    store.entries[instance_key(FIRST_HALF)] = {"run": FAR_AHEAD}
    assert begin(store).number > FAR_AHEAD


def test_entries_of_overlapping_shares_are_replaced_and_others_left_alone() -> None:
    store = MemoryStore()
    first, second = begin(store, FIRST_HALF), begin(store, SECOND_HALF)
    store.entries[emitter(FIRST_HALF, "one")] = {"run": first.number}
    store.entries[emitter(SECOND_HALF, "two")] = {"run": second.number}
    store.steps.clear()
    begin(store, FIRST_HALF)
    assert "fence one" in store.steps
    assert "fence two" not in store.steps
    assert store.entries[instance_key(SECOND_HALF)]["run"] == second.number
    whole = begin(store)
    assert "fence two" in store.steps
    assert store.entries == {instance_key(WHOLE): {"host": "here", "run": whole.number}}


def test_an_id_that_could_not_be_fenced_stays_registered() -> None:
    class Stubborn(MemoryStore):
        def fence(self, transactional_id: str) -> None:
            raise TransientFault(f"no answer for {transactional_id}")

    store = Stubborn({emitter(WHOLE, name): {"run": 1} for name in ("a", "b")})
    with pytest.raises(TransientFault, match="no answer"):
        begin(store)
    assert {emitter(WHOLE, "a"), emitter(WHOLE, "b")} < set(store.entries)


@pytest.mark.parametrize("share", [WHOLE, FIRST_HALF, SECOND_HALF])
def test_every_start_fences_the_commands_of_operators(share: Share) -> None:
    name = "redrive-app-tables-replay-0123456789ab"
    keys = [new_operator_key(name) for _ in range(2)]
    store = MemoryStore({key: {"host": "here"} for key in keys})
    begin(store, share)
    assert store.steps.count(f"fence {name}") == 1
    assert not set(keys) & set(store.entries)


def test_a_command_that_opens_its_producer_again_during_a_start_stays_registered() -> None:
    class Reopened(MemoryStore):
        def fence(self, transactional_id: str) -> None:
            super().fence(transactional_id)
            self.entries[new_operator_key(transactional_id)] = {"host": "here"}

    store = Reopened({new_operator_key("writer"): {"host": "here"}})
    begin(store)
    assert list(operator_ids(store.entries).values()) == ["writer"]


def test_keys_that_no_version_writes_are_left_alone() -> None:
    strange: dict[str, dict[str, Any]] = {
        "instance/x": {"run": 5},
        "emitter/x/y": {},
        "table/DLQ/0": {"table": "t"},
    }
    store = MemoryStore(strange)
    begin(store)
    assert strange.items() <= store.entries.items()


def test_every_process_emits_under_an_id_of_its_own() -> None:
    run = RunIdentity("app", FIRST_HALF, 7)
    ids = {run.new_transactional_id() for _ in range(100)}
    assert len(ids) == 100
    assert all(name.startswith("redrive-app-1of2-") for name in ids)


@pytest.mark.parametrize(
    ("entries", "fault"),
    [
        ({"instance/1/2": {"run": 7}}, None),
        ({"instance/1/2": {"run": 8, "pid": 5, "host": "far"}}, SupersededFault),
        ({"instance/1/2": {"run": 7}, "instance/1/1": {"run": 8}}, SupersededFault),
        ({"instance/1/1": {"run": 8}}, SupersededFault),
        ({"instance/2/2": {"run": 8}, "instance/1/2": {"run": 7}}, None),
        # What a reader may see while brokers are restarted: nothing, or an earlier run.
        ({}, TransientFault),
        ({"instance/1/2": {"run": 6}}, TransientFault),
    ],
)
def test_only_a_newer_run_supersedes(
    entries: dict[str, dict[str, Any]], fault: type[RedriveError] | None
) -> None:
    run = RunIdentity("app", Share(1, 2), 7)
    with nullcontext() if fault is None else pytest.raises(fault):
        check_current(entries, run)
