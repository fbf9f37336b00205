"""``redrive topology apply``: create the topics that queue managers need, plan first."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import click
import orjson
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # public, not in the stub's list
    AdminClient,
    ConfigResource,
    NewTopic,
    ResourceType,
)
from rich.text import Text

from redrive.command.network import json_option, network_options, read_network
from redrive.command.preflight import check_broker
from redrive.command.status import console, table
from redrive.errors import ConfigurationError, EnvironmentFault, UsageError
from redrive.kafka.connection import Connection
from redrive.topology.layout import topics_of
from redrive.topology.plan import FoundTopic, PlannedTopic, TopicPlan, TopicState, plan_topics

__all__ = ["apply"]

_ANSWER_TIMEOUT: Final = 30.0
"""Seconds to wait for one answer of the cluster."""
_PARTITIONS_AT_ONCE: Final = 1_000
"""Partitions that one request asks for."""
_LOOK: Final = 0.1
"""Seconds between two looks whether new topics can be seen."""
_STYLES: Final = {
    TopicState.MISSING: "green",
    TopicState.DIFFERS: "yellow",
    TopicState.UNKNOWN: "yellow",
}


@click.command()
@network_options
@click.option(
    "--partitions",
    type=click.IntRange(1, 10_000),
    default=1,
    show_default=True,
    metavar="N",
    help="Of a new topic. One keeps the order of a queue; more keep it for equal keys only.",
)
@click.option(
    "--replication-factor",
    type=click.IntRange(1, 1000),
    metavar="N",
    help="Of a new topic; by default as the brokers are configured.",
)
@click.option("--dry-run", is_flag=True, help="Print the plan and create nothing.")
@click.option("--yes", is_flag=True, help="Create the topics without asking.")
@json_option
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

    The plan is shown first. What exists is never changed, and nothing is ever deleted: settings
    that differ, and topics of queues that the definitions no longer have, are listed.

    Exit codes: 0 every topic is there (with --dry-run: the plan can be carried out), 1 error or not
    created, 2 usage.
    """  # noqa: D301 - \b keeps click from wrapping the examples
    network = read_network(config, bootstrap_server, files)
    check_broker(network.connection)
    cluster = _Topics(network.connection)
    names = [one.topic for one in topics_of(network.topology)]
    plan = plan_topics(network.topology, cluster.found(names), partitions=partitions)
    if plan.problems:
        raise ConfigurationError(
            "nothing is created: queues are bound to topics that do not exist",
            hint="put every error right and apply again",
            diagnostics=plan.problems,
        )
    new = [_new_topic(one, replication_factor) for one in plan.missing]
    cluster.create(new, validate_only=True)
    if not as_json:
        _show(plan)
    if new and not dry_run:
        _ask(len(new), yes=yes)
        cluster.create(new)
    if as_json:
        created = [] if dry_run else [one.topic for one in plan.missing]
        click.echo(orjson.dumps(_document(plan, created), option=orjson.OPT_INDENT_2))
    elif new and not dry_run:
        click.echo(f"created {_counted(len(new))}")


def _ask(count: int, *, yes: bool) -> None:
    if yes:
        return
    if not sys.stdin.isatty():
        raise UsageError(
            f"nothing is created: nobody can be asked whether to create {_counted(count)}",
            hint="--yes creates them without asking, --dry-run only shows the plan",
        )
    click.confirm(f"Create {_counted(count)}?", abort=True, err=True)


def _counted(count: int) -> str:
    return f"{count} topic{'s' * (count != 1)}"


