"""Attributes that resolution does not use are kept; channels have those of their type.

The types are those of IBM's reference of DEFINE CHANNEL (q085520, its table of attribute keywords
by channel type).
"""

from __future__ import annotations

import pytest

from redrive.topology.mq import objects as mq
from redrive.topology.mq.objects import CHANNEL_TYPES
from redrive.topology.mq.reader import read_mqsc

NEEDED = {
    mq.ChannelType.SDR: "CONNAME('h') XMITQ(X)",
    mq.ChannelType.SVR: "XMITQ(X)",
    mq.ChannelType.RQSTR: "CONNAME('h')",
    mq.ChannelType.CLUSSDR: "CONNAME('h')",
    mq.ChannelType.CLNTCONN: "CONNAME('h')",
}
"""What a channel of each type cannot do without."""


def refusals(*commands: str) -> dict[str, str]:
    """The commands among some that are refused, each with the code of the error."""
    result = read_mqsc("\n".join(commands), queue_manager="QM1")
    errors = [diagnostic for diagnostic in result.diagnostics if diagnostic.severity == "error"]
    return {commands[error.line - 1]: error.code for error in errors}


def channel(kind: mq.ChannelType, given: str = "") -> str:
    """The definition of a channel, whose attributes are each given once."""
    needed = [keyword for keyword in NEEDED.get(kind, "").split() if keyword[:4] != given[:4]]
    return f"DEFINE CHANNEL(A) CHLTYPE({kind}) REPLACE {' '.join(needed)} {given}"


def test_values_that_nothing_uses_are_kept_whatever_they_are() -> None:
    commands = [f"DEFINE QLOCAL(A) REPLACE {text}" for text in ("SHARE", "BOTHRESH(x)", "MONQ(NO)")]
    assert refusals(*commands) == {}
    read = read_mqsc("DEFINE QLOCAL(A) BOTHRESH(x) NOSHARE", queue_manager="QM1")
    assert read.queue_manager.queues["A"].others == {"BOTHRESH": "BOTHRESH(x)", "SHARE": "NOSHARE"}


def test_misspelt_keywords_and_wrong_values_of_used_attributes_are_refused() -> None:
    commands = {
        "DEFINE QLOCAL(A) BOTTHRESH(3)": "UNKNOWN_KEYWORD",
        "DEFINE QLOCAL(A) MAXDEPTH(x)": "BAD_VALUE",
        "DEFINE QLOCAL(A) MAXDEPTH(1000000000)": "RANGE",
        "DEFINE QLOCAL(A) PUT(MAYBE)": "BAD_VALUE",
    }
    assert refusals(*commands) == commands


@pytest.mark.parametrize("kind", list(mq.ChannelType))
def test_a_channel_has_the_attributes_of_its_type(kind: mq.ChannelType) -> None:
    value = {"CONNAME": "('h')", "NPMSPEED": "(FAST)", "USEDLQ": "(YES)", "CLWLWGHT": "(9)"}
    commands: dict[str, bool] = {channel(kind): True}
    for keyword, types in CHANNEL_TYPES.items():
        given = f"{keyword}{value.get(keyword, '(1)')}"
        commands[channel(kind, given)] = kind in types
        commands[f"ALTER CHANNEL(A) CHLTYPE({kind}) {given}"] = kind in types
    expected = [text for text, is_taken in commands.items() if not is_taken]
    assert refusals(*commands) == dict.fromkeys(expected, "UNKNOWN_KEYWORD")


@pytest.mark.parametrize(
    ("script", "code"),
    [
        ("ALTER CHANNEL(SYSTEM.DEF.RECEIVER) MRRTY(3)", "SYNTAX"),
        ("SUSPEND QMGR", "SYNTAX"),
        ("RESUME QMGR", "SYNTAX"),
        ("DEFINE QALIAS(A) DESCR('it's)", "SYNTAX"),
        ("DEFINE QALIAS(A) DESCR('it's mine')", "SYNTAX"),
        ("DEFINE QALIAS(A) DESCR(it's)", "UNTERMINATED"),
        ("DEFINE NAMELIST(N) NAMES(A 'B'C)", "SYNTAX"),
    ],
)
def test_commands_that_lack_what_they_need_are_refused(script: str, code: str) -> None:
    """ALTER CHANNEL has to say CHLTYPE, SUSPEND and RESUME a cluster; quotes are doubled."""
    assert refusals(script) == {script: code}


def test_suspending_a_facility_of_zos_is_passed_over() -> None:
    assert refusals("SUSPEND QMGR FACILITY(DB2)", "RESUME QMGR LOG") == {}
