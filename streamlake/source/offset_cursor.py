"""How far one query has come: the state between Spark's calls to a streaming source.

Spark asks for the first offset once per checkpoint, for the latest offset per trigger (many times a second while
idle), and for the ranges of each micro-batch; after a restart it asks for the latest offset before it tells where
the query stood. Invariant: what `latest` returns never goes back, and is the same value while there is nothing new,
so that no empty micro-batch runs.
"""

from __future__ import annotations

from streamlake import clock
from streamlake.source.offsets import OffsetRange, SourceOffsets
from streamlake.source.planner import OffsetPlanner

_IDLE_SECONDS = 0.1


class OffsetCursor:
    """`start` is where a new checkpoint begins, when that was decided already; `known` is the last offset of the
    checkpoint, when it is known; `target` is where the query shall end, None for never."""

    def __init__(
        self,
        planner: OffsetPlanner,
        *,
        start: SourceOffsets | None = None,
        known: SourceOffsets | None = None,
        target: SourceOffsets | None = None,
    ) -> None:
        self._planner = planner
        self._start = start
        self._known = known
        self._target = target
        self._asked_at: float | None = None

    def initial(self) -> SourceOffsets:
        """The offset before the first record of a new checkpoint."""
        if self._start is None:
            self._start = self._planner.initial()
        self._known = self._start
        return self._start

    def latest(self) -> SourceOffsets:
        """Where the next micro-batch ends; the last offset again when there is nothing new."""
        if self._known is None and self._start is not None:
            self._known = self._start
        known = self._known
        if known is not None and self._idle():
            return known
        end = self._target or self._planner.latest(known)
        # Without a known offset there is nothing to measure a limit from: everything up to the end is taken.
        self._known = end if known is None else self._planner.up_to(known, end)
        self._asked_at = clock.monotonic() if self._known == known else None
        return self._known

    def ranges(self, start: SourceOffsets, end: SourceOffsets) -> list[OffsetRange]:
        """What the micro-batch between two offsets reads."""
        if self._known is None:
            self._known = end
        return self._planner.ranges(start, end)

    def _idle(self) -> bool:
        return self._asked_at is not None and clock.monotonic() - self._asked_at < _IDLE_SECONDS
