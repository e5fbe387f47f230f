"""The sink with and without what makes it exactly once, in turn: what its guards cost. For benchmarks alone.

Taken away for appends: identity and lineage checks on every commit, staging, marker in summary and property, fence, the
directory's note, the look for pending checkpoints. What is left writes files and commits them.

Two processes differ by more than the guards cost, so both kinds of stream run in one, in turn, and the time that the
guards of the one take is added up.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import streamlake.commit.committer as committer
import streamlake.pipeline.sinks.sink as sink
from streamlake.checkpoint.identity import CheckpointIdentity
from streamlake.checkpoint.store import CommittableStore
from streamlake.commit.committer import Committer
from streamlake.pipeline.runs.sink_run import SinkRun
from streamlake.pipeline.sinks.sink import IcebergSink


class SwitchedGuards:
    """Once made, the sinks of this process have guards while `are_on`. `seconds`: what they took, by checkpoint."""

    def __init__(self) -> None:
        self.are_on = True
        self.seconds: dict[int, float] = {}
        self._checkpoint = 0
        self._inside = False
        for owner, name, replacement in _REPLACEMENTS:
            setattr(owner, name, self._either(getattr(owner, name), replacement))
        call = IcebergSink.__call__

        def noting(each: IcebergSink, frame: Any, checkpoint_id: int) -> None:
            self._checkpoint = checkpoint_id
            call(each, frame, checkpoint_id)

        IcebergSink.__call__ = noting  # type: ignore[method-assign]

    def _either(self, guard: Callable[..., Any], replacement: Callable[..., Any]) -> Callable[..., Any]:
        def either(*values: Any, **named: Any) -> Any:
            if not self.are_on:
                return replacement(*values, **named)
            if self._inside:
                return guard(*values, **named)
            self._inside = True
            started = time.perf_counter()
            try:
                return guard(*values, **named)
            finally:
                self._inside = False
                taken = time.perf_counter() - started
                self.seconds[self._checkpoint] = self.seconds.get(self._checkpoint, 0) + taken

        return either


def _nothing(*_: Any, **__: Any) -> None:
    return None


def _no_entries(*_: Any, **__: Any) -> dict[str, str]:
    return {}


def _none_pending(*_: Any, **__: Any) -> list[Any]:
    return []


def _anonymous(frame: Any, checkpoint_id: int, *_: Any) -> CheckpointIdentity:
    job_id = frame.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId")
    return CheckpointIdentity("bench", job_id, checkpoint_id)


_REPLACEMENTS: tuple[tuple[Any, str, Callable[..., Any]], ...] = (
    (sink, "checkpoint_identity", _anonymous),
    (SinkRun, "remember", _nothing),
    (SinkRun, "note_commit", _nothing),
    (SinkRun, "pending", _none_pending),
    (SinkRun, "forget_before", _nothing),
    (CommittableStore, "record", _nothing),
    (CommittableStore, "remove", _nothing),
    (Committer, "receipt_if_committed", _nothing),
    (Committer, "_check", _nothing),
    (committer, "marker_summary", _no_entries),
    (committer, "marker_property", _no_entries),
)
