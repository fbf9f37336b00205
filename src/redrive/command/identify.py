"""``redrive identify``: the dead letters of a topic, one of them, and starter rules."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

import click

from redrive.command import record
from redrive.command.opening import TopicSource
from redrive.command.options import (
    FILE,
    bootstrap_option,
    json_option,
    number_option,
    optional_config_option,
)
from redrive.command.output import print_json, print_lines, print_notes
from redrive.errors import UsageError
from redrive.kafka.cluster import without_leader
from redrive.messages import NO_VALID_SCHEME, DeadLetterView
from redrive.operations.identify import Identification, SchemeFound, first_table, identified, sample
from redrive.operations.network import open_cluster
from redrive.operations.record_view import RecordView, read_record, record_place
from redrive.printable import counted

_LISTED: Final = 5
"""Names of one kind that are shown."""
_LEFT_OUT: Final = frozenset({"scheme", "error_stack", "first_origin"})
"""Parts of an example that are left out."""
_SHOWN: Final = 100
"""Maximum shown length of a text from a record."""


@click.command()
@click.argument("topic", metavar="TOPIC[:PARTITION:OFFSET]")
@optional_config_option
@bootstrap_option
@number_option(
    "--count", "How many of the newest messages to read.", default=10_000, most=1_000_000
)
@click.option(
    "--write",
    type=FILE,
    metavar="FILE",
    help="Write starter rules for the messages; FILE must not exist.",
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
    """Show the dead letters of TOPIC: schemes, errors, groups; write starter rules.

    \b
    redrive identify orders.dlq --bootstrap-server localhost:9092
    redrive identify orders.dlq --write orders.rul
    redrive identify orders.dlq:0:42

    With a position after TOPIC, it shows that record: error, headers and body. With -c FILE, by
    default redrive.toml, it knows the [schemes] of the settings. The starter rules retry transient
    failures and keep the rest: they discard nothing.

    Exit codes: 0 done, also if there is nothing; 1 error, 2 usage.
    """  # noqa: D301 - \b keeps click from wrapping the examples
    if write is not None and write.exists():
        raise UsageError(f"{write} exists already", hint="choose another file")
    place = record_place(topic) if ":" in topic else None
    if place is not None and write is not None:
        raise UsageError("--write needs a whole topic", hint="name the topic alone with --write")
    connection, schemes, mask, *_ = TopicSource.of(config, bootstrap_server)
    with open_cluster(connection) as cluster:
        if place is not None:
            view = RecordView.of(read_record(cluster, *place), schemes, mask)
            if as_json:
                print_json(record.as_json(view))
            else:
                click.echo("\n".join(record.lines(view)))
            return
        records, silent = sample(cluster, topic, count)
        identification = identified(topic, records, schemes, mask)
    print_notes(without_leader(silent))
    if as_json:
        listed = [
            _scheme_as_json(scheme, identification.count) for scheme in identification.by_share()
        ]
        print_json(
            {"topic": identification.topic, "messages": identification.count, "schemes": listed}
        )
    else:
        print_lines(_lines(identification))
    if write is not None:
        write.write_text(first_table(identification), encoding="utf-8")
        if not as_json:
            click.echo(
                f"\nStarter rules are in {write}; redrive check {write} checks your changes."
            )


def _lines(identification: Identification) -> Iterator[str]:
    if not identification.count:
        yield f"{identification.topic} has no messages"
        return
    yield f"{identification.topic}: the newest {counted(identification.count, 'message')}"
    for scheme in identification.by_share():
        yield ""
        yield f"{scheme.name}  {scheme.count} ({scheme.count / identification.count:.1%})"
        yield f"  example  {scheme.example}"
        if scheme.name == NO_VALID_SCHEME:
            yield f"           {scheme.problem or 'no header of a known scheme'}"
            yield "  see      docs/kafka.md, 'Your own format': describe it by [schemes.NAME]"
            for index, line in enumerate(scheme.draft.splitlines()):
                yield f"  {'' if index else 'draft':8} {line}"
            continue
        if scheme.view is not None:
            yield from (f"           {line}" for line in _parts(scheme.view))
        yield from _names("topics", scheme.topics)
        yield from _names("errors", scheme.errors)
        yield from _names("groups", scheme.groups)
        yield from _names("odd", scheme.unreadable)


def _parts(view: DeadLetterView) -> Iterator[str]:
    for name, value in asdict(view).items():
        if name in _LEFT_OUT or value is None or value is False:
            continue
        if name == "error_root_class" and value == view.error_class:
            continue
        shown = str(value)
        if name == "origin":
            known = (view.origin.topic, view.origin.partition, view.origin.offset)
            place = ":".join("?" if number is None else str(number) for number in known)
            shown = place if any(known) else ""
        if shown:
            line = " ".join(shown.splitlines())
            yield f"{name.replace('error_', 'error.')} {line[:_SHOWN]}"


def _names(title: str, names: Counter[str]) -> Iterator[str]:
    shown = [f"{name[:_SHOWN]} ({count})" for name, count in names.most_common(_LISTED)]
    if len(names) > _LISTED:
        shown.append(f"and {len(names) - _LISTED} more")
    for index, line in enumerate(shown):
        yield f"  {title if not index else '':8} {line}"


def _scheme_as_json(scheme: SchemeFound, of: int) -> dict[str, Any]:
    view = asdict(scheme.view) if scheme.view is not None else {}
    view.pop("error_stack", None)
    return {
        "scheme": scheme.name,
        "messages": scheme.count,
        "share": scheme.count / of,
        "example": scheme.example,
        "problem": scheme.problem,
        "draft": scheme.draft,
        "view": view,
        **{
            name: dict(getattr(scheme, name).most_common())
            for name in ("topics", "errors", "groups", "unreadable")
        },
    }
