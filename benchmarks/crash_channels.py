"""Kill -9 while messages cross two channels, one of which is stopped and started meanwhile.

Three queue managers; applications put at the first one: to a queue of the third over two channels,
to a local queue through an alias, and to a queue that the third one does not know. The job is
killed at random moments, as by ``benchmarks.crash``; between and during rounds the second channel
is stopped and started. In the end a kafka-python reader at read_committed looks at every queue:

    - every put is on exactly one queue, the one where it belongs, once;
    - order is kept per key and queue.

Run it as ``python -m benchmarks.crash_channels --rounds 20``; a printed seed repeats it.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections import Counter, defaultdict
from functools import partial
from pathlib import Path
from typing import Final

from benchmarks.crash import (
    APPLICATION,
    PARTITIONS,
    Findings,
    Job,
    Load,
    create,
    killed,
    main,
    read_committed,
)
from kafka.admin import NewTopic
from kafka.future import Future

from redrive.broker import EmbeddedBroker
from redrive.checkpoints.control import ControlTopic
from redrive.errors import TransientFault
from redrive.kafka.connection import Connection
from redrive.topology.files import SourceText, read_topology
from redrive.topology.layout import topics_of
from redrive.topology.names import control_topic, put_topic, topic_name
from redrive.topology.states import channel_entry

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


class Puts(Load):
    """Puts numbered messages in a thread, at a steady rate."""

    def _send(self, number: int) -> Future:
        queue_manager, queue = self._random.choice(NAMES)
        self.expected.append(ENDS[queue_manager, queue])
        return self._producer.send(
            INTAKE,
            key=b"k%d" % (number % 9),
            value=b"%08d" % number,
            headers=[("redrive.oqm", queue_manager.encode()), ("redrive.oq", queue.encode())],
            partition=number % 9 % PARTITIONS,
        )


def set_channel(servers: str, *, is_running: bool) -> None:
    """Stops or starts the second channel, as ``redrive channel`` does."""
    key, value = channel_entry("QM2", "QM2.TO.QM3", is_running=is_running)
    connection, topic = Connection(bootstrap_servers=servers), control_topic(APPLICATION)
    for _ in range(5):
        try:
            with ControlTopic(connection, topic) as control:
                control.write({key: value})
        except TransientFault:
            time.sleep(1)  # the job was starting at this moment
        else:
            return
    raise SystemExit("the control topic could not be written")


def audit(servers: str, expected: dict[str, str]) -> Findings:
    """Compares what was put with what is on the queues.

    Args:
        servers: The broker.
        expected: Topic where each message has to end, by its identity.
    """
    findings = Findings(inputs=len(expected))
    found: Counter[tuple[str, str]] = Counter()
    order: dict[tuple[str, int, bytes], list[int]] = defaultdict(list)
    for record in read_committed(servers, sorted(set(ENDS.values()))):
        identity = dict(record.headers)["redrive.id"].decode()
        found[record.topic, identity] += 1
        order[record.topic, record.partition, record.key].append(int(identity.rsplit(":", 1)[1]))
        findings.results[record.topic] += 1
    findings.puts = found.total()
    wanted = Counter((topic, identity) for identity, topic in expected.items())
    findings.lost += [str(place) for place in wanted - found]
    findings.duplicated += [str(place) for place in found - wanted]
    findings.disordered += [str(place) for place, path in order.items() if path != sorted(path)]
    return findings


def settle(servers: str, count: int, patience: float) -> None:
    """Waits until so many messages are on queues, or gives up and lets the audit tell."""
    deadline = time.monotonic() + patience
    while time.monotonic() < deadline:
        if sum(1 for _ in read_committed(servers, sorted(set(ENDS.values())))) >= count:
            return
        time.sleep(1)


def write_settings(directory: Path, servers: str, emitter: str) -> Path:
    """The settings of the job, and the definitions."""
    for name, script in SCRIPTS.items():
        (directory / f"{name}.mqsc").write_text(script)
    path = directory / "redrive.toml"
    path.write_text(
        f'[application]\nname = "{APPLICATION}"\ndirectory = "job"\n'
        f'[kafka]\nbootstrap_servers = "{servers}"\n'
        '[topology]\nfiles = ["QM1.mqsc", "QM2.mqsc", "QM3.mqsc"]\n'
        f'[job]\nemitter = "{emitter}"\n[ledger]\nenabled = false\n'
    )
    return path


def run(rounds: int, seed: int, *, rate: float = 150, patience: float = 180) -> Findings:
    """Runs the whole thing and gives the findings.

    Args:
        rounds: How often to kill.
        seed: Of everything random.
        rate: Puts a second.
        patience: Seconds to wait for a start, and for the end.
    """
    with (
        tempfile.TemporaryDirectory(prefix="redrive-crash-") as folder,
        EmbeddedBroker(Path(folder) / "broker") as broker,
    ):
        directory, servers = Path(folder), broker.bootstrap_servers
        _create_topics(servers)
        load = Puts(servers, rate, seed)
        load.start()
        configure = partial(write_settings, directory, servers)
        job = Job(configure("auto"), directory / "job.log")
        for number in killed(job, configure, servers, rounds=rounds, seed=seed, patience=patience):
            is_running = number % 2 == 0
            set_channel(servers, is_running=is_running)
            print(f"round {number}: channel {'started' if is_running else 'stopped'}", flush=True)
        places = load.stop()
        expected = {
            f"{INTAKE}:{partition}:{offset}": load.expected[number]
            for (partition, offset), number in places.items()
        }
        set_channel(servers, is_running=True)
        job.start()
        settle(servers, len(expected), patience)
        code = job.stop()
        findings = audit(servers, expected)
        if code:
            findings.lost.append(f"the last job ended with exit code {code}")
        return findings


def _create_topics(servers: str) -> None:
    sources = [SourceText(f"{name}.mqsc", text.encode()) for name, text in SCRIPTS.items()]
    topology = read_topology(sources).topology
    if topology is None:
        raise ValueError("the definitions have errors")
    create(servers, *(NewTopic(one.topic, PARTITIONS, 1) for one in topics_of(topology)))


if __name__ == "__main__":
    sys.exit(main(run, __doc__))
