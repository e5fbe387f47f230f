"""The only door to time and sleep, so that a test can replay a run exactly."""

from __future__ import annotations

import time


def now_ms() -> int:
    """Wall-clock time in milliseconds since 1970-01-01 UTC."""
    return time.time_ns() // 1_000_000


def monotonic() -> float:
    """Seconds of a clock that never goes back; only differences mean anything."""
    return time.monotonic()


def sleep(seconds: float) -> None:
    """Block the calling thread for `seconds`."""
    time.sleep(seconds)
