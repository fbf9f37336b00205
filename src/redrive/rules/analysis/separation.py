"""Two puts that look different: a message on which they are, or the proof that they are not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

from redrive.rules.analysis.letters import Letter
from redrive.rules.analysis.search import Message, Search
from redrive.rules.keywords import KAFKA_PATTERNS
from redrive.rules.patterns import Pattern, StringPattern
from redrive.rules.table import RulesTable

__all__ = ["Separation"]

_Messages: TypeAlias = tuple[int, int]
"""The rules that match the messages that are meant, and those that do not, as bits."""


class Separation:
    """Tells puts apart by the messages that they put.

    Args:
        search: Looks for messages.
        tables: The tables whose rules put them.
    """

    def __init__(self, search: Search, tables: Sequence[RulesTable]) -> None:
        self._search = search
        self._names = {
            name
            for table in tables
            for rule in table.rules
            for name in (rule.forward_queue, rule.forward_queue_manager, rule.forward_topic)
        }

    def separated(
        self, messages: _Messages, message: Message, one: Letter, two: Letter
    ) -> Message | None:
        """A message that does not go to the same queue by chance.

        On DESTQ=A the rules FWDQ(A) and FWDQ(&DESTQ) put alike. So fields that name a target get
        a value that no rule names, or at least another one, wherever that is possible.
        """
        apart: dict[str, list[Pattern]] = {}
        names = sorted(one.references | two.references)
        for name in ("", *names, *names):
            if one.target(message) != two.target(message):
                return message
            if not name:
                continue
            own = str(message.get(name, ""))
            others = {str(message.get(it, "")) for it in names} | self._names
            values = _literals(name, {own} if name in apart else {own} | others)
            apart[name] = values
            found = self._search.find(*messages, apart_from=apart)
            if found is None:
                apart[name] = []
            else:
                message = found
        return message if one.target(message) != two.target(message) else None

    def pinned(
        self, messages: _Messages, message: Message, names: frozenset[str]
    ) -> Mapping[str, str]:
        """The fields that have one value in all messages that are meant.

        Args:
            messages: Which messages are meant.
            message: One of them.
            names: The fields.
        """
        values = {name: str(message.get(name, "")) for name in names}
        return {
            name: value
            for name, value in values.items()
            if self._search.find(*messages, apart_from={name: _literals(name, {value})}) is None
        }


def _literals(name: str, values: set[str]) -> list[Pattern]:
    length = KAFKA_PATTERNS[name].length
    return [StringPattern(value or " ", length) for value in sorted(values)]
