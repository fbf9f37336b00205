"""What messages contain is shown on a terminal and never obeyed by it, whichever command prints."""

from __future__ import annotations

import logging
import re
import sys
import unicodedata
from collections.abc import Callable
from contextlib import nullcontext
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import click
import pytest
from tests.commands import redrive
from tests.configurations import write_settings
from tests.outcomes.samples import outcome, rows
from tests.what_if.test_tally import answer_of

from redrive.command import ls
from redrive.command.opening import Answer
from redrive.command.options import table_options
from redrive.command.output import print_table
from redrive.engine.commands import Replay, To
from redrive.kafka.records import StoredRecord
from redrive.messages import Headers, TopicPartition
from redrive.operations.browse import Browsed, BrowsedMessage
from redrive.operations.replay.plan import Part, Plan, Warned
from redrive.operations.replay.progress import ReplayStatus
from redrive.outcomes.history import History, Next
from redrive.outcomes.inventory import Group, Listing
from redrive.outcomes.rows import Row
from redrive.text_log import TextFormatter

EVIL = "a\x1b[2J\x1b]0;title\x07\r\x9b31m\u202eb\x00\x7f[/b]"
"""Clears the screen, sets the title, rings, overwrites the line, colours, turns the direction, and
is no markup."""
_COLOURS = re.compile("\x1b\\[[0-9]*m")
"""What commands write themselves; a sink that is no terminal gets none of it."""
NOW = datetime(2026, 3, 2, tzinfo=UTC)
_CONNECT: Headers = [
    ("__connect.errors.topic", EVIL.encode()),
    ("__connect.errors.connector.name", EVIL.encode()),
    ("__connect.errors.exception.class.name", EVIL.encode()),
    ("__connect.errors.exception.message", EVIL.encode()),
    ("__connect.errors.exception.stacktrace", EVIL.encode()),
]
_MQ: Headers = [("mqdlh.Reason", b"2053"), ("mqdlh.DestQName", EVIL.encode())]


def letters() -> list[StoredRecord]:
    """Dead letters of two schemes, a message of none, and one whose body is no text."""
    lane, extra = TopicPartition("dlq", 0), (EVIL, EVIL.encode())
    return [
        StoredRecord(lane, number, 77, EVIL.encode(), value, [*headers, extra])
        for number, (value, headers) in enumerate(
            [(EVIL.encode(), _CONNECT), (EVIL.encode(), _MQ), (EVIL.encode(), []), (b"\xff", [])]
        )
    ]


def row() -> Row:
    """An outcome whose texts all came from somewhere else."""
    texts = dict.fromkeys(
        ("message", "origin", "detail", "purpose", "operator", "replay", "target_queue", "queue"),
        EVIL,
    )
    known = outcome(0, reason=2053, target_topic=EVIL, **texts)
    (row,) = rows([{**known, "fields": {"DESTQ": EVIL, "APPLNAME": EVIL, "REASON": 2053}}])
    return row._replace(message_key=EVIL.encode())


def shown_plan() -> Plan:
    """A plan that a file may hold."""
    part = Part(EVIL, 1, EVIL)
    return Plan(
        application="app", created="", messages={"dlq": {"dlq:0": [1]}},
        replay=Replay(plan="p", to=To.QUEUE, queue=EVIL), reasons=[part], targets=[part],
        exceptions=[part], groups=[part],
        handlers=[part], warnings=[Warned("x", EVIL, 1)], notes=[EVIL],
    )  # fmt: skip


def shown_status() -> ReplayStatus:
    """A replay that somebody accepted."""
    replay = Replay(
        plan="p", to=To.QUEUE, queue=EVIL, operator=EVIL, purpose=EVIL, cancelled_by=EVIL,
        accepted=NOW.timestamp(),
    )  # fmt: skip
    return ReplayStatus(replay=replay, waiting=1)


def story_of(put_on: str) -> History:
    """Everything that happened to a message."""
    return History(
        message=EVIL, outcomes=[row()], next=Next(text=EVIL), notes=(EVIL,), put_on=put_on
    )


def listed() -> ls.Letters:
    """A list of one dead letter."""
    listing = Listing([row()], 1)
    return ls.Letters(listing, {}, Answer((listing, {}), (), unread=0, quarantined=0))


GROUP = Group(
    error_class=EVIL, consumer_group=EVIL,
    handler=EVIL, reason=2053, destination=EVIL, application=EVIL, failure=EVIL, count=1,
    first=NOW, last=NOW, example=EVIL,
)  # fmt: skip
GROUPS = ls.Groups([GROUP], 1, Answer([GROUP], (), unread=0, quarantined=0), [""], ())


def archive(content: Any) -> Callable[[object], SimpleNamespace]:
    """A ledger that answers every question with this content."""
    return lambda _: SimpleNamespace(history=lambda _: content, find=lambda *_, **__: content)


