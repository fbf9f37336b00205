"""How many files a reader opens to follow one dead letter's decision."""

from __future__ import annotations

import sys
from pathlib import Path
from types import FrameType

import pytest
from tests.engine.samples import dead_letter, handler_of

import redrive
from redrive.engine.message import NO_ATTEMPTS
from redrive.messages import decode_dead_letter

SOURCE = Path(redrive.__file__).parent
MOST = {
    "REASON(2035) ACTION(DISCARD)": 9,  # no rule matches
    "ACTION(DISCARD)": 10,
    "ACTION(IGNORE)": 10,
    "ACTION(RETRY)": 13,
    "ACTION(FWD) FWDQ(B)": 13,
}
"""Files by table. These bounds only get lower; 8 are the goal."""


def files_of_a_decision(table: str) -> set[str]:
    """The files whose functions run while a fresh dead letter is decided."""
    decider = handler_of(f"{table}\n")
    profile = decode_dead_letter(b"x", dead_letter(2053, "Q"))
    found = set()

    def note(frame: FrameType, event: str, argument: object) -> None:
        path = Path(frame.f_code.co_filename)
        if event == "call" and path.is_relative_to(SOURCE):
            found.add(str(path.relative_to(SOURCE)))

    sys.setprofile(note)
    try:
        decider.decide_profile(profile, NO_ATTEMPTS, hops=0)
    finally:
        sys.setprofile(None)
    return found


@pytest.mark.parametrize("table", MOST)
def test_one_decision_is_followed_in_few_files(table: str) -> None:
    """From the profile of a dead letter to the decision, by all that is called."""
    found = files_of_a_decision(table)
    assert len(found) == MOST[table], sorted(found)
