"""``redrive identify``: which dead letters a topic holds, what one says, a first rules table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

import click
import orjson

from redrive.command import record
from redrive.command.options import config_option, json_option
from redrive.errors import UsageError
from redrive.kafka.access import check_access
from redrive.kafka.cluster import Cluster
from redrive.kafka.connection import Connection
from redrive.masking import NO_MASK, Mask
from redrive.messages import NO_VALID_SCHEME, DeadLetterView, Origin, SchemeTable
from redrive.operations.first_table import first_table
from redrive.operations.identify import Identification, SchemeFound, identified, sample
from redrive.operations.record_view import RecordView, read_record, record_place
from redrive.printable import printable
from redrive.settings import read_settings

__all__ = ["identify", "place_of", "settings_file", "shown"]

_SETTINGS: Final = Path("redrive.toml")
_ANSWER_TIMEOUT: Final = 10.0
"""Seconds to wait for one answer of the cluster."""
_LISTED: Final = 5
"""Names of one kind that are shown."""
_LEFT_OUT: Final = frozenset({"scheme", "error_stack", "first_origin"})
"""Parts of an example that are not shown."""
_SHOWN: Final = 100
"""Characters of a text from outside that are shown."""


@click.command()
@click.argument("topic", metavar="TOPIC[:PARTITION:OFFSET]")
@config_option
@click.option("--bootstrap-server", default="", metavar="HOST:PORT", help="A broker, without -c.")
@click.option(
    "--count",
    type=click.IntRange(min=1, max=1_000_000),
    default=10_000,
    show_default=True,
    metavar="N",
    help="How many of the newest messages to look at.",
)
@click.option(
    "--write",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Write a first rules table for what is there; FILE must not exist.",
)
@json_option
def identify(
    topic: str,
    config: Path | None,
    bootstrap_server: str,
    *,
    count: int,
    write: Path | None,
    as_json: bool,
) -> None:
    """Tell which dead letters TOPIC holds: schemes, errors, groups, and a first rules table.

    \b
    redrive identify orders.dlq --bootstrap-server localhost:9092
    redrive identify orders.dlq --write orders.rul
    redrive identify orders.dlq:0:42

    With a place behind TOPIC, the record there is shown: what it says, its headers and its body.
    With -c FILE, by default redrive.toml, schemes of your own are known too. The table tries again
    what may pass and keeps the rest: nothing is discarded before somebody has looked.

    Exit codes: 0 done, also if there is nothing; 1 error, 2 usage.
    """  # noqa: D301 - \b keeps click from wrapping the examples
    if write is not None and write.exists():
        raise UsageError(f"{write} exists already", hint="choose another file, or move it away")
    place = record_place(topic) if ":" in topic else None
    if place is not None and write is not None:
        raise UsageError("one record makes no table", hint="name the topic alone with --write")
    connection, schemes, mask = place_of(config, bootstrap_server)
    check_access(connection)
    with Cluster.open(connection, timeout=_ANSWER_TIMEOUT) as cluster:
        if place is not None:
            shown_record = RecordView.of(read_record(cluster, *place), schemes, mask)
            _show_record(shown_record, as_json=as_json)
            return
        found = identified(topic, sample(cluster, topic, count), schemes, mask)
    if as_json:
        click.echo(orjson.dumps(_as_json(found), option=orjson.OPT_INDENT_2))
    else:
        click.echo("\n".join(shown(found)))
    if write is not None:
        write.write_text(first_table(found), encoding="utf-8")
        if not as_json:
            click.echo(f"\nA first table is in {write}; redrive check {write} checks your changes.")


def _show_record(view: RecordView, *, as_json: bool) -> None:
    if as_json:
        click.echo(orjson.dumps(record.as_json(view), option=orjson.OPT_INDENT_2))
    else:
        click.echo("\n".join(record.lines(view)))


def place_of(config: Path | None, bootstrap_server: str) -> tuple[Connection, SchemeTable, Mask]:
    """Where the topic is, the schemes to look for, and what is not to be shown."""
    path = settings_file(config, bootstrap_server)
    if path is None:
        return Connection(bootstrap_servers=bootstrap_server), SchemeTable(), NO_MASK
    settings = read_settings(path)
    schemes = SchemeTable(one.scheme() for one in settings.job.schemes)
    return settings.job.connection, schemes, settings.mask


def settings_file(config: Path | None, bootstrap_server: str) -> Path | None:
    """The settings that a command uses; None where a broker is named instead.

    Args:
        config: The file of ``-c``; by default redrive.toml.
        bootstrap_server: The broker that is named; empty for none.

    Raises:
        UsageError: Both are named, or neither is there.
    """
    if bootstrap_server:
        if config is not None:
            raise UsageError("either -c FILE or --bootstrap-server", hint="leave one of them out")
        return None
    if config is None and not _SETTINGS.exists():
        raise UsageError(
            f"there is no {_SETTINGS} here",
            hint="name the settings with -c FILE, or a broker with --bootstrap-server HOST:PORT",
        )
    return config or _SETTINGS


def shown(found: Identification) -> Iterator[str]:
    """What was found, in lines for people, which do nothing to a terminal."""
    yield from map(printable, _shown(found))


def _shown(found: Identification) -> Iterator[str]:
    if not found.count:
        yield f"{found.topic} holds no message"
        return
    yield f"{found.topic}: the newest {found.count} messages"
    for one in found.by_share():
        yield ""
        yield f"{one.name}  {one.count} ({one.count / found.count:.1%})"
        yield f"  example  {one.example}"
        if one.name == NO_VALID_SCHEME:
            yield f"           {one.problem or 'no header of a known scheme'}"
            yield "  see      docs/kafka.md, your own format: [schemes.NAME] tells how to read it"
            continue
        if one.view is not None:
            yield from (f"           {line}" for line in _told(one.view))
        yield from _names("topics", one.topics)
        yield from _names("errors", one.errors)
        yield from _names("groups", one.groups)
        yield from _names("odd", one.unreadable)


def _told(view: DeadLetterView) -> Iterator[str]:
    """What the example says, part by part; stack traces are left out."""
    for name, told in asdict(view).items():
        if name in _LEFT_OUT or told is None or told is False:
            continue
        if name == "error_root_class" and told == view.error_class:
            continue
        shown = _origin(view.origin) if name == "origin" else str(told)
        if shown:
            line = " ".join(shown.splitlines())
            yield f"{name.replace('error_', 'error.')} {line[:_SHOWN]}"


def _origin(origin: Origin) -> str:
    known = (origin.topic, origin.partition, origin.offset)
    return ":".join("?" if one is None else str(one) for one in known) if any(known) else ""


def _names(title: str, names: Counter[str]) -> Iterator[str]:
    shown = [f"{name[:_SHOWN]} ({count})" for name, count in names.most_common(_LISTED)]
    if len(names) > _LISTED:
        shown.append(f"and {len(names) - _LISTED} more")
    for index, line in enumerate(shown):
        yield f"  {title if not index else '':8} {line}"


def _as_json(found: Identification) -> dict[str, Any]:
    return {
        "topic": found.topic,
        "messages": found.count,
        "schemes": [_scheme_as_json(one, found.count) for one in found.by_share()],
    }


def _scheme_as_json(one: SchemeFound, of: int) -> dict[str, Any]:
    view = asdict(one.view) if one.view is not None else {}
    view.pop("error_stack", None)
    return {
        "scheme": one.name,
        "messages": one.count,
        "share": one.count / of,
        "example": one.example,
        "problem": one.problem,
        "view": view,
        "topics": dict(one.topics.most_common()),
        "errors": dict(one.errors.most_common()),
        "groups": dict(one.groups.most_common()),
        "unreadable": dict(one.unreadable.most_common()),
    }
