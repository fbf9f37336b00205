"""How commands open the settings and the ledger."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

from redrive.command.output import print_notes, progress_bar
from redrive.errors import UsageError
from redrive.kafka.cluster import Cluster
from redrive.kafka.connection import Connection
from redrive.masking import NO_MASK, Mask
from redrive.messages import SchemeTable
from redrive.operations.retention import DiscardedMessages, discarded_messages
from redrive.operations.states import acknowledgements_in_effect
from redrive.outcomes.bodies import Bodies, select_by_body
from redrive.outcomes.history import Archive
from redrive.outcomes.inventory import Inventory, Selection, State
from redrive.printable import counted
from redrive.rules import GROUP_TOPIC
from redrive.settings import Settings, default_file, read_settings_for_topic

_Answer = TypeVar("_Answer")


class TopicSource(NamedTuple):
    """The cluster of a topic, and how to read and show its messages."""

    connection: Connection
    schemes: SchemeTable
    mask: Mask
    group: str = ""
    """The consumer group of the job; empty without settings."""
    group_topic: str = GROUP_TOPIC
    """The form of the name of a group's topic."""

    @classmethod
    def of(cls, config: Path | None, bootstrap_server: str) -> TopicSource:
        """The source that the options of a command name; errors as for ``settings_file``.

        A note on standard error names errors of the settings that do not concern the topic.
        """
        path = settings_file(config, bootstrap_server)
        if path is None:
            return cls(Connection(bootstrap_servers=bootstrap_server), SchemeTable(), NO_MASK)
        settings, problem = read_settings_for_topic(path)
        print_notes([problem] if problem else [])
        job = settings.job
        return cls(
            job.connection, job.scheme_table, settings.mask, job.application, job.group_topic
        )


def settings_file(config: Path | None, bootstrap_server: str) -> Path | None:
    """The file of ``-c`` or redrive.toml, or None with a broker; else ``UsageError``."""
    if bootstrap_server:
        if config is not None:
            raise UsageError("either -c FILE or --bootstrap-server", hint="leave one of them out")
        return None
    path = config or default_file()
    if config is None and not path.exists():
        raise UsageError(
            f"there is no {path} here",
            hint="name the settings with -c FILE, or a broker with --bootstrap-server HOST:PORT",
        )
    return path


class Answer(NamedTuple, Generic[_Answer]):
    """An answer of the ledger and the outcomes topic."""

    found: _Answer
    notes: Sequence[str]
    """What could not be read; empty if the answer is complete."""
    unread: int | None
    """Records that the job has not read, at most; None if that is not known."""
    quarantined: int
    """Matching messages in quarantine, which are left out."""
    bodies: Bodies | None = None
    """How many bodies were looked at; None if none had to be."""
    held: Sequence[DiscardedMessages] = ()
    """What dead-letter topics still have of discarded messages, as far as is known."""

    def document(self) -> dict[str, Any]:
        """The answer's own members for JSON."""
        return {
            **({"held": [*map(asdict, self.held)]} if self.held else {}),
            "complete": not self.notes,
            "unread": self.unread,
            "quarantined": self.quarantined,
            "notes": self.notes,
            **({} if self.bodies is None else {"bodies": self.bodies._asdict()}),
        }

    def all_notes(self) -> Iterator[str]:
        """What could not be read, and what is left out."""
        yield from self.notes
        if self.bodies is not None:
            yield str(self.bodies)
        if self.unread:
            yield (
                f"up to {counted(self.unread, 'message')} may be missing in this list: the job has"
                " not read them yet; redrive status shows whether it runs"
            )
        yield from notes_about_quarantined(self.quarantined)
        for held in self.held:
            yield from held.sentences()


def notes_about_quarantined(number: int) -> Iterator[str]:
    """A note about quarantined messages that are left out, if any."""
    if number:
        verb = "is" if number == 1 else "are"
        yield f"{counted(number, 'quarantined message')} {verb} left out: --status quarantined"


def count_quarantined(inventory: Inventory, selection: Selection) -> int:
    """How many messages a selection leaves out because they are in quarantine."""
    if not selection.leaves_out_quarantined:
        return 0
    return inventory.count(replace(selection, state=State.QUARANTINED))


def ask_inventory(
    settings: Settings, selection: Selection, question: Callable[[Inventory, Selection], _Answer]
) -> Answer[_Answer]:
    """Ask a question about some dead letters of a job, once their bodies are known."""
    archive = Archive(settings.job)
    inventory, notes = archive.inventory(
        partial(acknowledgements_in_effect, settings.job), settings.mask
    )
    with inventory:
        selection, bodies = choose_by_body(settings, archive.cluster, inventory, selection)
        content = question(inventory, selection)
        quarantined = count_quarantined(inventory, selection)
        held = discarded_messages(settings.job, inventory, selection)
    notes = notes if bodies is None else (*notes, *bodies.left_out)
    return Answer(content, notes, archive.unread(), quarantined, bodies, held)


def choose_by_body(
    settings: Settings, cluster: Cluster | None, inventory: Inventory, selection: Selection
) -> tuple[Selection, Bodies | None]:
    """``select_by_body``, with its progress; None if there is no condition on bodies."""
    if not selection.is_about_bodies:
        return selection, None
    with progress_bar("looking at bodies") as show:
        return select_by_body(
            cluster, settings.job, inventory, selection, mask=settings.mask, show_progress=show
        )
