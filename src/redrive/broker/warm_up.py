"""Waiting until a fresh broker can serve consumer groups and transactions.

A broker answers on its port before the coordinators behind the internal topics are there. Until
then a client gets NOT_COORDINATOR, which librdkafka does not always retry, and the very first
transaction pays a second for the creation of the internal topic.
"""

from __future__ import annotations

import time

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

_NAME = "redrive-broker-warm-up"
_REQUEST_TIMEOUT = 10.0  # seconds
_PAUSE = 0.05  # seconds


def warm_up(bootstrap_servers: str, deadline: float) -> bool:
    """Ask for a transaction and for committed offsets until both are served.

    Args:
        bootstrap_servers: Where the broker answers.
        deadline: Point of ``time.monotonic()`` at which to give up.

    Returns:
        Whether both were served before the deadline.
    """
    while time.monotonic() < deadline:
        try:
            _begin_transactions(bootstrap_servers)
            _ask_offsets(bootstrap_servers)
        except KafkaException:
            time.sleep(_PAUSE)
        else:
            return True
    return False


def _begin_transactions(bootstrap_servers: str) -> None:
    producer = Producer(
        {"bootstrap.servers": bootstrap_servers, "transactional.id": _NAME, "log_level": 0}
    )
    producer.init_transactions(_REQUEST_TIMEOUT)


def _ask_offsets(bootstrap_servers: str) -> None:
    consumer = Consumer({"bootstrap.servers": bootstrap_servers, "group.id": _NAME, "log_level": 0})
    try:
        consumer.committed([TopicPartition(_NAME, 0)], timeout=_REQUEST_TIMEOUT)
    finally:
        consumer.close()
