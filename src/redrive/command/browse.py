"""``redrive browse``: shows the messages of a queue or topic without removing them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import click

from redrive.command.opening import TopicSource
from redrive.command.options import choice_option, json_option, network_options
from redrive.command.output import print_json, print_lines, print_notes
from redrive.errors import UsageError
from redrive.kafka.cluster import without_leader
from redrive.masking import Mask
from redrive.messages import DeadLetterHeader, reason_name
from redrive.messages.dead_letters import DEAD_LETTER_FORMAT
from redrive.operations.browse import Browsed, BrowsedMessage, Start, browse_topic, topics_of_queue
from redrive.operations.browse import browse as browse_queue
from redrive.operations.depths import NO_DEPTH, retried
from redrive.operations.durations import clock
from redrive.operations.network import Network, open_cluster, queue_names, read_network
from redrive.operations.states import with_states
from redrive.operations.undelivered import sources_of_queue, undelivered
from redrive.printable import counted, plain_text
from redrive.settings import default_file, read_settings

_SHOWN_TEXT: Final = 400
"""Characters of a body that are shown."""
_SHOWN_BYTES: Final = 64
"""Bytes of a body that are shown in hexadecimal digits."""


@click.command()
@click.argument("queue_manager", metavar="QM|TOPIC")
@click.argument("queue", default="", metavar="[QUEUE]")
@network_options
@click.option(
    "--count", "--limit", "count", type=click.IntRange(min=1), default=10, show_default=True,
    metavar="N", help="How many messages to show at most.",
)  # fmt: skip
@choice_option(
    "--from",
    "start",
    values=Start,
    default=Start.WAITING,
    help_text="The first unread messages, the oldest ones that the topic keeps, or the last ones.",
)
@click.option("--all", "shows_all", is_flag=True, help="The same as --from earliest.")
@click.option(
    "--remaining", is_flag=True, help="Undeliverable messages from QUEUE, or from anywhere on QM."
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
    shows_all: bool,
    remaining: bool,
    as_json: bool,
) -> None:
    """Show the messages of a queue or topic, without removing them.

    \b
    redrive browse orders.dlq --bootstrap-server localhost:9092
    redrive browse QM1 ORDERS
    redrive browse QM1 DLQ --from latest --count 1 --json
    redrive browse QM1 --remaining

    A topic needs no definitions. With -c FILE, by default redrive.toml, it shows the messages that
    the job has not read yet, and knows the [schemes] of the settings.

    For a transmission queue it shows all topics. A message counts as read once the job has taken it
    from a transmission queue or a rules table has handled it, or the consumer group of the bindings
    has read it; a queue without a group keeps all messages of its topic. --all shows what was read
    too, as long as the topic has it. Waiting messages are shown in the order in which the queue
    delivers them: by priority and then by time; with MSGDLVSQ(FIFO), and from either end of the
    topic, by time alone. Messages that the receiving end of a channel retries are on the
    transmission queue, and those that a handler retries or could not place on its dead-letter
    queue.

    --remaining shows undeliverable messages: they were put to QM, or were on a transmission queue
    of it, and no queue accepted them, not even a dead-letter queue. The job keeps them and retries
    them when it starts with changed definitions, or by redrive queue release; redrive history ID
    shows the reason. Messages that a receiver still retries are not among them, but counted.

    Exit codes: 0 shown, also if there is nothing; 1 error, 2 usage.
    """  # noqa: D301 - \b keeps click from wrapping the examples
    start = Start.EARLIEST if shows_all else start
    if not (queue or files or remaining) and not _is_manager(queue_manager, config):
        topic, begin = queue_manager, Start(start)
        connection, schemes, mask, group, _ = TopicSource.of(config, bootstrap_server)
        with open_cluster(connection) as cluster:
            browsed = browse_topic(
                cluster, topic, start=begin, count=count, group=group, schemes=schemes
            )
        nothing = f"{topic} has no messages"
        if begin is Start.WAITING and not bootstrap_server:
            nothing += " that the job has not read; --from earliest shows all messages of the topic"
        _show(browsed, mask, nothing, as_json=as_json)
        return
    network = read_network(config, bootstrap_server, files)
    network.checked_manager(queue_manager)
    if remaining:
        _show_undelivered(network, queue_manager, queue, count, as_json=as_json)
        return
    if not queue:
        raise UsageError("no queue is named", hint="redrive browse QM QUEUE, or --remaining")
    if queue not in queue_names(network.topology, queue_manager):
        network = with_states(network)  # it may be a dynamic queue
    topics = topics_of_queue(network.topology, queue_manager, queue)
    browsed = browse_queue(network, topics, start=Start(start), count=count)
    names = ", ".join(queue_topic.topic for queue_topic in topics)
    unread = " unread" if start == Start.WAITING else ""
    nothing = f"{queue}@{queue_manager} has no{unread} messages (topic {names})"
    if unread:
        nothing += "; --all shows those that the topic still has"
    _show(browsed, network.mask, nothing, as_json=as_json)


def _is_manager(name: str, config: Path | None) -> bool:
    path = config or default_file()
    topology = read_settings(path).topology if config or path.exists() else None
    return topology is not None and name in topology.manager_names


def _show(browsed: Browsed, mask: Mask, nothing: str, *, as_json: bool) -> None:
    print_notes(without_leader(browsed.silent))
    messages = [message.masked(mask) for message in browsed.messages]
    if as_json:
        print_json([_as_json(message) for message in messages])
        return
    if not messages:
        click.echo(nothing)
    for message in messages:
        print_lines(_lines(message))


def _show_undelivered(
    network: Network, queue_manager: str, queue: str, count: int, *, as_json: bool
) -> None:
    sources = sources_of_queue(network.topology, queue_manager, queue)
    job = network.required_job()
    with network.cluster() as cluster:
        messages, silent = undelivered(job, cluster, sources)
        again = retried(cluster, network, sources)
    print_notes(without_leader(silent))
    for source in sources:
        if tried := again.get(source.topic, NO_DEPTH).messages:
            see = f"redrive browse {source.queue_manager} {source.queue}"
            click.echo(f"note: a receiver retries {tried} of {source.place}: {see}", err=True)
    shown = [
        (kept, BrowsedMessage.of(kept.record).masked(network.mask)) for kept in messages[:count]
    ]
    if as_json:
        print_json(
            [
                {"waits_on": kept.waits_on, "for": str(kept.names), **_as_json(message)}
                for kept, message in shown
            ]
        )
        return
    where = f"{queue}@{queue_manager}" if queue else queue_manager
    click.echo(f"{counted(len(messages), 'undeliverable message')} of {where}")
    for kept, message in shown:
        print_lines([f"waits on {kept.waits_on}, for {kept.names}:", *_lines(message)])


def _lines(message: BrowsedMessage) -> Iterator[str]:
    record = message.record
    key = f"  key {_text(record.key)}" if record.key is not None else ""
    yield f"{record.place}  {clock(message.time)}{key}"
    if message.is_retried:
        is_letter = message.dead_letter.is_dead_letter
        yield f"    {'the handler' if is_letter else 'the receiver'} retries it"
    if message.is_undeliverable:
        yield "    no queue accepted it, and the channel stopped"
    if message.is_remaining:
        yield "    it remains: no rule of the handler placed it"
    for name, value in record.headers:
        yield f"    {name}: {_text(value)}"
    profile = message.dead_letter
    if profile.header is not None:
        yield f"    dead letter ({profile.scheme}): {_summary(profile.header)}"
        if profile.view.error_class:
            yield f"    error: {profile.view.error_class}"
    elif any(value == DEAD_LETTER_FORMAT.encode() for _, value in record.headers):
        yield f"    no dead-letter header: {profile.problem}"
    yield f"    {_body(message.body)}"


def _as_json(message: BrowsedMessage) -> dict[str, Any]:
    record, profile = message.record, message.dead_letter
    header = profile.header
    return {
        "topic": record.lane.topic,
        "partition": record.lane.partition,
        "offset": record.offset,
        "time": clock(message.time),
        "is_retried": message.is_retried,
        "is_undeliverable": message.is_undeliverable,
        "is_remaining": message.is_remaining,
        **_in_json("key", record.key),
        "properties": [
            {"name": name, **_in_json("value", value)} for name, value in record.headers
        ],
        "dead_letter": None if header is None else {"scheme": profile.scheme, **header.fields()},
        **_in_json("body", message.body),
    }


def _text(data: bytes | None) -> str:
    if data is None:
        return "(null)"
    text = plain_text(data)
    return data.hex() + " (hexadecimal)" if text is None else text


def _body(data: bytes | None) -> str:
    if not data:
        return "no body" if data is None else "empty body"
    text = plain_text(data)
    shown, most = (data.hex(), 2 * _SHOWN_BYTES) if text is None else (text, _SHOWN_TEXT)
    form = ", hexadecimal" if text is None else ""
    cut = " ... (cut; --json shows all)" if len(shown) > most else ""
    lines = shown[:most].replace("\r\n", "\n").replace("\n", "\n    ")
    return f"body ({len(data)} bytes{form}): {lines}{cut}"


def _summary(header: DeadLetterHeader) -> str:
    why = f"{reason_name(header.reason)} ({header.reason})"
    to = f"{header.dest_q_name}@{header.dest_q_mgr_name}".removesuffix("@")
    by = f", by {header.put_appl_name}" if header.put_appl_name else ""
    when = f" at {header.put_date} {header.put_time}" if header.put_date else ""
    return f"{why}, was for {to}{by}{when}, format {header.format or 'blank'}"


def _in_json(name: str, data: bytes | None) -> dict[str, str | None]:
    if data is None:
        return {name: None}
    text = plain_text(data)
    return {f"{name}_hex": data.hex()} if text is None else {name: text}
