"""``redrive acls``: what it prints, and that the names in it are those that the job uses."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
from tests.commands import redrive

from redrive.checkpoints.epoch import RunIdentity
from redrive.checkpoints.instances import Share
from redrive.engine.names import control_topic, instances_group, outcomes_topic, tables_topic
from redrive.kafka.access import Resource, Right
from redrive.operations.rights import rights_of
from redrive.settings import read_settings

SETTINGS = """[application]
name = "my-shop"
[kafka]
bootstrap_servers = "kafka:9093"
security_protocol = "SASL_SSL"
sasl_username = "shop"
sasl_password_file = "password"
[[handlers]]
queue = "orders.dlq"
rules = "orders.rul"
"""
TABLE = "REASON(1) ACTION(RETRY)\nACTION(FWD) FWDQ('dead letters')\n"


@pytest.fixture(autouse=True)
def _folder(folder: Path) -> None:
    """A folder with settings, a password and a table."""
    Path("redrive.toml").write_text(SETTINGS)
    Path("password").write_text("hush")
    Path("orders.rul").write_text(TABLE)


acls = partial(redrive, "acls")


@pytest.mark.parametrize(
    ("target", "form", "prefix"),
    [
        ("orders", "{topic}.{group}.retry", "orders."),
        ("orders*", "{topic}.{group}.retry", "orders"),
        ("orders", "retry-{topic}-{group}", "retry-orders-"),
    ],
)
def test_topics_of_groups_are_made_and_written_to(target: str, form: str, prefix: str) -> None:
    """By what all of them begin with, if any rule has TO(GROUP)."""
    Path("redrive.toml").write_text(f'{SETTINGS}[retry]\ngroup_topic = "{form}"\n')
    assert b"creates the topics of groups" not in acls("--target", target, "--json").stdout_bytes
    Path("orders.rul").write_text("DIALECT(KAFKA)\nACTION(RETRY) TO(GROUP)\n")
    rights = rights_of(read_settings(Path("redrive.toml")).job, [target])
    name = form.format(topic="orders", group="billing")
    assert granted(rights, Resource.TOPIC, name, "Create")
    assert granted(rights, Resource.TOPIC, name, "Write")
    assert [right.name for right in rights if "topics of groups" in right.purpose][:1] == [prefix]


def test_the_names_are_those_that_the_job_uses() -> None:
    job = read_settings(Path("redrive.toml")).job
    rights = rights_of(job)
    identity = job.handlers[0].identity
    own = (
        control_topic(job.application),
        tables_topic(job.application),
        outcomes_topic(job.application),
        identity.retry_topic,
        identity.backoff_topic,
        identity.remaining_topic,
        identity.replay_topic,
    )
    for name in own:
        for operation in ("Create", "Read", "Write"):
            assert granted(rights, Resource.TOPIC, name, operation)
    emitter = RunIdentity(job.application, Share(1, 2), 1).new_transactional_id()
    writers = [f"{topic}-writer" for topic in own[:2]]
    for name in (emitter, *writers, f"{tables_topic(job.application)}-replay-0123456789ab"):
        assert granted(rights, Resource.TRANSACTIONAL_ID, name, "Write")
    for name in (job.application, job.connection.group, instances_group(job.application)):
        assert granted(rights, Resource.GROUP, name, "Read")


def granted(rights: tuple[Right, ...], resource: Resource, name: str, operation: str) -> bool:
    return any(
        (right.resource, right.operation) == (resource, operation)
        and (name.startswith(right.name) if right.is_prefix else name == right.name)
        for right in rights
    )
