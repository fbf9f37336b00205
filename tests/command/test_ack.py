"""``redrive ack``: what remains on purpose is marked everywhere, until its time is over."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.commands import redrive, told
from tests.configurations import write_settings
from tests.conftest import KafkaClient
from tests.outcomes.samples import append, remaining, rows

from redrive.settings import read_settings

MASK = '[mask]\npatterns = ["secret"]\n'


@pytest.fixture
def shop(kafka: KafkaClient, folder: Path) -> None:
    """A job, never run on this broker, with a ledger of three messages that remain."""
    name = kafka.unique_name("ack").replace("_", "-")
    path = write_settings(
        folder, "orders.dlq", application=name, servers=kafka.bootstrap_servers, more=MASK
    )
    letters = [remaining("orders.dlq", number, rule_line=number) for number in range(3)]
    append(read_settings(path).job.ledger.path, rows(letters, partitions=1))


@pytest.mark.usefixtures("shop")
def test_what_is_acknowledged_is_marked_until_that_is_undone() -> None:
    """In ls, groups and status; a secret of the selection is not shown."""
    where = "origin <> 'secret'"
    made = told("ack", "--rule", "1", "--where", where, "--until", "7d", "--note", "audit")
    assert made["messages"] == 1
    [listed] = told("ack", "--list")
    assert listed == made
    assert listed["selection"] == """--rule 1 --where 'origin <> '"'"'***'"'"''"""
    letters = told("ls")["dead_letters"]
    assert {one["rule_line"] for one in letters if one["acknowledged"]} == {1}
    assert sum(one["acknowledged"] for one in told("groups")["groups"]) == 1
    [handler] = told("status")["handlers"]
    assert (handler["remaining"]["number"], handler["acknowledged"]) == (3, 1)
    for command, column in (("ls", "acknowledged"), ("groups", "acknowledged")):
        assert column in redrive(command).stdout
    assert made["id"] in redrive("ack", "--list").stdout
    redrive("ack", "--undo", made["id"], code=0)
    assert redrive("ack", "--list").stdout == "Nothing is acknowledged.\n"
    assert not any(one["acknowledged"] for one in told("ls")["dead_letters"])
    redrive("ack", "--undo", made["id"], code=2)


@pytest.mark.usefixtures("shop")
def test_an_owner_is_listed_and_forever_has_no_end() -> None:
    """The list of an owner has what is theirs; groups name them."""
    made = told("ack", "--rule", "1", "--until", "forever", "--note", "old", "--owner", "ann")
    told("ack", "--rule", "2", "--until", "7d", "--note", "ticket")
    assert (made["owner"], made["until"]) == ("ann", None)
    assert told("ack", "--list", "--owner", "ann") == [made]
    assert len(told("ack", "--list")) == 2
    assert redrive("ack", "--list", "--owner", "bob").stdout == "Nothing is acknowledged for bob.\n"
    assert "forever" in redrive("ack", "--list").stdout
    assert [one["owners"] for one in told("groups")["groups"] if one["owners"]] == [["ann"]]
    assert "owner" in redrive("groups").stdout


@pytest.mark.usefixtures("shop")
def test_groups_of_an_owner_are_listed() -> None:
    """Of nobody else, and none of those of which this owner looks after nothing."""
    for rule, owner in (("1", "ann"), ("2", "")):
        told("ack", "--rule", rule, "--until", "7d", "--note", "old", "--owner", owner)
    found = told("groups", "--owner", "ann")
    assert [one["owners"] for one in found["groups"]] == [["ann"]]
    assert found["total"] == sum(one["count"] for one in found["groups"])
    assert told("groups", "--owner", "bob")["groups"] == []
    assert redrive("groups", "--owner", "bob").stdout == "No dead letter matches these filters.\n"


def test_what_makes_no_acknowledgement_is_refused(folder: Path) -> None:
    """Each with what to do instead, before the broker is asked."""
    write_settings(folder, "orders.dlq")
    for arguments, problem in (
        ([], "needs --until and --note"),
        (["--until", "7d"], "needs --until and --note"),
        (["--until", "yesterday", "--note", "x"], "--until yesterday is not a future time"),
        (["--until", "2020-01-01", "--note", "x"], "--until 2020-01-01 is not a future time"),
        (["--until", "7d", "--note", "x", "--status", "parked"], "these raise no alert"),
        (["--list", "--undo", "5f2a"], "stand alone"),
        (["--list", "--rule", "3"], "stand alone"),
        (["--undo", "5f2a", "--owner", "ann"], "stand alone"),
    ):
        done = redrive("ack", *arguments, code=2)
        assert problem in " ".join(done.stderr.split())
