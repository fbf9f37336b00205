"""Waiting until a fresh broker can serve consumer groups and transactions.

A broker answers on its port before the coordinators of the internal topics are ready. Until then a
client gets NOT_COORDINATOR, which librdkafka does not always retry, and the very first transaction
pays a second for the creation of the internal topic.
"""

from __future__ import annotations

import time
from contextlib import closing

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

_NAME = "redrive-broker-warm-up"
_REQUEST_TIMEOUT = 10.0  # seconds
_PAUSE = 0.05  # seconds


def warm_up(bootstrap_servers: str, deadline: float) -> bool:
    """Ask for a transaction and for committed offsets until both are served.

    Returns:
        Whether both were served before the deadline, a point of ``time.monotonic()``.
    """
    client = {"bootstrap.servers": bootstrap_servers, "log_level": 0}
    while time.monotonic() < deadline:
        try:
            Producer({**client, "transactional.id": _NAME}).init_transactions(_REQUEST_TIMEOUT)
            with closing(Consumer({**client, "group.id": _NAME})) as consumer:
                consumer.committed([TopicPartition(_NAME, 0)], timeout=_REQUEST_TIMEOUT)
        except KafkaException:
            time.sleep(_PAUSE)
        else:
            return True
    return False
