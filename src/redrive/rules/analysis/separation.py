"""Two attempts that look different: a message on which they differ, or the proof of none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from redrive.rules.analysis.decision import Attempt, Message
from redrive.rules.analysis.search import Search
from redrive.rules.keywords import KAFKA_PATTERNS
from redrive.rules.patterns import Pattern, StringPattern
from redrive.rules.table import RulesTable


class Separation:
    """Finds messages for which two attempts of rules of some tables differ."""

    def __init__(self, search: Search, tables: Sequence[RulesTable]) -> None:
        self._search = search
        self._names = {
            name
            for table in tables
            for rule in table.rules
            for name in (rule.forward_queue, rule.forward_queue_manager, rule.forward_topic)
        }

    def separated(
        self, messages: tuple[int, int], message: Message, one: Attempt, two: Attempt
    ) -> Message | None:
        """A message that two attempts do not put to the same queue by coincidence.

        On DESTQ=A the rules FWDQ(A) and FWDQ(&DESTQ) put alike. So fields that name a target get a
        value that no rule names, or at least another one, wherever that is possible. ``messages``
        are the rules that match and those that do not, as bits; ``message`` is one of these
        messages.
        """
        apart: dict[str, list[Pattern]] = {}
        names = sorted(one.references | two.references)
        for name in (*names, *names):
            if one.on(message) != two.on(message):
                return message
            own = str(message.get(name, ""))
            others = {str(message.get(it, "")) for it in names} | self._names
            apart[name] = _literals(name, {own} if name in apart else {own} | others)
            found = self._search.find(*messages, apart_from=apart)
            if found is None:
                apart[name] = []
            else:
                message = found
        return message if one.on(message) != two.on(message) else None

    def constant(
        self, messages: tuple[int, int], message: Message, names: frozenset[str]
    ) -> Mapping[str, str]:
        """The fields that have one value in all messages in question; arguments as above."""
        values = {name: str(message.get(name, "")) for name in names}
        return {
            name: value
            for name, value in values.items()
            if self._search.find(*messages, apart_from={name: _literals(name, {value})}) is None
        }


def _literals(name: str, values: set[str]) -> list[Pattern]:
    length = KAFKA_PATTERNS[name].length
    return [StringPattern(value or " ", length) for value in sorted(values)]
