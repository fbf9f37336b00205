"""The answer for a terminal: losses first, then changes, then counts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from redrive.messages.constants import reason_name
from redrive.printable import counted
from redrive.rules.analysis import write_message
from redrive.what_if.answer import Change, RuleCount, WhatIf
from redrive.what_if.document import LOSSES
from redrive.what_if.equal_messages import Disposition

_CHANGES = 20
"""Maximum kinds of changes to show."""
_ROWS = 30
"""Maximum rows of the other lists."""


def lines_of(answer: WhatIf) -> Iterator[str]:
    """The answer, line by line; the caller escapes control characters."""
    yield from _head(answer)
    if answer.total:
        yield from _changes(answer.changes)
        yield from _matrix(answer)
        yield from _targets(answer)
        yield from _refused(answer)
        yield from _rules(answer.rules)
        idle = [(str(line), rule) for line, rule in answer.never_matched]
        yield from _columns(("line", "rule of the new table that matches none of them"), idle)


def lines_of_table(answer: WhatIf) -> Iterator[str]:
    """The results of the messages, if both tables of the answer are the job's."""
    yield _title(answer)
    yield f"table: {answer.new_name}  {answer.new_hash[:16]}"
    if not answer.total:
        yield "no messages are waiting"
        return
    yield f"would be: {dispositions_in_words(answer)}"
    rules = [(str(it.new_line), f"{it.new:,}", it.rule) for it in answer.rules if it.new]
    if remains := answer.dispositions(new=True)[Disposition.REMAINS]:
        rules.append(("-", f"{remains:,}", "no rule applies"))
    yield from _columns(("line", "messages", "rule"), rules, right=(0, 1))
    targets = [(it.disposition, str(it.target), f"{it.new:,}") for it in answer.targets if it.new]
    yield from _columns(("action", "target", "messages"), targets, right=(2,))
    yield from _refused(answer)
    idle = [(str(line), rule) for line, rule in answer.never_matched]
    yield from _columns(("line", "rule that matches none of them"), idle, right=(0,))


def _title(answer: WhatIf) -> str:
    where = ", ".join(f"{count:,} {name}" for name, count in answer.messages.items())
    return f"handler {answer.handler}: {counted(answer.total, 'message')} ({where})"


def _head(answer: WhatIf) -> Iterator[str]:
    yield _title(answer)
    yield f"old table: {answer.old_name}  {answer.old_hash[:16]}"
    yield f"new table: {answer.new_name}  {answer.new_hash[:16]}"
    for change in answer.control:
        yield f"{change.keyword}: {change.old!r} becomes {change.new!r}"
    for name in answer.schemes:
        yield f"[schemes.{name}] of the settings differs: dead letters are read otherwise"
    if answer.old_hash == answer.new_hash and not answer.schemes:
        yield "the tables mean the same: parked and remaining messages would not be evaluated again"
    if not answer.changed:
        yield "nothing changes for any of them" if answer.total else "no messages to try"
        return
    yield f"something changes for {answer.changed:,} of them"
    yield f"under the new table: {dispositions_in_words(answer)}"


_WORDS = {
    Disposition.RETRY: "retried",
    Disposition.FWD: "forwarded",
    Disposition.DISCARD: "thrown away",
    Disposition.IGNORE: "left by IGNORE",
    Disposition.QUARANTINE: "put in quarantine",
    Disposition.REMAINS: "left, as no rule applies",
}


def dispositions_in_words(answer: WhatIf) -> str:
    """The number of messages by action of the new table: ``3 retried, 1 discarded``."""
    found = answer.dispositions(new=True)
    return ", ".join(f"{found[one]:,} {word}" for one, word in _WORDS.items() if found[one])


def _changes(changes: Sequence[Change]) -> Iterator[str]:
    for change in changes[:_CHANGES]:
        yield ""
        loss = f"{LOSSES[change.loss].upper()}: " if LOSSES[change.loss] else ""
        yield (
            f"{loss}{counted(change.count, 'message')}: {_side(change.old, change.old_line)}"
            f" becomes {_side(change.new, change.new_line)}"
        )
        for number, sample in enumerate(change.samples):
            yield f"  {sample.message}  {write_message(sample.fields)}"
            yield f"    old: {sample.old}"
            yield f"    new: {sample.new}"
            if not number:
                yield from (f"    why: {line}" for line in sample.because)
    if len(changes) > _CHANGES:
        yield f"... and {len(changes) - _CHANGES} more kinds of changes; --json has them all"


def _side(disposition: Disposition, line: int) -> str:
    return f"{disposition} (line {line})" if line else str(disposition)


def _matrix(answer: WhatIf) -> Iterator[str]:
    rows = [
        (
            cell.old,
            cell.new,
            f"{count:,}",
            "" if not cell.is_changed else "other target or attempts" * (cell.old is cell.new),
        )
        for cell, count in sorted(answer.matrix.items(), key=lambda it: -it[1])
    ]
    yield from _columns(("old action", "new action", "messages", ""), rows, right=(2,))


def _targets(answer: WhatIf) -> Iterator[str]:
    rows = [
        (disposition, str(target), f"{old:,}", f"{new:,}", f"{new - old:+,}")
        for disposition, target, old, new in answer.targets
        if old != new
    ]
    head = ("action", "target", "old", "new", "difference")
    yield from _columns(head, rows, right=(2, 3, 4))


def _refused(answer: WhatIf) -> Iterator[str]:
    rows = [
        (f"{it.count:,}", str(it.target), f"{reason_name(it.reason)} ({it.reason})", it.detail)
        for it in answer.refused
    ]
    yield from _columns(("would fail now", "target", "reason", ""), rows, right=(0,))


def _rules(rules: Sequence[RuleCount]) -> Iterator[str]:
    rows = [
        (
            "-" if it.old_line is None else str(it.old_line),
            "-" if it.new_line is None else str(it.new_line),
            f"{it.old:,}",
            f"{it.new:,}",
            it.rule,
        )
        for it in rules
        if it.old != it.new or it.old_line is None or it.new_line is None
    ]
    head = ("old line", "new line", "old", "new", "rule")
    yield from _columns(head, rows, right=(0, 1, 2, 3))


def _columns(
    head: Sequence[str], rows: Sequence[Sequence[str]], *, right: Sequence[int] = ()
) -> Iterator[str]:
    """Columns of minimal width, the last unlimited; empty without rows."""
    if not rows:
        return
    shown = [head, *rows[:_ROWS]]
    widths = [max(len(row[column]) for row in shown) for column in range(len(head))]
    yield ""
    for row in shown:
        cells = [
            text.rjust(width) if column in right else text.ljust(width)
            for column, (text, width) in enumerate(zip(row, widths, strict=True))
        ]
        yield "  ".join(cells).rstrip()
    if len(rows) > _ROWS:
        yield f"... and {len(rows) - _ROWS} more; --json has them all"
