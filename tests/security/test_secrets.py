"""A secret is nowhere but in its file and in the processes that need it."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from kafka import KafkaAdminClient
from kafka.admin import NewTopic
from tests.conftest import PATIENCE, eventually, read_records, send_records
from tests.security.secure_broker import CERTIFICATES, KEY_PASSWORD, PASSWORD, SecureBroker
from tests.security.token_server import CLIENT, SCOPE, SECRET
from tests.streaming.conftest import configuration_of, letter

from redrive.errors import ConfigurationError
from redrive.kafka.access import Right
from redrive.operations.rights import rights_of
from redrive.settings import read_settings
from redrive.streaming import session
from redrive.streaming.kafka_options import executor_options

SETTINGS = """[application]
name = "{name}"
directory = "job"
[kafka]
bootstrap_servers = "{servers}"
{sign_in}
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
WITH_PASSWORD = 'security_protocol = "SASL_SSL"\nsasl_username = "{name}"\n{password}'  # noqa: S105
WITH_KEY = f"""security_protocol = "SSL"
ssl_certificate_file = "{CERTIFICATES}/client.pem"
ssl_key_file = "{CERTIFICATES}/encrypted.key"
ssl_key_password_file = "{{file}}"
"""
WITH_TOKENS = f"""security_protocol = "SASL_SSL"
sasl_mechanism = "OAUTHBEARER"
oauth_endpoint = "{{endpoint}}"
oauth_client_id = "{CLIENT}"
oauth_client_secret_file = "{{file}}"
oauth_scope = "{SCOPE}"
"""
KEY = (CERTIFICATES / "encrypted.key").read_text().splitlines()[1]
IN_JAAS = PASSWORD.replace("\\", "\\\\").replace('"', '\\"')
SECRETS = [secret.encode() for secret in (PASSWORD, IN_JAAS, KEY_PASSWORD, KEY, SECRET)]
TABLE = "RETRYINT(1)\nREASON(1) ACTION(DISCARD)\n"


def write_settings(
    folder: Path, secure: SecureBroker, name: str, servers: str, sign_in: str
) -> tuple[Path, tuple[Right, ...]]:
    """The settings of a job, and the rights that it needs."""
    (folder / "table.rul").write_text(TABLE)
    path = folder / "redrive.toml"
    values = {"name": name, "servers": servers, "sign_in": sign_in}
    path.write_text(SETTINGS.format(authority=secure.authority, **values))
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
    files = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            if os.getpgid(int(path.name)) == group:
                files.append((path / "cmdline").read_bytes())
        except (ProcessLookupError, FileNotFoundError):
            continue
    return files


def files_with_secret(folder: Path) -> list[Path]:
    """The files below a folder that hold a secret."""
    return [
        path
        for path in folder.rglob("*")
        if path.is_file() and any(secret in path.read_bytes() for secret in SECRETS)
    ]


@pytest.mark.parametrize("name", ["keeper", "owner", "oauth"])
def test_a_secret_is_in_no_log_file_ledger_topic_or_process_list(
    secure: SecureBroker, tmp_path: Path, name: str
) -> None:
    secret = tmp_path / "password"
    password, servers = PASSWORD, secure.secure_servers
    sign_in = WITH_PASSWORD.format(name=name, password=f'sasl_password_file = "{secret}"')
    if name == "owner":
        password, servers = KEY_PASSWORD, secure.mutual_servers
        sign_in = WITH_KEY.format(file=secret)
    elif name == "oauth":
        password, servers = SECRET, secure.token_servers
        sign_in = WITH_TOKENS.format(file=secret, endpoint=secure.token_endpoint)
    secret.write_text(password + "\n")
    folder = tmp_path / "work"
    folder.mkdir()
    _, rights = write_settings(folder, secure, name, servers, sign_in)
    secure.add_user(name, rights)
    admin = KafkaAdminClient(bootstrap_servers=secure.open_servers)
    admin.create_topics([NewTopic(f"{name}.dlq", 1, 1)], wait_for_metadata=True)
    send_records(secure.open_servers, f"{name}.dlq", [letter(1, "x"), letter(2, "x")])
    ledger = folder / "job" / "ledger"
    with running(folder, "--debug", "run", "-c", "redrive.toml") as process:
        log = folder / "output.log"
        eventually(
            lambda: process.poll() is not None or list(ledger.rglob("*.parquet")), "the ledger"
        )
        assert process.poll() is None, log.read_text()[-3000:]
        lines = command_lines(process.pid)
        assert len(lines) > 1
        assert not any(secret in line for line in lines for secret in SECRETS)
        assert files_with_secret(folder) == []
    assert files_with_secret(folder) == []
    topics = [topic for topic in admin.list_topics() if topic.startswith(f"redrive-{name}-")]
    records = read_records(secure.open_servers, *topics)
    assert records
    held = [(record.value or b"") + (record.key or b"") for record in records]
    assert not any(secret in text for text in held for secret in SECRETS)
    admin.close()


def test_a_password_that_is_wrong_is_not_shown_either(secure: SecureBroker, tmp_path: Path) -> None:
    (tmp_path / "table.rul").write_text(TABLE)
    (tmp_path / "redrive.toml").write_text(
        SETTINGS.format(
            name="stranger",
            servers=secure.secure_servers,
            sign_in=WITH_PASSWORD.format(
                name="stranger",
                password='sasl_password = "${REDRIVE_TEST_PASSWORD}"',  # noqa: S106 - a variable
            ),
            authority=secure.authority,
        )
    )
    arguments = ["--debug", "run", "-c", "redrive.toml"]
    with running(tmp_path, *arguments, REDRIVE_TEST_PASSWORD=PASSWORD) as process:
        assert process.wait(PATIENCE) == 1
    said = (tmp_path / "output.log").read_text()
    assert "refuses the sign-in as stranger with SASL_SSL" in said
    assert "Traceback" in said
    assert files_with_secret(tmp_path) == []


def test_spark_hides_every_option_that_holds_a_secret(secure: SecureBroker) -> None:
    """By its name; Spark's UI, its logs and its plans then show none."""
    connections = [
        secure.connection("any"),
        secure.certified("client.pem", "encrypted.key", KEY_PASSWORD),
        secure.with_tokens(),
    ]
    for connection in connections:
        options = {name: value.encode() for name, value in connection.java().items()}
        secret = [
            name
            for name, value in options.items()
            if any(secret_value in value for secret_value in SECRETS)
        ]
        assert secret
        assert all(re.search(session._SETTINGS["spark.redaction.regex"], name) for name in secret)


@pytest.mark.parametrize("kind", ["password", "key", "tokens"])
def test_a_secret_goes_to_other_machines_only_encrypted(
    secure: SecureBroker, tmp_path: Path, kind: str
) -> None:
    connection = {
        "password": secure.connection("any"),
        "key": secure.certified("client.pem", "client.key"),
        "tokens": secure.with_tokens(),
    }[kind]
    job = configuration_of(
        tmp_path,
        connection.bootstrap_servers,
        {"any.dlq": TABLE},
        connection=connection,
        master="spark://127.0.0.1:1",
        spark_properties={"spark.executor.extraJavaOptions": "-Da=b"},
    )
    with pytest.raises(ConfigurationError, match="unencrypted") as caught:
        session.start_session(job)
    assert "spark.authenticate=true" in caught.value.hint
    options = executor_options(job).get("spark.executor.extraJavaOptions", "")
    assert (secure.token_endpoint in options and "-Da=b" in options) == (kind == "tokens")
