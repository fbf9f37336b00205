"""What ``runmqsc`` refuses of attributes that resolution does not use, and of channels by type.

The values are those of IBM's references of DEFINE QLOCAL (q085690), DEFINE CHANNEL (q085520, and
its table of attribute keywords by channel type) and ALTER QMGR (q085330); texts that are too long
get AMQ8413E.
"""

from __future__ import annotations

import pytest

from redrive.topology.mq import objects as mq
from redrive.topology.mq.attributes import _ROWS, CHANNEL_TYPES
from redrive.topology.mq.reader import read_mqsc

COMMANDS: dict[type[mq.Definition], str] = {
    mq.LocalQueue: "DEFINE QLOCAL(A) REPLACE",
    mq.ModelQueue: "DEFINE QMODEL(A) REPLACE",
    mq.QueueManagerAttributes: "ALTER QMGR",
}
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
    errors = [one for one in result.diagnostics if one.severity == "error"]
    return {commands[one.line - 1]: one.code for one in errors}


def channel(kind: mq.ChannelType, given: str = "") -> str:
    """The definition of a channel, whose attributes are each given once."""
    needed = [one for one in NEEDED.get(kind, "").split() if one[:4] != given[:4]]
    return f"DEFINE CHANNEL(A) CHLTYPE({kind}) REPLACE {' '.join(needed)} {given}"


def command(kind: type[mq.Definition], keyword: str, value: str) -> str:
    """A command that gives one attribute."""
    if kind is not mq.Channel:
        return f"{COMMANDS[kind]} {keyword}{value}"
    kinds = sorted(CHANNEL_TYPES.get(keyword, {mq.ChannelType.SVRCONN}))
    return channel(kinds[0], f"{keyword}{value}")


def values(form: str) -> tuple[list[str], list[str]]:
    """Values that a form takes, at its limits, and values next to them that it does not."""
    match form.split():
        case ["text", longest]:
            return [f"('{'x' * int(longest)}')", "(' ')"], [f"('{'x' * (int(longest) + 1)}')"]
        case ["flag"]:
            return [""], ["(YES)", "(NO)"]
        case [limits, *word] if ".." in limits:
            low, high = limits.split("..")
            good = [f"({low})", f"({high})", *(f"({one})" for one in word if one != "or")]
            return good, [f"({int(high) + 1})", "(-1)", "(x)", "", "(1.5)"]
        case words:
            return [*(f"({one})" for one in words), f"({words[0].lower()})"], ["(NOSUCH)", ""]


KINDS: tuple[type[mq.Definition], ...] = (*COMMANDS, mq.Channel)
CASES = {
    (kind, keyword): form
    for objects, keywords, form in _ROWS
    for kind in KINDS
    for keyword in keywords.split()
    if kind.keyword in objects.split()
}


@pytest.mark.parametrize(
    ("kind", "keyword"),
    [case for case, form in CASES.items() if form],
    ids=[f"{kind.keyword}-{word}" for (kind, word), form in CASES.items() if form],
)
def test_every_value_is_taken_that_a_queue_manager_takes_and_no_other(
    kind: type[mq.Definition], keyword: str
) -> None:
    """Of each attribute: both limits, every word in any case, and what lies beyond."""
    assert keyword not in mq.ATTRIBUTES[kind]
    good, bad = values(CASES[kind, keyword])
    commands = [command(kind, keyword, value) for value in (*good, *bad)]
    assert list(refusals(*commands)) == commands[len(good) :]


@pytest.mark.parametrize("kind", list(mq.ChannelType))
def test_a_channel_has_the_attributes_of_its_type(kind: mq.ChannelType) -> None:
    """And no others, whether it is defined or altered."""
    value = {"CONNAME": "('h')", "NPMSPEED": "(FAST)", "USEDLQ": "(YES)", "CONVERT": "(NO)"}
    value |= {"AFFINITY": "(NONE)", "DEFRECON": "(NO)", "SEQWRAP": "(999)", "CLWLWGHT": "(9)"}
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
        ("DEFINE QALIAS(A) DESCR('" + "x" * 65 + "')", "TOO_LONG"),
        ("DEFINE QALIAS(A) DESCR('it's)", "SYNTAX"),
        ("DEFINE QALIAS(A) DESCR('it's mine')", "SYNTAX"),
        ("DEFINE QALIAS(A) DESCR(it's)", "UNTERMINATED"),
        ("DEFINE NAMELIST(N) NAMES(A 'B'C)", "SYNTAX"),
        ("DEFINE TOPIC(T2)", "REFUSED"),  # TOPICSTR is required (topic properties)
        ("DEFINE TOPIC(T2) TOPICSTR(' ')", "REFUSED"),
    ],
)
def test_commands_that_lack_what_they_need_are_refused(script: str, code: str) -> None:
    """ALTER CHANNEL has to say CHLTYPE, SUSPEND and RESUME a cluster, DEFINE TOPIC its string;
    texts have their limits, and quotes in them are doubled."""
    assert refusals(script) == {script: code}


def test_suspending_a_facility_of_zos_is_passed_over() -> None:
    """It does not concern clusters."""
    assert refusals("SUSPEND QMGR FACILITY(DB2)", "RESUME QMGR LOG") == {}
