"""``redrive topology``: shows a topology as tables or a graph, and creates its topics."""

from __future__ import annotations

import dataclasses
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple, Self

import click
from rich.text import Text

from redrive.command.options import (
    FILE,
    network_options,
    number_option,
    repeated_option,
    table_options,
    topology_option,
    yes_option,
)
from redrive.command.output import ask, print_json, print_notes, print_table
from redrive.errors import EnvironmentFault, TransientFault, UsageError
from redrive.operations.depths import NO_DEPTH, Depth, depths_of
from redrive.operations.network import Network, read_definitions, read_network
from redrive.operations.states import with_states
from redrive.operations.topics import PlannedTopic, TopicCreation, TopicPlan, TopicState
from redrive.printable import counted
from redrive.topology.overview import DEFAULT_QUEUES, Overview, QueueOverview, dot, overview_of

_STYLES: Final = {
    TopicState.MISSING: "green",
    TopicState.DIFFERS: "yellow",
    TopicState.UNKNOWN: "yellow",
}
_MOST_MANAGERS: Final = 50
"""Maximum queue managers to list; more are counted."""
_MOST_QUEUES: Final = 500
_MOST_NAMES: Final = 10


@click.group()
def topology() -> None:
    """Show and draw queue managers; create their topics.

    \b
    redrive topology show --topology definitions
    redrive topology draw --topology QM1.mqsc --topology QM2.mqsc --output network.dot
    """  # noqa: D301 - \b keeps click from wrapping the examples


_queue_managers = repeated_option(
    "--queue-manager",
    "queue_managers",
    metavar="NAME",
    help_text="Only this one; * and ? match any characters.",
)


@topology.command()
@network_options
@_queue_managers
@table_options
def show(
    config: Path | None,
    bootstrap_server: str,
    files: Sequence[str],
    queue_managers: Sequence[str],
    *,
    as_json: bool,
) -> None:
    """Show queue managers, queues, channels and clusters.

    \b
    redrive topology show --topology QM1.mqsc --topology network.yaml
    redrive topology show --topology definitions --queue-manager 'SHOP*'
    redrive topology show -c redrive.toml

    With a broker, that of the settings or --bootstrap-server, it counts the messages on each queue
    that its consumer group has not read yet; of a queue without a group, all that its topic keeps.
    Messages that the receiving end of a channel retries count on the transmission queue.
    For a large topology it shows totals only; --queue-manager selects a part.
    """  # noqa: D301 - \b keeps click from wrapping the examples
    if files and not bootstrap_server and config is None:
        view = TopologyView(part_of(overview_of(read_definitions(files)), queue_managers))
    else:
        network = read_network(config, bootstrap_server, files)
        view = TopologyView.of(network, queue_managers)
    print_notes(view.notes)
    if as_json:
        print_json(view.document())
    else:
        _print_sections(view.overview, view.depths)


class TopologyView(NamedTuple):
    """Queue managers, and the messages that wait on their queues."""

    overview: Overview
    depths: Mapping[str, Depth] | None = None
    """The waiting messages of each topic; None if they were not counted."""
    notes: Sequence[str] = ()
    """Why they were not counted."""

    @classmethod
    def of(cls, network: Network, queue_managers: Sequence[str]) -> Self:
        """The queue managers of a network, as operators have changed them.

        Names may have ``*`` and ``?``; empty for all managers. The broker need not answer. A name
        that fits no manager is a ``UsageError``.
        """
        try:
            topology, depths = with_states(network).topology, depths_of(network)
        except (EnvironmentFault, TransientFault) as fault:
            notes = [f"messages were not counted: {fault.message}"]
            return cls(part_of(overview_of(network.topology), queue_managers), notes=notes)
        return cls(part_of(overview_of(topology), queue_managers), depths)

    def document(self) -> dict[str, Any]:
        """What ``redrive topology show --json`` prints."""
        depths = {
            topic: {"messages": depth.messages, "is_exact": depth.is_exact}
            for topic, depth in (self.depths or {}).items()
        }
        return {**dataclasses.asdict(self.overview), "depths": depths}


