"""The answer for a terminal: losses first, then changes, then counts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from redrive.messages.schemes.reading import BARE
from redrive.printable import counted
from redrive.what_if.answer import ChangedMessages, NextAction, WhatIf
from redrive.what_if.verdict import Disposition

_CHANGES: Final = 20
"""Maximum kinds of changes to show."""
_ROWS: Final = 30
"""Maximum rows of the other lists."""
_WORDS: Final[Mapping[str, str]] = {
    Disposition.RETRY: "retried",
    Disposition.FWD: "forwarded",
    Disposition.DISCARD: "thrown away",
    Disposition.IGNORE: "left by IGNORE",
    Disposition.QUARANTINE: "put in quarantine",
    Disposition.REMAINS: "left, as no rule applies",
}


def lines_of(answer: WhatIf) -> Iterator[str]:
    """The answer, line by line; the caller escapes control characters."""
    yield from _head(answer)
    if not answer.total:
        return
    yield from _changes(answer.changes)
    matrix = sorted(answer.matrix, key=lambda cell: -cell.count)
    yield from _columns(
        ("old action", "new action", "messages>", ""),
        [
            (
                cell.old, cell.new, f"{cell.count:,}",
                "other target or attempts" if cell.changed and cell.old == cell.new else "",
            )
            for cell in matrix
        ],
    )  # fmt: skip
    yield from _columns(
        ("action", "target", "old>", "new>", "difference>"),
        [
            (row.action, row.target, f"{row.old:,}", f"{row.new:,}", f"{row.new - row.old:+,}")
            for row in answer.targets
            if row.old != row.new
        ],
    )
    yield from _refused(answer)
    yield from _columns(
        ("old line>", "new line>", "old>", "new>", "rule"),
        [
            (str(row.old_line or "-"), str(row.new_line or "-"), f"{row.old:,}", f"{row.new:,}",
             row.rule)
            for row in answer.rules
            if row.old != row.new or row.old_line is None or row.new_line is None
        ],
    )  # fmt: skip
    yield from _idle(answer, ("line", "rule of the new table that matches none of them"))


def lines_of_table(answer: WhatIf) -> Iterator[str]:
    """The results of the messages, if both tables of the answer are the job's."""
    yield _title(answer)
    yield f"table: {answer.new.name}  {answer.new.hash[:16]}"
    if not answer.total:
        yield "no messages are waiting"
        return
    yield f"would be: {_in_words(answer)}"
    rules = [(str(row.new_line), f"{row.new:,}", row.rule) for row in answer.rules if row.new]
    if remains := answer.new.actions.get(Disposition.REMAINS):
        rules.append(("-", f"{remains:,}", "no rule applies"))
    yield from _columns(("line>", "messages>", "rule"), rules)
    targets = [(row.action, row.target, f"{row.new:,}") for row in answer.targets if row.new]
    yield from _columns(("action", "target", "messages>"), targets)
    yield from _refused(answer)
    yield from _idle(answer, ("line>", "rule that matches none of them"))


def _title(answer: WhatIf) -> str:
    places = [(name, count) for name, count in answer.messages.items() if name != "total"]
    where = ", ".join(f"{count:,} {name}" for name, count in places)
    return f"handler {answer.handler}: {counted(answer.total, 'message')} ({where})"


def _head(answer: WhatIf) -> Iterator[str]:
    yield _title(answer)
    yield f"old table: {answer.old.name}  {answer.old.hash[:16]}"
    yield f"new table: {answer.new.name}  {answer.new.hash[:16]}"
    for change in answer.control:
        yield f"{change.keyword}: {change.old!r} becomes {change.new!r}"
    for name in answer.schemes:
        setting = "origin_topic" if name == BARE.name else f"[schemes.{name}]"
        yield f"{setting} of the settings differs: dead letters are read otherwise"
    if answer.old.hash == answer.new.hash and not answer.schemes:
        yield "the tables mean the same: parked and remaining messages would not be evaluated again"
    if not answer.changed:
        yield "nothing changes for any of them" if answer.total else "no messages to try"
        return
    yield f"something changes for {answer.changed:,} of them"
    yield f"under the new table: {_in_words(answer)}"


def _in_words(answer: WhatIf) -> str:
    """The number of messages by action of the new table: ``3 retried, 1 forwarded``."""
    actions = answer.new.actions
    return ", ".join(
        f"{actions[name]:,} {word}" for name, word in _WORDS.items() if name in actions
    )


def _changes(changes: Sequence[ChangedMessages]) -> Iterator[str]:
    for change in changes[:_CHANGES]:
        yield ""
        loss = f"{change.loss.upper()}: " if change.loss else ""
        old, new = _rule_text(change.old), _rule_text(change.new)
        yield f"{loss}{counted(change.count, 'message')}: {old} becomes {new}"
        for number, sample in enumerate(change.samples):
            yield f"  {sample.message}  {sample.shown}"
            yield f"    old: {sample.old}"
            yield f"    new: {sample.new}"
            if not number:
                yield from (f"    why: {line}" for line in sample.because)
    if len(changes) > _CHANGES:
        yield f"... and {len(changes) - _CHANGES} more kinds of changes; --json has them all"


def _rule_text(applied: NextAction) -> str:
    return f"{applied.action} (line {applied.line})" if applied.line else str(applied.action)


def _refused(answer: WhatIf) -> Iterator[str]:
    rows = [
        (f"{row.count:,}", row.target, f"{row.reason_name} ({row.reason})", row.detail)
        for row in answer.failing_now
    ]
    yield from _columns(("would fail now>", "target", "reason", ""), rows)


def _idle(answer: WhatIf, head: Sequence[str]) -> Iterator[str]:
    yield from _columns(head, [(str(row.line), row.rule) for row in answer.never_matched])


def _columns(head: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Columns of minimal width, the last unlimited; empty without rows.

    Those with ``>`` at the end of their name are aligned to the right.
    """
    if not rows:
        return
    shown = [[name.rstrip(">") for name in head], *rows[:_ROWS]]
    widths = [max(map(len, column)) for column in zip(*shown, strict=True)]
    yield ""
    for row in shown:
        cells = [
            f"{text:>{width}}" if name.endswith(">") else f"{text:<{width}}"
            for name, text, width in zip(head, row, widths, strict=True)
        ]
        yield "  ".join(cells).rstrip()
    if len(rows) > _ROWS:
        yield f"... and {len(rows) - _ROWS} more; --json has them all"
