"""Queue managers defined in files: what [topology] makes of them, and what handlers may name."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
from tests.commands import redrive
from tests.settings.conftest import GOOD, Check

from redrive.settings import Document, Option, Settings, read_settings, settings_of

QM1 = """\
DEFINE QLOCAL(DLQ)
DEFINE QLOCAL(SPARE)
DEFINE QALIAS(OTHER) TARGET(DLQ)
DEFINE QLOCAL(QM2) USAGE(XMITQ)
DEFINE CHANNEL(QM1.QM2) CHLTYPE(SDR) CONNAME('b') XMITQ(QM2)
ALTER QMGR DEADQ(DLQ)
"""
QM2 = "DEFINE QLOCAL(DLQ)\nALTER QMGR DEADQ(DLQ)\nDEFINE CHANNEL(QM1.QM2) CHLTYPE(RCVR)\n"
MOON = """\
kind: mqe
queue_managers:
  - name: MOON
    queues:
      - {kind: local, name: LOST, role: dead_letter}
"""
BINDINGS = "kind: bindings\nqueue_managers: {QM1: {queues: {DLQ: {topic: lost}}}}\n"
BASE = GOOD[: GOOD.index("[[handlers]]")]
HANDLER = '[[handlers]]\nrules = "orders.rul"\n'


@pytest.fixture(autouse=True)
def network(folder: Path) -> Path:
    """A folder ``net`` with three queue managers, beside the settings."""
    net = folder / "net"
    net.mkdir()
    (net / "QM1.mqsc").write_text(QM1)
    (net / "second.mqsc").write_text(QM2)
    (net / "moon.yaml").write_text(MOON)
    (net / "bindings.yaml").write_text(BINDINGS)
    return net


def topology(*files: str, more: str = "") -> str:
    return f"[topology]\nfiles = [{', '.join(map(repr, files))}]\n{more}"


def read(text: str, environ: Mapping[str, str] | None = None) -> Settings:
    Path("redrive.toml").write_text(text)
    return read_settings(Path("redrive.toml"), environ=environ or {})


def test_files_of_all_kinds_reach_the_job_as_text() -> None:
    files = ("net/QM1.mqsc", "QM2=net/second.mqsc", "net/moon.yaml", "net/bindings.yaml")
    settings = read(BASE + topology(*files))
    assert [
        (text.name, text.queue_manager, text.data.decode()) for text in settings.job.topology
    ] == [
        ("net/QM1.mqsc", "", QM1),
        ("net/second.mqsc", "QM2", QM2),
        ("net/moon.yaml", "", MOON),
        ("net/bindings.yaml", "", BINDINGS),
    ]
    assert settings.topology is not None
    assert list(settings.topology.mq.queue_managers) == ["QM1", "QM2"]
    assert settings.describe()["topology"] == [file.removeprefix("QM2=") for file in files]


def test_a_folder_stands_for_its_definitions() -> None:
    Path("net/readme.txt").write_text("not a definition")
    settings = read(BASE + topology("net"))
    assert [Path(text.name).name for text in settings.job.topology] == [
        "QM1.mqsc",
        "bindings.yaml",
        "moon.yaml",
        "second.mqsc",
    ]


def test_a_variable_may_stand_in_a_file_name() -> None:
    settings = read(BASE + topology("${NET}/QM1.mqsc"), {"NET": "net"})
    assert [text.name for text in settings.job.topology] == ["net/QM1.mqsc"]


def test_without_handlers_the_job_only_routes() -> None:
    assert read(BASE + topology("net/QM1.mqsc")).job.handlers == ()


def test_a_handler_reads_the_dead_letter_queue_of_the_only_manager() -> None:
    (handler,) = read(BASE + HANDLER + topology("net/QM1.mqsc", "net/bindings.yaml")).job.handlers
    identity = handler.identity
    assert (identity.queue_manager, identity.queue, identity.topic) == ("QM1", "DLQ", "lost")
    assert identity.name == "DLQ@QM1"
    assert identity.retry_topic == "redrive-orders-DLQ-40QM1-retry"


def test_a_handler_of_mq_everyplace_reads_the_queue_with_that_role() -> None:
    (handler,) = read(BASE + HANDLER + topology("net/moon.yaml")).job.handlers
    assert handler.identity.topic == "MOON--LOST"


def test_equal_queues_of_two_managers_have_two_handlers() -> None:
    two = "".join(HANDLER + f'queue_manager = "{name}"\n' for name in ("QM1", "QM2"))
    job = read(BASE + two + topology("net/QM1.mqsc", "QM2=net/second.mqsc")).job
    assert [handler.identity.topic for handler in job.handlers] == ["QM1--DLQ", "QM2--DLQ"]
    assert len({handler.identity.retry_topic for handler in job.handlers}) == 2


BOTH = ("net/QM1.mqsc", "QM2=net/second.mqsc")
IN_QM1 = HANDLER + 'queue_manager = "QM1"\n'


@pytest.mark.parametrize(
    ("text", "code", "said"),
    [
        (HANDLER + topology(*BOTH), "MISSING", "one of QM1, QM2"),
        (
            HANDLER + 'queue_manager = "QM11"\n' + topology(*BOTH),
            "UNKNOWN_QUEUE_MANAGER",
            "did you mean QM1?",
        ),
        (IN_QM1 + 'queue = "SPAR"\n' + topology(*BOTH), "UNKNOWN_QUEUE", "did you mean SPARE?"),
        (IN_QM1 + 'queue = "OTHER"\n' + topology(*BOTH), "UNKNOWN_QUEUE", "not an alias"),
        (IN_QM1 + 'queue = "QM2"\n' + topology(*BOTH), "UNKNOWN_QUEUE", "no local queue QM2"),
        (IN_QM1 * 2 + topology(*BOTH), "DUPLICATE", "queue DLQ@QM1 already has a handler"),
        (topology("net/QM2.mqsc"), "MISSING_FILE", "did you mean QM1.mqsc?"),
        (topology("nets/QM1.mqsc"), "MISSING_FILE", "there is no folder nets either"),
        (topology("empty"), "MISSING_FILE", "holds no files that end in .mqsc"),
        (topology(), "EMPTY", "files is empty"),
        (topology("nothing.yaml"), "NO_QUEUE_MANAGER", "define no queue manager"),
        ("[topology]\nkind = 'mq'\n", "MISSING", "[topology] needs files"),
        (topology("net/moon.yaml", more="kind = 'mq'"), "CONFLICT", "of kind mqe"),
        (topology("net/moon.yaml", more="kind = 'kafka'"), "CONFLICT", "remove kind"),
        (topology(*BOTH, more="dead_letter_queue = 'A'"), "WITHOUT_EFFECT", "have it"),
        (topology(*BOTH) + "[queues.A]\nmax_depth = 1\n", "WITHOUT_EFFECT", "consumer_group"),
    ],
)
def test_what_does_not_fit_the_definitions_is_told(
    check: Check, text: str, code: str, said: str
) -> None:
    Path("empty").mkdir()
    Path("nothing.yaml").write_text("kind: bindings\n")
    findings = [finding for finding in check(BASE + text) if finding.code == code]
    assert said in "\n".join(finding.render() for finding in findings)


def test_a_handler_of_another_cluster_is_refused(check: Check) -> None:
    Path("net/bindings.yaml").write_text(
        "kind: bindings\nqueue_managers: {QM1: {bootstrap_servers: 'far:9092'}}\n"
    )
    findings = check(BASE + HANDLER + topology("net/QM1.mqsc", "net/bindings.yaml"))
    assert [finding.code for finding in findings] == ["OTHER_CLUSTER"]


def test_errors_in_definitions_come_with_all_others(check: Check, network: Path) -> None:
    (network / "QM1.mqsc").write_text("DEFINE QLOCAL(A) MAXDEPTH(many)\nDEFINE QLOCL(B)\n")
    Path("orders.rul").write_text("REASN(1) ACTION(RETRY)\n")
    findings = check(BASE + HANDLER + topology("net/QM1.mqsc") + "[job]\nhop_limit = 0\n")
    assert {(finding.file, finding.line) for finding in findings} >= {
        ("redrive.toml", 12),
        ("net/QM1.mqsc", 1),
        ("net/QM1.mqsc", 2),
        ("orders.rul", 1),
    }


def test_forwarding_to_the_own_queue_by_its_manager_is_an_error(check: Check) -> None:
    text = BASE + HANDLER + topology("net/QM1.mqsc")
    Path("orders.rul").write_text("ACTION(FWD) FWDQ(DLQ) FWDQM(QM1)\n")
    assert [finding.code for finding in check(text)] == ["FORWARD_TO_OWN_QUEUE"]
    Path("orders.rul").write_text("ACTION(FWD) FWDQ(DLQ) FWDQM(QM2)\n")
    assert check(text) == ()


def test_options_name_files_relative_to_the_working_directory() -> None:
    """``--topology`` may be repeated, and findings point at the option."""
    options = [
        Option(("application", "name"), "--application", "route"),
        Option(("kafka", "bootstrap_servers"), "--bootstrap-server", "localhost:9092"),
        Option(("topology", "files", 0), "--topology", "net/QM1.mqsc"),
        Option(("topology", "files", 1), "--topology", "QM2=net/second.mqsc"),
    ]
    settings = settings_of(Document.empty().with_options("redrive run", options), environ={})
    assert [text.queue_manager for text in settings.job.topology] == ["", "QM2"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["-c", "redrive.toml", "--topology", "net"], "-c FILE and --topology exclude each other"),
        (["--topology", "net"], "--application NAME"),
        (["--topology", "net", "--dlq", "DLQ@QM1"], "--rules FILE"),
        (["--topology", "net/QM1.mqsc", "--dlq", "DLQ@QM2", "--rules", "orders.rul"], "the topolo"),
    ],
)
def test_run_takes_a_topology_from_its_options(arguments: list[str], said: str) -> None:
    result = redrive("run", "--bootstrap-server", "localhost:1", *arguments)
    assert result.exit_code != 0
    assert said in result.stderr


def test_a_job_does_not_start_with_failed_commands_unless_it_accepts_them(check: Check) -> None:
    Path("net/QM1.mqsc").write_text(QM1 + "ALTER QLOCAL(GONE) PUT(DISABLED)\n")
    refused = check(BASE + topology("net/QM1.mqsc"))
    assert [(finding.severity.value, finding.code, finding.line) for finding in refused] == [
        ("error", "NOT_FOUND", 7)
    ]
    accepting = topology("net/QM1.mqsc", more='failed_commands = "accept"\n')
    accepted = check(BASE + accepting)
    assert [(finding.severity.value, finding.code, finding.line) for finding in accepted] == [
        ("warning", "NOT_FOUND", 7)
    ]
    settings = read(BASE + accepting)
    assert settings.topology is not None
    assert "DLQ" in settings.topology.mq.queue_managers["QM1"].queues
