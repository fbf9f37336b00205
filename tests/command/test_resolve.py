"""``redrive resolve`` as a person or a program uses it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import Result
from tests.commands import redrive

QM1 = """\
DEF QR(PAYROLL) RNAME(PAY) RQMNAME(QM2)
DEF QL(QM2) USAGE(XMITQ)
DEF QA(SALARY) TARGET(PAYROLL)
DEF QL(SMALL) MAXMSGL(10)
DEF QR(BAD) RNAME(NOPE) RQMNAME(QM2)
DEF CHL(QM1.QM2) CHLTYPE(SDR) XMITQ(QM2) CONNAME('b(1)')
"""
QM2 = "DEF QL(PAY)\nDEF QL(DLQ)\nALTER QMGR DEADQ(DLQ)\nDEF CHL(QM1.QM2) CHLTYPE(RCVR)\n"
MOON = """\
kind: mqe
queue_managers:
  - name: MOON
    queues:
      - {kind: local, name: Q, aliases: [OLD]}
      - {kind: remote, name: FAR, queue_manager: SUN, mode: async}
      - {kind: store_and_forward, name: KEPT, queue_manager: SUN, targets: [MARS]}
    connections:
      - {kind: direct, name: SUN}
  - name: SUN
    queues:
      - {kind: local, name: FAR}