class _Topics:
    """The topics of one cluster: looks at them and creates some."""

    def __init__(self, connection: Connection) -> None:
        self._servers = connection.bootstrap_servers
        self._admin = AdminClient({**connection.librdkafka(), "log_level": 2})

    def found(self, wanted: Iterable[str]) -> dict[str, FoundTopic]:
        """Every topic that exists; those that are wanted with their settings."""
        try:
            known = self._admin.list_topics(timeout=_ANSWER_TIMEOUT).topics
            settings = self._settings([name for name in wanted if name in known])
        except KafkaException as exception:
            raise self._fault("can't tell its topics", exception.args[0]) from exception
        return {
            name: FoundTopic(len(topic.partitions), settings.get(name, {}))
            for name, topic in known.items()
        }

    def _settings(self, names: Sequence[str]) -> dict[str, Mapping[str, str]]:
        if not names:
            return {}
        asked = [ConfigResource(ResourceType.TOPIC, name) for name in names]
        answers = self._admin.describe_configs(asked, request_timeout=_ANSWER_TIMEOUT)
        return {
            resource.name: {name: str(entry.value) for name, entry in answer.result().items()}
            for resource, answer in answers.items()
        }

    def create(self, topics: Sequence[NewTopic], *, validate_only: bool = False) -> None:
        """Create topics, or see whether the cluster would.

        Raises:
            EnvironmentFault: It refuses one; which were created is told.
        """
        done = 0
        for part in _parts(topics):
            refused = self._create_part(part, validate_only=validate_only)
            for name, error in refused.items():
                created = 0 if validate_only else done + len(part) - len(refused)
                raise self._fault(f"does not create topic {name} ({created} were created)", error)
            done += len(part)
            if not validate_only and len(part) < len(topics):
                click.echo(f"{done} of {len(topics)} topics created", err=True)

    def _create_part(
        self, topics: Sequence[NewTopic], *, validate_only: bool
    ) -> dict[str, KafkaError]:
        """The topics that the cluster refuses, with its reasons."""
        answers = self._admin.create_topics(
            list(topics), request_timeout=_ANSWER_TIMEOUT, validate_only=validate_only
        )
        errors = {name: _error_of(answer) for name, answer in answers.items()}
        if not validate_only:
            self._await({name for name, error in errors.items() if error is None})
        return {
            name: error
            for name, error in errors.items()
            # Somebody else may have been quicker.
            if error is not None and error.code() != KafkaError.TOPIC_ALREADY_EXISTS
        }

    def _await(self, names: set[str]) -> None:
        """Wait until the broker that is asked knows the topics, for a while.

        They were acknowledged, which is what counts; this spares the next command an error.
        """
        deadline = time.monotonic() + _ANSWER_TIMEOUT
        with contextlib.suppress(KafkaException):
            while not names <= set(self._admin.list_topics(timeout=_ANSWER_TIMEOUT).topics):
                if time.monotonic() > deadline:
                    return
                time.sleep(_LOOK)

    def _fault(self, what: str, error: KafkaError) -> EnvironmentFault:
        return EnvironmentFault(
            f"the cluster at {self._servers} {what}: {error.str()}",
            hint="this user needs Describe, DescribeConfigs and Create on the topics; what was"
            " created is skipped when you apply again",
        )


def _parts(topics: Sequence[NewTopic]) -> Iterator[Sequence[NewTopic]]:
    """The topics in as many requests as a controller needs, which takes 10,000 records in one."""
    size = max(1, _PARTITIONS_AT_ONCE // max((one.num_partitions for one in topics), default=1))
    for first in range(0, len(topics), size):
        yield topics[first : first + size]


def _error_of(answer: Any) -> KafkaError | None:  # noqa: ANN401 - a future of the client
    try:
        answer.result()
    except KafkaException as exception:
        error: KafkaError = exception.args[0]
        return error
    return None


def _new_topic(one: PlannedTopic, replication_factor: int | None) -> NewTopic:
    return NewTopic(
        one.topic,
        num_partitions=one.partitions,
        replication_factor=replication_factor or -1,
        config=dict(one.settings),
    )


def _show(plan: TopicPlan) -> None:
    shown = table("topic", "state", "for", "partitions", "note", right=("partitions",))
    for one in plan.topics:
        state = "to create" if one.state is TopicState.MISSING else str(one.state)
        shown.add_row(
            one.topic,
            Text(state, style=_STYLES.get(one.state, "")),
            one.purpose,
            str(one.partitions),
            "; ".join(_notes(one)),
        )
    console().print(shown)
    if not plan.missing:
        click.echo("nothing to do")


def _notes(one: PlannedTopic) -> Iterator[str]:
    match one.state:
        case TopicState.MISSING:
            yield from (f"{name}={value}" for name, value in one.settings.items())
        case TopicState.DIFFERS:
            yield from one.differences
        case TopicState.UNKNOWN:
            yield "no definition has it; kept"


def _document(plan: TopicPlan, created: Sequence[str]) -> dict[str, Any]:
    return {
        "topics": [
            {
                "topic": one.topic,
                "state": one.state.value,
                "purpose": one.purpose,
                "partitions": one.partitions,
                "settings": dict(one.settings),
                "differences": list(one.differences),
            }
            for one in plan.topics
        ],
        "created": list(created),
    }
