"""Topologies from files: all kinds together, all findings at once, nothing half applied."""

from __future__ import annotations

from pathlib import Path

import pytest

from redrive.topology.files import DefinitionFile, TopologyResult, named_sources, read_topology

NETWORK = """\
kind: mqe
queue_managers:
  - name: MOON
    queues:
      - {kind: local, name: Q}
"""


@pytest.fixture
def write(tmp_path: Path) -> Path:
    (tmp_path / "QM1.mqsc").write_text("DEF QL(A)\n")
    (tmp_path / "more.mqsc").write_text("DEF QL(B)\n")
    (tmp_path / "moon.yaml").write_text(NETWORK)
    (tmp_path / "bind.yml").write_text(
        "kind: bindings\nqueue_managers:\n  QM1:\n    queues:\n      A: {topic: a}\n  MOON: {}\n"
    )
    return tmp_path


def read(folder: Path, *names: str) -> TopologyResult:
    sources = []
    for name in names:
        manager, _, file = name.rpartition("=")
        sources.append(DefinitionFile(folder / file, manager))
    return read_topology(sources)


def test_files_of_all_kinds_make_one_topology(write: Path) -> None:
    result = read(write, "QM1.mqsc", "QM1=more.mqsc", "moon.yaml", "bind.yml")
    assert result.diagnostics == ()
    assert result.topology is not None
    manager = result.topology.mq.queue_managers["QM1"]
    assert list(manager.queues) == ["A", "B"]
    assert [queue.location.file for queue in manager.queues.values()] == [
        str(write / "QM1.mqsc"),
        str(write / "more.mqsc"),
    ]
    assert result.topology.mqe.queue_managers
    assert result.topology.bindings.topic(queue="A", queue_manager="QM1") == "a"


@pytest.mark.parametrize(
    ("name", "content", "code"),
    [
        ("gone.mqsc", None, "UNREADABLE"),
        ("utf16.mqsc", "DEF QL(A)".encode("utf-16"), "ENCODING"),
        ("bad.yaml", b"kind: bindings\nqueue_managers: 5\n", "WRONG_TYPE"),
        ("kind.yaml", b"kind: other\n", "BAD_VALUE"),
        ("moon2.yaml", NETWORK.encode(), "SECOND_OF_KIND"),
    ],
)
def test_one_bad_file_is_one_finding_and_nothing_is_applied(
    write: Path, name: str, content: bytes | None, code: str
) -> None:
    if content is not None:
        (write / name).write_bytes(content)
    result = read(write, "moon.yaml", name, "QM1.mqsc")
    assert result.topology is None
    assert [diagnostic.code for diagnostic in result.diagnostics] == [code]
    assert result.diagnostics[0].file == str(write / name)


def test_findings_about_the_topology_come_last(write: Path) -> None:
    (write / "QM2.mqsc").write_text("DEF QA(X) TARGET(GONE)\nDISPLAY QMGR\n")
    result = read(write, "QM2.mqsc", "QM1.mqsc")
    assert result.topology is not None
    assert [diagnostic.code for diagnostic in result.diagnostics] == [
        "IGNORED",
        "UNREACHABLE",
        "UNREACHABLE",
        "ALIAS_TARGET",
    ]


UNIFORM = """\
DEFINE CHANNEL('+AUTOCL+_+QMNAME+') CHLTYPE(CLUSRCVR) CLUSTER(+AUTOCL+) CONNAME(+CONNAME+)
DEFINE QLOCAL(Q1) CLUSTER(+AUTOCL+) REPLACE
"""
CONFIGURATION = """\
# every member has this file
AutoCluster:
   Type=Uniform
   Repository1Name=U1
   Repository1Conname=host1(1414)
   ClusterName=UNI
Variables:
   CONNAME=host1(1414)
"""


def test_one_script_serves_every_manager_of_a_uniform_cluster(tmp_path: Path) -> None:
    """Inserts are the manager, the cluster of AutoCluster and variables (q133780, crtmqm -ii)."""
    (tmp_path / "uni.mqsc").write_text(UNIFORM)
    (tmp_path / "uni.ini").write_text(CONFIGURATION)
    (tmp_path / "u2.ini").write_text("Variables:\n  conname = host2(1414)\n")
    result = read(tmp_path, "U1=uni.mqsc", "U2=uni.mqsc", "uni.ini", "U2=u2.ini")
    assert result.diagnostics == ()
    assert result.topology is not None
    managers = result.topology.mq.queue_managers
    assert [
        str(channel) for manager in managers.values() for channel in manager.channels.values()
    ] == [
        "CHANNEL(UNI_U1)",
        "CHANNEL(UNI_U2)",
    ]
    assert [manager.attributes.repository_cluster for manager in managers.values()] == ["UNI", ""]
    assert managers["U2"].channels["UNI_U2"].connection == "host2(1414)"
    assert len(result.topology.mq.instances(managers["U1"], "Q1")) == 1


