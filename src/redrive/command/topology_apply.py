"""``redrive topology apply``: create the topics that queue managers need, plan first."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import click
import orjson
from rich.text import Text

from redrive.command.options import json_option, network_options
from redrive.command.status import print_uncut, table
from redrive.errors import UsageError
from redrive.operations.network import read_network
from redrive.operations.topics import TopicCreation
from redrive.topology.plan import PlannedTopic, TopicPlan, TopicState

__all__ = ["apply"]

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
    creation = TopicCreation.planned(
        network, partitions=partitions, replication_factor=replication_factor
    )
    plan = creation.plan
    count = 0 if dry_run else len(plan.missing)
    if not as_json:
        _show(plan)
    if count:
        _ask(count, yes=yes)
        creation.execute(lambda done: click.echo(f"{done} of {_counted(count)} created", err=True))
    if as_json:
        created = [one.topic for one in plan.missing[:count]]
        click.echo(orjson.dumps(_document(plan, created), option=orjson.OPT_INDENT_2))
    elif count:
        click.echo(f"created {_counted(count)}")


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
    print_uncut(shown)
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
