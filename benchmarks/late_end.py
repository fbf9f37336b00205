"""A commit that arrives a second time, in the next transaction: 1,000 times, every effect counted.

The trigger that Jepsen found in Kafka's transactions: the connection breaks while a client commits,
the client sends the commit again, and the first copy reaches the coordinator when the client's next
transaction is open, which it then ends in its middle. Here a relay between ``redrive run`` and the
broker makes it happen to every second request that ends a transaction, and to a tenth of those that
carry offsets, while dead letters arrive as in ``benchmarks.crash``. In the end the same audit as
there.

    python -m benchmarks.late_end [--times 1000] [--rate 150]
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

from benchmarks.crash import (
    Findings,
    Job,
    Load,
    audit,
    create_topics,
    told,
    wait_until_settled,
    write_settings,
)
from benchmarks.fault_proxy import HOST, FaultProxy, Rule, What, running

from redrive.broker import EmbeddedBroker
from redrive.broker.ports import free_port

_RULES: Final = (
    Rule("EndTxn", What.LATE_COPY, share=0.5, seconds=0.05),
    Rule("TxnOffsetCommit", What.LATE_COPY, share=0.1),
)
_PATIENCE: Final = 240.0
_TRIGGER: Final = "late copy of EndTxn"


def run(times: int, seed: int, *, rate: float) -> tuple[Findings, FaultProxy]:
    """Runs the whole thing; gives the findings, and the relay with its counts.

    Args:
        times: How many commits and aborts are to arrive twice.
        seed: Of everything random.
        rate: Dead letters a second.
    """
    port, advertised = free_port(), free_port()
    properties = {"advertised.listeners": f"PLAINTEXT://{HOST}:{advertised}"}
    with (
        tempfile.TemporaryDirectory(prefix="redrive-late-") as folder,
        running(advertised, port, (), seed=seed) as proxy,
        EmbeddedBroker(Path(folder) / "broker", port=port, properties=properties) as broker,
    ):
        directory, servers = Path(folder), broker.bootstrap_servers
        create_topics(servers)
        load = Load(servers, rate, seed)
        load.start()
        job = Job(
            write_settings(directory, f"{HOST}:{advertised}", "driver"), directory / "job.log"
        )
        proxy.apply(*_RULES)
        job.start()
        _await_triggers(proxy, job, times)
        proxy.apply()
        numbers = load.stop()
        wait_until_settled(servers, len(numbers), _PATIENCE)
        code = job.stop()
        findings = audit(servers, numbers, interval=2)
        if code:
            findings.lost.append(f"the job ended with exit code {code}")
        return findings, proxy


def _await_triggers(proxy: FaultProxy, job: Job, times: int) -> None:
    seen, deadline, said = 0, time.monotonic() + _PATIENCE, 0.0
    while proxy.counts[_TRIGGER] < times:
        if proxy.counts[_TRIGGER] > seen:
            seen, deadline = proxy.counts[_TRIGGER], time.monotonic() + _PATIENCE
        if time.monotonic() > deadline or (job.process and job.process.poll() is not None):
            raise SystemExit(f"the job stands still; its log {job.log}:\n{job.log.read_text()}")
        if time.monotonic() - said > 10:
            said = time.monotonic()
            print(f"{proxy.counts[_TRIGGER]} of {times}", flush=True)
        time.sleep(0.5)


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--times", type=int, default=1_000)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--rate", type=float, default=150, help="dead letters a second")
    arguments = parser.parse_args()
    seed = random.SystemRandom().randrange(1 << 31) if arguments.seed is None else arguments.seed
    print(f"seed {seed}", flush=True)
    findings, proxy = run(arguments.times, seed, rate=arguments.rate)
    print(", ".join(f"{count} x {what}" for what, count in sorted(proxy.counts.items())))
    return told(findings)


if __name__ == "__main__":
    sys.exit(main())
