"""The common part of the two dead-letter demos: a rules table, its settings, and the ends."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any, Final

import yaml
from rich.text import Text

from redrive.demo.messages import SETTINGS, WAITING, End, Found, Message, State
from redrive.demo.script import Script
from redrive.rules import Action, parse

BACKLOG: Final = 0.8
"""Share of the dead letters that exist before the job starts."""


class DeadLetterScript(Script):
    """Dead letters of many kinds, handled by one rules table."""

    counted = "in"
    ends = ("forwarded", "retried", "discarded", "remaining")

    def __init__(self, messages: Sequence[Message], seed: int, rules: str, clause: str) -> None:
        """Read the rules table; ``clause`` replaces each of its keyword: ``RETRYINT(1)``."""
        self.messages = messages
        self._seed = seed
        self._rules_name = rules
        keyword = clause.partition("(")[0]
        text = files("redrive.demo").joinpath(rules).read_text(encoding="utf-8")
        self.rules = re.sub(rf"\b{keyword}\([^)]*\)", clause, text)
        self.table = parse(self.rules, name=rules).required()
        self._retries = {rule.line for rule in self.table.rules if rule.action is Action.RETRY}

    def _write_files(
        self, folder: Path, bootstrap_servers: str, queues: Sequence[str], more: str = ""
    ) -> None:
        handlers = "".join(
            f'[[handlers]]\nqueue = "{queue}"\nrules = "{self._rules_name}"\n\n' for queue in queues
        )
        settings = (
            f'[application]\nname = "demo"\ndirectory = "job"\n\n'
            f'[kafka]\nbootstrap_servers = "{bootstrap_servers}"\n\n'
            f'{handlers}{more}[job]\ndriver_memory = "1g"\n'
        )
        (folder / SETTINGS).write_text(settings, encoding="utf-8")
        (folder / self._rules_name).write_text(self.rules, encoding="utf-8")

    def end_of(self, found: Found) -> End | None:
        """See ``Script.end_of``."""
        if found.state is State.WAITING:
            return End(WAITING, found.topic)
        if found.state is State.REMAINING:
            return End("remaining", found.topic)
        if found.rule_line in self._retries:
            return End("retried", self._retried_to(found))
        return End("forwarded", found.topic)

    def _retried_to(self, found: Found) -> str:
        return found.topic

    def _document(self, ends: Mapping[str, int], **more: object) -> dict[str, Any]:
        return {"seed": self._seed, "messages": len(self.messages), **ends, **more}


def failed_lines(failures: Mapping[str, int]) -> Iterator[Text]:
    """Failed attempts by reason, a line each."""
    for reason, count in failures.items():
        yield Text(f"{count} failed: {reason.removeprefix('MQRC_')}", style="dim")


def read_kinds(name: str) -> Iterator[dict[str, Any]]:
    """The kinds of dead letters that a YAML file declares; lists become tuples."""
    text = files(__package__).joinpath(name).read_text(encoding="utf-8")
    for written in yaml.safe_load(text):
        yield {key: tuple(it) if isinstance(it, list) else it for key, it in written.items()}
