"""Changes of messages on the command line and in an editor."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import pytest
from hypothesis import assume, given
from tests.commands import redrive
from tests.configurations import write_settings
from tests.engine.test_edits import contents
from tests.outcomes.samples import row_with

from redrive.command import replay
from redrive.command.edits import edit_with, edited_file, read_edit, read_form, written_form
from redrive.command.failures import why
from redrive.command.replay_work import show_plan
from redrive.engine.commands import Replay, To
from redrive.engine.edits import NO_EDIT, Content, Edit, ReplaceContent, digest
from redrive.errors import EnvironmentFault, UsageError
from redrive.operations.replay.plan import Change, Plan, value_text

ORDER = Content(b'{"amount":10.10,"id":7}', [("a", b"1"), ("b", b"\0"), ("a", None), ("c", b" x")])


def test_patch_that_is_too_long_is_refused_before_anything_is_read(folder: Path) -> None:
    Path("long.json").write_text(f'[{{"op": "test", "path": "", "value": "{"x" * 2**20}"}}]')
    result = redrive("replay", "plan", "--json-patch", "long.json", code=2)
    assert "1,048,576 are the most" in " ".join(result.output.split())


def test_options_are_read_in_one_order() -> None:
    edit = read_edit(["a=1=2", "b="], ["c", "c"], None)
    assert str(edit) == "header c dropped, header a set, header b set"
    content = edit.applied(Content(None, [("c", b"0"), ("a", b"0")]))
    assert content == Content(None, [("a", b"1=2"), ("b", b"")])


@given(contents)
def test_what_is_not_edited_stays_byte_by_byte(content: Content) -> None:
    """Null, bytes that are no text, repeated names, JSON that is written with other spaces."""
    assume(value_text(content.value) is not None)
    text = written_form("dlq:0:1", content)
    assert read_form(text.encode(), content) == content


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("10.1", "12.50", ORDER._replace(value=b'{"amount":12.5,"id":7}')),
        ("a: 1", "a: 2", ORDER._replace(headers=[("a", b"2"), *ORDER.headers[1:]])),
        ("a: 1\n", "", ORDER._replace(headers=ORDER.headers[1:])),
        ("b: 0x00", "b:0x0001", ORDER._replace(
            headers=[ORDER.headers[0], ("b", b"\0\1"), *ORDER.headers[2:]]
        )),
        ("c: 0x2078\n", "c: 0x2078\n# c: y\nd:\n", ORDER._replace(
            headers=[*ORDER.headers, ("d", b"")]
        )),
    ],
)  # fmt: skip
def test_an_edited_line_changes_only_itself(old: str, new: str, expected: Content) -> None:
    """JSON is sent without the indents in which it was shown."""
    text = written_form("dlq:0:1", ORDER)
    assert old in text
    assert read_form(text.replace(old, new).encode(), ORDER) == expected


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("a: 1", "a 1", "line 4 is not a header: 'a 1' has no colon"),
        ("b: 0x00", "b: 0x0", "line 5 is not a header"),
        ("c: ", "redrive.id: ", "line 7 is not a header"),
        ("c: ", ": ", "line 7 is not a header"),
        ("10.1", "", "the value was JSON"),
    ],
)
def test_what_an_editor_left_wrong_is_kept(
    old: str,
    new: str,
    message: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def corrupt(*, filename: str) -> None:
        path = Path(filename)
        path.write_text(path.read_text().replace(old, new, 1))

    monkeypatch.setattr(click, "edit", corrupt)
    with pytest.raises(UsageError, match=message), edited_file("dlq:0:1") as path:
        edit_with(path, "dlq:0:1", ORDER)
    assert new in path.read_text()
    assert path.stat().st_mode & 0o77 == 0
    assert f"kept in {path}" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (Content(b"\xff\0", []), "binary: 2 bytes"),
        (Content(b"", [("#a", b"")]), "can't be edited as a line"),
        (Content(b"", [("a:b", b"")]), "can't be edited as a line"),
        (Content(b"", [("a\n", b"")]), "can't be edited as a line"),
    ],
)
def test_what_is_not_text_is_not_edited(content: Content, message: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=message):
        edit_with(tmp_path / "file", "dlq:0:1", content)


def test_an_editor_that_fails_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VISUAL", "false")
    with pytest.raises(EnvironmentFault, match="the editor failed"):
        edit_with(tmp_path / "file", "dlq:0:1", ORDER)


@pytest.mark.parametrize(
    ("editor", "words", "expected"),
    [
        ("sed -i s/10.1/11/", ["--edit", "dlq:0:1"], b'{"amount":11,"id":7}'),
        ("sed -i s/10.1/11/", ["dlq:0:1", "--edit"], b'{"amount":11,"id":7}'),
        ("true", ["--edit", "dlq:0:1"], None),
    ],
)
def test_a_message_is_edited_and_sent_or_is_unchanged_and_stays(
    folder: Path,
    editor: str,
    words: list[str],
    expected: bytes | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    write_settings(folder, "dlq")
    monkeypatch.setenv("VISUAL", editor)
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    sent: list[Edit] = []

    def planned(settings: object, selection: Any, wanted: Replay, **more: Any) -> Plan:
        assert selection.message == "dlq:0:1"
        return plan_with(more["editor"](ORDER), wanted.to)

    def applied(job: object, replay_plan: Plan, purpose: str, **_: object) -> None:
        assert purpose == "a ticket"
        sent.append(replay_plan.replay.edit)

    monkeypatch.setattr(replay, "planned", planned)
    monkeypatch.setattr(replay, "plan_and_apply", applied)
    result = redrive("replay", *words, "--because", "a ticket", code=0)
    assert not [*folder.glob("redrive-edit-*")]
    if expected is None:
        assert not sent
        assert result.output == "dlq:0:1 is unchanged: nothing is sent\n"
    else:
        content = ORDER._replace(value=expected)
        assert sent == [Edit((ReplaceContent(digest(ORDER), content),))]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"edit": "headers a"}, "changed headers a"),
        ({"edit": "headers a", "replay": "p"}, "changed headers a; replay p by ann (ticket)"),
        ({"reason": 2374, "detail": "bad"}, "transformation failed: bad"),
        ({"edit": None}, ""),
    ],
)
def test_a_history_says_what_was_changed(row: dict[str, Any], message: str) -> None:
    name = "MQRC_API_EXIT_ERROR" if row.get("reason") else ""
    outcome = row_with(operator="ann", purpose="ticket", reason_name=name, **row)
    assert why(outcome, mq=False) == message


def plan_with(edit: Edit, to: To, *changes: Change) -> Plan:
    wanted = Replay(plan="p", to=to, edit=edit)
    messages = {"dlq": {"dlq:0": [1]}}
    return Plan(replay=wanted, application="a", created="", messages=messages, changes=changes)


def test_a_plan_shows_what_changes_and_is_read_back_with_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    changes = (
        Change("dlq:0:1", ("- a: 1", "+ a: 2")), Change("dlq:0:2", problem="why"), Change("dlq:0:3")
    )  # fmt: skip
    plan = plan_with(read_edit(["a=2"], [], None), To.ORIGINAL, *changes)
    plan.write(tmp_path / "plan.json")
    assert Plan.read(tmp_path / "plan.json") == plan
    assert plan.document()["redrive_plan"] == 2
    assert plan_with(NO_EDIT, To.ORIGINAL).document()["redrive_plan"] == 1
    show_plan(plan, mq=False)
    assert capsys.readouterr().out.splitlines() == [
        "Plan p: 1 message, 0 bytes, to their original destinations; header a set",
        "changes in dlq:0:1", "  - a: 1", "  + a: 2",
        "changes in dlq:0:2", "  it stays where it is: why",
        "changes in dlq:0:3", "  nothing",
    ]  # fmt: skip
