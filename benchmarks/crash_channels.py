"""Kill -9 while messages cross two channels, one of which is stopped and started meanwhile.

Three queue managers; applications put at the first one: to a queue of the third over two channels,
to a local queue through an alias, and to a queue that the third one does not know. The job is
killed at random moments, as by ``benchmarks.crash``; the second channel is stopped and started by
operators' commands, which are killed too. In the end a kafka-python reader at read_committed looks
at every queue:

    - every put is on exactly one queue, the one where it belongs, once;
    - order is kept per key and queue.

Run it as ``python -m benchmarks.crash_channels --rounds 20``; a printed seed repeats it.
"""

from __future__ import annotations

import random
import sys
import time
from collections import Counter, defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Final

from benchmarks.clients import Sent, read_committed
from benchmarks.crash import Crash
from benchmarks.engine import Scene, main
from benchmarks.load import PARTITIONS
from benchmarks.operators import CHANNELS, COMMANDS, SECOND_CHANNEL
from benchmarks.reconciliation import Findings
from kafka.admin import NewTopic

from redrive.engine.commands import channel_entry
from redrive.operations.states import write_states
from redrive.settings import read_settings
from redrive.topology.files import read_topology
from redrive.topology.layout import SourceText, topics_of
from redrive.topology.names import put_topic, topic_name

SCRIPTS: Final = {
    "QM1": """
        DEFINE QLOCAL(LOCAL.Q)
        DEFINE QALIAS(AN.ALIAS) TARGET(LOCAL.Q)
        DEFINE QREMOTE(FAR) RNAME(ORDERS) RQMNAME(QM3)
        DEFINE QLOCAL(QM3) USAGE(XMITQ)
        DEFINE CHANNEL(QM1.TO.QM2) CHLTYPE(SDR) CONNAME('two') XMITQ(QM3)
        """,
    "QM2": """
        DEFINE QLOCAL(QM3) USAGE(XMITQ)
        DEFINE CHANNEL(QM1.TO.QM2) CHLTYPE(RCVR)
        DEFINE CHANNEL(QM2.TO.QM3) CHLTYPE(SDR) CONNAME('three') XMITQ(QM3)
        """,
    "QM3": """
        ALTER QMGR DEADQ(DEAD.Q)
        DEFINE QLOCAL(DEAD.Q)
        DEFINE QLOCAL(ORDERS)
        DEFINE CHANNEL(QM2.TO.QM3) CHLTYPE(RCVR)
        """,
}
INTAKE: Final = put_topic("QM1")
ENDS: Final = {
    ("", "FAR"): topic_name(queue="ORDERS", queue_manager="QM3"),
    ("", "AN.ALIAS"): topic_name(queue="LOCAL.Q", queue_manager="QM1"),
    ("QM3", "NO.SUCH"): topic_name(queue="DEAD.Q", queue_manager="QM3"),
}
"""Where puts to these names end."""
NAMES: Final = [*[("", "FAR")] * 4, ("", "AN.ALIAS"), ("QM3", "NO.SUCH")]
ENDING: Final = sorted(set(ENDS.values()))


@dataclass(kw_only=True)
class CrashChannels(Crash):
    """Puts that cross two channels."""

    operators_do: ClassVar = {**CHANNELS, "restart": COMMANDS["restart"]}
    targets = ()

    def make(self, number: int, chance: random.Random) -> Sent:
        """A put to one of ``NAMES``."""
        queue_manager, queue = chance.choice(NAMES)
        headers = {"redrive.oqm": queue_manager.encode(), "redrive.oq": queue.encode()}
        place, key = number % 9 % PARTITIONS, b"k%d" % (number % 9)
        return Sent(INTAKE, place, b"%08d" % number, list(headers.items()), key)

    def topics(self) -> list[NewTopic]:
        """Those of the queue managers."""
        sources = [SourceText(f"{name}.mqsc", text.encode()) for name, text in SCRIPTS.items()]
        topology = read_topology(sources).topology
        assert topology is not None
        return [NewTopic(topic.topic, PARTITIONS, 1) for topic in topics_of(topology)]

    def handled(self, folder: Path) -> str:
        """The definitions."""
        for name, script in SCRIPTS.items():
            (folder / f"{name}.mqsc").write_text(script)
        return '[topology]\nfiles = ["QM1.mqsc", "QM2.mqsc", "QM3.mqsc"]\n'

    def create_late(self, scene: Scene) -> None:
        """Nothing appears in the middle."""

    def await_end(self, scene: Scene) -> None:
        """Starts the channel, and waits until everything is on a queue, or nothing moves."""
        write_states(
            read_settings(scene.job.settings).job, [channel_entry(*SECOND_CHANNEL, is_running=True)]
        )
        there, deadline = 0, time.monotonic() + self.patience
        while there < scene.load.acknowledged and time.monotonic() < deadline:
            time.sleep(1)
            number = sum(1 for _ in read_committed(scene.servers, ENDING))
            if number > there:
                there, deadline = number, time.monotonic() + self.patience

    def audit(self, scene: Scene) -> Findings:
        """Compares what was put with what is on the queues."""
        wanted: Counter[tuple[str, str]] = Counter()
        for record in read_committed(scene.servers, [INTAKE]):
            headers = {name: value.decode() for name, value in record.headers}
            end = ENDS[headers["redrive.oqm"], headers["redrive.oq"]]
            wanted[end, f"{INTAKE}:{record.partition}:{record.offset}"] += 1
        findings = Findings(inputs=wanted.total())
        puts: Counter[tuple[str, str]] = Counter()
        order: dict[tuple[str, int, bytes], list[int]] = defaultdict(list)
        for record in read_committed(scene.servers, ENDING):
            identity = dict(record.headers)["redrive.id"].decode()
            puts[record.topic, identity] += 1
            queue = record.topic, record.partition, record.key
            order[queue].append(int(identity.rsplit(":", 1)[1]))
            findings.results[record.topic] += 1
        findings.puts = puts.total()
        if findings.inputs != scene.load.acknowledged:
            findings.lost.append(f"{scene.load.acknowledged} puts were acknowledged")
        findings.lost += [str(place) for place in wanted - puts]
        findings.duplicated += [str(place) for place in puts - wanted]
        findings.disordered += [str(key) for key, path in order.items() if path != sorted(path)]
        return findings


if __name__ == "__main__":
    sys.exit(main(CrashChannels, __doc__))
