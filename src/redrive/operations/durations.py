"""Times and durations in the form that people write."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Final

_UNITS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_STEPS: Final = (("d", 86_400), ("h", 3600), ("min", 60))


def duration(seconds: float) -> str:
    """A duration in its two largest units: ``0.4 s``, ``12 s``, ``3 min 20 s``, ``2 d 4 h``."""
    if seconds < 1:
        return f"{max(seconds, 0):.1f} s"
    left = round(seconds)
    parts: list[str] = []
    for name, length in _STEPS:
        number, left = divmod(left, length)
        if number or parts:
            parts.append(f"{number} {name}")
    parts.append(f"{left} s")
    return " ".join(part for part in parts[:2] if not part.startswith("0 ") or len(parts) == 1)


def clock(time: datetime) -> str:
    """A time in UTC to the millisecond: ``2026-01-31 12:00:00.000``."""
    return time.astimezone(UTC).isoformat(" ", "milliseconds").removesuffix("+00:00")


def parse_duration(text: str) -> int | None:
    """Seconds from ``30s``, ``10m``, ``2h``, ``1d`` or ``1w``; None for any other text."""
    match = re.fullmatch(r"([0-9]{1,6})\s*([smhdw])", text.strip())
    return int(match[1]) * _UNITS[match[2]] if match else None


def parse_since(text: str, now: datetime) -> datetime:
    """A time from ``10m``, ``2h`` before now, or ISO 8601, by default UTC; else ``ValueError``."""
    return _time_from(text, now, -1)


def parse_until(text: str, now: datetime) -> datetime:
    """A time from ``2h``, ``4w`` after now, or ISO 8601, by default UTC; else ``ValueError``."""
    time = _time_from(text, now, 1)
    if time <= now:
        raise ValueError(f"{text} is in the past")
    return time


def _time_from(text: str, now: datetime, direction: int) -> datetime:
    seconds = parse_duration(text)
    if seconds is not None:
        try:
            return now + direction * timedelta(seconds=seconds)
        except OverflowError as error:
            raise ValueError(f"{text} is out of range") from error
    time = datetime.fromisoformat(text.strip())
    return time if time.tzinfo else time.replace(tzinfo=UTC)
