"""What the table that a job has would do now: the answer where both tables are the same."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from redrive.what_if.answer import WhatIf
from redrive.what_if.document import refused_document
from redrive.what_if.equal_messages import Disposition
from redrive.what_if.text import columns, dispositions_in_words, messages_in_words, refused_lines


def lines_of_table(answer: WhatIf) -> Iterator[str]:
    """The results that the messages would have, for a terminal.

    Both tables of the answer are that of the job.
    """
    where = ", ".join(f"{count:,} {name}" for name, count in answer.messages.items())
    yield f"handler {answer.handler}: {messages_in_words(answer.total)} ({where})"
    yield f"table: {answer.new_name}  {answer.new_hash[:16]}"
    if not answer.total:
        yield "nothing waits: there is nothing to do"
        return
    yield f"would be: {dispositions_in_words(answer)}"
    rules = [(str(it.new_line), f"{it.new:,}", it.rule) for it in answer.rules if it.new]
    if remains := answer.dispositions(new=True)[Disposition.REMAINS]:
        rules.append(("-", f"{remains:,}", "no rule applies"))
    yield from columns(("line", "messages", "rule"), rules, right=(0, 1))
    targets = [(it.disposition, str(it.target), f"{it.new:,}") for it in answer.targets if it.new]
    if targets:
        yield from columns(("action", "target", "messages"), targets, right=(2,))
    yield from refused_lines(answer)
    if idle := [(str(line), rule) for line, rule in answer.never_matched]:
        yield from columns(("line", "rule that matches none of them"), idle, right=(0,))


def document_of_table(answer: WhatIf) -> Mapping[str, Any]:
    """The same for programs."""
    return {
        "handler": answer.handler,
        "table": {"name": answer.new_name, "hash": answer.new_hash},
        "messages": {**answer.messages, "total": answer.total},
        "actions": {
            disposition.value: count
            for disposition, count in answer.dispositions(new=True).items()
            if count
        },
        "rules": [{"line": it.new_line, "rule": it.rule, "count": it.new} for it in answer.rules],
        "targets": [
            {"action": it.disposition, "target": str(it.target), "count": it.new}
            for it in answer.targets
        ],
        "failing_now": [refused_document(one) for one in answer.refused],
        "never_matched": [{"line": line, "rule": rule} for line, rule in answer.never_matched],
        "seconds": round(answer.seconds, 3),
        "notes": list(answer.notes),
    }
