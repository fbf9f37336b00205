"""With ``format = "json"`` every line that a job prints is JSON, whoever prints it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import KafkaClient, eventually
from tests.streaming.served_job import ServedJob
from tests.streaming.test_tables import connect

PROGRAM = """
import os, subprocess
from redrive.logs import configure_logging, log_all_output
from redrive.masking import Mask
from redrive.settings import LogFormat, LogLevel, LogSettings

log_all_output()
settings = LogSettings(format=LogFormat.JSON, level=LogLevel.ERROR, mask=Mask(("sesame",)))
configure_logging(settings)
log_all_output()
print("from Python, to standard output")
subprocess.run(["sh", "-c", "echo of a child; echo 'of a child, sesame' >&2"])
panic = b"\\nthread 'worker' (7) panicked at src/lib.rs:88:9:\\nno entry, sesame\\n"
os.write(2, panic + b"note: run with `RUST_BACKTRACE=1` environment variable to see more\\n")
os.write(2, b"of a library in C, \\xff without an end")
raise ValueError("nobody caught it")
"""
SETTINGS = """\
[job]
emitter = "lanes"
[log]
format = "json"
[transforms.tell]
python = "tells:tell"
"""
TRANSFORM = """
import sys

def tell(value, headers):
    print("from a worker", file=sys.stderr, flush=True)
    return value, headers
"""


def entries(log: str) -> list[dict[str, Any]]:
    """What each line of a log says; every one is an object with the members of all."""
    lines = [json.loads(line) for line in log.splitlines()]
    assert all({"time", "level", "logger", "message"} <= line.keys() for line in lines)
    return lines


def test_whatever_a_process_and_its_children_print_is_a_line_of_the_log() -> None:
    ended = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, check=False)
    assert (ended.returncode, ended.stdout) == (1, b"")
    lines = entries(ended.stderr.decode())
    assert {(line.get("event"), line["level"]) for line in lines} == {("output", "warning")}
    said = [line["message"] for line in lines]
    assert {"from Python, to standard output", "of a child", "of a child, ***"} <= {*said}
    assert "thread 'worker' (7) panicked at src/lib.rs:88:9: no entry, ***" in said
    assert not [message for message in said if "RUST_BACKTRACE" in message]
    assert "of a library in C, \ufffd without an endTraceback (most recent call last):" in said
    assert said.count("ValueError: nobody caught it") == 1


def test_what_java_and_the_workers_of_a_job_print_is_json_too(
    tmp_path: Path, kafka: KafkaClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", os.environ.get("JAVA_TOOL_OPTIONS", "-Dtold=yes"))
    dlq, target = kafka.topic("dlq"), kafka.topic("target")
    job = ServedJob(tmp_path, kafka.bootstrap_servers)
    (tmp_path / "tells.py").write_text(TRANSFORM)
    (tmp_path / "orders.rul").write_text(
        f"DIALECT(KAFKA)\nACTION(FWD) FWDT('{target}') TRANSFORM(tell)\n"
    )
    (tmp_path / "redrive.toml").write_text(f"{job.settings(dlq)}{SETTINGS}")
    job.start(tmp_path / "redrive.toml")
    try:
        job.says('"event":"started"')
        kafka.produce(dlq, [connect(target, "it failed", value=b"x")])
        job.says("from a worker")
        eventually(lambda: '"result":"forwarded"' in job.log, "the batch is logged")
        job.stopped()
    finally:
        job.kill()
    lines = entries(job.log)
    printed = [line["message"] for line in lines if line.get("event") == "output"]
    assert any("JAVA_TOOL_OPTIONS" in message for message in printed), "Java"
    assert "from a worker" in printed
    assert lines[-1]["event"] == "stopped"
