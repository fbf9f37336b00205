"""``redrive status`` and ``history`` on puts: what could be put nowhere is shown as what it is."""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest
from tests.commands import json_of, redrive
from tests.configurations import write_settings
from tests.conformance.decided_network import DecidedNetwork
from tests.outcomes.samples import append

from redrive.messages import OutputRecord
from redrive.outcomes.rows import row_of
from redrive.settings import read_settings
from redrive.topology.names import put_topic

TOPOLOGY = '[topology]\nfiles = ["QM1.mqsc", "QM2.mqsc"]\n'
QM1 = """\
DEFINE QLOCAL(QM2) USAGE(XMITQ)
DEFINE CHANNEL(QM1.QM2) CHLTYPE(SDR) XMITQ(QM2) CONNAME('qm2')
"""
QM2 = """\
DEFINE QLOCAL(Q)
DEFINE CHANNEL(QM1.QM2) CHLTYPE(RCVR)
"""


@pytest.fixture
def messages(folder: Path) -> list[str]:
    """A message that arrived, one that waits on a transmission queue, one on an intake."""
    write_settings(Path(), more=TOPOLOGY)
    Path("QM1.mqsc").write_text(QM1)
    Path("QM2.mqsc").write_text(QM2)
    settings = read_settings(Path("redrive.toml"))
    assert settings.topology is not None
    network = DecidedNetwork(settings.topology)
    network.run_together(
        [
            OutputRecord(
                put_topic("QM1"),
                None,
                b"body",
                [
                    ("redrive.oqm", manager),
                    ("redrive.oq", queue),
                    ("JMS_IBM_MQMD_Persistence", b"1"),
                ],
                0,
            )
            for queue, manager in [(b"Q", b"QM2"), (b"NO.SUCH", b"QM2"), (b"NO.SUCH", b"")]
        ]
    )
    rows = [
        row_of(orjson.dumps(outcome), 0, 0, place) for place, outcome in enumerate(network.outcomes)
    ]
    append(settings.job.ledger.path, rows)
    return [f"{put_topic('QM1')}:0:{offset}" for offset in range(3)]


@pytest.mark.usefixtures("messages")
def test_status_counts_what_could_be_put_nowhere_by_the_queue_on_which_it_waits() -> None:
    """As MQ would leave it: on its transmission queue; an intake names the manager."""
    puts = json_of("status")["puts"]
    assert puts["undelivered"] == {"QM2@QM1": 1, "the intake of QM1": 1}
    assert puts["results"]["in_all"] == {"remains": 2, "routed": 3}
    shown = redrive("status").stdout
    assert "QM2@QM1" in shown
    assert "redrive queue release" in shown


def test_history_tells_on_what_a_message_waits_and_what_releases_it(messages: list[str]) -> None:
    history = json_of("history", messages[1])
    assert history["put_on"] == "QM2@QM1"
    assert "waits on QM2@QM1" in history["next"]["text"]
    assert "redrive queue release QM1" in history["next"]["text"]
    shown = redrive("history", messages[1]).stdout
    assert "taken from QM2@QM1 and put to NO.SUCH@QM2" in shown
    assert "dead letter" not in shown.splitlines()[1]
    assert json_of("history", messages[0])["next"]["text"] == "nothing: it was routed"
    assert "waits on the intake of QM1" in json_of("history", messages[2])["next"]["text"]


def test_a_message_that_a_receiver_tries_again_is_told_as_such(folder: Path) -> None:
    """``status`` counts it by the queue on which it waits, ``history`` tells of the next try."""
    write_settings(Path(), more=TOPOLOGY)
    Path("QM1.mqsc").write_text(QM1)
    Path("QM2.mqsc").write_text(QM2.replace("(Q)", "(Q) PUT(DISABLED)"))
    settings = read_settings(Path("redrive.toml"))
    assert settings.topology is not None
    network = DecidedNetwork(settings.topology)
    names: list[tuple[str, bytes | None]] = [("redrive.oqm", b"QM2"), ("redrive.oq", b"Q")]
    network.run([OutputRecord(put_topic("QM1"), None, b"body", names, 0)])
    assert [outcome["result"] for outcome in network.outcomes].count("parked") == 10
    seen = [
        row_of(orjson.dumps(outcome), 0, 0, place)
        for place, outcome in enumerate(network.outcomes[:2])
    ]
    append(settings.job.ledger.path, seen)
    puts = json_of("status")["puts"]
    assert (puts["retried"], puts["undelivered"]) == ({"QM2@QM1": 1}, {})
    assert "retried by a receiver" in redrive("status").stdout
    following = json_of("history", f"{put_topic('QM1')}:0:0")["next"]
    assert following["text"].startswith("try 2 of 11 by the receiving end of channel QM1.QM2")
    assert following["due"]
