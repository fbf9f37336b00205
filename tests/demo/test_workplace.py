"""A demo leaves nothing behind, and ends when it is asked to."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from redrive.demo.workplace import Interruption, folder_for, output_to
from redrive.errors import UsageError


def _fail() -> None:
    raise ValueError


def test_a_folder_of_its_own_goes_whatever_happens() -> None:
    """On errors too."""
    with pytest.raises(ValueError), folder_for(None) as folder:  # noqa: PT011, PT012
        (folder / "data").write_text("x")
        _fail()
    assert not folder.exists()


def test_a_folder_that_was_asked_for_stays(tmp_path: Path) -> None:
    """And is made."""
    with folder_for(tmp_path / "a" / "b") as folder:
        (folder / "data").write_text("x")
    assert (tmp_path / "a" / "b" / "data").exists()


def test_a_folder_in_use_is_refused(tmp_path: Path) -> None:
    """Two demos on one broker would count each other's messages."""
    (tmp_path / "something").touch()
    with pytest.raises(UsageError, match="is not empty"), folder_for(tmp_path):
        _fail()
    with pytest.raises(UsageError, match="can't be used"), folder_for(tmp_path / "something"):
        _fail()


def test_output_goes_to_the_log_and_comes_back(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Also what is written past Python, as Java does; the picture goes to standard error."""
    with output_to(tmp_path / "log") as stream:
        os.write(1, b"from one\n")
        os.write(2, b"from two\n")
        stream.write("picture\n")
    os.write(1, b"result\n")
    assert (tmp_path / "log").read_text() == "from one\nfrom two\n"
    assert capfd.readouterr() == ("result\n", "picture\n")


def _fail_when_interrupted() -> None:
    _interrupt()
    _fail()


def _interrupt(number: signal.Signals = signal.SIGTERM) -> None:
    os.kill(os.getpid(), number)
    signal.sigtimedwait([], 0.01)  # the handler runs between two steps of the interpreter


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_interrupts(number: signal.Signals) -> None:
    """Whichever of the three."""
    interruption = Interruption()
    with pytest.raises(KeyboardInterrupt), interruption.heeded():
        _interrupt(number)
    assert interruption.came


def test_what_runs_is_asked_to_end_first() -> None:
    """It ends in an orderly way; then the demo is interrupted."""
    asked: list[str] = []
    interruption = Interruption()
    with interruption.heeded():
        with pytest.raises(KeyboardInterrupt), interruption.asking(asked.append):  # noqa: PT012
            _interrupt()
            _interrupt()
            asked.append("ended")
        interruption.ignore()
        _interrupt(signal.SIGINT)
    assert asked == ["SIGTERM", "ended"]


def test_an_interruption_outweighs_the_error_that_it_causes() -> None:
    """What breaks because it was told to end is not worth a word."""
    interruption = Interruption()
    with (
        interruption.heeded(),
        pytest.raises(KeyboardInterrupt),
        interruption.asking(lambda _name: None),
    ):
        _fail_when_interrupted()


def test_the_handlers_from_before_come_back() -> None:
    """And a signal that was ignored stays so, as with nohup."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with Interruption().heeded():
            assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
            _interrupt(signal.SIGHUP)
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)
