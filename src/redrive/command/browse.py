"""``redrive browse``: the messages of a queue by MQ names, which stay where they are."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import click
import orjson
from confluent_kafka import Message

from redrive.command.network import (
    Network,
    json_option,
    network_options,
    queue_names,
    read_network,
    unknown,
)
from redrive.errors import EnvironmentFault, UsageError
from redrive.kafka.cluster import Cluster, Extent
from redrive.messages import (
    DeadLetterHeader,
    DeadLetterProfile,
    Headers,
    TopicPartition,
    decode_dead_letter,
    reason_name,
    remove_header,
)
from redrive.messages import own_headers as own
from redrive.messages.dead_letters import DEAD_LETTER_FORMAT
from redrive.operations.durations import clock
from redrive.topology.files import Topology
from redrive.topology.layout import QueueTopic, TopicRole, topics_of
from redrive.topology.mq.results import OpenRequest, PutMessage
from redrive.topology.mq.routes import RoutedMessage
from redrive.topology.trace import ResolutionTrace, trace_put

__all__ = ["browse"]

_ANSWER_TIMEOUT: Final = 10.0
"""Seconds to wait for one answer of the cluster."""
_READ_TIMEOUT: Final = 60.0
"""Seconds that reading may take."""
_SHOWN_TEXT: Final = 400
"""Characters of a body that are shown."""
_SHOWN_BYTES: Final = 64
"""Bytes of a body that are shown in hexadecimal digits."""
_WAITING: Final = "waiting"


@click.command()
@click.argument("queue_manager", metavar="QM")
@click.argument("queue", metavar="QUEUE")
@network_options
@click.option(
    "--count",
    type=click.IntRange(min=1),
    default=10,
    show_default=True,
    metavar="N",
    help="How many messages to show at most.",
)
@click.option(
    "--from",
    "start",
    type=click.Choice([_WAITING, "earliest", "latest"]),
    default=_WAITING,
    show_default=True,
    help="The first ones that were not read yet; the oldest that the topic keeps; or the last.",
)
@json_option
def browse(
    queue_manager: str,
    queue: str,
    config: Path | None,
    bootstrap_server: str,
    files: Sequence[str],
    *,
    count: int,
    start: str,
    as_json: bool,
) -> None:
    """Show the messages on QUEUE of queue manager QM; they stay there.

    \b
    redrive browse QM1 ORDERS
    redrive browse QM1 DLQ --from latest --count 1 --json

    Of a transmission queue all topics are shown. A message counts as read once the job has taken it
    from a transmission queue, or the consumer group that bindings name has read it; a queue without
    a group keeps all that its topic keeps.

    Exit codes: 0 shown, also if there is nothing; 1 error, 2 usage.
    """  # noqa: D301 - \b keeps click from wrapping the examples
    network = read_network(config, bootstrap_server, files)
    found = _topics(
        network.topology, queue=queue, queue_manager=network.checked_manager(queue_manager)
    )
    with Cluster.open(network.connection, timeout=_ANSWER_TIMEOUT) as cluster:
        view = _View(cluster, network, found)
        messages = view.messages(start, count)
    if as_json:
        click.echo(orjson.dumps([one.document() for one in messages], option=orjson.OPT_INDENT_2))
        return
    if not messages:
        topics = ", ".join(one.topic for one in found)
        unread = " that was not read yet" if start == _WAITING else ""
        click.echo(f"{queue}@{queue_manager} holds no message{unread} (topic {topics})")
    for one in messages:
        click.echo("\n".join(one.lines()))


def _topics(topology: Topology, *, queue: str, queue_manager: str) -> list[QueueTopic]:
    """The topics of a queue; of one that keeps no messages it is told where they are."""
    found = [
        one
        for one in topics_of(topology)
        if (one.queue_manager, one.queue) == (queue_manager, queue)
        and one.role is not TopicRole.PUTS
    ]
    if found:
        return found
    trace = trace_put(
        topology,
        queue_manager,
        OpenRequest(queue=queue),
        RoutedMessage(put=PutMessage(length=0)),
    )
    raise _keeps_none(topology, queue=queue, queue_manager=queue_manager, trace=trace)


def _keeps_none(
    topology: Topology, *, queue: str, queue_manager: str, trace: ResolutionTrace
) -> UsageError:
    known = queue_names(topology, queue_manager)
    steps = [step for visit in trace.visits for step in visit.steps]
    if queue not in known and not steps:
        return unknown(f"queue manager {queue_manager} has no queue {queue}", queue, known)
    by = steps[0].definition if steps else queue
    if not trace.is_good:
        why = trace.problem.detail if trace.problem else trace.end
        return UsageError(
            f"{by} of {queue_manager} keeps no messages, and puts to it do not succeed: {why}",
            hint=f"redrive resolve {queue_manager} {queue} shows the way",
        )
    name, _, manager = trace.final.rpartition("@")
    return UsageError(
        f"{by} of {queue_manager} keeps no messages: puts to it end on {trace.final}",
        hint=f"redrive browse {manager} {name}",
    )


@dataclass(frozen=True, slots=True)
class _Shown:
    """One message as it is shown."""

    lane: TopicPartition
    offset: int
    time: int
    """Milliseconds since the epoch."""
    key: bytes | None
    headers: Headers
    letter: DeadLetterProfile
    body: bytes | None
    """Without a binary dead-letter header."""

    @classmethod
    def of(cls, message: Message) -> _Shown:
        given: Any = message.headers() or []
        headers: Headers = [(name, _bytes(value)) for name, value in given]
        value: Any = message.value()
        letter = decode_dead_letter(value, headers)
        body, _ = remove_header(letter, value, headers)
        place: Any = message.topic(), message.partition(), message.offset()
        key: Any = message.key()
        return cls(
            TopicPartition(*place[:2]), place[2], message.timestamp()[1], key, headers, letter, body
        )

    @property
    def position(self) -> str:
        return own.identity(*self.lane, self.offset)

    @property
    def moment(self) -> datetime:
        return datetime.fromtimestamp(self.time / 1000, UTC)

    def lines(self) -> Iterator[str]:
        key = f"  key {_text(self.key)}" if self.key is not None else ""
        yield f"{self.position}  {clock(self.moment)}{key}"
        for name, value in self.headers:
            yield f"    {name}: {_text(value)}"
        if self.letter.header is not None:
            yield f"    dead letter ({self.letter.form}): {_told(self.letter.header)}"
        elif self._should_be_dead_letter():
            yield f"    no dead-letter header: {self.letter.problem}"
        yield f"    {_body(self.body)}"

    def _should_be_dead_letter(self) -> bool:
        return any(value == DEAD_LETTER_FORMAT.encode() for _, value in self.headers)

    def document(self) -> dict[str, Any]:
        header = self.letter.header
        return {
            "topic": self.lane.topic,
            "partition": self.lane.partition,
            "offset": self.offset,
            "time": clock(self.moment),
            **_in_json("key", self.key),
            "properties": [
                {"name": name, **_in_json("value", value)} for name, value in self.headers
            ],
            "dead_letter": None
            if header is None
            else {"form": self.letter.form.value, **header.fields()},
            **_in_json("body", self.body),
        }


class _View:
    """The messages of a queue's topics, read without leaving a trace."""

    def __init__(self, cluster: Cluster, network: Network, topics: Sequence[QueueTopic]) -> None:
        self._cluster = cluster
        self._network = network
        names = [one.topic for one in topics]
        missing = set(names) - set(cluster.partitions(names))
        if missing:
            raise EnvironmentFault(
                f"there is no topic {', '.join(sorted(missing))}",
                hint="redrive topology apply creates the topics of the queue managers",
            )
        self._topics = topics
        self._extents = cluster.extents(cluster.lanes(names))

    def messages(self, start: str, count: int) -> list[_Shown]:
        """At most ``count`` messages, by time; each partition in its own order."""
        if start == "latest":
            by_lane = [self._last(lane, extent, count) for lane, extent in self._extents.items()]
            merged = list(heapq.merge(*by_lane, key=lambda one: one.time))
            return merged[-count:]
        firsts = {lane: extent.first for lane, extent in self._extents.items()}
        if start == _WAITING:
            firsts |= self._unread()
        found: dict[TopicPartition, list[_Shown]] = {lane: [] for lane in firsts}
        for one in self._read(firsts, count):
            found[one.lane].append(one)
        return list(heapq.merge(*found.values(), key=lambda one: one.time))[:count]

    def _unread(self) -> Mapping[TopicPartition, int]:
        """Where those partitions go on that a consumer group reads."""
        firsts: dict[TopicPartition, int] = {}
        for one in self._topics:
            group = self._group(one)
            lanes = [lane for lane in self._extents if lane.topic == one.topic] if group else ()
            for lane, offset in self._cluster.committed(group or "", lanes).items():
                if offset is not None:
                    firsts[lane] = max(offset, self._extents[lane].first)
        return firsts

    def _group(self, one: QueueTopic) -> str | None:
        if one.role is TopicRole.TRANSMISSION:
            return self._network.job.application if self._network.job else None
        return self._network.topology.bindings.consumer_group(
            queue=one.queue, queue_manager=one.queue_manager
        )

    def _last(self, lane: TopicPartition, extent: Extent, count: int) -> list[_Shown]:
        """The last messages of one partition: offsets also count the ends of transactions."""
        window = 2 * count
        while True:
            first = max(extent.first, extent.end - window)
            found = list(self._read({lane: first}, window))
            if len(found) >= count or first == extent.first:
                return found[-count:]
            window *= 4

    def _read(self, firsts: Mapping[TopicPartition, int], most: int) -> Iterator[_Shown]:
        """At most so many messages of each partition from an offset on."""
        taken: Counter[str] = Counter()

        def is_enough(message: Message) -> bool:
            place = f"{message.topic()}:{message.partition()}"
            taken[place] += 1
            return taken[place] >= most

        starts = {lane: first for lane, first in firsts.items() if first < self._extents[lane].end}
        if starts:
            found = self._cluster.read(starts, seconds=_READ_TIMEOUT, until=is_enough)
            yield from map(_Shown.of, found)


