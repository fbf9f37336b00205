"""A demo ends when it is asked to, and lets what runs end first."""

from __future__ import annotations

import os
import signal

import pytest

from redrive.demo.environment import Interruption


def _fail() -> None:
    raise ValueError


def _fail_when_interrupted() -> None:
    _interrupt()
    _fail()


def _interrupt(number: signal.Signals = signal.SIGTERM) -> None:
    os.kill(os.getpid(), number)
    signal.sigtimedwait([], 0.01)  # the handler runs between two steps of the interpreter


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_interrupts(number: signal.Signals) -> None:
    """Whichever of the three, unless it is ignored, as whoever runs the tests may ignore SIGHUP."""
    interruption, before = Interruption(), signal.signal(number, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt), interruption.caught():
            _interrupt(number)
    finally:
        signal.signal(number, before)
    assert interruption.came


def test_what_runs_is_asked_to_end_first() -> None:
    """It ends in an orderly way; then the demo is interrupted."""
    asked: list[str] = []
    interruption = Interruption()
    with interruption.caught():
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
        interruption.caught(),
        pytest.raises(KeyboardInterrupt),
        interruption.asking(lambda _name: None),
    ):
        _fail_when_interrupted()


def test_the_handlers_from_before_come_back() -> None:
    """And a signal that was ignored stays so, as with nohup."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with Interruption().caught():
            assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
            _interrupt(signal.SIGHUP)
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)
