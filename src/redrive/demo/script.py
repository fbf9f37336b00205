"""What differs between the demos: the dead letters, their ends, and what is around the job."""

from __future__ import annotations

import random
import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import ClassVar, Final, TypeVar

import yaml

from redrive.demo.client import Record, TopicRecord
from redrive.demo.reconciliation import DemoMessage
from redrive.kafka.administration import NewTopic

SETTINGS: Final = "redrive.toml"
"""The settings of the job, in the folder of the demo."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageKind:
    """A kind of dead letters, as the YAML file of a demo declares it."""

    name: str
    share: int
    """Its part of all messages, in relation to the other kinds."""
    end: str
    """retried, forwarded, discarded or remaining."""
    place: str = ""
    """The topic of their end; empty for their original one."""
    refusals: int | None = 0
    """How many attempts fail; None for any number."""


_Kind = TypeVar("_Kind", bound=MessageKind)


class Script(ABC):
    """A demo: the dead letters, where each must end, and an application that reads a topic."""

    rules_name: ClassVar[str]
    queues: ClassVar[Sequence[str]]
    late: ClassVar[NewTopic]
    """A topic that many messages return to, and that does not exist when the job starts."""
    application_topic: ClassVar[str]
    """The topic whose application runs in the demo."""
    application_reads: int | None = None
    """How many records the application reads at once; None for all."""

    title: str
    messages: Sequence[DemoMessage]
    """Every message of the demo, each with its number as its index."""
    topics: Sequence[NewTopic]
    """The topics that exist when the job starts."""
    others: Sequence[tuple[str, Record]] = ()
    """Records of others that lie on these topics."""
    rules: str
    late_by: float
    """Seconds for which the late topic is missing once the job needs it."""
    settings: str = ""

    def write_files(self, folder: Path, bootstrap_servers: str, *, ledger: bool) -> None:
        """Write the settings of the job, with or without a ledger, and its rules table."""
        handlers = "".join(
            f'[[handlers]]\nqueue = "{queue}"\nrules = "{self.rules_name}"\n\n'
            for queue in self.queues
        )
        settings = (
            f'[application]\nname = "demo"\ndirectory = "job"\n\n'
            f'[kafka]\nbootstrap_servers = "{bootstrap_servers}"\n\n'
            f"{handlers}{self.settings}"
            f"[ledger]\nenabled = {str(ledger).lower()}\n\n"
            f'[job]\ndriver_memory = "1g"\n'
        )
        (folder / SETTINGS).write_text(settings, encoding="utf-8")
        (folder / self.rules_name).write_text(self.rules, encoding="utf-8")

    @abstractmethod
    def process(self, stored: TopicRecord, delivery: int) -> tuple[str, Record] | None:
        """Process a record as the application does; returns its dead letter if that fails.

        Args:
            stored: The record of a message.
            delivery: How often the message has come to the application, from 1.
        """

    @abstractmethod
    def least_wait(self, attempt: int) -> float:
        """Seconds that must pass before an attempt, by the rules table."""


def rules_with(name: str, clause: str) -> str:
    """A rules table in which a clause replaces each of its keyword: ``RETRYINT(1)``."""
    text = files(__package__).joinpath(name).read_text(encoding="utf-8")
    return re.sub(rf"\b{clause.partition('(')[0]}\([^)]*\)", clause, text)


def read_kinds(name: str, of: type[_Kind]) -> Sequence[_Kind]:
    """The kinds of dead letters that a YAML file declares."""
    text = files(__package__).joinpath(name).read_text(encoding="utf-8")
    return [of(**fields) for fields in yaml.safe_load(text)]


def mixed(kinds: Sequence[_Kind], count: int, chance: random.Random) -> Sequence[_Kind]:
    """Kinds in a random order, each at least once and by its share; the first fills the rest."""
    total, rest = sum(kind.share for kind in kinds), count - len(kinds)
    others = [kind for kind in kinds[1:] for _ in range(1 + rest * kind.share // total)]
    mixed = [*others, *[kinds[0]] * (count - len(others))]
    chance.shuffle(mixed)
    return mixed