@topology.command()
@topology_option
@_queue_managers
@number_option(
    "--queues",
    "Maximum queues to list for a queue manager; the others are counted.",
    default=DEFAULT_QUEUES,
    least=0,
)
@click.option(
    "--output",
    type=FILE,
    metavar="FILE",
    help="Where to write the graph. Default: standard output.",
)
def draw(
    files: Sequence[str], queue_managers: Sequence[str], *, queues: int, output: Path | None
) -> None:
    """Write queue managers with their queues and channels as a graph in DOT.

    \b
    redrive topology draw --topology definitions | dot -Tsvg > network.svg

    dot is a program of Graphviz (graphviz.org); many editors and web pages show DOT too.
    """  # noqa: D301 - \b keeps click from wrapping the examples
    overview = part_of(overview_of(read_definitions(files)), queue_managers)
    graph = dot(overview, queues=queues)
    if output is None:
        click.echo(graph, nl=False)
        return
    try:
        output.write_text(graph, encoding="utf-8")
    except OSError as error:
        raise UsageError(
            f"{output} cannot be written: {error.strerror}", hint="name a writable file"
        ) from error


def part_of(whole: Overview, queue_managers: Sequence[str]) -> Overview:
    """The queue managers of some names, all without a name; raises ``UsageError`` if none match."""
    part = whole.of(queue_managers)
    if not part.queue_managers:
        first = ", ".join(manager.name for manager in whole.queue_managers[:10])
        problem = f"the topology has no queue manager {' or '.join(queue_managers)}".rstrip()
        raise UsageError(problem, hint=f"it has {first or 'none at all'}")
    return part


def _print_sections(overview: Overview, depths: Mapping[str, Depth] | None) -> None:
    managers = overview.queue_managers
    queues = [(manager.name, queue) for manager in managers for queue in manager.queues]
    channels = [
        (manager.name, connection) for manager in managers for connection in manager.connections
    ]
    totals = (counted(len(managers), "queue manager"), counted(len(queues), "queue"))
    click.echo(f"{', '.join(totals)}, {len(channels)} channels and connections")
    if len(managers) > _MOST_MANAGERS:
        kinds = [
            *(f"queue managers, {manager.kind}" for manager in managers),
            *(queue.kind for _, queue in queues),
            *(channel.kind for _, channel in channels),
        ]
        in_all = [{"KIND": kind, "NUMBER": str(count)} for kind, count in Counter(kinds).items()]
        _print_section("in all", in_all)
    else:
        rows = [
            {
                "NAME": manager.name,
                "KIND": manager.kind,
                "DEAD-LETTER QUEUE": manager.dead_letter_queue,
                "DEFAULT TRANSMISSION QUEUE": manager.default_transmission_queue,
                "CLUSTERS": ", ".join(manager.clusters),
                "QUEUES": ", ".join(
                    f"{count} {kind}" for kind, count in manager.queues_by_kind.items()
                ),
            }
            for manager in managers
        ]
        _print_section("queue managers", rows)
    if len(managers) <= _MOST_MANAGERS and len(queues) <= _MOST_QUEUES:
        _print_section("queues", [_queue_row(*pair, depths) for pair in queues])
        rows = [
            {
                "QUEUE MANAGER": manager,
                "NAME": connection.name,
                "KIND": connection.kind,
                "LEADS TO": connection.queue_manager,
                "TRANSMISSION QUEUE": connection.transmission_queue,
                "ADDRESS": connection.address,
                "CLUSTER": ", ".join(connection.clusters),
            }
            for manager, connection in channels
        ]
        _print_section("channels and connections", rows)
        for manager, connection in channels:
            if connection.state:
                click.echo(
                    f"{connection.name} of {manager} is {connection.state}: {connection.because}"
                )
    rows = [
        {
            "NAME": cluster.name,
            "QUEUE MANAGERS": _some(cluster.queue_managers),
            "QUEUES": _some(cluster.queues),
        }
        for cluster in overview.clusters
    ]
    _print_section("clusters", rows)
    if len(managers) > _MOST_MANAGERS or len(queues) > _MOST_QUEUES:
        click.echo("\n--queue-manager NAME selects a part, --json shows everything.")


def _print_section(title: str, rows: Sequence[Mapping[str, object]]) -> None:
    if rows:
        click.echo(f"\n{title}")
        print_table(rows)