PRINTED: dict[str, dict[str, object]] = {
    "browse dlq": {"browse.browse_topic": Browsed([*map(BrowsedMessage.of, letters())], ())},
    **{f"show dlq:0:{letter.offset} --body {form}": {"history.find_message": (None, letter)}
        for letter in letters() for form in ("auto", "text")},
    "identify dlq": {"identify.sample": (letters(), ())},
    "explain dlq.rul --field": {},
    "history dlq:0:1 --mq": {"history.Archive": archive(story_of(""))},
    "history dlq:0:1": {"history.Archive": archive(story_of(""))},
    "history dlq:0:2 --mq": {"history.Archive": archive(story_of(EVIL))},
    "history --mq": {"history.Archive": archive(([row()], (EVIL,)))},
    "ls --mq --page 2": {"ls.Letters.of": listed()},
    "ls": {"ls.Letters.of": listed()},
    "groups --mq": {"ls.Groups.of": GROUPS},
    "groups": {"ls.Groups.of": GROUPS},
    "plan dlq.rul": {"plan.ask": answer_of([(2053, EVIL), (2051, EVIL)])},
    "replay plan --mq": {"replay.planned": shown_plan()},
    "replay status p": {"replay.find_replay": None, "replay.status_with_results": shown_status()},
    "replay list": {"replay.statuses": [shown_status()]},
}  # fmt: skip
"""Commands that print the content of messages, and what they are answered."""


@pytest.mark.parametrize("command", PRINTED)
def test_no_control_character_of_a_message_reaches_the_terminal(
    command: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = "DESTQ('a*') ACTION(FWD) FWDQ(&DESTQ)\n"
    write_settings(folder, "dlq", rules=table)
    cluster = SimpleNamespace(topics=dict)
    for module in ("browse", "identify", "replay"):
        monkeypatch.setattr(
            f"redrive.command.{module}.open_cluster", lambda _: nullcontext(cluster)
        )
    for name, answer in PRINTED[command].items():
        asked = answer if callable(answer) else lambda *_, answer=answer, **__: answer
        monkeypatch.setattr(f"redrive.command.{name}", asked)
    field = (f"DESTQ={EVIL}",) if command.endswith("--field") else ()
    printed = redrive(*command.split(), *field)
    assert isinstance(printed.exception, SystemExit | None), printed.exception
    for text in (_COLOURS.sub("", printed.stdout), _COLOURS.sub("", printed.stderr)):
        raw = {
            character for character in text if unicodedata.category(character) in {"Cc", "Cf"}
        } - {"\n", "\t"}
        assert not raw, ascii(text)
    assert "31m" in printed.stdout, "nothing of the message was printed"


@pytest.mark.parametrize("width", [20, 60, 90, 200])
def test_a_narrow_terminal_cuts_nothing_away(
    width: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", str(width))
    row = {
        "message": "orders.dlq:11:4711", "age": "11 min 22 s",
        "reason": "MQRC_UNKNOWN_OBJECT_NAME", "why": "no topic at all",
    }  # fmt: skip
    print_table([row], right=["age"], folded=["reason", "why"])
    printed = capsys.readouterr().out
    lines = [line for line in _COLOURS.sub("", printed).splitlines() if "4711" in line]
    assert len(lines) == 1
    assert "orders.dlq:11:4711  11 min 22 s" in lines[0]
    for value in row.values():
        letters = iter(re.sub(r"\s", "", printed))
        assert all(character in letters for character in value.replace(" ", ""))


def test_a_line_of_the_log_is_one_line_whatever_a_message_says() -> None:
    record = logging.LogRecord("redrive", logging.INFO, "", 0, "put on %s", (f"a\n{EVIL}",), None)
    record.facts = {"queue": f"b\n{EVIL}"}
    line = TextFormatter().format(record)
    assert not {character for character in line if unicodedata.category(character) in {"Cc", "Cf"}}
    assert "31m" in line


def test_a_row_of_a_table_is_one_line_where_nobody_looks(
    capsys: pytest.CaptureFixture[str],
) -> None:
    text = f"a\nqueue [red]of[/red] [brackets{' because' * 200}"
    print_table([{"message": "m" * 249, "for": text}], folded=["for"])
    _, row = capsys.readouterr().out.splitlines()
    assert row.split(maxsplit=1) == ["m" * 249, text.replace("\n", "\N{SYMBOL FOR LINE FEED}")]


@pytest.mark.parametrize(("options", "is_cut"), [((), True), (("--wide",), False)])
def test_a_long_value_is_cut_in_the_middle_but_for_ids(
    options: tuple[str, ...], capsys: pytest.CaptureFixture[str], *, is_cut: bool
) -> None:
    """A topic of 5,000 characters, as a header may name one, hides no other column."""

    @click.command()
    @table_options
    def show(*, as_json: bool) -> None:
        print_table(
            [{"message": "m" * 300, "topic": f"{'a' * 2500}{'z' * 2500}"}], whole=["message"]
        )

    show.main(options, standalone_mode=False)
    _, row = capsys.readouterr().out.splitlines()
    message, topic = row.split()
    assert message == "m" * 300
    assert topic == (f"{'a' * 40}…{'z' * 40}" if is_cut else f"{'a' * 2500}{'z' * 2500}")
