"""Topologies from files: all kinds together, all findings at once, nothing half applied."""

from __future__ import annotations

from pathlib import Path

import pytest

from redrive.topology.files import Source, TopologyResult, read_topology

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
        sources.append(Source(folder / file, manager))
    return read_topology(sources)


def test_files_of_all_kinds_make_one_topology(write: Path) -> None:
    """Scripts by name of file or as told, several for one manager, networks and bindings."""
    result = read(write, "QM1.mqsc", "QM1=more.mqsc", "moon.yaml", "bind.yml")
    assert result.diagnostics == ()
    assert result.topology is not None
    manager = result.topology.mq.queue_managers["QM1"]
    assert list(manager.queues) == ["A", "B"]
    assert [queue.location.file for queue in manager.queues.values()] == [
        str(write / "QM1.mqsc"),
        str(write / "more.mqsc"),
    ]
    assert result.topology.mqe is not None
    assert result.topology.bindings.topic(queue="A", queue_manager="QM1") == "a"


@pytest.mark.parametrize(
    ("name", "content", "code"),
    [
        ("gone.mqsc", None, "UNREADABLE"),
        ("utf16.mqsc", "DEF QL(A)".encode("utf-16"), "ENCODING"),
        ("bad.mqsc", b"DEF QL(A) MAXDEPTH(x)", "BAD_VALUE"),
        ("bad.yaml", b"kind: bindings\nqueue_managers: 5\n", "WRONG_TYPE"),
        ("kind.yaml", b"kind: other\n", "BAD_VALUE"),
        ("moon2.yaml", NETWORK.encode(), "SECOND_OF_KIND"),
    ],
)
def test_one_bad_file_is_one_finding_and_nothing_is_applied(
    write: Path, name: str, content: bytes | None, code: str
) -> None:
    """The finding names the file; the other files are read all the same, but not used."""
    if content is not None:
        (write / name).write_bytes(content)
    result = read(write, "moon.yaml", name, "QM1.mqsc")
    assert result.topology is None
    assert [one.code for one in result.diagnostics] == [code]
    assert result.diagnostics[0].file == str(write / name)


def test_findings_about_the_topology_come_last(write: Path) -> None:
    """Files without errors are checked against each other."""
    (write / "QM2.mqsc").write_text("DEF QA(X) TARGET(GONE)\nDISPLAY QMGR\n")
    result = read(write, "QM2.mqsc", "QM1.mqsc")
    assert result.topology is not None
    assert [one.code for one in result.diagnostics] == [
        "IGNORED",
        "UNREACHABLE",
        "UNREACHABLE",
        "ALIAS_TARGET",
    ]
