"""A handler, dead letters for it, and where they go."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any

from redrive.engine.attempts import Resolvers
from redrive.engine.facts import Facts
from redrive.engine.names import HandlerIdentity
from redrive.engine.put_decider import PutDecider
from redrive.engine.rules_decider import RulesDecider
from redrive.engine.slice import Slice, SliceSettings
from redrive.engine.sources import PartitionRecords, SourceKind
from redrive.messages import DeadLetterDecoder, Headers, OutputRecord, Records, TopicPartition
from redrive.rules import parse
from redrive.topology.put import Destination, Refusal

TABLE = """RETRYINT(5)
REASON(2053) ACTION(RETRY) RETRY(2)
REASON(2035) ACTION(FWD) FWDQ(SECURITY) HEADER(NO)
REASON(2085) ACTION(FWD) FWDQ(&REPLYQ)
REASON(2051) ACTION(DISCARD)
REASON(2052) ACTION(IGNORE)
"""

NOW = 90_000
"""Time of every attempt, in milliseconds."""
TOPICS = {
    SourceKind.DEAD_LETTERS: "DLQ",
    SourceKind.RETRIES: "RETRY",
    SourceKind.REMAINING: "REMAINING",
    SourceKind.REPLAYS: "REPLAY",
}

Resolve = Callable[[str, str], Destination | Refusal]


def resolve_anything(queue_manager: str, queue: str) -> Destination | Refusal:
    """A resolver for which every queue with a name exists."""
    if not queue:
        return Refusal(2085, "the queue name is blank")
    return Destination(topic=queue, queue=queue, queue_manager=queue_manager)


def handler_of(
    text: str = TABLE, resolve: Resolve = resolve_anything, hop_limit: int = 25, **more: Any
) -> RulesDecider:
    """A handler of the dead-letter queue DLQ."""
    table = parse(text).table
    assert table is not None
    return RulesDecider(
        identity_of("DLQ", name="dlq", queue="DLQ"),
        table,
        Resolvers(lambda manager, queue, _: resolve(manager, queue)),
        hop_limit=hop_limit,
        **more,
    )


def identity_of(topic: str, **more: str) -> HandlerIdentity:
    """Who decides about a topic, under its name if no other is given."""
    names = {"name": topic, "queue_manager": "", "queue": "", "topic": topic}
    topics = {"retry_topic": "RETRY", "remaining_topic": "REMAINING"}
    return HandlerIdentity(**names | topics | more)


def slice_of(
    records: Records,
    handler: RulesDecider | PutDecider,
    *,
    kind: SourceKind = SourceKind.DEAD_LETTERS,
    topic: str = "",
    partition: int = 3,
    now: int = NOW,
    decoder: DeadLetterDecoder | None = None,
    **more: Any,
) -> Slice:
    """One attempt on some records of a partition, of which nothing is known yet."""
    lane = TopicPartition(topic or TOPICS[kind], partition)
    part = PartitionRecords(lane, handler, kind, records, **more)
    settings = SliceSettings(outcomes_topic="OUT", now=now, tables_topic="TABLES")
    return Slice([part], decoder or DeadLetterDecoder(), Facts(lambda: 0.0), settings)


def dead_letter(reason: int, queue: str = "") -> Headers:
    return [("mqdlh.Reason", str(reason).encode()), ("mqdlh.DestQName", queue.encode())]


def record(value: bytes | None, headers: Headers, key: bytes | None = b"k") -> Records:
    return Records([key], [value], [headers], [77], [0])


def outcomes_in(outputs: Iterable[tuple[int, OutputRecord]]) -> list[dict[str, Any]]:
    """The result of each input."""
    return [json.loads(record.value or b"") for _, record in outputs if record.topic == "OUT"]


def written(outputs: list[tuple[int, OutputRecord]], topic: str) -> list[OutputRecord]:
    return [output for _, output in outputs if output.topic == topic]
