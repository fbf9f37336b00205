"""``redrive`` with one fault in it: ``python faulty_job.py FAULT ARGUMENTS``.

When the fault happens, the file ``fault`` is written. A call that hangs does so as a call of a
client in C does: Python runs no signal handler in its thread.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import confluent_kafka
import pyspark.sql
from confluent_kafka.admin import AdminClient
from pyspark import SparkContext

from redrive.__main__ import start
from redrive.kafka import administration, producer, records
from redrive.kafka.deadline import unanswered
from redrive.streaming import job, projection
from redrive.streaming.batch import BatchProcessor
from redrive.streaming.emission import Emission
from redrive.streaming.preparation import Preparation
from redrive.streaming.supervision import Supervisor

FAULTS: dict[str, Callable[[], None]] = {}


def fault(apply: Callable[[], None]) -> Callable[[], None]:
    """Registers a fault by the name of its function."""
    FAULTS[apply.__name__] = apply
    return apply


def happened() -> None:
    """Tells the test that the fault is there."""
    Path("fault").touch()


def never(*_: object, **__: object) -> Any:
    mutex = ctypes.create_string_buffer(256)
    lock = ctypes.CDLL(None).pthread_mutex_lock
    lock(mutex)
    happened()
    lock(mutex)


def before(owner: Any, name: str, act: Callable[[], None]) -> None:
    """Lets something happen each time before a function is called."""
    original = getattr(owner, name)

    def called(*arguments: Any, **named: Any) -> Any:
        act()
        return original(*arguments, **named)

    setattr(owner, name, called)


def replace(owner: Any, name: str, value: Any) -> None:
    """Puts something in the place of what a module or a class has."""
    setattr(owner, name, value)


def to_java(number: signal.Signals) -> Callable[[], None]:
    """Sends Java a signal, once."""

    def send() -> None:
        if not Path("fault").exists():
            gateway: Any = SparkContext._gateway
            os.kill(gateway.proc.pid, number)
            happened()

    return send


def to_new_java(number: signal.Signals) -> None:
    """Sends Java a signal as soon as there is one."""

    class Popen(subprocess.Popen[bytes]):
        def __init__(self, *arguments: Any, **named: Any) -> None:
            super().__init__(*arguments, **named)
            os.kill(self.pid, number)
            happened()

    replace(pyspark.java_gateway, "Popen", Popen)


# -- calls that hang -------------------------------------------------------------------------------


class Consumer(confluent_kafka.Consumer):
    """Cannot be closed."""

    close = never


@fault
def closing_a_consumer() -> None:
    """Of whatever was read, in the main thread."""
    replace(records, "Consumer", Consumer)


@fault
def begin_transaction() -> None:
    """Of the control topic's writer, in the main thread."""
    replace(
        producer,
        "Producer",
        type("Producer", (confluent_kafka.Producer,), {"begin_transaction": never}),
    )


@fault
def flush() -> None:
    replace(producer, "Producer", type("Producer", (confluent_kafka.Producer,), {"flush": never}))


@fault
def administration_of_topics() -> None:
    """A future that never has a result."""

    def create_topics(_: object, topics: Any, **__: Any) -> dict[str, Future[None]]:
        happened()
        return {topic.topic: Future() for topic in topics}

    admin = type("Admin", (AdminClient,), {"create_topics": create_topics})
    replace(administration, "AdminClient", admin)


@fault
def start_of_Spark() -> None:  # noqa: N802 - the words of the message
    """Java stands still from its first moment."""
    to_new_java(signal.SIGSTOP)


@fault
def start_of_the_query() -> None:
    """Java stands still."""
    before(job, "start_query", to_java(signal.SIGSTOP))


@fault
def state_of_the_query() -> None:
    """Java stands still while the job waits for work."""

    def stop_java() -> None:
        gateway: Any = SparkContext._gateway
        os.kill(gateway.proc.pid, signal.SIGSTOP)
        while "state of the query" not in unanswered():
            time.sleep(0.01)
        happened()

    # Beside the job: what is asked when Java stands still is never answered.
    before(Supervisor, "watch", lambda: threading.Thread(target=stop_java, daemon=True).start())


@fault
def stop_of_the_query() -> None:
    """Java stands still after the last batch."""
    before(BatchProcessor, "end", to_java(signal.SIGSTOP))


@fault
def state_of_the_ledger_s_query() -> None:
    """Java stands still when the ledger's query is to be stopped, which the test awaits."""
    before(projection, "RunningQuery", lambda: Path("ledger_runs").touch())
    before(projection.Projection, "stop", to_java(signal.SIGSTOP))


@fault
def stop_of_Spark() -> None:  # noqa: N802 - as above
    """Java stands still when all else has ended."""
    before(Preparation, "release", to_java(signal.SIGSTOP))


@fault
def stop_of_Spark_unwatched() -> None:  # noqa: N802 - as above
    """The same, while the supervisor's question to the broker hangs."""
    replace(Supervisor, "_probe", lambda _: threading.Event().wait())
    before(Preparation, "release", to_java(signal.SIGSTOP))


@fault
def the_running_batch() -> None:
    """The driver's emitter hangs."""
    replace(Emission, "emit", never)


@fault
def count_of_the_rows() -> None:
    """Spark never counts what the enrichment read."""
    replace(pyspark.sql.Observation, "get", property(never))


def same(frame: Any) -> Any:
    """An enrichment that changes nothing."""
    return frame


# -- a Java that dies ------------------------------------------------------------------------------


@fault
def killed_at_its_start() -> None:
    """Before it says where it listens."""
    to_new_java(signal.SIGKILL)


@fault
def killed_before_the_query() -> None:
    """After the session has started."""
    before(job, "start_query", to_java(signal.SIGKILL))


@fault
def killed_while_it_waits() -> None:
    """Before the first batch."""
    before(Supervisor, "watch", to_java(signal.SIGKILL))


@fault
def killed_in_a_batch() -> None:
    """When the driver has its rows, and nothing is committed yet."""
    before(Emission, "emit", to_java(signal.SIGKILL))


@fault
def killed_in_the_projection() -> None:
    """When the ledger's query is to start."""
    before(projection, "start_projection", to_java(signal.SIGKILL))


@fault
def killed_at_the_stop() -> None:
    """As by a machine without memory, when the last batch has ended."""
    before(BatchProcessor, "end", to_java(signal.SIGKILL))


if __name__ == "__main__":
    replace(job, "_PROJECTION_DELAY", 0.0)
    FAULTS[sys.argv[1]]()
    del sys.argv[1]
    start()
