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
    where = "origin <> 'secret'"
    made = told("ack", "--rule", "1", "--where", where, "--until", "7d", "--note", "audit")
    assert made["messages"] == 1
    [listed] = told("ack", "--list")
    assert listed == made
    assert listed["selection"] == """--rule 1 --where 'origin <> '"'"'***'"'"''"""
    letters = told("ls")["dead_letters"]
    assert {letter["rule_line"] for letter in letters if letter["acknowledged"]} == {1}
    assert sum(group["acknowledged"] for group in told("groups")["groups"]) == 1
    [handler] = told("status")["handlers"]
    assert (handler["remaining"]["number"], handler["acknowledged"]) == (3, 1)
    for command, column in (("ls", "acknowledged"), ("groups", "acknowledged")):
        assert column in redrive(command).stdout
    assert made["id"] in redrive("ack", "--list").stdout
    redrive("ack", "--undo", made["id"], code=0)
    assert redrive("ack", "--list").stdout == "Nothing is acknowledged.\n"
    assert not any(dead_letter["acknowledged"] for dead_letter in told("ls")["dead_letters"])
    redrive("ack", "--undo", made["id"], code=2)


def test_what_makes_no_acknowledgement_is_refused(folder: Path) -> None:
    write_settings(folder, "orders.dlq")
    for arguments, problem in (
        ([], "needs --until and --note"),
        (["--until", "7d"], "needs --until and --note"),
        (["--until", "yesterday", "--note", "x"], "--until yesterday is not a future time"),
        (["--until", "2020-01-01", "--note", "x"], "--until 2020-01-01 is not a future time"),
        (["--until", "7d", "--note", "x", "--status", "parked"], "these raise no alert"),
        (["--list", "--undo", "5f2a"], "stand alone"),
        (["--list", "--rule", "3"], "stand alone"),
        (["--until", "forever", "--note", "x"], "0.1.0 was the last version with forever"),
    ):
        done = redrive("ack", *arguments, code=2)
        assert problem in " ".join(done.stderr.split())
