"""A password is nowhere but in its file and in the processes that need it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kafka import KafkaAdminClient
from kafka.admin import NewTopic
from tests.conftest import PATIENCE, eventually, read_records, send_records
from tests.security.secure_broker import PASSWORD, SecureBroker
from tests.streaming.conftest import letter

from redrive.kafka.rights import Right
from redrive.operations.rights import rights_of
from redrive.settings import read_settings

SETTINGS = """[application]
name = "{name}"
directory = "job"
[kafka]
bootstrap_servers = "{servers}"
security_protocol = "SASL_SSL"
sasl_username = "{name}"
{password}
ssl_ca_file = "{authority}"
[[handlers]]
queue = "{name}.dlq"
rules = "table.rul"
[log]
format = "json"
level = "debug"
[ledger]
interval = 1.0
"""
TABLE = "RETRYINT(1)\nREASON(1) ACTION(DISCARD)\n"


def write_settings(
    folder: Path, secure: SecureBroker, name: str, password: str
) -> tuple[Path, tuple[Right, ...]]:
    """The settings of a job, and the rights that it needs."""
    (folder / "table.rul").write_text(TABLE)
    path = folder / "redrive.toml"
    authority, servers = secure.authority, secure.secure_servers
    path.write_text(
        SETTINGS.format(name=name, servers=servers, password=password, authority=authority)
    )
    needed = tuple(right for right in rights_of(read_settings(path).job) if right.is_needed)
    return path, needed


@contextmanager
def running(folder: Path, *arguments: str, **environment: str) -> Iterator[subprocess.Popen[bytes]]:
    """``redrive`` in a process group of its own; ends with the block."""
    with (folder / "output.log").open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "redrive", *arguments],
            cwd=folder,
            env={**os.environ, **environment},
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
        try:
            yield process
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(timeout=PATIENCE)


def command_lines(group: int) -> list[bytes]:
    """What everybody on the machine can see of the processes of a group."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            if os.getpgid(int(path.name)) == group:
                found.append((path / "cmdline").read_bytes())
        except (ProcessLookupError, FileNotFoundError):
            continue
    return found


def files_with_secret(folder: Path) -> list[Path]:
    """The files below a folder that hold the password, or what a JAAS file makes of it."""
    secrets = [PASSWORD.encode(), PASSWORD.replace("\\", "\\\\").replace('"', '\\"').encode()]
    return [
        path
        for path in folder.rglob("*")
        if path.is_file() and any(secret in path.read_bytes() for secret in secrets)
    ]


def test_a_password_is_in_no_log_file_ledger_topic_or_process_list(
    secure: SecureBroker, tmp_path: Path
) -> None:
    """The job works with it, and says everything that it says at level debug with --debug."""
    secret = tmp_path / "password"
    secret.write_text(PASSWORD + "\n")
    folder = tmp_path / "work"
    folder.mkdir()
    _, rights = write_settings(folder, secure, "keeper", f'sasl_password_file = "{secret}"')
    secure.add_user("keeper", rights)
    admin = KafkaAdminClient(bootstrap_servers=secure.open_servers)
    admin.create_topics([NewTopic("keeper.dlq", 1, 1)], wait_for_metadata=True)
    send_records(secure.open_servers, "keeper.dlq", [letter(1, "x"), letter(2, "x")])
    ledger = folder / "job" / "ledger"
    with running(folder, "--debug", "run", "-c", "redrive.toml") as process:
        log = folder / "output.log"
        eventually(
            lambda: process.poll() is not None or list(ledger.rglob("*.parquet")), "the ledger"
        )
        assert process.poll() is None, log.read_text()[-3000:]
        lines = command_lines(process.pid)
        assert len(lines) > 1
        assert not any(PASSWORD.encode() in line for line in lines)
        assert files_with_secret(folder) == []
    assert files_with_secret(folder) == []
    topics = [name for name in admin.list_topics() if name.startswith("redrive-keeper-")]
    records = read_records(secure.open_servers, *topics)
    assert records
    assert not any(PASSWORD.encode() in (one.value or b"") + (one.key or b"") for one in records)
    admin.close()


def test_a_password_that_is_wrong_is_not_shown_either(secure: SecureBroker, tmp_path: Path) -> None:
    """From an environment variable, with a stack trace, and the error says who is not let in."""
    (tmp_path / "table.rul").write_text(TABLE)
    (tmp_path / "redrive.toml").write_text(
        SETTINGS.format(
            name="stranger",
            servers=secure.secure_servers,
            password='sasl_password = "${REDRIVE_TEST_PASSWORD}"',  # noqa: S106 - a variable
            authority=secure.authority,
        )
    )
    arguments = ["--debug", "run", "-c", "redrive.toml"]
    with running(tmp_path, *arguments, REDRIVE_TEST_PASSWORD=PASSWORD) as process:
        assert process.wait(PATIENCE) == 1
    said = (tmp_path / "output.log").read_text()
    assert "does not let us in as stranger with SASL_SSL" in said
    assert "Traceback" in said
    assert files_with_secret(tmp_path) == []
