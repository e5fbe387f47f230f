"""The sink without what makes it exactly once: what its guards cost is the difference. For benchmarks alone.

Taken away for appends: identity and lineage checks on start and on every commit, staging, marker in summary and property,
fence, the directory's note, recovery. What is left writes files and commits them.
"""

from __future__ import annotations

from typing import Any

import streamlake.commit.committer as committer
import streamlake.pipeline.sink as sink
from streamlake.checkpoint.identity import CheckpointIdentity
from streamlake.checkpoint.store import CommittableStore
from streamlake.commit.committer import Committer
from streamlake.pipeline.sink_run import SinkRun


def remove_guards() -> None:
    """In this process, for good."""

    def nothing(*_: Any, **__: Any) -> None:
        return None

    def no_entries(*_: Any, **__: Any) -> dict[str, str]:
        return {}

    def none_pending(_: SinkRun) -> list[Any]:
        return []

    def anonymous(frame: Any, checkpoint_id: int, *_: Any) -> CheckpointIdentity:
        job_id = frame.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId")
        return CheckpointIdentity("bench", job_id, checkpoint_id)

    changes: tuple[tuple[Any, str, Any], ...] = (
        (sink, "checkpoint_identity", anonymous),
        (SinkRun, "remember", nothing),
        (SinkRun, "note_commit", nothing),
        (SinkRun, "pending", none_pending),
        (SinkRun, "forget_before", nothing),
        (CommittableStore, "record", nothing),
        (CommittableStore, "remove", nothing),
        (Committer, "receipt_if_committed", nothing),
        (Committer, "_check", nothing),
        (committer, "marker_summary", no_entries),
        (committer, "marker_property", no_entries),
    )
    for owner, name, replacement in changes:
        assert hasattr(owner, name), f"{owner} has no {name} to take away"
        setattr(owner, name, replacement)