def _queue_row(
    manager: str, queue: QueueOverview, depths: Mapping[str, Depth] | None
) -> Mapping[str, object]:
    waiting = [depths[topic] for topic in queue.topics if topic in depths] if depths else []
    messages = str(sum(waiting, NO_DEPTH)) if waiting else ""
    limits = (queue.maximum_messages, queue.maximum_length)
    most, longest = ("" if limit is None else str(limit) for limit in limits)
    return {
        "QUEUE MANAGER": manager,
        "NAME": queue.name,
        "KIND": queue.kind,
        "LEADS TO": ", ".join(map(str, queue.targets)),
        **({} if depths is None else {"MESSAGES": messages}),
        "MAX MESSAGES": most,
        "MAX BYTES": longest,
        "PUT": "" if queue.put_enabled else "disabled",
        "TOPIC": ", ".join(queue.topics),
    }


def _some(names: Sequence[str]) -> str:
    more = [f"... and {len(names) - _MOST_NAMES} more"] if len(names) > _MOST_NAMES else []
    return ", ".join([*names[:_MOST_NAMES], *more])


@topology.command()
@network_options
@number_option(
    "--partitions",
    "Of a new topic. One keeps the order of a queue, more keep it only for equal keys.",
    default=1,
    most=10_000,
)
@number_option(
    "--replication-factor",
    "Of a new topic; by default as the brokers are configured.",
    most=1000,
)
@click.option("--dry-run", is_flag=True, help="Print the topic plan only.")
@yes_option
@table_options
def apply(
    config: Path | None,
    bootstrap_server: str,
    files: Sequence[str],
    *,
    partitions: int,
    replication_factor: int | None,
    dry_run: bool,
    yes: bool,
    as_json: bool,
) -> None:
    """Create the topics of queues, transmission queues and intakes that are missing.

    \b
    redrive topology apply -c redrive.toml
    redrive topology apply --bootstrap-server localhost:9092 --topology definitions --yes

    The topic plan is shown first. Nothing is ever changed or deleted: settings
    that differ, and topics of queues that the definitions no longer have, are listed.

    Exit codes: 0 every topic exists (with --dry-run: the plan can be carried out), 1 error or not
    created, 2 usage.
    """  # noqa: D301 - \b keeps click from wrapping the examples
    network = read_network(config, bootstrap_server, files)
    creation = TopicCreation.planned(
        network, partitions=partitions, replication_factor=replication_factor
    )
    plan = creation.plan
    count = 0 if dry_run else len(plan.missing)
    if not as_json:
        _show(plan)
        if network.job is not None:
            from redrive.streaming.topics import count_own_partitions  # noqa: PLC0415 - slow to import

            partitions_of = {topic.topic: topic.partitions for topic in plan.topics}
            own = counted(count_own_partitions(network.job, partitions_of), "partition")
            click.echo(f"the job's own topics, which it makes itself, take {own}")
    if count and not yes:
        _ask(count)
    if count:
        creation.execute(
            lambda done: click.echo(f"{done} of {counted(count, 'topic')} created", err=True)
        )
    if as_json:
        created = [planned.topic for planned in plan.missing[:count]]
        topics = [dataclasses.asdict(topic) for topic in plan.topics]
        print_json({"topics": topics, "created": created})
    elif count:
        click.echo(f"created {counted(count, 'topic')}")


def _ask(count: int) -> None:
    if not sys.stdin.isatty():
        raise UsageError(
            f"{counted(count, 'topic')} not created: without a terminal this needs --yes",
            hint="--yes creates them without asking, --dry-run only shows the plan",
        )
    ask(f"Create {counted(count, 'topic')}?", yes=False)


def _show(plan: TopicPlan) -> None:
    rows = [
        {
            "topic": topic.topic,
            "state": Text(
                "to create" if topic.state is TopicState.MISSING else str(topic.state),
                style=_STYLES.get(topic.state, ""),
            ),
            "for": topic.purpose,
            "partitions": topic.partitions,
            "note": "; ".join(_topic_notes(topic)),
        }
        for topic in plan.topics
    ]
    print_table(rows)
    if not plan.missing:
        click.echo("nothing to do")


def _topic_notes(topic: PlannedTopic) -> Iterator[str]:
    match topic.state:
        case TopicState.MISSING:
            yield from (f"{name}={value}" for name, value in topic.settings.items())
        case TopicState.DIFFERS:
            yield from topic.differences
        case TopicState.UNKNOWN:
            yield "not in the definitions; kept"
