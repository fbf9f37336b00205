"""What a person reads before and after a replay, without a broker."""

from __future__ import annotations

import re
import time
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.commands import redrive
from tests.configurations import write_settings

from redrive.command import replay
from redrive.command.replay_work import accepted_before, question, show_plan, show_status
from redrive.engine.commands import Replay, To
from redrive.operations.replay.plan import Plan, Warned
from redrive.operations.replay.progress import ReplayStatus


def plan(to: To, count: int = 2, **more: Any) -> Plan:
    wanted = Replay(plan="p", to=to, queue="Q" if to is To.QUEUE else "")
    messages = {"dlq": {"dlq:0": list(range(count))}} if count else {}
    return Plan(replay=wanted, application="a", created="", messages=messages, **more)


@pytest.mark.parametrize(
    ("to", "asked"),
    [
        (To.ORIGINAL, "Replay 2 messages to their original destinations?"),
        (To.QUEUE, "Replay 2 messages to Q?"),
        (To.RULES, "Replay 2 messages through the rules tables again?"),
        (To.DISCARD, "Discard 2 messages?"),
        (To.ATTEMPT, "Make the next attempt on 2 messages now?"),
        (To.REMAIN, "End the retries of 2 messages?"),
    ],
)
def test_the_question_names_what_is_done(to: To, asked: str) -> None:
    assert question(plan(to)) == asked


def test_an_empty_plan_says_where_it_looked(capsys: pytest.CaptureFixture[str]) -> None:
    show_plan(
        plan(To.ORIGINAL, 0, notes=("5 messages are left out: their payload was deleted",)), mq=True
    )
    show_plan(plan(To.ATTEMPT, 0), mq=True)
    printed = capsys.readouterr()
    assert printed.out.splitlines() == [
        "Nothing to do: no such message remains.", "Nothing to do: no such message is parked."
    ]  # fmt: skip
    assert "note: 5 messages are left out" in printed.err


def test_the_first_warnings_are_shown_and_the_others_counted(
    capsys: pytest.CaptureFixture[str],
) -> None:
    show_plan(plan(To.ORIGINAL, warnings=[Warned("x", f"w{n}", 1) for n in range(50)]), mq=True)
    printed = capsys.readouterr().out
    assert printed.count("warning: ") == 20
    assert "30 more warnings: --json shows all" in printed


def status(results: dict[str, int], **members: Any) -> ReplayStatus:
    known = {"plan": "5f2a", "operator": "ann", "accepted": time.time() - 23, "is_complete": True}
    return ReplayStatus(replay=Replay(**{**known, **members}), waiting=0, results=results)


@pytest.mark.parametrize(
    ("results", "to", "shown"),
    [
        ({"retried": 2}, To.ORIGINAL, False),
        ({"retried": 2, "remains": 1}, To.ORIGINAL, True),
        ({"remains": 1}, To.REMAIN, False),
    ],
)
def test_a_replay_that_left_messages_behind_says_how_to_see_why(
    results: dict[str, int], to: To, *, shown: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    show_status(status(results, to=to))
    match = re.search(r"why some remain: (redrive groups .*)", capsys.readouterr().out)
    assert (match is not None) is shown
    if match is not None:
        assert match[1] == "redrive groups --status remaining --where \"replay = '5f2a'\""


def test_a_plan_that_was_accepted_before_says_when_by_whom_and_why() -> None:
    lines = accepted_before(status({}, purpose="ticket 4711").replay)
    assert lines == ("The plan 5f2a was already accepted 23 s ago from ann (ticket 4711).")


@pytest.mark.parametrize(
    ("options", "typed", "cancelled"),
    [
        ((), "n\n", None),
        ((), "y\n", ("ann", "")),
        (("--yes", "--because", "wrong"), "", ("ann", "wrong")),
    ],
)
def test_cancelling_asks_and_tells_the_ledger_why(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    options: tuple[str, ...],
    typed: str,
    cancelled: tuple[str, str] | None,
) -> None:
    write_settings(folder, "dlq")
    running = replace(status({}), waiting=3)
    asked: list[tuple[str, ...]] = []
    monkeypatch.setattr(replay, "open_cluster", lambda _: nullcontext())
    monkeypatch.setattr(replay, "find_replay", lambda *_: running.replay)
    monkeypatch.setattr(replay, "statuses", lambda *_, **__: [running])
    monkeypatch.setattr(replay, "this_user", lambda: "ann")
    monkeypatch.setattr(replay, "cancel", lambda *words: asked.append(words[-2:]))
    result = redrive("replay", "cancel", "5f2a", *options, typed=typed)
    assert asked == ([] if cancelled is None else [cancelled]), result.output
    assert result.exit_code == (1 if cancelled is None else 0)
