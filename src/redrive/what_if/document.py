"""The answer as plain values, for programs and for the page."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, Final

from redrive.messages.constants import reason_name
from redrive.rules.analysis import write_message
from redrive.what_if.answer import Change, Loss, Refused, Sample, WhatIf

LOSSES: Final[Mapping[Loss, str]] = {
    Loss.AT_ONCE: "newly discarded",
    Loss.IN_THE_END: "newly discarded if every attempt fails",
    Loss.NONE: "",
}


def document_of(answer: WhatIf) -> dict[str, Any]:
    """The whole answer; new discards come first among the changes."""
    return {
        "handler": answer.handler,
        "old": {"name": answer.old_name, "hash": answer.old_hash, **_actions(answer, new=False)},
        "new": {"name": answer.new_name, "hash": answer.new_hash, **_actions(answer, new=True)},
        "messages": {**answer.messages, "total": answer.total},
        "changed": answer.changed,
        "newly_discarded": answer.lost(Loss.AT_ONCE),
        "newly_discarded_in_the_end": answer.lost(Loss.IN_THE_END),
        "changes": [_change(one) for one in answer.changes],
        "matrix": [
            {"old": old, "new": new, "changed": is_changed, "count": count}
            for (old, new, is_changed), count in sorted(answer.matrix.items())
        ],
        "rules": [one._asdict() for one in answer.rules],
        "never_matched": [{"line": line, "rule": rule} for line, rule in answer.never_matched],
        "targets": [
            {"action": disposition, "target": str(target), "old": old, "new": new}
            for disposition, target, old, new in answer.targets
        ],
        "failing_now": [_refused(one) for one in answer.refused],
        "control": [asdict(one) for one in answer.control],
        "schemes": list(answer.schemes),
        "seconds": round(answer.seconds, 3),
        "notes": list(answer.notes),
    }


def document_of_table(answer: WhatIf) -> dict[str, Any]:
    """The results of the messages, if both tables of the answer are the job's."""
    whole = document_of(answer)
    return {
        "handler": answer.handler,
        "table": {"name": answer.new_name, "hash": answer.new_hash},
        "messages": whole["messages"],
        **_actions(answer, new=True),
        "rules": [{"line": it.new_line, "rule": it.rule, "count": it.new} for it in answer.rules],
        "targets": [
            {"action": it.disposition, "target": str(it.target), "count": it.new}
            for it in answer.targets
        ],
        **{name: whole[name] for name in ("failing_now", "never_matched", "seconds", "notes")},
    }


def _actions(answer: WhatIf, *, new: bool) -> dict[str, dict[str, int]]:
    return {
        "actions": {
            disposition.value: n for disposition, n in answer.dispositions(new=new).items() if n
        }
    }


def _change(change: Change) -> dict[str, Any]:
    return {
        "loss": LOSSES[change.loss],
        "count": change.count,
        "old": {"action": change.old, "line": change.old_line},
        "new": {"action": change.new, "line": change.new_line},
        "samples": [_sample(one) for one in change.samples],
    }


def _sample(sample: Sample) -> dict[str, Any]:
    return {
        "message": sample.message,
        "fields": dict(sample.fields),
        "shown": write_message(sample.fields),
        "old": sample.old,
        "new": sample.new,
        "because": list(sample.because),
    }


def _refused(refused: Refused) -> dict[str, Any]:
    return {
        "target": str(refused.target),
        "reason": refused.reason,
        "reason_name": reason_name(refused.reason),
        "detail": refused.detail,
        "count": refused.count,
    }
