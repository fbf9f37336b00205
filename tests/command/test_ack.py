"""``redrive ack``: what remains on purpose is marked everywhere, until its time is over."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from tests.configurations import write_settings
from tests.outcomes.samples import append, outcome, rows

from redrive.command import main
from redrive.settings import read_settings

MASK = '[mask]\npatterns = ["secret"]\n'


def run(*arguments: str) -> Result:
    """A command in the working directory."""
    return CliRunner().invoke(main, arguments, catch_exceptions=False)


def answer(*arguments: str) -> Any:
    """What a command that succeeds says in JSON."""
    done = run(*arguments, "--json")
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


@pytest.fixture
def shop(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    bootstrap_servers: str,
    unique_name: Callable[[str], str],
) -> None:
    """A job, never run on this broker, with a ledger of three messages that remain."""
    monkeypatch.chdir(tmp_path)
    name = unique_name("ack").replace("_", "-")
    path = write_settings(
        tmp_path, "orders.dlq", application=name, servers=bootstrap_servers, more=MASK
    )
    places = [f"orders.dlq:0:{number}" for number in range(3)]
    letters = [
        outcome(
            number, origin=place, outcome=place, message=place, result="remains",
            handler="orders", action="IGNORE", rule_line=number,
        )
        for number, place in enumerate(places)
    ]  # fmt: skip
    append(read_settings(path).job.ledger.path, rows(letters, partitions=1))


@pytest.mark.usefixtures("shop")
def test_what_is_acknowledged_is_marked_until_that_is_undone() -> None:
    """In ls, groups and status; a secret of the selection is not shown."""
    where = "origin <> 'secret'"
    made = answer("ack", "--rule", "1", "--where", where, "--until", "7d", "--note", "audit")
    assert made["messages"] == 1
    [listed] = answer("ack", "--list")
    assert listed == made
    assert listed["selection"] == """--rule 1 --where 'origin <> '"'"'***'"'"''"""
    letters = answer("ls")["dead_letters"]
    assert {one["rule_line"] for one in letters if one["acknowledged"]} == {1}
    assert sum(one["acknowledged"] for one in answer("groups")["groups"]) == 1
    [handler] = answer("status")["handlers"]
    assert (handler["remaining"]["number"], handler["acknowledged"]) == (3, 1)
    for command, column in (("ls", "acknowledged"), ("groups", "acknowledged")):
        assert column in run(command).stdout
    assert made["id"] in run("ack", "--list").stdout
    assert run("ack", "--undo", made["id"]).exit_code == 0
    assert run("ack", "--list").stdout == "Nothing is acknowledged.\n"
    assert not any(one["acknowledged"] for one in answer("ls")["dead_letters"])
    assert run("ack", "--undo", made["id"]).exit_code == 2


@pytest.mark.usefixtures("shop")
def test_an_owner_is_listed_and_forever_has_no_end() -> None:
    """The list of an owner has what is theirs; groups name them."""
    made = answer("ack", "--rule", "1", "--until", "forever", "--note", "old", "--owner", "ann")
    answer("ack", "--rule", "2", "--until", "7d", "--note", "ticket")
    assert (made["owner"], made["until"]) == ("ann", None)
    assert answer("ack", "--list", "--owner", "ann") == [made]
    assert len(answer("ack", "--list")) == 2
    assert run("ack", "--list", "--owner", "bob").stdout == "Nothing is acknowledged for bob.\n"
    assert "forever" in run("ack", "--list").stdout
    assert [one["owners"] for one in answer("groups")["groups"] if one["owners"]] == [["ann"]]
    assert "owner" in run("groups").stdout


@pytest.mark.usefixtures("shop")
def test_groups_of_an_owner_are_listed() -> None:
    """Of nobody else, and none of those of which this owner looks after nothing."""
    for rule, owner in (("1", "ann"), ("2", "")):
        answer("ack", "--rule", rule, "--until", "7d", "--note", "old", "--owner", owner)
    found = answer("groups", "--owner", "ann")
    assert [one["owners"] for one in found["groups"]] == [["ann"]]
    assert found["total"] == sum(one["count"] for one in found["groups"])
    assert answer("groups", "--owner", "bob")["groups"] == []
    assert run("groups", "--owner", "bob").stdout == "No dead letter fits these filters.\n"


def test_what_makes_no_acknowledgement_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each with what to do instead, before the broker is asked."""
    monkeypatch.chdir(tmp_path)
    write_settings(tmp_path, "orders.dlq")
    for arguments, told in (
        ([], "needs --until and --note"),
        (["--until", "7d"], "needs --until and --note"),
        (["--until", "yesterday", "--note", "x"], "--until yesterday is not a time to come"),
        (["--until", "2020-01-01", "--note", "x"], "--until 2020-01-01 is not a time to come"),
        (["--until", "7d", "--note", "x", "--status", "parked"], "no alert is about these"),
        (["--list", "--undo", "5f2a"], "stand alone"),
        (["--list", "--rule", "3"], "stand alone"),
        (["--undo", "5f2a", "--owner", "ann"], "stand alone"),
    ):
        done = run("ack", *arguments)
        assert done.exit_code == 2, done.output
        assert told in " ".join(done.stderr.split())
