"""Quix Streams with exactly-once processing. Arguments: broker, name, source, rules, folder."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from benchmarks.peers.matching import Router
from quixstreams import Application
from quixstreams.context import message_context


def main() -> None:
    """Routes until the process is stopped."""
    servers, name, source, rules, folder = sys.argv[1:]
    router = Router(Path(rules))
    application = Application(
        broker_address=servers,
        consumer_group=name,
        processing_guarantee="exactly-once",
        auto_offset_reset="earliest",
        commit_every=10_000,
        commit_interval=1.0,
        state_dir=folder,
        loglevel="WARNING",
        producer_extra_config={"linger.ms": 20, "compression.type": "lz4", "batch.size": 524_288},
    )
    plain = {"key_serializer": "bytes", "value_serializer": "bytes"}
    targets = {target: application.topic(target, **plain) for target in router.targets}
    read = application.topic(source, key_deserializer="bytes", value_deserializer="bytes")

    def headers_of(value: bytes, _key: Any, _time: int, headers: Any) -> Any:  # noqa: ANN401
        place = message_context()
        return router.forwarded((source, place.partition, place.offset), value, headers)[1]

    def target_of(value: bytes, _key: Any, _time: int, headers: Any) -> Any:  # noqa: ANN401
        return targets[router.route(value, headers).target]

    application.dataframe(read).set_headers(headers_of).to_topic(target_of)
    application.run()


if __name__ == "__main__":
    main()
