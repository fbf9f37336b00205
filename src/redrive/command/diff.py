"""``redrive diff``: compares the meaning of two rules tables, by examples."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from redrive.command.options import EXISTING_FILE, json_option, lenient_option
from redrive.command.output import print_json, print_lines
from redrive.rules import RetryTo, RulesTable, decode_source, parse
from redrive.rules.analysis import Comparison, TableDecision, compare, present_fields, write_message


@click.command()
@click.argument("old", type=EXISTING_FILE)
@click.argument("new", type=EXISTING_FILE)
@lenient_option
@json_option
@click.pass_context
def diff(context: click.Context, old: Path, new: Path, *, lenient: bool, as_json: bool) -> None:
    """Show what differs in meaning between the tables OLD and NEW.

    \b
    redrive diff orders.rul orders-new.rul
    git show HEAD:orders.rul | redrive diff /dev/stdin orders.rul

    Every difference comes with an example message and the decisions of both tables; messages that
    are newly discarded come first. Order, layout and spelling do not matter unless some message is
    treated differently. Tables are reported as equal only if that is proved.

    Exit codes: 0 equal, 1 different, not decided or an error, 2 usage.
    """  # noqa: D301 - \b keeps click from wrapping the examples
    tables = [
        parse(decode_source(path.read_bytes()), name=str(path), strict=not lenient).required()
        for path in (old, new)
    ]
    comparison = compare(*tables)
    if as_json:
        print_json(difference_document(comparison, *tables))
    else:
        print_lines(difference_lines(comparison, *tables))
    context.exit(0 if comparison.is_equal else 1)


def difference_document(comparison: Comparison, old: RulesTable, new: RulesTable) -> dict[str, Any]:
    """A comparison as ``redrive diff --json`` prints it."""
    return {
        "equal": comparison.is_equal,
        "complete": comparison.is_complete,
        "control": [asdict(change) for change in comparison.control],
        "differences": [
            {
                "message": present_fields(difference.witness),
                "old": _decision(difference.old, _rule_lines(old, difference.old_rules)),
                "new": _decision(difference.new, _rule_lines(new, difference.new_rules)),
            }
            for difference in comparison.differences
        ],
    }


def difference_lines(comparison: Comparison, old: RulesTable, new: RulesTable) -> Iterator[str]:
    """A comparison as lines of text."""
    if comparison.is_equal:
        yield "equal: both tables treat every message the same"
        return
    for change in comparison.control:
        yield f"{change.keyword}: {change.old!r} becomes {change.new!r}"
    for difference in comparison.differences:
        yield f"a message such as {write_message(difference.witness)}"
        yield f"    old: {_sentence(difference.old, _rule_lines(old, difference.old_rules))}"
        yield f"    new: {_sentence(difference.new, _rule_lines(new, difference.new_rules))}"
    if not comparison.is_complete:
        yield "not decided: there may be more differences, the tables are too complex"


def _rule_lines(table: RulesTable, rules: Sequence[int]) -> list[int]:
    return [table.rules[rule].line for rule in rules]


def _sentence(decision: TableDecision, lines: Sequence[int]) -> str:
    parts = []
    for put, tries in decision.steps:
        manager = f" on {put.queue_manager}" if put.queue_manager else ""
        header = "with" if put.header else "without"
        authority = ", PUTAUT(CTX)" if put.authority == "CTX" else ""
        authority += ", TO(GROUP)" if put.to is RetryTo.GROUP else ""
        attempts = f", {tries} attempts" if tries > 1 else ""
        attempts += f", BACKOFF({put.backoff})" if put.backoff else ""
        parts.append(
            f"put to {put.queue or 'a blank queue'}{manager}, {header} header{authority}{attempts}"
        )
    parts.append(_end(decision))
    by = f"line{'s' * (len(lines) > 1)} {', '.join(map(str, lines))}" if lines else "no rule"
    return f"{'; then '.join(parts)} ({by})"


def _decision(decision: TableDecision, lines: Sequence[int]) -> dict[str, Any]:
    return {
        "lines": lines,
        "puts": [
            {
                "queue": put.queue,
                "queue_manager": put.queue_manager,
                "header": put.header,
                "authority": put.authority.value,
                "attempts": tries,
                **({"to": put.to.value} if put.to is RetryTo.GROUP else {}),
                **({"backoff": str(put.backoff)} if put.backoff else {}),
            }
            for put, tries in decision.steps
        ],
        "end": _end(decision).upper(),
    }


def _end(decision: TableDecision) -> str:
    if decision.discarded:
        return "discarded"
    return "quarantined" if decision.quarantined else "remains"
