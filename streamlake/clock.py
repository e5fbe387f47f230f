"""Time and sleep: every module takes them from here, so that a test can replay a run exactly."""

from __future__ import annotations

import time


def now_ms() -> int:
    """Wall-clock time in milliseconds since 1970-01-01 UTC."""
    return time.time_ns() // 1_000_000


def monotonic() -> float:
    """Seconds of a clock that never goes back; only differences between two readings have a meaning."""
    return time.monotonic()


def sleep(seconds: float) -> None:
    """Block the calling thread for `seconds`."""
    time.sleep(seconds)
