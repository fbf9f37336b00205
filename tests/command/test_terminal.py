"""What messages contain is shown on a terminal and never obeyed by it, whichever command prints."""

from __future__ import annotations

import logging
import re
import sys
import unicodedata
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import click
import pytest
from tests.outcomes.samples import outcome, rows
from tests.what_if.test_tally import answer_of

from redrive.command import browse, explain, history, identify, ls, plan, record
from redrive.command.opening import Answer
from redrive.command.options import table_options
from redrive.command.output import print_lines, print_table
from redrive.command.replay_work import show_plan, show_status, show_statuses
from redrive.engine.commands import Replay, To
from redrive.kafka.records import StoredRecord
from redrive.masking import NO_MASK
from redrive.messages import Headers, TopicPartition
from redrive.messages.schemes import KNOWN
from redrive.operations.browse import Browsed, BrowsedMessage
from redrive.operations.identify import identified
from redrive.operations.record_view import RecordView
from redrive.operations.replay.plan import Order, Part, ReplayPlan, Warned
from redrive.operations.replay.progress import ReplayStatus
from redrive.outcomes.criteria import Criteria
from redrive.outcomes.history import Found, History, Next
from redrive.outcomes.inventory import Group, Listing, Selection
from redrive.rules import GROUP_TOPIC, parse
from redrive.rules import explain as explain_message
from redrive.text_log import TextFormatter
from redrive.topology.names import Names

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


def row() -> Any:
    """An outcome whose texts all came from somewhere else."""
    texts = dict.fromkeys(
        ("message", "origin", "detail", "purpose", "operator", "replay", "target_queue", "queue"),
        EVIL,
    )
    known = outcome(0, reason=2053, target_topic=EVIL, **texts)
    (found,) = rows([{**known, "fields": {"DESTQ": EVIL, "APPLNAME": EVIL, "REASON": 2053}}])
    return {**found, "message_key": EVIL.encode()}


def told(*lines: str) -> None:
    """Prints lines, as a command does."""
    sys.stdout.write("\n".join(lines))


def shown_plan() -> ReplayPlan:
    """A plan that a file may hold."""
    part = Part(EVIL, 1, EVIL)
    return ReplayPlan(
        plan="p", application="app", created="", messages={"dlq": {"dlq:0": [1]}},
        order=Order(to=To.QUEUE, target=Names(queue=EVIL)), reasons=[part], targets=[part],
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


def explained() -> None:
    """What a table does with a message."""
    table = parse("DESTQ('a*') ACTION(FWD) FWDQ(&DESTQ)\n").required()
    fields: dict[str, str | int] = {"DESTQ": EVIL, "REASON": 2053}
    told(*explain._lines(table, fields, explain_message(table, fields), NO_MASK, GROUP_TOPIC))


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
PRINTED: dict[str, Callable[[], None]] = {
    "browse": lambda: browse._show(
        Browsed([*map(BrowsedMessage.of, letters())], ()), NO_MASK, "", as_json=False),
    "show": lambda: told(*(line for one in letters() for form in ("auto", "text") for line in
        record.lines(RecordView.of(one, KNOWN), form))),
    "identify": lambda: print_lines(identify._lines(identified("dlq", letters(), KNOWN))),
    "explain": explained,
    "history ID": lambda: history.print_history(story_of(""), mq=True),
    "history ID of Kafka": lambda: history.print_history(story_of(""), mq=False),
    "history of a put": lambda: history.print_history(story_of(EVIL), mq=True),
    "history": lambda: history._show_found(
        Found([row()], (EVIL,)), Criteria(), mq=True, as_json=False),
    "ls": lambda: ls._show(listed(), Selection(), mq=True, before=20),
    "ls of exceptions": lambda: ls._show(listed(), Selection(), mq=False, before=0),
    "groups": lambda: ls._show_groups(GROUPS, Selection(), mq=True),
    "groups of exceptions": lambda: ls._show_groups(GROUPS, Selection(), mq=False),
    "plan": lambda: plan.show(answer_of([(2053, EVIL), (2051, EVIL)]), as_json=False),
    "replay plan": lambda: show_plan(shown_plan(), mq=True),
    "replay status": lambda: show_status(shown_status()),
    "replay list": lambda: show_statuses([shown_status()]),
}  # fmt: skip
"""What prints messages' content, by the command that does."""


@pytest.mark.parametrize("command", PRINTED)
def test_no_control_character_of_a_message_reaches_the_terminal(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """On neither stream; what is neither a line end nor a tab is shown as a picture."""
    PRINTED[command]()
    printed = capsys.readouterr()
    for text in (_COLOURS.sub("", printed.out), _COLOURS.sub("", printed.err)):
        raw = {one for one in text if unicodedata.category(one) in {"Cc", "Cf"}} - {"\n", "\t"}
        assert not raw, ascii(text)
    assert "31m" in printed.out, "nothing of the message was printed"


@pytest.mark.parametrize("width", [20, 60, 90, 200])
def test_a_narrow_terminal_cuts_nothing_away(
    width: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Ids and numbers stand in one piece, to be copied; other values are there, on more lines."""
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
        assert all(one in letters for one in value.replace(" ", ""))


def test_a_line_of_the_log_is_one_line_whatever_a_message_says() -> None:
    """A queue may have any name that a message gives it: it neither ends a line nor moves one."""
    record = logging.LogRecord("redrive", logging.INFO, "", 0, "put on %s", (f"a\n{EVIL}",), None)
    record.facts = {"queue": f"b\n{EVIL}"}
    line = TextFormatter().format(record)
    assert not {one for one in line if unicodedata.category(one) in {"Cc", "Cf"}}
    assert "31m" in line


def test_a_row_of_a_table_is_one_line_where_nobody_looks(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """grep finds it as a whole, whatever a message named its queue; brackets are brackets."""
    print_table([{"message": "dlq:0:1", "for": "a\nqueue [red]of[/red] [brackets"}], folded=["for"])
    assert capsys.readouterr().out.splitlines()[1].split(maxsplit=1) == [
        "dlq:0:1", "a\N{SYMBOL FOR LINE FEED}queue [red]of[/red] [brackets"
    ]  # fmt: skip


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