"""


@pytest.fixture
def folder(folder: Path) -> Path:
    (folder / "QM1.mqsc").write_text(QM1)
    (folder / "QM2.mqsc").write_text(QM2)
    (folder / "moon.yaml").write_text(MOON)
    return folder


def resolve(*words: str, code: int | None = None) -> Result:
    topology = () if "--topology" in words else ("--topology", ".")
    return redrive("resolve", *words, *topology, code=code)


@pytest.mark.usefixtures("folder")
def test_the_way_is_shown_as_a_tree() -> None:
    """Each manager one level deeper, each step with row, definition, names, file and line.

    Behind the steps of each manager stands what the job does, and at the end what was assumed.
    """
    result = resolve("SALARY", "--at", "QM1", code=0)
    lines = [" ".join(line.split()) for line in result.output.splitlines()]
    assert lines == [
        "QM1: SALARY",
        "R5 QALIAS(SALARY) alias for PAYROLL -> PAYROLL QM1.mqsc:3",
        "R8 QREMOTE(PAYROLL) local definition of a remote queue -> PAY@QM2 QM1.mqsc:1",
        "R8 QLOCAL(QM2) transmission queue, named like the manager QM1.mqsc:2",
        "job: routed to topic QM1--QM2",
        "-> QM2: PAY@QM2",
        "R1 QLOCAL(PAY) local queue QM2.mqsc:1",
        "job: routed to topic QM2--PAY",
        "=> on a queue: PAY@QM2 (topic QM2--PAY)",
        "assumed: these topics exist and accept messages: QM1--QM2, QM2--PAY",
    ]
    assert result.output.splitlines()[5].startswith("  -> QM2")


@pytest.mark.usefixtures("folder")
def test_json_holds_the_whole_way() -> None:
    way = json.loads(resolve("PAY@QM2", "--at", "QM1", "--json").output)
    assert [visit["queue_manager"] for visit in way["visits"]] == ["QM1", "QM2"]
    assert way["visits"][0]["steps"][0] == {
        "rule": "R12",
        "what": "transmission queue, named like the manager",
        "definition": "QLOCAL(QM2)",
        "location": "QM1.mqsc:2",
        "before": "PAY@QM2",
        "after": "PAY@QM2",
    }
    assert (way["is_good"], way["final"], way["topic"]) == (True, "PAY@QM2", "QM2--PAY")
    assert way["problem"] is None


@pytest.mark.usefixtures("folder")
def test_mermaid_draws_managers_as_boxes() -> None:
    lines = resolve("SALARY@QM1", "--at", "QM1", "--mermaid").output.splitlines()
    assert lines[0] == "flowchart TD"
    assert sum("subgraph" in line for line in lines) == 2
    assert [line.strip() for line in lines if "-->" in line] == [
        f"n{number} --> n{number + 1}" for number in range(5)
    ]


MODEL = "DEF QM(M)\nDEF QA(NEWS) TARGET(T) TARGTYPE(TOPIC)\nDEF TOPIC(T) TOPICSTR('t')\n"
LOOP = """\
DEF QR(FAR) RQMNAME(FAR) XMITQ(X)
DEF QL(X) USAGE(XMITQ)
DEF CHL(C{0}) CHLTYPE(SDR) XMITQ(X) CONNAME(c)
DEF CHL(C{1}) CHLTYPE(RCVR)
"""
NO_TOPIC = "QM2--SYSTEM.DEFAULT.LOCAL.QUEUE"
AT_ONCE = "=> on a dead-letter queue: DLQ@QM2 (topic QM2--DLQ)\n   "
WAYS: dict[str, tuple[str, dict[str, str], int, list[str]]] = {
    "a bad end says the reason and what to change": (
        "BAD --at QM1", {}, 1,
        [f"{AT_ONCE}2085 MQRC_UNKNOWN_OBJECT_NAME: queue manager QM2 knows no queue 'NOPE'",
         "to change: define the queue"],
    ),
    "a step and a fault name the command that set the attribute last": (
        "SALARY --at QM1",
        {"QM1.mqsc": f"{QM1}ALTER QA(SALARY) TARGET(SMALL)\nALTER QL(SMALL) PUT(DISABLED)\n"}, 1,
        ["-> SMALL  QM1.mqsc:7", "2051 MQRC_PUT_INHIBITED", "QM1.mqsc:8"],
    ),
    "MQ Everyplace resolves by its own procedure": (
        "OLD --at MOON", {}, 0, ["queue-alias", "=> on a queue: Q@MOON (topic MOON--Q)"],
    ),
    "in MQ Everyplace a put may fail": (
        "NOPE --at MOON", {}, 1,
        ["MOON: NOPE@MOON\n    job: remains, 2085 ",
         "\n=> remains\n   2085 fail: no queue accepts: "],
    ),
    "a script can be given to a manager, which need not be named again": (
        "PAY --topology HQ=QM2.mqsc", {}, 0, ["=> on a queue: PAY@HQ (topic HQ--PAY)"],
    ),
    "an open of a model queue makes a dynamic queue": (
        "M --at QM2 --open OUTPUT", {"QM2.mqsc": QM2 + MODEL}, 0,
        ["=> opens a dynamic queue: AMQ."],
    ),
    "an open of a topic alias opens the topic": (
        "NEWS --at QM2 --open OUTPUT", {"QM2.mqsc": QM2 + MODEL}, 0, ["=> opens a topic: T"],
    ),
    "a model queue ends as on the job": (
        "M --at QM2", {"QM2.mqsc": QM2 + MODEL}, 1, [f"{AT_ONCE}2057 "],
    ),
    "a model queue at the far end of a channel ends in the same way": (
        "M@QM2 --at QM1", {"QM2.mqsc": QM2 + MODEL}, 1, [f"{AT_ONCE}2057 "],
    ),
    "a topic alias ends as on the job": (
        "NEWS --at QM2", {"QM2.mqsc": QM2 + MODEL}, 1, [f"{AT_ONCE}2298 "],
    ),
    "a topic alias at the far end of a channel ends in the same way": (
        "NEWS@QM2 --at QM1", {"QM2.mqsc": QM2 + MODEL}, 1, [f"{AT_ONCE}2298 "],
    ),
    "a put that fails at once is kept without DEADQ": (
        "NOPE --at QM1", {}, 1,
        ["=> remains\n   2085 ", "no dead letter, because QM1 has no DEADQ\n"],
    ),
    "a put that fails at once is a dead letter with DEADQ": (
        "NOPE --at QM2", {}, 1, [f"{AT_ONCE}2085 "],
    ),
    "a queue of the product that no definition makes has no topic": (
        "SYSTEM.DEFAULT.LOCAL.QUEUE --at QM2", {}, 1,
        [f"{AT_ONCE}2085 MQRC_UNKNOWN_OBJECT_NAME: {NO_TOPIC} ",
         f"   assumed: these topics do not exist, as no definition needs them: {NO_TOPIC}\n"],
    ),
    "no names travel with a put on a transmission queue itself": (
        "QM2 --at QM1", {}, 1,
        ["    job: routed to topic QM1--QM2\n  -> QM2: no names\n", f"{AT_ONCE}2085 "],
    ),
    "names that come back are shown once": (
        "Q@FAR --at QM1", {"QM1.mqsc": LOOP.format(1, 2), "QM2.mqsc": LOOP.format(2, 1)}, 1,
        ["routed to topic QM1--X; and so on, 26 times in all\n=> ", "put 25 times already"],
    ),
    "the tries of a receiver are told once": (
        "PAY@QM2 --at QM1", {"QM2.mqsc": QM2.replace("QL(PAY)", "QL(PAY) PUT(DISABLED)")}, 1,
        ["job: tried again 10 times, 1000 ms apart (MRRTY), 2051 MQRC_PUT_INHIBITED; then ",
         "; then dead-lettered to topic QM2--DLQ, 2051 MQRC_PUT_INHIBITED\n",
         "   look at: QM2.mqsc:1\n"],
    ),
    "what is stored names the move that helps": (
        "FAR@SUN --at MOON --then pull", {}, 0, ["   --then trigger lets it go on\n"],
    ),
    "what is stored goes on when asked": (
        "FAR@SUN --at MOON --then trigger", {}, 0, ["=> on a queue: FAR@SUN (topic SUN--FAR)\n"],
    ),
    "what cannot be passed on stays": (
        "ANY@MARS --at MOON --then push", {}, 1,
        ["=> stays: SAF KEPT on MOON: KEPT@MOON (topic MOON--KEPT--redrive-to-MARS)",
         "it cannot be passed on to SUN for ANY@MARS"],
    ),
    "the advice on a local RQMNAME can help": (
        "R --at QM1", {"QM1.mqsc": "DEF QR(R) RNAME(Q) RQMNAME(QM1)\n"}, 1,
        ["to change: set RQMNAME to another queue manager"],
    ),
    "errors of other definitions are shown, and no way": (
        "PAY --at QM2", {"moon.yaml": "kind: mqe\nqueue_managers: 5\n"}, 1, ["moon.yaml:2:"],
    ),
    "a queue manager has to exist": (
        "Q --at QM9", {}, 2, ["the topology has no queue manager QM9"],
    ),
    "of several queue managers one has to be named": (
        "Q", {}, 2, ["no queue manager is named"],
    ),
    "an open is for something": ("Q --at QM1 --open EAT", {}, 2, ["not an MQOPEN option"]),
    "channels of IBM MQ need no push": (
        "PAY --at QM2 --then push", {}, 2, ["--then is for MQ Everyplace"],
    ),
    "a put names a queue": ("@QM1 --at QM1", {}, 2, ["such as PAYROLL@QM2"]),
    "a put names a queue manager behind @": ("PAY@ --at QM1", {}, 2, ["such as PAYROLL@QM2"]),
    "a put has one queue": ("A B C --at QM1", {}, 2, ["such as PAYROLL@QM2"]),
    "a folder without definitions is told what is looked for": (
        "Q --at QM1 --topology empty", {"empty/note.txt": ""}, 2, [".mqsc"],
    ),
}  # fmt: skip
"""By what holds: arguments, files that are other ones, exit code, and what is told."""


@pytest.mark.parametrize("case", WAYS)
def test_a_way_ends_as_on_the_job(folder: Path, case: str) -> None:
    """Exit code 0 where the message gets there, 1 where it does not, 2 for what is no question."""
    arguments, files, code, told = WAYS[case]
    for name, text in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    result = resolve(*arguments.split(), code=code)
    assert [part for part in told if part not in result.output] == []
    assert ("=> " in result.output) is (code != 2 and "errors" not in case)
    if "shown once" in case:
        assert result.stdout.count("-> QM") == 2


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["SMALL", "--at", "QM1", "--length", "11"], 2030),
        (["PAYROLL", "--at", "QM1", "--open", "input,inquire"], 2045),
        (["Q@QM9", "--at", "QM1"], 2087),
    ],
)
def test_options_ask_about_other_opens(arguments: list[str], reason: int) -> None:
    result = resolve(*arguments, "--json", code=1)
    assert json.loads(result.output)["problem"]["code"] == reason


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("queue_manager", "queue", "topic"),
    [("SUN", "FAR", "MOON--FAR--redrive-to-SUN"), ("MARS", "ANY", "MOON--KEPT--redrive-to-MARS")],
)
def test_what_is_stored_is_shown_with_the_topic_that_keeps_it(
    queue_manager: str, queue: str, topic: str
) -> None:
    result = resolve(f"{queue}@{queue_manager}", "--at", "MOON", "--json")
    assert json.loads(result.output)["visits"][0]["decision"] == f"routed to topic {topic}"


def test_what_failed_commands_leave_is_resolved(folder: Path) -> None:
    (folder / "QM1.mqsc").write_text("DEF QL(A) MAXDEPTH(x)\nDEFINE\nALTER QL(GONE) GET(ENABLED)\n")
    result = resolve("PAY", "--at", "QM2", code=0)
    assert "=> on a queue: PAY@QM2" in result.stdout
    lines = [line for line in result.stderr.splitlines() if line.startswith("QM1.mqsc:")]
    assert [line.split(": ")[0] for line in lines] == [
        "QM1.mqsc:1:20",
        "QM1.mqsc:2:6",
        "QM1.mqsc:3:7",
    ]
    assert "AMQ8147E: there is no QLOCAL(GONE)" in lines[2]


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("older", "form"),
    [
        (("", "SALARY", "--at", "QM1"), "SALARY --at QM1"),
        (("QM2", "PAY"), "PAY@QM2 --at QM2"),
        (("QM2", "PAY", "--at", "QM1"), "PAY@QM2 --at QM1"),
    ],
)
def test_the_older_form_means_what_it_meant(older: tuple[str, ...], form: str) -> None:
    """``QM QUEUE`` is still read; standard error says how to write it."""
    result, newer = resolve(*older), resolve(*form.split())
    assert (result.exit_code, result.stdout) == (newer.exit_code, newer.stdout)
    assert result.exit_code == 0
    assert f"hint: this is the older form of redrive resolve {form}\n" in result.stderr
    assert newer.stderr == ""
