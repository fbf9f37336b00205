"""``redrive check`` on whole topologies: files are read together, findings have a place."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.commands import redrive

QM1 = """\
DEF QL(ORDERS)
DEF QL(DLQ)
ALTER QMGR DEADQ(DLQ)
DEF QL(QM2) USAGE(XMITQ)
DEF CHL(QM1.QM2) CHLTYPE(SDR) XMITQ(QM2) CONNAME('b(1)')
DEF CHL(QM2.QM1) CHLTYPE(RCVR)
"""
QM2 = """\
DEF QL(PAY)
DEF QL(QM1) USAGE(XMITQ)
DEF CHL(QM2.QM1) CHLTYPE(SDR) XMITQ(QM1) CONNAME('a(1)')
DEF CHL(QM1.QM2) CHLTYPE(RCVR)
"""
MQE = """\
kind: mqe
queue_managers:
  - name: SHOP
    queues:
      - {kind: remote, name: SALES, queue_manager: OFFICE}
      - {kind: home_server, name: H, queue_manager: OFFICE}
    connections:
      - {kind: direct, name: OFFICE}
  - name: OFFICE
    queues:
      - {kind: local, name: SALES}
      - {kind: store_and_forward, name: S, queue_manager: NONE, targets: [SHOP]}
"""

SECOND = "{kind: store_and_forward, name: T, queue_manager: NO, targets: [SHOP]}\n"
LOOP = "    aliases: [{name: X, of: Y}, {name: Y, of: X}]\n"

Write = Callable[..., None]


@pytest.fixture
def write(folder: Path) -> Write:
    """Two managers of IBM MQ and a network of MQ Everyplace; scripts get what is said besides."""

    def put(**texts: str) -> None:
        files = {"QM1.mqsc": QM1, "QM2.mqsc": QM2, "shops.yaml": MQE}
        for name, text in texts.items():
            if name in {"shops", "bindings"}:
                files[f"{name}.yaml"] = text
            else:
                files[f"{name}.mqsc"] = files.get(f"{name}.mqsc", "") + text
        for file, text in files.items():
            Path(file).write_text(text)

    return put


check = partial(redrive, "check")


def findings(*arguments: str) -> list[dict[str, Any]]:
    documents = json.loads(check("--json", *(arguments or (".",))).output)
    return [finding for document in documents for finding in document["findings"]]


def test_a_sound_topology_has_nothing_to_report(write: Write) -> None:
    """Each file of a folder is named with what it is; exit code 0."""
    write()
    result = check(".", code=0)
    assert result.output.splitlines() == [
        "QM1.mqsc: MQSC script: nothing to report",
        "QM2.mqsc: MQSC script: nothing to report",
        "shops.yaml: MQ Everyplace network: nothing to report",
    ]


def test_files_on_one_command_line_are_one_topology(write: Write) -> None:
    write(QM1="DEF QR(R) RNAME(PAY) RQMNAME(QM2)\nDEF QR(G) RNAME(GONE) RQMNAME(QM2)\n")
    assert [finding["code"] for finding in findings("QM1.mqsc", "QM2.mqsc")] == ["UNDELIVERABLE"]
    assert findings("QM2.mqsc") == []


@pytest.mark.parametrize(
    ("line", "code", "words"),
    [
        ("DEF QR(R) RNAME(Q) RQMNAME(QM9)", "NO_TRANSMISSION_QUEUE", "2087"),
        ("DEF QR(R) RNAME(Q) RQMNAME(QM2) XMITQ(GONE)", "NO_TRANSMISSION_QUEUE", "2196"),
        ("DEF QR(R) RNAME(Q) RQMNAME(QM2) XMITQ(ORDERS)", "PUT_FAILS", "2092"),
        ("DEF QR(R) RNAME(Q) RQMNAME(QM9) XMITQ(QM2)", "UNDELIVERABLE", "2087"),
        ("DEF QR(R) RNAME(Q) RQMNAME(QM1)", "NO_TRANSMISSION_QUEUE", "2087"),
        ("DEF QA(A) TARGET(A)", "ALIAS_LOOP", "2001"),
        ("DEF QA(A) TARGET(GONE)", "ALIAS_TARGET", "2082"),
        ("DEF QM(M)\nDEF QA(A) TARGET(M)", "ALIAS_TARGET", "2001"),
        ("DEF QL(N) PUT(DISABLED)\nDEF QA(A) TARGET(N)", "PUT_FAILS", "2051"),
        ("DEF TOPIC(T) TOPICSTR(t)\nDEF QA(N) TARGET(T) TARGTYPE(TOPIC)", "PUT_FAILS", "2298"),
        ("DEF QL(S) STREAMQ(C) STRMQOS(MUSTDUP)", "PUT_FAILS", "2298"),
        ("DEF QL(S) STREAMQ(C)", "NOT_HONOURED", "without a copy"),
        ("ALTER QMGR DEADQ(GONE)", "DEADQ", "GONE"),
        ("DEF QL(X) USAGE(XMITQ)", "NO_CHANNEL", "X"),
        ("DEF CHL(C) CHLTYPE(SDR) XMITQ(QM2) CONNAME('c(1)')", "NO_RECEIVER", "C"),
    ],
)
def test_a_definition_that_leads_nowhere_is_shown_with_its_line(
    line: str, code: str, words: str, write: Write
) -> None:
    write(QM1=line)
    (finding,) = [finding for finding in findings() if finding["severity"] != "note"]
    last = line.rsplit("\n", maxsplit=1)[-1]
    number = QM1.count("\n") + line.count("\n") + 1
    assert (finding["code"], finding["file"], finding["line"]) == (code, "QM1.mqsc", number)
    assert (finding["source_line"], finding["column"], finding["length"]) == (last, 1, len(last))
    assert words in finding["message"]
    shown = check("--fail-on", "warning", ".", code=1)
    assert f"QM1.mqsc:{number}:1: warning: " in shown.output
    assert f"    {last}\n    ^{'~' * (len(last) - 1)}\n" in shown.output


BOUND = "kind: bindings\nqueue_managers:\n"
OTHERS: dict[str, tuple[dict[str, str], list[tuple[str, str, str, int, str]]]] = {
    "the job makes no dynamic queue, and says with which code a put ends": (
        {"QM1": "DEF QM(M)\n"},
        [("MODEL_QUEUE", "note", "QM1.mqsc", 7, "2057 MQRC_Q_TYPE_ERROR")],
    ),
    "a transmission queue leads to a manager that no file describes": (
        {"QM1": "DEF QL(QM9) USAGE(XMITQ)\nDEF CHL(T) CHLTYPE(SDR) XMITQ(QM9) CONNAME('c(1)')\n"
                "DEF QR(R) RNAME(Q) RQMNAME(QM9)\n"},
        [("NO_RECEIVER", "warning", "QM1.mqsc", 8, ""),
         ("DANGLING_RQMNAME", "warning", "QM1.mqsc", 9, "")],
    ),
    "a manager that nobody can reach is a note, as some managers only send": (
        {"QM3": "DEF QL(Q)\n", "shops": MQE.replace("      - {kind: home_server", "      #")},
        [("UNREACHABLE", "note", "QM3.mqsc", 0, ""), ("UNREACHABLE", "note", "shops.yaml", 3, "")],
    ),
    "a cycle is told at each of the two definitions that make it": (
        {"QM1": "DEF QR(FAR) RQMNAME(FAR) XMITQ(QM2)\n",
         "QM2": "DEF QR(FAR) RQMNAME(FAR) XMITQ(QM1)\n"},
        [("ROUTE_LOOP", "warning", "QM1.mqsc", 7, ""),
         ("ROUTE_LOOP", "warning", "QM2.mqsc", 5, "")],
    ),
    "a binding gives a queue the topic that another one has by its name": (
        {"bindings": f"{BOUND}  QM1:\n    queues:\n      ORDERS: {{topic: QM2--PAY}}\n"},
        [("ONE_TOPIC", "error", "QM2.mqsc", 1,
          "QLOCAL(PAY)@QM2 and QLOCAL(ORDERS)@QM1 are on one topic, QM2--PAY")],
    ),
    "queues of both kinds are on one topic": (
        {"bindings": f"{BOUND}  OFFICE:\n    queues:\n      SALES: {{topic: QM1--ORDERS}}\n"
                     "      S: {topic: c}\n"},
        [("ONE_TOPIC", "error", "shops.yaml", 11,
          "SALES@OFFICE and QLOCAL(ORDERS)@QM1 are on one topic, QM1--ORDERS"),
         ("UNKNOWN_QUEUE", "error", "bindings.yaml", 6, "")],
    ),
    "bindings are for what no definition has": (
        {"bindings": f"{BOUND}  QM9: {{}}\n  QM1:\n    queues:\n      GONE: {{topic: a}}\n"},
        [("UNKNOWN_QUEUE_MANAGER", "error", "bindings.yaml", 3, ""),
         ("UNKNOWN_QUEUE", "error", "bindings.yaml", 6, "")],
    ),
    **{
        f"a default transmission queue is none: {reason}": (
            {"QM1": f"DEF QA(A) TARGET(ORDERS)\nALTER QMGR DEFXMITQ({name})\n"},
            [("DEFXMITQ", "warning", "QM1.mqsc", 8, reason)],
        )
        for name, reason in (("GONE", "2197"), ("A", "2198"), ("ORDERS", "2199"))
    },
}  # fmt: skip
"""By what is wrong: what files say besides, and the findings."""


@pytest.mark.parametrize("case", OTHERS)
def test_what_files_say_together_is_checked(write: Write, case: str) -> None:
    files, expected = OTHERS[case]
    write(**files)
    problems = findings()
    place = ("code", "severity", "file", "line")
    assert sorted(tuple(problem[name] for name in place) for problem in problems) == sorted(
        record[:4] for record in expected
    )
    assert all(any(words in problem["message"] for problem in problems) for *_, words in expected)


@pytest.mark.parametrize(
    ("old", "new", "code", "place"),
    [
        (
            "targets: [SHOP]}\n",
            "targets: [SHOP]}\n      - " + SECOND,
            "TARGET_LISTED_TWICE",
            "13:41",
        ),
        (
            "    queues:\n      - {kind: local, name: SALES}",
            LOOP + "    queues:\n      - {kind: local, name: SALES}",
            "ALIAS_LOOP",
            "10:22",
        ),
        ("{kind: direct, name: OFFICE}", "{kind: via, name: OFFICE, via: OFFICE}", "VIA_LOOP", "8"),
        ("{kind: local, name: SALES}", "{kind: local, name: SALE}", "PUT_FAILS", "5:30"),
        ("name: SALES, queue_manager: OFFICE", "name: A, queue_manager: B", "NO_CONNECTION", "5"),
    ],
)
def test_a_contradiction_in_mq_everyplace_is_shown_with_its_place(
    old: str, new: str, code: str, place: str, write: Write
) -> None:
    """Line, column and caret in the YAML file."""
    assert old in MQE
    write(shops=MQE.replace(old, new))
    output = check(".").output
    assert f"[{code}]" in output
    assert any(
        line.startswith(f"shops.yaml:{place}") and line.endswith(f"[{code}]")
        for line in output.splitlines()
    )
    assert "    ^" in output or " ^" in output


def test_one_name_for_managers_of_both_kinds_is_found(write: Write) -> None:
    write(SHOP="DEF QL(Q)\n")
    assert ("DUPLICATE_QUEUE_MANAGER", "shops.yaml", 3) in [
        (finding["code"], finding["file"], finding["line"]) for finding in findings()
    ]


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("wide.mqsc", "DEF QL(A)\n".encode("utf-16"), "wide.mqsc: error: the script cannot be"),
        ("latin.mqsc", b"DEF QL(A)\nDEF QL(\xe4)\n", "latin.mqsc:2: error: the script cannot be"),
        ("other.yaml", b"\nkind: other\n", "other.yaml:2:7: error: 'other' is not a valid kind"),
        ("more.yaml", MQE.encode(), "shops.yaml: error: more.yaml already has kind mqe"),
        ("word.mqsc", b"DEF QL(A)\nMAKE QL(B)\n", "word.mqsc:2:1: error: "),
    ],
)
def test_a_file_that_cannot_be_used_is_one_clear_message(
    name: str, content: bytes, words: str, write: Write
) -> None:
    """With file and line, and exit code 1."""
    write()
    Path(name).write_bytes(content)
    result = check(".", code=1)
    assert words in result.output
    assert result.output.count("error:") == 1


def test_a_script_is_recognised_by_its_text(write: Write) -> None:
    write()
    Path("dump").write_text("* a comment\n\n  define +\n  qlocal(A) maxdepth(x)\n")
    Path("orders.rul").write_text("* a comment\nREASON(2053) ACTION(RETRY)\nACTION(IGNORE)\n")
    result = check("dump", "orders.rul")
    assert "dump:4:22: error:" in result.output
    assert "dump: MQSC script: 1 error" in result.output
    assert "orders.rul: rules table, 2 rules" in result.output


def test_a_script_can_be_given_to_a_manager(write: Write) -> None:
    """``QM=FILE`` on the command line, as for ``redrive resolve``."""
    write()
    Path("QM2.mqsc").rename("second")
    check("QM1.mqsc", "QM2=second", code=0)
    check("QM1.mqsc", "QM3=second", code=0)
    result = check("QM1.mqsc", "QM2=third", code=2)
    assert "third cannot be read" in result.output


def test_notes_alone_are_no_findings_for_a_program(write: Write) -> None:
    """Exit code 0: ``dmpmqcfg`` writes much that does not concern resolution."""
    write(QM1="SET AUTHREC PROFILE(A) OBJTYPE(QUEUE) PRINCIPAL('x') AUTHADD(PUT)\n")
    result = check(".", code=0)
    assert "QM1.mqsc: MQSC script: 1 note" in result.output


def test_failed_commands_are_counted_as_runmqsc_does(write: Write) -> None:
    write(QM1="ALTER QL(GONE) PUT(DISABLED)\nDEF QL(A) MAXDEPHT(5)\nDEF QA(B) TARGET(NONE)\n")
    result = check(".", code=1)
    assert "QM1.mqsc:7:7: error: AMQ8147E: there is no QLOCAL(GONE) [NOT_FOUND]" in result.output
    assert "[ALIAS_TARGET]" in result.output
    assert (
        "    9 MQSC commands read. One command has a syntax error. "
        "One valid MQSC command could not be processed.\n"
    ) in result.output


@pytest.mark.parametrize(
    ("level", "codes", "exit_code"),
    [
        ("note", ["IGNORED", "ALIAS_TARGET", "BAD_VALUE"], 1),
        ("warning", ["ALIAS_TARGET", "BAD_VALUE"], 1),
        ("error", ["BAD_VALUE"], 1),
    ],
)
def test_lesser_findings_can_be_left_out(
    level: str, codes: list[str], exit_code: int, write: Write
) -> None:
    """``--fail-on`` says from which severity on findings count; ``--quiet`` shows only those."""
    write(QM1="DISPLAY QMGR\nDEF QA(B) TARGET(NONE)\nDEF QL(A) MAXDEPTH(x)\n")
    result = check("--fail-on", level, "--quiet", "--json", ".", code=exit_code)
    problems = [
        finding["code"]
        for document in json.loads(result.output)
        for finding in document["findings"]
    ]
    assert sorted(problems) == sorted(codes)
    write(QM1="DISPLAY QMGR\n")
    check("--fail-on", "warning", "--quiet", ".", code=0)


def test_a_finding_about_a_shared_script_is_shown_once(write: Write) -> None:
    write()
    Path("uni.mqsc").write_text("DISPLAY QMGR\nDEF QL(A) MAXDEPTH(x)\n")
    codes = [finding["code"] for finding in findings("A=uni.mqsc", "B=uni.mqsc")]
    assert sorted(codes) == ["BAD_VALUE", "IGNORED", "UNREACHABLE", "UNREACHABLE"]


def test_a_sender_without_a_receiver_is_told_with_its_name(write: Write) -> None:
    write()
    Path("QM2.mqsc").write_text("DEF QL(PAY)\n")
    result = redrive("resolve", "PAY@QM2", "--at", "QM1", "--topology", ".", code=1)
    assert "=> stays on a transmission queue: QM2@QM1 (topic QM1--QM2)" in result.output
    assert "no queue manager has a receiver for channel QM1.QM2 of QM1" in result.output
