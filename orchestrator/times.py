"""Points in time and durations, as text."""

from __future__ import annotations

from datetime import UTC, datetime


def now() -> str:
    """UTC time for records, to the millisecond."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def clock(seconds: float) -> str:
    """A duration as m:ss or h:mm:ss."""
    whole = max(0, round(seconds))
    hours, minutes = divmod(whole // 60, 60)
    tail = f"{minutes:02}:{whole % 60:02}" if hours else f"{minutes}:{whole % 60:02}"
    return f"{hours}:{tail}" if hours else tail
