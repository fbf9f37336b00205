"""What ``check``, ``explain``, ``fmt`` and ``test`` do with bytes that no transcript can hold."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.commands import redrive
from tests.configurations import write_settings

from redrive.command.check import FORMATS, FileFindings
from redrive.diagnostics import Severity, SourceLocation
from redrive.errors import EnvironmentFault
from redrive.kafka.cluster import Cluster
from redrive.kafka.connection import Connection
from redrive.messages.dead_letter_header import DeadLetterHeader, encode_header


def test_silent_broker_is_asked_once_and_named(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Connection] = []

    def opened(connection: Connection, **_: float) -> Cluster:
        asked.append(connection)
        raise EnvironmentFault("no broker answered")

    monkeypatch.setattr(Cluster, "open", opened)
    rules = "DIALECT(KAFKA)\nACTION(FWD) FWDT('late')\n"
    write_settings(folder, handlers={"orders": "orders.dlq"}, rules=rules)
    assert (
        "note: not checked: which applications handle the same topics and how long the targets of"
        " rules keep records: no broker answered\n"
    ) in redrive("check", "--fail-on", "note", code=0).stderr
    assert len(asked) == 1
    assert redrive("check", "--quiet", code=0).output == ""


def test_annotation_for_github_is_one_line() -> None:
    finding = SourceLocation("a:b,c", 1).finding(Severity.NOTE, "CODE", "one\ntwo")
    assert "%0A" in next(iter(FORMATS["github"]([FileFindings("a", "", [finding])])))


def test_control_characters_never_reach_the_terminal(tmp_path: Path) -> None:
    path = tmp_path / "evil\x1b[2J.rul"
    path.write_text("REASON('\x1b[31m\x9b\u202e') ACTION(RETRY)\n")
    result = redrive("check", path, code=1)
    assert not set(result.output) & {"\x1b", "\x9b", "\u202e"}
    assert "REASON('\u241b[31m\ufffd\ufffd')" in result.output
    assert "\x1b" not in redrive("check", "--format", "github", path).output


def test_controls_of_a_message_and_of_a_table_reach_no_terminal(tmp_path: Path) -> None:
    table = tmp_path / "odd.rul"
    table.write_text("DESTQ('A\x1b[2J*') ACTION(RETRY)\nACTION(FWD) FWDQ(&REPLYQ)\n")
    fields = ["--field", "DESTQ=A\x1b[2J\x9b", "--field", "REPLYQ=\x1b]0;x\x07"]
    result = redrive("explain", table, *fields, code=0)
    assert "put to A" in result.output
    assert result.output.replace("\n", "").isprintable()


def test_raw_bytes_with_a_dead_letter_header_are_explained(tmp_path: Path) -> None:
    table, message = tmp_path / "orders.rul", tmp_path / "message"
    table.write_text("REASON(MQRC_Q_FULL) DESTQ(APP.*) ACTION(RETRY)\n")
    header = DeadLetterHeader(reason=2053, dest_q_name="APP.X")
    message.write_bytes(encode_header(header) + b"body")
    assert "put to APP.X" in redrive("explain", table, "--message", message, code=0).output


@pytest.mark.parametrize(
    ("name", "content", "place"),
    [
        ("wide.mqsc", "DEF QL(A)\n".encode("utf-16"), "wide.mqsc"),
        ("latin.mqsc", b"DEF QL(A)\nDEF QL(\xe4)\n", "latin.mqsc:2"),
    ],
)
def test_script_in_another_encoding_is_one_clear_message(
    folder: Path, name: str, content: bytes, place: str
) -> None:
    Path(name).write_bytes(content)
    result = redrive("check", ".", code=1)
    assert f"{place}: error: the script cannot be" in result.output
    assert result.output.count("error:") == 1


def test_fmt_keeps_bytes_mode_and_other_files(tmp_path: Path) -> None:
    path = tmp_path / "orders.rul"
    path.write_bytes(b"* \xe4\r\nreason(2053)   ACTION(RETRY)\r\n")
    path.chmod(0o640)
    assert redrive("fmt", path).output == f"{path}: formatted\n"
    assert path.read_bytes() == b"* \xe4\r\nREASON(MQRC_Q_FULL) ACTION(RETRY)\r\n"
    assert path.stat().st_mode & 0o777 == 0o640
    assert [path.name for path in tmp_path.iterdir()] == ["orders.rul"]


def test_update_of_tests_keeps_line_ends(folder: Path) -> None:
    Path("orders.rul").write_text("DESTQ('quotes.*') ACTION(DISCARD)\n")
    tests = "table: orders.rul\r\ntests:\r\n  - name: x\r\n    message: {DESTQ: quotes.old}\r\n"
    Path("t.yaml").write_bytes(b"\xef\xbb\xbf" + tests.encode())
    redrive("test", "--update", "t.yaml", code=0)
    written = Path("t.yaml").read_bytes()
    assert written.count(b"\r\n") == written.count(b"\n")
    redrive("test", "t.yaml", code=0)