def _bytes(value: str | bytes | None) -> bytes | None:
    return value.encode() if isinstance(value, str) else value


def _printable(data: bytes) -> str | None:
    """The text that bytes spell; None if a terminal should not see it."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return None
    return text if all(one.isprintable() or one in "\t\r\n" for one in text) else None


def _text(data: bytes | None) -> str:
    if data is None:
        return "(null)"
    text = _printable(data)
    return data.hex() + " (hexadecimal)" if text is None else text


def _body(data: bytes | None) -> str:
    """The body, cut where it gets long."""
    if not data:
        return "no body" if data is None else "empty body"
    text = _printable(data)
    shown, most = (data.hex(), 2 * _SHOWN_BYTES) if text is None else (text, _SHOWN_TEXT)
    form = ", hexadecimal" if text is None else ""
    cut = " ... (cut; --json shows all)" if len(shown) > most else ""
    lines = shown[:most].replace("\r\n", "\n").replace("\n", "\n    ")
    return f"body ({len(data)} bytes{form}): {lines}{cut}"


def _told(header: DeadLetterHeader) -> str:
    """A dead-letter header in one line: why, where to, and who wrote it when."""
    name = reason_name(header.reason)
    why = f"{name} ({header.reason})" if name else str(header.reason)
    to = f"{header.dest_q_name}@{header.dest_q_mgr_name}".removesuffix("@")
    by = f", by {header.put_appl_name}" if header.put_appl_name else ""
    when = f" at {header.put_date} {header.put_time}" if header.put_date else ""
    return f"{why}, was for {to}{by}{when}, format {header.format or 'blank'}"


def _in_json(name: str, data: bytes | None) -> dict[str, str | None]:
    if data is None:
        return {name: None}
    text = _printable(data)
    return {f"{name}_hex": data.hex()} if text is None else {name: text}
