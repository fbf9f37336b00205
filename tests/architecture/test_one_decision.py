"""How many files a reader opens to follow one dead letter, and one view of dead letters."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import FrameType

import pytest
from starlette.testclient import TestClient
from tests.commands import redrive
from tests.engine.failed_processing import spring
from tests.engine.samples import dead_letter, handler_of, record, slice_of
from tests.transcripts.topics import recorded_jobs

import redrive as product
from redrive.console.server import console_application
from redrive.engine.facts import Answers, TopicFacts
from redrive.engine.slice import Slice
from redrive.messages import OutputRecord, Records

SOURCE = Path(product.__file__).parent
LIMITS = {
    "REASON(2035) ACTION(DISCARD)": (21, 150, 15),  # no rule matches
    "ACTION(DISCARD)": (19, 136, 15),
    "ACTION(IGNORE)": (21, 150, 15),
    "ACTION(RETRY)": (22, 354, 15),
    "ACTION(FWD) FWDQ(B)": (22, 322, 15),
    "DIALECT(KAFKA)\nACTION(RETRY) BACKOFF(1s,2,8s)": (22, 516, 15),
}
"""Files, switches between files and open calls, by table. These bounds only get lower: 12, 60 and
10 are the goal."""

VIEWS = {
    "history -c shop.toml orders.dlq:1:0": 54,
    "ls -c shop.toml": 65,
    "/messages?whole=1": 75,
}
"""Files whose functions a command or a page calls, imports aside. These bounds only get lower: 20
is the goal."""


@dataclass
class CallTrace:
    """The calls of the project's functions, as a reader follows them."""

    files: set[str] = field(default_factory=set)
    switches: int = 0
    """How often a call or its return leads to another file."""
    depth: int = 0
    """Maximum number of open calls."""
    _open: list[str] = field(default_factory=list)

    def note(self, frame: FrameType, event: str, argument: object) -> None:
        """A profile function; generators count as they are entered and left."""
        del argument
        path = Path(frame.f_code.co_filename)
        if event not in {"call", "return"} or not path.is_relative_to(SOURCE):
            return
        before = self._open[-1] if self._open else None
        if event == "call":
            self._open.append(str(path.relative_to(SOURCE)))
        else:
            self._open.pop()
        self.files.update(self._open)
        self.depth = max(self.depth, len(self._open))
        self.switches += before is not None and self._open[-1:] not in ([], [before])


def trace_of(work: Slice) -> CallTrace:
    """The calls from the first look at a slice's records to its outputs."""
    trace = CallTrace()
    sys.setprofile(trace.note)
    try:
        work.resume({})
        while questions := work.decide():
            sys.setprofile(None)
            topics = dict.fromkeys(questions.topics, TopicFacts())
            sys.setprofile(trace.note)
            work.learn(Answers(topics))
        outputs = list(work.outputs)
    finally:
        sys.setprofile(None)
    assert outputs
    return trace


def records_for(table: str) -> Records:
    """A dead letter of the kind that the table's dialect handles."""
    if table.startswith("DIALECT"):
        letter = spring(OutputRecord("orders", b"k", b"{}", [], 5), 7, 5)
        return Records([letter.key], [letter.value], [letter.headers or []], [5], [0])
    return record(b"x", dead_letter(2053, "Q"))


@pytest.mark.parametrize("table", LIMITS)
def test_one_dead_letter_is_followed_in_few_files(table: str) -> None:
    trace = trace_of(slice_of(records_for(table), handler_of(f"{table}\n")))
    files, switches, depth = LIMITS[table]
    assert len(trace.files) <= files, sorted(trace.files)
    assert trace.switches <= switches
    assert trace.depth <= depth


def files_of(show: Callable[[], object]) -> set[str]:
    """The project's files whose functions a view calls, in all its threads, the second time."""
    show()
    codes = set()

    def note(frame: FrameType, event: str, argument: object) -> None:
        del event, argument
        codes.add(frame.f_code)

    threading.setprofile(note)
    sys.setprofile(note)
    try:
        show()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    paths = {Path(code.co_filename) for code in codes}
    return {str(path.relative_to(SOURCE)) for path in paths if path.is_relative_to(SOURCE)}


def show_view(view: str) -> None:
    if not view.startswith("/"):
        redrive(*view.split(), code=0)
        return
    application = console_application(Path("shop.toml").absolute())
    headers = {"Accept": "text/html"}
    with TestClient(application, "http://localhost", headers=headers) as client:
        assert client.get(view).status_code == 200


def test_a_view_is_followed_in_few_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with recorded_jobs(tmp_path) as (folder, _):
        monkeypatch.chdir(folder)
        files = {view: files_of(partial(show_view, view)) for view in VIEWS}
    numbers = {view: len(files[view]) for view in VIEWS}
    assert all(numbers[view] <= VIEWS[view] for view in VIEWS), (numbers, files)
