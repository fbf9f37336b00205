"""Names that are known when a message or a command line is: targets and the input queue."""

from __future__ import annotations

import pytest

from redrive.rules import Control, input_queue, input_queue_manager, parse, resolve_target
from redrive.rules.rule import PutTarget

FIELDS = {"DESTQ": "APP.IN", "DESTQM": "QM1", "REPLYQ": "R.Q", "REPLYQM": "RQM"}


@pytest.mark.parametrize(
    ("rule", "target"),
    [
        ("ACTION(FWD) FWDQ(X) FWDQM(' ')", ("X", "")),
        ("ACTION(FWD) FWDQ(X) FWDQM(QM9)", ("X", "QM9")),
        ("ACTION(FWD) FWDQ(&DESTQ)", ("APP.IN", "")),
        ("ACTION(FWD) FWDQ(&REPLYQ)", ("R.Q", "")),
        ("ACTION(FWD) FWDQ(&DESTQ) FWDQM(&DESTQM)", ("APP.IN", "QM1")),
        ("ACTION(FWD) FWDQ(&DESTQ) FWDQM(QM9)", ("APP.IN", "QM9")),
    ],
)
def test_targets_are_put_together_as_written(rule: str, target: tuple[str, str]) -> None:
    """Queue and queue manager are independent; a queue manager is not taken along (Q-27)."""
    (only,) = parse(f"{rule}\n").required().rules
    assert resolve_target(only, FIELDS) == PutTarget(*target)


def test_a_blank_field_gives_a_blank_queue() -> None:
    """The put then fails; it is not for the table to say how (specification 4.4, Q-28)."""
    (only,) = parse("ACTION(FWD) FWDQ(&REPLYQ)\n").required().rules
    assert resolve_target(only, {}) == PutTarget("", "")


@pytest.mark.parametrize("action", ["DISCARD", "IGNORE"])
def test_rules_that_put_nothing_have_no_target(action: str) -> None:
    (only,) = parse(f"ACTION({action})\n").required().rules
    with pytest.raises(ValueError, match="puts nothing"):
        resolve_target(only, FIELDS)


@pytest.mark.parametrize(
    ("arguments", "table", "chosen"),
    [
        ([], "", "DEADQ"),
        (["arg.q"], "", "arg.q"),
        ([""], "TABLE.Q", "DEADQ"),
        (["A B"], "", "A"),
        (["A\0B"], "", "A"),
        (["A" * 60], "", "A" * 48),
        ([], "A B", "A"),
        (["ARG.Q", "QM1"], "", "ARG.Q"),
    ],
)
def test_input_queue(arguments: list[str], table: str, chosen: str) -> None:
    """Argument, INPUTQ, DEADQ; blank asks for DEADQ; arguments are not folded (Q-40)."""
    assert input_queue(arguments, Control(input_queue=table), "DEADQ") == chosen


@pytest.mark.parametrize(
    ("arguments", "table", "chosen"),
    [
        ([], "", "DEFAULT"),
        ([], "TABLE.QM", "TABLE.QM"),
        (["Q"], "TABLE.QM", "TABLE.QM"),
        (["Q", "ARG.QM"], "TABLE.QM", "ARG.QM"),
        (["Q", " "], "TABLE.QM", "DEFAULT"),
    ],
)
def test_input_queue_manager(arguments: list[str], table: str, chosen: str) -> None:
    """Argument, INPUTQM, the default one; a blank argument asks for the default one."""
    control = Control(input_queue_manager=table)
    assert input_queue_manager(arguments, control, "DEFAULT") == chosen
