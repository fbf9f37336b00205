"""A handler, dead letters for it, and where they go."""

from __future__ import annotations

from collections.abc import Callable

from redrive.engine.names import HandlerIdentity
from redrive.engine.rules_decider import RulesDecider
from redrive.messages import Headers, OutputRecord, Records
from redrive.rules import parse
from redrive.topology.put import Destination, Refusal

TABLE = """RETRYINT(5)
REASON(2053) ACTION(RETRY) RETRY(2)
REASON(2035) ACTION(FWD) FWDQ(SECURITY) HEADER(NO)
REASON(2085) ACTION(FWD) FWDQ(&REPLYQ)
REASON(2051) ACTION(DISCARD)
REASON(2052) ACTION(IGNORE)
"""

Resolve = Callable[[str, str], Destination | Refusal]


def resolve_anything(queue_manager: str, queue: str) -> Destination | Refusal:
    """A resolver for which every queue with a name exists."""
    if not queue:
        return Refusal(2085, "the queue name is blank")
    return Destination(topic=queue, queue=queue, queue_manager=queue_manager)


def handler_of(
    text: str = TABLE, resolve: Resolve = resolve_anything, hop_limit: int = 25
) -> RulesDecider:
    """A handler of the dead-letter queue DLQ."""
    table = parse(text).table
    assert table is not None
    identity = HandlerIdentity(
        name="dlq", queue_manager="", queue="DLQ", topic="DLQ",
        retry_topic="RETRY", remaining_topic="REMAINING",
    )  # fmt: skip
    return RulesDecider(
        identity, table, lambda manager, queue, _: resolve(manager, queue), hop_limit=hop_limit
    )


def dead_letter(reason: int, queue: str = "") -> Headers:
    """The dead-letter header in header form."""
    return [("mqdlh.Reason", str(reason).encode()), ("mqdlh.DestQName", queue.encode())]


def record(value: bytes | None, headers: Headers, key: bytes | None = b"k") -> Records:
    """One record."""
    return Records([key], [value], [headers], [77], [0])


def written(outputs: list[tuple[int, OutputRecord]], topic: str) -> list[OutputRecord]:
    """The records for one topic."""
    return [output for _, output in outputs if output.topic == topic]
