"""Progress of one query: the state between Spark's calls to a streaming source.

Spark asks for the latest offset per trigger (many times a second while idle), for the first offset whenever
it plans the first micro-batch, again when that one is replayed, and for the ranges of each micro-batch. After
a restart it first asks for the ranges between the checkpoint's last offset and itself, which shows where the
query stood.

Spark's log holds where a micro-batch ends, and not where the first one starts. So the first offset is always
empty, and the end of the first micro-batch says in `first` where reading begins. A replay then reads the same
records, whatever `starting-offsets` would mean by then. Invariant: what `latest` returns never goes back, and
is the same value while there is nothing new, so that no empty micro-batch runs.
"""

from __future__ import annotations

from dataclasses import replace

from streamlake import clock
from streamlake.source.offsets import OffsetRange, SourceOffsets
from streamlake.source.planner import OffsetPlanner

_IDLE_SECONDS = 0.1
_NOTHING = SourceOffsets({})


class OffsetCursor:
    """The progress of one query.

    `start` is where a new checkpoint begins, when that is decided already. `known` is the last offset of the
    checkpoint, when it is known. `target` is where the query ends, None for never. While there is nothing
    new, Kafka is asked once per `idle_seconds` at most.
    """

    def __init__(
        self,
        planner: OffsetPlanner,
        *,
        start: SourceOffsets | None = None,
        known: SourceOffsets | None = None,
        target: SourceOffsets | None = None,
        idle_seconds: float = _IDLE_SECONDS,
    ) -> None:
        self._planner = planner
        self._start = start
        self._known = known
        self._target = target
        self._idle_seconds = idle_seconds
        self._asked_at: float | None = None

    def initial(self) -> SourceOffsets:
        """The offset before the first micro-batch of any checkpoint."""
        return _NOTHING

    def latest(self) -> SourceOffsets:
        """Where the next micro-batch ends; the last offset again when there is nothing new.

        Raises SourceError.
        """
        if self._known is None:
            self._known = self._first_end()
            return self._known
        if self._idle():
            return self._known
        end = self._planner.up_to(self._known, self._target or self._planner.latest(self._known))
        self._asked_at = clock.monotonic() if end == self._known else None
        self._known = end
        return end

    def ranges(self, start: SourceOffsets, end: SourceOffsets) -> list[OffsetRange]:
        """The ranges that the micro-batch between two offsets reads. Raises as OffsetPlanner.ranges."""
        if self._known is None:
            self._known = end
        return self._planner.ranges(start, end)

    def _first_end(self) -> SourceOffsets:
        start = self._start or self._planner.initial()
        end = self._target or self._planner.latest(start)
        return self._planner.up_to(_NOTHING, replace(end, first={**end.first, **start.positions}))

    def _idle(self) -> bool:
        return self._asked_at is not None and clock.monotonic() - self._asked_at < self._idle_seconds
