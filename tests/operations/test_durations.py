"""Times and durations read as people write them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive.operations.durations import clock, duration, parse_since, parse_until

NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-3, "0.0 s"),
        (0.42, "0.4 s"),
        (1, "1 s"),
        (59.4, "59 s"),
        (60, "1 min"),
        (200, "3 min 20 s"),
        (3600, "1 h"),
        (3660, "1 h 1 min"),
        (86_400, "1 d"),
        (187_200, "2 d 4 h"),
    ],
)
def test_a_duration_has_its_two_largest_units(seconds: float, text: str) -> None:
    """What is 0 is left out."""
    assert duration(seconds) == text


@given(st.integers(1, 999_999), st.sampled_from("smhdw"))
def test_a_span_counts_back_from_now_or_on_from_it(number: int, unit: str) -> None:
    units = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
    for parsed, direction in ((parse_since, -1), (parse_until, 1)):
        try:
            expected = NOW + direction * timedelta(**{units[unit]: number})
        except OverflowError:
            with pytest.raises(ValueError, match="out of range"):
                parsed(f"{number}{unit}", NOW)
        else:
            assert parsed(f"{number}{unit}", NOW) == expected


def test_an_end_is_a_time_to_come() -> None:
    assert parse_until("2026-02-01", NOW) == datetime(2026, 2, 1, tzinfo=UTC)
    with pytest.raises(ValueError, match="2026-01-31 is in the past"):
        parse_until("2026-01-31", NOW)


@given(st.datetimes(min_value=datetime(1970, 1, 1), timezones=st.just(UTC)))  # noqa: DTZ001 - as Hypothesis wants it
def test_a_time_that_is_shown_can_be_asked_for(time: datetime) -> None:
    """The output of one command is the input of the next; without a zone it is UTC."""
    asked = parse_since(clock(time), NOW)
    assert asked == time.replace(microsecond=time.microsecond // 1000 * 1000)


@pytest.mark.parametrize("text", ["", "yesterday", "10", "10y", "-5m", "2026-13-01"])
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        parse_since(text, NOW)
