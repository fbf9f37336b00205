"""A broker that requires client certificates lets in who has the right one, and nobody else."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from benchmarks.clients import create
from confluent_kafka.admin import AdminClient
from kafka import KafkaAdminClient
from kafka.admin import NewTopic
from kafka.errors import KafkaError
from pyspark.sql import SparkSession
from tests.conftest import PATIENCE, eventually
from tests.security.conftest import assert_every_client_is_let_in
from tests.security.loaded_job import loaded_job
from tests.security.secure_broker import (
    CERTIFICATES,
    KEY_PASSWORD,
    SecureBroker,
    secure_broker,
)

from redrive.engine.names import instances_group
from redrive.errors import EnvironmentFault, TransientFault
from redrive.kafka.access import check_access
from redrive.kafka.cluster import Cluster
from redrive.kafka.heartbeat import Heartbeat

RIGHT = [("client.pem", "client.key", ""), ("client.pem", "encrypted.key", KEY_PASSWORD)]
WRONG = [
    ("stranger.pem", "stranger.key", "refuses the client certificate in .*stranger.pem"),
    ("expired.pem", "client.key", "refuses the client certificate in .*expired.pem"),
    ("", "", "requires a client certificate"),
]


@pytest.mark.parametrize("given", RIGHT)
def test_the_right_certificate_is_let_in(
    secure: SecureBroker, given: tuple[str, str, str], spark: SparkSession
) -> None:
    connection = secure.certified(*given)
    assert_every_client_is_let_in(connection, spark)


@pytest.mark.parametrize(("certificate", "key", "said"), WRONG)
def test_without_the_right_certificate_nobody_is_let_in(
    secure: SecureBroker, certificate: str, key: str, said: str
) -> None:
    connection = secure.certified(certificate, key)
    with pytest.raises(EnvironmentFault, match=said) as caught:
        check_access(connection)
    assert "ssl_certificate_file" in caught.value.hint
    with pytest.raises((KafkaError, OSError)):
        KafkaAdminClient(**connection.kafka_python(), bootstrap_timeout_ms=3000).list_topics()


def test_a_certificate_that_is_renewed_on_disk_is_used_without_a_restart(
    secure: SecureBroker, tmp_path: Path
) -> None:
    create(secure.open_servers, NewTopic("renewed", 1, 1))
    certificate = tmp_path / "certificate.pem"
    certificate.write_bytes((CERTIFICATES / "expired.pem").read_bytes())
    given = secure.certified("expired.pem", "client.key")
    connection = replace(given, ssl_certificate_file=str(certificate))
    chain = connection.java()["ssl.keystore.certificate.chain"]
    cluster = Cluster(connection, timeout=2)
    heartbeat = Heartbeat(connection, "renewed", "member", "renewed")
    with pytest.raises(TransientFault):
        cluster.topics()
    certificate.write_bytes((CERTIFICATES / "client.pem").read_bytes())
    assert isinstance(cluster.topics(), dict)
    assert connection.java()["ssl.keystore.certificate.chain"] != chain
    admin = AdminClient({"bootstrap.servers": secure.open_servers})
    group = instances_group("renewed")
    eventually(
        lambda: admin.describe_consumer_groups([group])[group].result(PATIENCE).members,
        "the heartbeat's member is there",
    )
    heartbeat.end()
    cluster.close()


def test_a_certificate_that_is_renewed_under_load_costs_no_restart_and_no_message(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "work"
    folder.mkdir()

    def issue(name: str) -> None:
        for end in ("pem", "key"):
            shutil.copy(CERTIFICATES / f"{name}.{end}", folder / f"own.{end}")

    issue("client")
    sign_in = (
        'security_protocol = "SSL"\nssl_certificate_file = "own.pem"\nssl_key_file = "own.key"'
    )
    with (
        secure_broker(tmp_path / "secure") as secure,
        loaded_job(secure, folder, secure.mutual_servers, sign_in) as job,
    ):
        issue("stranger")
        shutil.copy(CERTIFICATES / "stranger.pem", secure.trusted)
        job.send(200)
        secure.broker.stop()
        secure.start()
        job.send_for(5)
        job.handles_all("the job goes on")
        certified = secure.certified("client.pem", "client.key")
        with pytest.raises(EnvironmentFault, match="refuses the client certificate"):
            check_access(certified)
