"""``redrive identify`` and ``redrive init``: the dead letters of topics, and what to begin with."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
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
    yes_option,
)
from redrive.command.output import ask, print_json, print_lines, print_notes
from redrive.errors import UsageError
from redrive.kafka.cluster import without_leader
from redrive.messages import NO_VALID_SCHEME, DeadLetterView
from redrive.operations.identify import (
    Identification,
    SchemeFound,
    commented_drafts,
    commented_origin,
    first_settings,
    first_table,
    identified,
    sample,
    stem_of,
)
from redrive.operations.network import open_cluster
from redrive.operations.record_view import RecordView, read_record, record_place
from redrive.printable import counted
from redrive.settings import (
    DEFAULT_FILE,
    Document,
    read_settings,
    settings_of,
    with_environment,
)

_SAMPLE: Final = 10_000
"""How many of the newest messages of a topic are looked at."""
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
    "--count", "How many of the newest messages to read.", default=_SAMPLE, most=1_000_000
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
    """Show what dead letters TOPIC holds, and write starter rules.

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
        identification = identified(topic, records, schemes, mask, cluster.topics())
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


@click.command()
@click.argument("topics", metavar="TOPICS...", nargs=-1, required=True)
@click.option(
    "--bootstrap-server", required=True, metavar="HOST:PORT", help="A broker of the topics."
)
@click.option(
    "--application",
    metavar="NAME",
    help="The name of the job; by default what the first topic is for, as orders of orders.dlq.",
)
@yes_option
def init(
    topics: Sequence[str], bootstrap_server: str, *, application: str | None, yes: bool
) -> None:
    """Write settings and starter rules for TOPICS, after a look at them.

    \b
    redrive init orders.dlq --bootstrap-server localhost:9092
    redrive init orders.dlq bills.dlq --bootstrap-server localhost:9092 --application shop --yes

    Writes redrive.toml and a rules table for each topic into this folder, once you agree, and shows
    what the rules would do with the messages that are there. Nothing is written to the broker.
    Messages of no known scheme get a guessed [schemes.NAME] in the settings, if their headers or
    members say what failed. If they do not name their topic, that of orders.dlq is orders, if such
    a topic exists.

    Exit codes: 0 done, 1 error, 2 usage.
    """  # noqa: D301 - \b keeps click from wrapping the examples
    topics = [*dict.fromkeys(topics)]
    stems = Counter(map(stem_of, topics))
    rules = {  # short where no two are alike
        topic: Path(f"{stem_of(topic) if stems[stem_of(topic)] == 1 else topic}.rul")
        for topic in topics
    }
    name = application or stem_of(topics[0])
    text = first_settings(name, bootstrap_server, rules)
    identifications, existing = _look_at(text, topics)
    drafts = "".join(map(commented_drafts, identifications))
    if drafts:
        identifications, _ = _look_at(text + drafts, topics)
    origins = {
        identification.topic: commented_origin(identification, existing)
        for identification in identifications
    }
    text = first_settings(name, bootstrap_server, rules, origins) + drafts
    if any(origins.values()):
        identifications, _ = _look_at(text, topics)
    for identification in identifications:
        print_lines([*_lines(identification), ""])
    tables = map(first_table, identifications)
    files = {DEFAULT_FILE: text, **dict(zip(rules.values(), tables, strict=True))}
    _write_files(files, yes=yes)
    click.echo("\nWith the messages that are there, these rules would do this:\n")
    # Slow to import, and nothing that was refused needs it.
    from redrive.command.plan import try_tables  # noqa: PLC0415

    try_tables(read_settings(DEFAULT_FILE), as_json=False)
    click.echo("\nredrive run starts the job; redrive groups shows then what waits, and why.")


def _look_at(text: str, topics: Iterable[str]) -> tuple[list[Identification], Collection[str]]:
    """What is on each topic, by the schemes of settings, and the names of all topics."""
    name = f"{DEFAULT_FILE} (not written)"
    document = Document.from_text(text, name=name, directory=Path())
    settings = settings_of(with_environment(document, os.environ), without_tables=True)
    identifications = []
    with open_cluster(settings.job.connection) as cluster:
        existing = cluster.topics()
        for topic in topics:
            records, silent = sample(cluster, topic, _SAMPLE)
            identifications.append(
                identified(topic, records, settings.job.scheme_table, settings.mask, existing)
            )
            print_notes(without_leader(silent))
    return identifications, existing


def _write_files(files: Mapping[Path, str], *, yes: bool) -> None:
    """Write files, but none that exists without being asked to."""
    existing = [str(path) for path in files if path.exists()]
    if existing and yes:
        raise UsageError(
            f"{', '.join(existing)}: exists already, and --yes replaces nothing",
            hint="leave out --yes to be asked, or run it in another folder",
        )
    if existing:
        click.confirm(f"Replace {', '.join(existing)}?", abort=True)
    else:
        ask(f"Write {', '.join(map(str, files))}?", yes=yes, default=True)
    for path, text in files.items():
        path.write_text(text, encoding="utf-8")
    click.echo(f"{', '.join(map(str, files))}: written.")


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
        elif scheme.view is not None:
            yield from (f"           {line}" for line in _parts(scheme.view))
        if scheme.schema is not None:
            yield f"  bodies   have schema id {scheme.schema}: set [schema_registry] to read them"
        yield from _titled("draft", scheme.draft.splitlines())
        if scheme.name == NO_VALID_SCHEME:
            continue
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
    return _titled(title, shown)


def _titled(title: str, lines: Iterable[str]) -> Iterator[str]:
    for index, line in enumerate(lines):
        yield f"  {'' if index else title:8} {line}"


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
