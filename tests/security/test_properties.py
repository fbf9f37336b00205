"""What [kafka.properties] may hold is taken by all clients."""

from __future__ import annotations

from dataclasses import replace

import pytest
from confluent_kafka import Producer
from kafka import KafkaConsumer
from pyspark.sql import SparkSession
from tests.security.secure_broker import SecureBroker

from redrive.kafka.access import check_access
from redrive.kafka.connection import PROPERTIES, Connection
from redrive.streaming.kafka_options import kafka_options


@pytest.mark.parametrize("which", [0, -1])
def test_every_client_takes_every_property(
    secure: SecureBroker, spark: SparkSession, which: int
) -> None:
    properties = {
        name: property_.choices[which]
        if property_.choices
        else str(property_.minimum or "anything")
        for name, property_ in PROPERTIES.items()
    }
    connection = replace(secure.certified("client.pem", "client.key"), properties=properties)
    check_access(connection)
    Producer({**connection.librdkafka(), "log_level": 2}).list_topics(timeout=60)
    consumer = KafkaConsumer(**connection.kafka_python())
    assert isinstance(consumer.topics(), set)
    consumer.close()
    options = {**kafka_options(spark, connection), "subscribePattern": ".*"}
    assert spark.read.format("kafka").options(**options).load().count() >= 0


def test_java_has_the_properties_of_these_names(spark: SparkSession) -> None:
    gateway = spark.sparkContext._gateway
    assert gateway is not None
    known = gateway.jvm.org.apache.kafka.clients.consumer.ConsumerConfig.configNames()
    given = Connection(bootstrap_servers="a:1", properties=dict.fromkeys(PROPERTIES, "none")).java()
    assert [name for name in given if name not in known] == []
