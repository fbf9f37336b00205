"""The rules table of a handler: read, and checked against the settings."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final, TypeAlias

from redrive.diagnostics import Diagnostic, Severity, SourceLocation, did_you_mean
from redrive.rules import (
    Action,
    Authority,
    Control,
    ParseResult,
    Rule,
    RulesTable,
    decode_source,
    parse,
)

_LINTED_INPUT_QUEUE: Final = "TARGET_IS_INPUT_QUEUE"
"""The warning of ``redrive.rules`` that is an error here, where the queue is known."""

_SECTIONS: Final = {
    "TRANSFORM": ("transforms", "transform", 'json_patch = "fix.json"'),
    "FWDT": ("clusters", "cluster", 'bootstrap_servers = "broker:9092"'),
}
"""By keyword, the section of the named thing, the word for it, and an example."""

_Place: TypeAlias = Callable[[str], SourceLocation]
"""From a keyword to its location in one rule."""


@dataclass(frozen=True, slots=True)
class RulesSource:
    """The text of a rules table, and its name."""

    text: str
    name: str
    strict: bool = True

    @classmethod
    def from_file(cls, path: Path, *, strict: bool) -> RulesSource:
        """Read a file; raises ``OSError``."""
        return cls(decode_source(path.read_bytes()), str(path), strict)

    def parsed(self, queue: str = "", schemes: Collection[str] | None = ()) -> ParseResult:
        """The table and its findings.

        ``queue`` is the dead-letter queue, by default INPUTQ; ``schemes`` are those of the
        settings, None if they are not known.
        """
        return parse(
            self.text, name=self.name, strict=self.strict, input_queue=queue, schemes=schemes
        )

    def strict_text(self) -> str:
        """The table with separated clauses; every line keeps its number."""
        return self.text if self.strict else separated(self.text)


def separated(text: str) -> str:
    """A table with a blank after every closing parenthesis outside quotes."""
    lines = []
    in_quotes = False
    for line in text.split("\n"):
        if not in_quotes and line.lstrip(" \t").startswith("*"):
            lines.append(line)
            continue
        parts = line.split("'")
        for index, part in enumerate(parts):
            if in_quotes == bool(index % 2):  # outside quotes
                parts[index] = part.replace(")", ") ")
        in_quotes ^= len(parts) % 2 == 0
        lines.append("'".join(parts))
    return "\n".join(lines)


def check_rules(
    source: RulesSource,
    result: ParseResult,
    *,
    queue: str,
    queue_managers: Sequence[str] | None,
    allow_context_authority: bool,
    transforms: Collection[str] = (),
    clusters: Collection[str] = (),
) -> tuple[Diagnostic, ...]:
    """The findings of the parser, and those from comparing the table with the settings.

    Args:
        source: The table as text.
        result: The parsed table.
        queue: The handler's own dead-letter queue.
        queue_managers: Names of local queue managers; None if all are.
        allow_context_authority: Whether PUTAUT(CTX) may be treated as PUTAUT(DEF).
        transforms: Names of ``[transforms]``.
        clusters: Names of ``[clusters]``.
    """
    if result.table is None:
        return result.diagnostics
    findings = []
    for index, rule in enumerate(result.table.rules):
        place = partial(_place, source, result.table, index)
        if _forwards_to(rule, queue, queue_managers, result.table.control):
            findings.append(_own_queue(place, rule, queue))
        if rule.authority is Authority.CTX and rule.action.can_fail and not allow_context_authority:
            findings.append(_context_authority(place))
        if rule.transform and rule.transform not in transforms:
            findings.append(_unknown("TRANSFORM", place, rule.transform, transforms))
        if rule.forward_cluster and rule.forward_cluster not in clusters:
            findings.append(_unknown("FWDT", place, rule.forward_cluster, clusters))
    looping = {finding.line for finding in findings if finding.subject in {"FWDQ", "FWDT"}}
    of_parser = (
        diagnostic
        for diagnostic in result.diagnostics
        if not (diagnostic.code == _LINTED_INPUT_QUEUE and diagnostic.line in looping)
    )
    return (*of_parser, *findings)


def _place(source: RulesSource, table: RulesTable, index: int, keyword: str) -> SourceLocation:
    """The first clause of a keyword in a rule; else the first line of the rule."""
    lines = [line.removesuffix("\r") for line in source.text.split("\n")]
    starts = [*(rule.line for rule in table.rules), len(lines) + 1]
    for number in range(starts[index], starts[index + 1]):
        text = lines[number - 1]
        match = re.search(rf"\b{keyword}\s*\([^)]*\)?", text, re.IGNORECASE)
        if match and not text.lstrip(" \t").startswith("*"):
            return SourceLocation(source.name, number, match.start() + 1, len(match[0]), text)
    return SourceLocation(source.name, starts[index], source_line=lines[starts[index] - 1])


def _forwards_to(
    rule: Rule, queue: str, queue_managers: Sequence[str] | None, control: Control
) -> bool:
    if rule.forward_topic:
        return rule.forward_topic == queue
    if rule.action is not Action.FWD or rule.forward_queue != queue:
        return False
    manager = rule.forward_queue_manager
    if manager.startswith("&"):
        return False
    local = queue_managers is None or manager in {*queue_managers, control.input_queue_manager}
    return not manager or local


def _own_queue(place: _Place, rule: Rule, queue: str) -> Diagnostic:
    keyword = "FWDT" if rule.forward_topic else "FWDQ"
    return place(keyword).finding(
        Severity.ERROR,
        "FORWARD_TO_OWN_QUEUE",
        f"the rule forwards to {queue}, the dead-letter queue that this table handles",
        expected="another queue",
        hint="ACTION(IGNORE) leaves messages where they are",
        subject=keyword,
    )


def _unknown(keyword: str, place: _Place, name: str, known: Collection[str]) -> Diagnostic:
    section, thing, example = _SECTIONS[keyword]
    return place(keyword).finding(
        Severity.ERROR,
        f"UNKNOWN_{thing.upper()}",
        f"the settings have no [{section}.{name}]",
        expected=", ".join(known) or f"a {thing} of the settings",
        hint=did_you_mean(name, known) or f"[{section}.{name}] {example}",
        subject=keyword,
    )


def _context_authority(place: _Place) -> Diagnostic:
    return place("PUTAUT").finding(
        Severity.ERROR,
        "CONTEXT_AUTHORITY",
        "PUTAUT(CTX) cannot be honoured: Kafka clients cannot act as another user",
        expected="PUTAUT(DEF), which is the default",
        hint="allow_context_authority = true in [job] puts with the job's own authority "
        "and records CTX in the ledger",
        subject="PUTAUT",
    )
