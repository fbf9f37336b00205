"""``redrive handler``: shows stopped handlers, and resumes them."""

from __future__ import annotations

from pathlib import Path

import click

from redrive.command.options import because_option, choice_option, config_option, table_options
from redrive.command.output import print_json, print_table
from redrive.engine.commands import ResumeFrom
from redrive.operations.handlers import ReadTopic, read_topics
from redrive.operations.handlers import resume as resume_handler
from redrive.printable import counted
from redrive.settings import read_settings_for_lookup
from redrive.streaming.start import StoppedTopic


@click.group()
def handler() -> None:
    """Show stopped handlers, and resume one that lost its position.

    \b
    redrive handler list
    redrive handler resume payments --from oldest --because 'retention was too short'

    A handler stops, without the others, when Kafka no longer has the records at its position: its
    topic was deleted and created again, or retention overtook the job. Its parked and remaining
    messages wait meanwhile. With on_data_loss = "continue" in its settings it goes on by itself.

    Exit codes: 0 done, 1 error, 2 usage.
    """  # noqa: D301 - \b keeps click from wrapping the examples


@handler.command(name="list")
@config_option
@table_options
def list_handlers(config: Path, *, as_json: bool) -> None:
    """Show each handler with its topic, whether it is stopped, and why.

    Example: redrive handler list
    """
    topics = read_topics(read_settings_for_lookup(config).job)
    if as_json:
        print_json([_as_json(topic) for topic in topics])
        return
    rows = [
        {"handler": topic.name, "topic": topic.topic, "state": _state(topic)} for topic in topics
    ]
    print_table(rows)
    for topic in topics:
        stops = [(lost.problem, lost.hint) for lost in topic.lost.values()]
        if topic.is_denied:
            stops.append(StoppedTopic.denied(topic.topic))
        for problem, hint in stops:
            click.echo(f"{topic.name} is stopped: {problem}\nhint: {hint}")


@handler.command()
@click.argument("name", metavar="NAME")
@config_option
@choice_option(
    "--from",
    "begin",
    values=ResumeFrom,
    default=ResumeFrom.OLDEST,
    help_text="Where to resume: at the oldest record, or after the last one.",
)
@because_option
def resume(name: str, config: Path, begin: str, purpose: str) -> None:
    """Resume the stopped handler NAME.

    Prints what is skipped, and records who asked for it; the running job resumes within seconds.

    Example: redrive handler resume payments --from oldest
    """
    lost = resume_handler(read_settings_for_lookup(config).job, name, ResumeFrom(begin), purpose)
    for lane, offsets in lost.items():
        gone = f"{counted(offsets.gone, 'offset')} deleted unread" if offsets.gone else ""
        left = offsets.end - offsets.first if begin == ResumeFrom.LATEST else 0
        skipped = f"{counted(left, 'offset')} or more skipped" if left else ""
        what = ", ".join(filter(None, (gone, skipped))) or "nothing skipped"
        click.echo(f"{lane} goes on from the {begin}: {what}")


def _state(topic: ReadTopic) -> str:
    if topic.lost:
        return "is about to go on" if topic.is_resumed else "stopped"
    if topic.is_denied:
        return "stopped"
    return "waits for its topic" if topic.is_missing else "runs"


def _as_json(topic: ReadTopic) -> dict[str, object]:
    return {
        "handler": topic.name,
        "topic": topic.topic,
        "is_stopped": bool(topic.lost) or topic.is_denied,
        "is_resumed": topic.is_resumed,
        "is_missing": topic.is_missing,
        "is_denied": topic.is_denied,
        "lost": [
            {
                "partition": str(lane),
                "committed": lost.committed,
                "first": lost.first,
                "end": lost.end,
                "problem": lost.problem,
                "hint": lost.hint,
            }
            for lane, lost in topic.lost.items()
        ],
    }
