"""Why messages failed, in the words of Kafka where tables and topics are Kafka's; and one meaning
of each option, whichever command has it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
from tests.commands import json_of, redrive
from tests.configurations import write_settings
from tests.outcomes.samples import append, outcome, rows

from redrive.__main__ import SUBCOMMANDS, main
from redrive.rules import parse
from redrive.settings import read_settings

KAFKA = "DIALECT(KAFKA)\nACTION(RETRY)\n"
FAILED: dict[str, Any] = {
    "origin": "orders.dlq:0:1",
    "message": "orders.dlq:0:1",
    "result": "remains",
    "reason": 2085,
    "reason_name": "MQRC_UNKNOWN_OBJECT_NAME",
    "detail": "there is no topic orders",
    "error_class": "com.acme.SchemaException",
    "error_message": "no field\ncard\x1b[2J",
    "consumer_group": "billing",
    "form": "connect",
    "replay": None,
    "fields": {"DESTQ": "orders", "REASON": 2195},
}


@pytest.fixture
def ledger(folder: Path) -> Path:
    """The settings of a job, without a broker, whose ledger has one dead letter."""
    write_settings(folder, handlers={"payments": "orders.dlq"}, rules=KAFKA)
    append(read_settings(Path("redrive.toml")).job.ledger.path, rows([outcome(0, **FAILED)]))
    return Path("payments.rul")


def shown(*arguments: str) -> list[str]:
    """The output in words, without line ends."""
    result = redrive(*arguments, code=0)
    return result.stdout.split()


COMMANDS = [("ls",), ("groups",), ("history", "orders.dlq:0:1"), ("show", "orders.dlq:0:1")]


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize(
    ("table", "options", "is_mq"),
    [(KAFKA, (), False), (KAFKA, ("--mq",), True), ("ACTION(RETRY)\n", (), True)],
)
def test_a_table_in_kafkas_dialect_shows_exception_group_and_topic(
    ledger: Path, command: tuple[str, ...], table: str, options: tuple[str, ...], *, is_mq: bool
) -> None:
    """MQ's reasons are shown on request, and where tables are IBM's."""
    ledger.write_text(table)
    text = " ".join(shown(*command, *options))
    assert ("MQRC_UNKNOWN_OBJECT_NAME" in text) is is_mq
    assert ("MQRC_UNEXPECTED_ERROR" in text) is is_mq
    assert ("SchemaException" in text and "billing" in text) or is_mq


def test_groups_count_dead_letters_of_one_record(ledger: Path) -> None:
    """As text and as JSON; the column is there only if there are some."""
    assert "repeated" not in shown("groups")
    again = {"failed_record": "orders:0:7", "hop": 0, "handler": "payments"}  # as the first one
    letters = [
        outcome(number, **{**FAILED, **again, "origin": f"orders.dlq:0:{number}"})
        for number in (2, 3, 4)
    ]
    written = rows([outcome(0, **FAILED), *letters], partitions=1)[1:]
    append(read_settings(Path("redrive.toml")).job.ledger.path, written)
    words = shown("groups")
    assert "repeated" in words
    [group] = [
        candidate for candidate in json_of("groups")["groups"] if candidate["handler"] == "payments"
    ]
    assert (group["count"], group["repeated"]) == (4, 2)


def test_what_is_told_of_a_put_to_a_topic_is_kafkas_too(ledger: Path) -> None:
    """The failed attempt of a rule has a reason of MQ, but no queue."""
    assert "unknown topic: there is no topic orders" in " ".join(shown("ls"))


@pytest.mark.usefixtures("ledger")
@pytest.mark.parametrize("command", [("ls", "--wide"), ("history", "orders.dlq:0:1")])
def test_last_failure_begins_with_the_message_of_the_exception(command: tuple[str, ...]) -> None:
    text = " ".join(shown(*command))
    assert "no field card\u241b[2J; unknown topic: there is no topic orders" in text
    assert text.count("no field") == 1


def test_a_parked_message_says_which_round_is_next_and_when(ledger: Path) -> None:
    """It has come back once; in IBM's dialect only attempts are counted."""
    ledger.write_text("DIALECT(KAFKA) RETRYINT(3600)\nACTION(RETRY) RETRY(5)\n")
    table = parse(ledger.read_text()).required().hash[:16]
    now, common = int(time.time() * 1000), {**FAILED, "handler": "payments", "reason": 0}
    plain = {**common, "table": table, "rule_line": 2, "reason_name": "", "detail": ""}
    put = outcome(1, **plain | {"result": "retried", "attempt": 1, "time": now - 60_000})
    back = {
        "result": "parked",
        "attempt": 2,
        "origin": "orders.dlq:0:2",
        "outcome": "orders.dlq:0:2",
    }
    parked = outcome(2, **plain | back | {"time": now})
    append(read_settings(Path("redrive.toml")).job.ledger.path, rows([put, parked]))
    assert "round 2 of 5 in" in " ".join(shown("ls", "--wide"))
    (letter,) = json_of("ls")["dead_letters"]
    assert (letter["next"]["attempt"], letter["next"]["rule_line"]) == ("round 2 of 5", 2)


def every_command(
    group: click.Command, path: tuple[str, ...] = ()
) -> Iterator[tuple[str, click.Command]]:
    """Every command without subcommands, with its words."""
    if isinstance(group, click.Group):
        context = click.Context(group)
        for name in group.list_commands(context):
            command = group.get_command(context, name)
            assert command is not None
            yield from every_command(command, (*path, name))
    else:
        yield " ".join(path), group


def test_an_option_means_the_same_wherever_it_is() -> None:
    """``--reason`` filters, ``--because`` explains; what asks takes ``--yes``."""
    helps: dict[str, set[str | None]] = {}
    having: dict[str, set[str]] = {}
    for words, command in every_command(main):
        for option in command.params:
            for name in option.opts:
                helps.setdefault(name, set()).add(getattr(option, "help", None))
                having.setdefault(name, set()).add(words)
    assert set(SUBCOMMANDS) >= {words.split()[0] for words in having["--yes"]}
    for name in ("--reason", "--because", "--yes", "--wide", "--mq", "--json", "--key"):
        sentences = helps[name] - {"Print one line of JSON.", "Print the trace as JSON."}
        assert len(sentences) == 1 or name == "--key", (name, sentences)
    assert having["--because"] == {
        *(f"{verb} {word}" for verb in ("replay", "discard")
          for word in ("now", "message", "apply", "cancel")),
        "parked now", "parked cancel", "handler resume",
    }  # fmt: skip
    asking = having["--because"] - {"handler resume"}
    assert having["--yes"] == {*asking, "init", "restart", "topology apply"}
    assert not having["--reason"] & {"replay apply", "discard apply"}


@pytest.mark.parametrize("command", ["show", "history"])
def test_an_empty_id_is_a_usage_error(command: str) -> None:
    assert "the ID is empty" in redrive(command, "", code=2).stderr
