"""``import redrive`` in a program with a Spark session of its own."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from pyspark.errors import AnalysisException
from tests.configurations import write_settings
from tests.conftest import eventually
from tests.streaming.conftest import Jobs, letter

import redrive
from redrive.errors import AlreadyRunningError, ConfigurationError, EnvironmentFault
from redrive.operations.restart import running_process
from redrive.settings import read_settings

SIX_HOURS = "WAIT(YES) RETRYINT(21600)\nREASON(2053) ACTION(RETRY) RETRY(9)\nACTION(DISCARD)\n"
FULL, OTHER = 2053, 2085
"""A reason of a put that is tried again in six hours, and one of a message that is discarded."""


def settings_of(jobs: Jobs, queue: str, rules: str = SIX_HOURS, **more: Any) -> dict[str, Any]:
    """Settings as TOML would give them, of an application that is named after its queue."""
    (jobs.folder / f"{queue}.rul").write_text(rules)
    table = str(jobs.folder / f"{queue}.rul")
    return {
        "application": {"name": queue, "directory": str(jobs.folder / queue)},
        "kafka": {"bootstrap_servers": jobs.bootstrap_servers},
        "handlers": [{"queue": queue, "rules": table}],
        **more,
    }


def test_importing_redrive_imports_neither_spark_nor_a_client() -> None:
    program = (
        "import sys, redrive; print(redrive.__version__, sorted(redrive.__all__));"
        "print({'pyspark', 'kafka', 'confluent_kafka', 'deltalake'} & sys.modules.keys())"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[1] == "set()", done.stderr


def test_one_run_handles_what_is_due_and_the_next_only_what_is_new(jobs: Jobs) -> None:
    dlq, nowhere = jobs.topic("dlq", partitions=2), jobs.unique_name("nowhere")
    settings = settings_of(jobs, dlq)
    jobs.produce(dlq, [letter(FULL, nowhere) for _ in range(7)])
    jobs.produce(dlq, [letter(OTHER, nowhere) for _ in range(23)])
    first = redrive.run_once(jobs.spark, settings)
    assert (first.records, first.results) == (30, {"discarded": 23, "parked": 7})
    assert str(first).startswith("handled 30 messages in ")
    again = redrive.run_once(jobs.spark, settings)
    assert (again.records, again.results) == (0, {})
    jobs.produce(dlq, [letter(OTHER, nowhere) for _ in range(3)])
    assert redrive.run_once(jobs.spark, settings).results == {"discarded": 3}
    job = read_settings(settings).job
    assert sum(len(jobs.read(handler.identity.retry_topic)) for handler in job.handlers) == 7
    rows = redrive.ledger(jobs.spark, settings).groupBy("result").count().collect()
    assert {row["result"]: row["count"] for row in rows} == {"discarded": 26, "parked": 7}
    assert not (jobs.folder / dlq / "redrive.pid").exists()


def test_a_job_in_a_session_of_ours_starts_restarts_and_leaves_the_session(jobs: Jobs) -> None:
    """Two jobs of two applications run in it, with the words of Spark's own queries."""
    first, second, spark = jobs.topic("dlq"), jobs.topic("dlq"), jobs.spark
    before = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)]
    settings = settings_of(jobs, first)
    job = redrive.start(spark, settings)
    other = redrive.start(spark, settings_of(jobs, second))
    with pytest.raises(AlreadyRunningError, match="already runs this job"):
        redrive.start(spark, settings)
    with pytest.raises(EnvironmentFault, match="takes no signals"):
        running_process(read_settings(settings).job)
    jobs.produce(first, [letter(OTHER, "nowhere") for _ in range(30)])
    eventually(lambda: job.lastProgress and _discarded(jobs, settings) == 30, "all are handled")
    assert job.isActive
    assert other.isActive
    assert job.status.keys() == {"message", "isDataAvailable", "isTriggerActive"}
    assert job.awaitTermination(0.1) is False
    rules = Path(settings["handlers"][0]["rules"])
    rules.write_text("ACTION(NONSENSE)")
    with pytest.raises(ConfigurationError):
        job.restart()
    target = jobs.topic("target")
    rules.write_text(f"ACTION(FWD) FWDQ('{target}')\n")
    job.restart()
    jobs.produce(first, [letter(OTHER, "nowhere")])
    eventually(lambda: len(jobs.values(target)) == 1, "the changed table decides")
    for running in (job, other):
        running.stop()
        assert not running.isActive
        assert running.exception() is None
        assert running.awaitTermination() is None
    assert job.status["message"] == "stopped"
    with pytest.raises(EnvironmentFault, match="the job has ended"):
        job.restart()
    assert spark.range(3).count() == 3
    assert [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)] == before
    assert "redrive-warm-up" not in {thread.name for thread in threading.enumerate()}


