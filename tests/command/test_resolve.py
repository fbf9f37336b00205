"""``redrive resolve`` as a person or a program uses it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from redrive.command import main

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
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "QM1.mqsc").write_text(QM1)
    (tmp_path / "QM2.mqsc").write_text(QM2)
    (tmp_path / "moon.yaml").write_text(MOON)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def resolve(*arguments: str, topology: str = ".") -> Result:
    return CliRunner().invoke(main, ["resolve", *arguments, "--topology", topology])


@pytest.mark.usefixtures("folder")
def test_the_way_is_shown_as_a_tree() -> None:
    """Each manager one level deeper, each step with row, definition, names, file and line.

    Behind the steps of each manager stands what the job does, and at the end what was assumed.
    """
    result = resolve("SALARY", "--at", "QM1")
    assert result.exit_code == 0
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
        "assumed: these topics exist and take what is written: QM1--QM2, QM2--PAY",
    ]
    assert result.output.splitlines()[5].startswith("  -> QM2")


@pytest.mark.usefixtures("folder")
def test_a_bad_end_says_the_reason_and_what_to_change() -> None:
    """Exit code 1; code, name, what is wrong and what to do."""
    result = resolve("BAD", "--at", "QM1")
    assert result.exit_code == 1
    assert "=> on a dead-letter queue: DLQ@QM2 (topic QM2--DLQ)" in result.output
    assert "2085 MQRC_UNKNOWN_OBJECT_NAME: queue manager QM2 knows no queue 'NOPE'" in result.output
    assert "to change: define the queue" in result.output


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
    """Length, open options and the manager of the put."""
    result = resolve(*arguments, "--json")
    assert result.exit_code == 1
    assert json.loads(result.output)["problem"]["code"] == reason


@pytest.mark.usefixtures("folder")
def test_json_holds_the_whole_way() -> None:
    """Visits with their steps, the end, the queue and its topic."""
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
    """A flowchart whose nodes form one chain from the names to the end."""
    lines = resolve("SALARY@QM1", "--at", "QM1", "--mermaid").output.splitlines()
    assert lines[0] == "flowchart TD"
    assert sum("subgraph" in line for line in lines) == 2
    assert [line.strip() for line in lines if "-->" in line] == [
        f"n{number} --> n{number + 1}" for number in range(5)
    ]


@pytest.mark.usefixtures("folder")
def test_puts_in_mq_everyplace_are_shown_too() -> None:
    """The manager of the put decides by which procedure it resolves."""
    result = resolve("OLD", "--at", "MOON")
    assert result.exit_code == 0
    assert "queue-alias" in result.output
    assert "=> on a queue: Q@MOON (topic MOON--Q)" in result.output
    failed = resolve("NOPE", "--at", "MOON")
    assert failed.exit_code == 1
    assert failed.output.startswith("MOON: NOPE@MOON\n    job: remains, 2085 ")
    assert "\n=> remains\n   2085 fail: no queue accepts: " in failed.output


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("queue_manager", "queue", "topic"),
    [("SUN", "FAR", "MOON--FAR--redrive-to-SUN"), ("MARS", "ANY", "MOON--KEPT--redrive-to-MARS")],
)
def test_what_is_stored_is_shown_with_the_topic_that_keeps_it(
    queue_manager: str, queue: str, topic: str
) -> None:
    """An asynchronous definition, and a store-and-forward queue, which has a topic per target."""
    result = resolve(f"{queue}@{queue_manager}", "--at", "MOON", "--json")
    assert json.loads(result.output)["visits"][0]["decision"] == f"routed to topic {topic}"


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["Q", "--at", "QM9"], "the topology has no queue manager QM9"),
        (["Q"], "no queue manager is named"),
        (["Q", "--at", "QM1", "--open", "EAT"], "nothing to open for"),
    ],
)
def test_a_question_that_cannot_be_answered_is_a_usage_error(
    arguments: list[str], words: str
) -> None:
    """Exit code 2, and what could be said instead."""
    result = resolve(*arguments)
    assert result.exit_code == 2
    assert words in result.output


def test_a_folder_without_definitions_is_a_usage_error(folder: Path) -> None:
    """The hint says which files are looked for."""
    (folder / "empty").mkdir()
    result = resolve("Q", "--at", "QM1", topology="empty")
    assert result.exit_code == 2
    assert ".mqsc" in result.output


def test_what_failed_commands_leave_is_resolved(folder: Path) -> None:
    """As after runmqsc: each command that failed is told on standard error, the rest stands."""
    (folder / "QM1.mqsc").write_text("DEF QL(A) MAXDEPTH(x)\nDEFINE\nALTER QL(GONE) GET(ENABLED)\n")
    result = resolve("PAY", "--at", "QM2")
    assert result.exit_code == 0
    assert "=> on a queue: PAY@QM2" in result.stdout
    told = [line for line in result.stderr.splitlines() if line.startswith("QM1.mqsc:")]
    assert [line.split(": ")[0] for line in told] == [
        "QM1.mqsc:1:20",
        "QM1.mqsc:2:6",
        "QM1.mqsc:3:7",
    ]
    assert "AMQ8147E: there is no QLOCAL(GONE)" in told[2]


def test_errors_of_other_definitions_are_all_shown(folder: Path) -> None:
    """Exit code 1; every error with its place, and no way."""
    (folder / "moon.yaml").write_text("kind: mqe\nqueue_managers: 5\n")
    result = resolve("PAY", "--at", "QM2")
    assert result.exit_code == 1
    assert "moon.yaml:2:" in result.output
    assert "=>" not in result.output


@pytest.mark.usefixtures("folder")
def test_a_script_can_be_given_to_a_manager() -> None:
    """``NAME=FILE`` names the manager; with one manager only, it need not be said again."""
    result = resolve("PAY", topology="HQ=QM2.mqsc")
    assert result.exit_code == 0
    assert "=> on a queue: PAY@HQ (topic HQ--PAY)" in result.output


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


MODEL = "DEF QM(M)\nDEF QA(NEWS) TARGET(T) TARGTYPE(TOPIC)\nDEF TOPIC(T) TOPICSTR('t')\n"


@pytest.mark.parametrize(("queue", "reason"), [("M", 2057), ("NEWS", 2502)])
def test_what_the_job_does_not_put_to_is_told_at_once(
    queue: str, reason: int, folder: Path
) -> None:
    """A model queue and a topic alias end as on the job, also at the far end of a channel."""
    (folder / "QM2.mqsc").write_text(QM2 + MODEL)
    near = json.loads(resolve(queue, "--at", "QM2", "--json").stdout)
    far = json.loads(resolve(f"{queue}@QM2", "--at", "QM1", "--json").stdout)
    for end in (near, far):
        assert (end["end"], end["final"]) == ("on a dead-letter queue", "DLQ@QM2")
        assert (end["topic"], end["problem"]["code"]) == ("QM2--DLQ", reason)


def test_an_open_is_what_an_application_does(folder: Path) -> None:
    """``--open`` asks about MQOPEN: a model queue makes a dynamic queue, a topic can be opened."""
    (folder / "QM2.mqsc").write_text(QM2 + MODEL)
    model = resolve("M", "--at", "QM2", "--open", "OUTPUT")
    assert model.exit_code == 0
    assert "=> opens a dynamic queue: AMQ." in model.stdout
    assert "=> opens a topic: T" in resolve("NEWS", "--at", "QM2", "--open", "OUTPUT").stdout


@pytest.mark.usefixtures("folder")
def test_a_put_that_fails_at_once_ends_as_on_the_job() -> None:
    """For no application waits for the code: the message is kept, or is a dead letter."""
    kept = resolve("NOPE", "--at", "QM1")
    assert kept.exit_code == 1
    assert "=> remains\n   2085 " in kept.stdout
    assert "no dead letter, because QM1 has no DEADQ\n" in kept.stdout
    lettered = resolve("NOPE", "--at", "QM2")
    assert "=> on a dead-letter queue: DLQ@QM2 (topic QM2--DLQ)\n   2085 " in lettered.stdout


@pytest.mark.usefixtures("folder")
def test_a_queue_of_the_product_that_no_definition_makes_has_no_topic() -> None:
    """The name resolves and the put fails; that there is no such topic is assumed."""
    result = resolve("SYSTEM.DEFAULT.LOCAL.QUEUE", "--at", "QM2")
    assert result.exit_code == 1
    assert "=> on a dead-letter queue: DLQ@QM2" in result.stdout
    assert "2085 MQRC_UNKNOWN_OBJECT_NAME: QM2--SYSTEM.DEFAULT.LOCAL.QUEUE " in result.stdout
    told = "these topics do not exist, as no definition makes them: QM2--SYSTEM.DEFAULT.LOCAL.QUEUE"
    assert f"   assumed: {told}\n" in result.stdout


@pytest.mark.usefixtures("folder")
def test_a_put_on_a_transmission_queue_itself_fails_at_the_far_end() -> None:
    """No names travel with the message, so the receiver cannot put it."""
    result = resolve("QM2", "--at", "QM1")
    assert result.exit_code == 1
    assert "    job: routed to topic QM1--QM2\n  -> QM2: no names\n" in result.stdout
    assert "=> on a dead-letter queue: DLQ@QM2 (topic QM2--DLQ)\n   2085 " in result.stdout


def test_names_that_come_back_are_shown_once(folder: Path) -> None:
    """The rest is the same again, until the hop limit ends it."""
    there = "DEF QR(FAR) RQMNAME(FAR) XMITQ(X)\nDEF QL(X) USAGE(XMITQ)\n"
    there += "DEF CHL(C{0}) CHLTYPE(SDR) XMITQ(X) CONNAME(c)\nDEF CHL(C{1}) CHLTYPE(RCVR)\n"
    (folder / "QM1.mqsc").write_text(there.format(1, 2))
    (folder / "QM2.mqsc").write_text(there.format(2, 1))
    result = resolve("Q@FAR", "--at", "QM1")
    assert result.exit_code == 1
    assert result.stdout.count("-> QM") == 2
    assert "routed to topic QM1--X; and so on, 26 times in all\n=> " in result.stdout
    assert "put 25 times already" in result.stdout


def test_tries_of_a_receiver_are_told_once(folder: Path) -> None:
    """How often and how far apart (MRRTY, MRTMR), and what follows them."""
    (folder / "QM2.mqsc").write_text(QM2.replace("QL(PAY)", "QL(PAY) PUT(DISABLED)"))
    told = resolve("PAY@QM2", "--at", "QM1").stdout
    job = "job: tried again 10 times, 1000 ms apart (MRRTY), 2051 MQRC_PUT_INHIBITED; "
    assert f"{job}then dead-lettered to topic QM2--DLQ, 2051 MQRC_PUT_INHIBITED\n" in told
    assert "   look at: QM2.mqsc:1\n" in told


@pytest.mark.usefixtures("folder")
def test_what_is_stored_goes_on_when_asked() -> None:
    """``--then`` carries moves out, to the end or a stop, and names those that help then."""
    stored = resolve("FAR@SUN", "--at", "MOON", "--then", "pull")
    assert stored.stdout.endswith("   --then trigger lets it go on\n")
    moved = resolve("FAR@SUN", "--at", "MOON", "--then", "trigger")
    assert moved.exit_code == 0
    assert moved.stdout.endswith("=> on a queue: FAR@SUN (topic SUN--FAR)\n")
    stays = resolve("ANY@MARS", "--at", "MOON", "--then", "push")
    assert stays.exit_code == 1
    assert (
        "=> stays: SAF KEPT on MOON: KEPT@MOON (topic MOON--KEPT--redrive-to-MARS)" in stays.stdout
    )
    assert "it cannot be passed on to SUN for ANY@MARS" in stays.stdout


@pytest.mark.usefixtures("folder")
def test_channels_of_ibm_mq_need_no_push() -> None:
    """``--then`` is for MQ Everyplace; elsewhere it is a usage error that says so."""
    result = resolve("PAY", "--at", "QM2", "--then", "push")
    assert result.exit_code == 2
    assert "--then is for MQ Everyplace" in result.stderr


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("names", [("@QM1",), ("PAY@",), ("A", "B", "C")])
def test_what_names_no_queue_is_a_usage_error(names: tuple[str, ...]) -> None:
    """Exit code 2 and an example."""
    result = resolve(*names, "--at", "QM1")
    assert result.exit_code == 2
    assert "such as PAYROLL@QM2" in result.stderr


def test_the_advice_on_a_local_rqmname_can_help(folder: Path) -> None:
    """No transmission queue would: the definition has to name another manager."""
    (folder / "QM1.mqsc").write_text("DEF QR(R) RNAME(Q) RQMNAME(QM1)\n")
    result = resolve("R", "--at", "QM1")
    assert "to change: let RQMNAME name another queue manager" in result.stdout