def test_an_insert_for_which_nothing_stands_says_what_is_missing(tmp_path: Path) -> None:
    (tmp_path / "U1.mqsc").write_text(UNIFORM)
    (first, second) = read(tmp_path, "U1.mqsc").diagnostics
    assert (first.line, second.line) == (1, 2)
    assert first.hint == second.hint
    assert "+AUTOCL+ has no value" in first.hint


def test_the_scripts_of_a_folder_are_those_of_the_manager_that_is_named(tmp_path: Path) -> None:
    folder = tmp_path / "config"
    folder.mkdir()
    (folder / "10-queues.mqsc").write_text("DEF QL(A)\n")
    (folder / "20-limits.mqsc").write_text("ALTER QL(A) MAXDEPTH(7)\n")
    named = named_sources("QM7=config", lambda name: tmp_path / name)
    result = read_topology(named.sources)
    assert result.diagnostics == ()
    assert result.topology is not None
    assert list(result.topology.mq.queue_managers) == ["QM7"]
    # Without a name each is a manager of its own, and the second one changes what it has not.
    apart = read_topology(named_sources("config", lambda name: tmp_path / name).sources)
    assert [
        diagnostic.code for diagnostic in apart.diagnostics if diagnostic in apart.failures
    ] == ["NOT_FOUND"]


def test_what_a_failed_command_leaves_is_the_topology(tmp_path: Path) -> None:
    (tmp_path / "QM1.mqsc").write_text(
        "DEF QL(A)\nALTER QL(GONE) GET(DISABLED)\nDEF QL(B) MAXDEPTH(x)\n"
        "DELETE QL(OLD) IGNSTATE(YES)\nDEF QA(C) TARGET(GONE)\nDISPLAY QMGR\n"
    )
    result = read(tmp_path, "QM1.mqsc")
    assert result.topology is not None
    assert list(result.topology.mq.queue_managers["QM1"].queues) == ["A", "C"]
    assert [
        (diagnostic.severity.value, diagnostic.line, diagnostic.code)
        for diagnostic in result.diagnostics
    ] == [
        ("error", 2, "NOT_FOUND"),
        ("error", 3, "BAD_VALUE"),
        ("note", 4, "NOT_FOUND"),
        ("note", 6, "IGNORED"),
        ("warning", 5, "ALIAS_TARGET"),
    ]
    (counts,) = result.counts.values()
    assert str(counts) == (
        "6 MQSC commands read. One command has a syntax error. "
        "One valid MQSC command could not be processed."
    )
    assert [failure.severity.value for failure in result.accepting_failures()][:2] == [
        "warning"
    ] * 2


def test_findings_about_all_files_are_shown_beside_an_error_in_one(write: Path) -> None:
    (write / "QM1.mqsc").write_text(
        "DEF QA(X) TARGET(GONE)\nDEF QL(MOON) USAGE(XMITQ)\nDEF QR(Y) RNAME(Q) RQMNAME(MOON)\n"
    )
    (write / "bad.yaml").write_text("kind: mqe\nqueue_managers: 5\n")
    result = read(write, "QM1.mqsc", "bad.yaml", "bind.yml")
    assert result.topology is None
    codes = [diagnostic.code for diagnostic in result.diagnostics]
    assert codes == ["WRONG_TYPE", "ALIAS_TARGET"]


COMMANDS = '{"type": "runCommand", "parameters": {"command": "DEF QL(A)"}}'


def test_json_of_mqweb_is_refused_as_removed(tmp_path: Path) -> None:
    (tmp_path / "QM1.json").write_text(COMMANDS)
    (finding,) = read(tmp_path, "QM1.json").diagnostics
    assert (finding.severity, finding.code) == ("error", "UNSUPPORTED")
    assert "0.1.0" in finding.message


def test_other_json_of_a_folder_is_passed_over(tmp_path: Path) -> None:
    """A folder of ``crtmqm -ic`` may have a CCDT beside its scripts."""
    (tmp_path / "CCDT.JSON").write_text('{"channel": [{"name": "S", "type": "clientConnection"}]}')
    (tmp_path / "QM1.json").write_text(COMMANDS)
    (tmp_path / "QM2.mqsc").write_text("DEF QL(A)")
    named = named_sources(str(tmp_path))
    assert [source.path.name for source in named.sources] == ["QM1.json", "QM2.mqsc"]