def _discarded(jobs: Jobs, settings: dict[str, Any]) -> int:
    values = jobs.values(read_settings(settings).job.outcomes_topic)
    return Counter(json.loads(value)["result"] for value in values)["discarded"]


def test_a_dead_letter_topic_that_does_not_exist_is_an_error_after_all_else(jobs: Jobs) -> None:
    dlq, missing = jobs.topic("dlq"), jobs.unique_name("missing")
    settings = settings_of(jobs, dlq)
    settings["handlers"].append({"queue": missing, "rules": settings["handlers"][0]["rules"]})
    jobs.produce(dlq, [letter(OTHER, "nowhere")])
    with pytest.raises(EnvironmentFault, match=f"what was due is handled, and {missing} does not"):
        redrive.run_once(jobs.spark, settings)
    assert _discarded(jobs, settings) == 1


def test_a_run_of_what_is_due_does_not_wait_for_a_share(jobs: Jobs) -> None:
    settings = settings_of(jobs, jobs.unique_name("dlq"))
    settings["application"]["instance"] = "auto"
    with pytest.raises(ConfigurationError, match='instance is "auto"'):
        redrive.run_once(jobs.spark, settings)


def test_a_session_without_the_connector_is_refused_with_the_names_of_jars(jobs: Jobs) -> None:
    class Lacking:
        """A session of a cluster, which knows no source but its own."""

        conf = SimpleNamespace(get=lambda _name, default="": default)
        sparkContext = SimpleNamespace(master="spark://far:7077")  # noqa: N815 - Spark's name
        version = "4.2.0"

        @property
        def readStream(self) -> Any:  # noqa: N802 - Spark's name
            raise AnalysisException("Failed to find the data source: kafka")

    settings = settings_of(jobs, jobs.unique_name("dlq"))
    with pytest.raises(EnvironmentFault) as refused:
        redrive.start(cast("Any", Lacking()), settings)
    for name in ("spark-sql-kafka", "delta-spark", "DeltaCatalog"):
        assert name in refused.value.message
    assert "redrive setup --print-jars" in refused.value.hint


def test_session_of_another_version_is_refused_with_the_versions_that_do(jobs: Jobs) -> None:
    older: Any = SimpleNamespace(version="4.1.4", sparkContext=SimpleNamespace(master="local[2]"))
    settings = settings_of(jobs, jobs.unique_name("dlq"))
    with pytest.raises(EnvironmentFault, match=r"not run on Spark 4\.1\.4\nhint: use Spark 4\.2"):
        redrive.run_once(older, settings)


def test_the_examples_of_the_page_run(jobs: Jobs, monkeypatch: pytest.MonkeyPatch) -> None:
    dlq = jobs.topic("dlq")
    assert jobs.spark is not None  # the session of this process
    monkeypatch.chdir(jobs.folder)
    rules = "WAIT(YES)\nACTION(DISCARD)\n"
    write_settings(jobs.folder, dlq, rules=rules, application=dlq, servers=jobs.bootstrap_servers)
    jobs.produce(dlq, [letter(OTHER, "nowhere")])
    page = (Path(__file__).parents[2] / "docs" / "spark.md").read_text()
    examples = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    names: dict[str, Any] = {}
    for example in examples:
        exec(compile(example, "spark.md", "exec"), names)  # noqa: S102 - our own page
    assert names["done"].results == {"discarded": 1}
    assert names["outcomes"].count() == 1


def test_the_command_ends_when_what_is_due_is_handled(jobs: Jobs) -> None:
    dlq = jobs.topic("dlq")
    path = write_settings(
        jobs.folder, dlq, rules=SIX_HOURS, application=dlq, servers=jobs.bootstrap_servers
    )
    jobs.produce(dlq, [letter(FULL, "nowhere"), letter(OTHER, "nowhere")])
    words = [sys.executable, "-m", "redrive", "run", "-c", str(path), "--once", "--json"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    counts = json.loads(done.stdout)
    assert counts["results"] == {"parked": 1, "discarded": 1}
    ((_, of_handler),) = counts["handlers"].items()
    assert counts["records"] == sum(of_handler.values()) == 2
    assert "Traceback" not in done.stderr
    assert "redrive-warm-up" not in done.stderr
