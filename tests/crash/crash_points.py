"""Where a driver can be made to die: SIGKILL to its whole process group, so that nothing gets to clean up.

Armed in the driver before the query starts. Each point kills when checkpoint `CRASHING_CHECKPOINT` gets there.
"""

from __future__ import annotations

import functools
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from streamlake.catalog.hadoop_operations import HadoopTableOperations
from streamlake.checkpoint.store import CommittableStore
from streamlake.commit.committer import Committer
from streamlake.pipeline.sink_run import SinkRun

if TYPE_CHECKING:
    import pyarrow as pa

CRASHING_CHECKPOINT = 2
WRITING = "writing"
"""A writer task has finished at least one data file and is at work on the next."""
WRITTEN = "written"
"""All data files are there, nothing is staged."""
STAGING = "staging"
"""The delta manifests are there, the Committable that names them is not."""
STAGED = "staged"
"""The Committable is durable, the commit has not begun."""
SWAPPING = "swapping"
"""The new manifest list is there, the metadata pointer is not moved."""
SWAPPED = "swapped"
"""The snapshot is in the table; Spark's commit log does not have the checkpoint."""
BEFORE_STAGING = (WRITING, WRITTEN)
POINTS = (WRITING, WRITTEN, STAGING, STAGED, SWAPPING, SWAPPED)


def arm(point: str, run: type[SinkRun] = SinkRun) -> None:
    """Make this process die at `point` (of the driver's: all but WRITING). `run` is the class of the sink's state."""
    if point == WRITTEN:
        run.write = _then_die(run.write, lambda run, frame, identity, *_: identity)
    elif point == STAGING:
        CommittableStore.record = _die_instead(
            CommittableStore.record, lambda store, committable: committable.identity
        )
    elif point == STAGED:
        run.stage = _then_die(run.stage, lambda run, identity, *_: identity)
    elif point == SWAPPED:
        Committer.commit = _then_die(
            Committer.commit, lambda committer, committable, *_: committable.identity
        )
    elif point == SWAPPING:
        Committer.commit = _arming_swap(Committer.commit)


def dying_task(
    table: Path, driver: int, row: int
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """A `mapInArrow` function that passes rows on, and kills the process group of `driver` on the batch with id `row`,
    once a file of that checkpoint is complete."""

    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            if row in batch.column(0).to_pylist():
                before = set(table.glob("data/**/*.parquet"))
                yield batch.slice(0, batch.num_rows // 2)
                deadline = time.monotonic() + 10
                while time.monotonic() < deadline and set(table.glob("data/**/*.parquet")) <= before:
                    time.sleep(0.02)
                os.killpg(driver, signal.SIGKILL)
            yield batch

    return task


def _die() -> None:
    os.killpg(os.getpgrp(), signal.SIGKILL)
    time.sleep(60)


def _then_die(function: Callable[..., Any], identity_of: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def wrapped(*arguments: Any, **keywords: Any) -> Any:
        result = function(*arguments, **keywords)
        if identity_of(*arguments).checkpoint_id == CRASHING_CHECKPOINT:
            _die()
        return result

    return wrapped


def _die_instead(function: Callable[..., Any], identity_of: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def wrapped(*arguments: Any, **keywords: Any) -> Any:
        if identity_of(*arguments).checkpoint_id == CRASHING_CHECKPOINT:
            _die()
        return function(*arguments, **keywords)

    return wrapped


def _arming_swap(commit: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(commit)
    def wrapped(committer: Any, committable: Any, *more: Any, **keywords: Any) -> Any:
        if committable.identity.checkpoint_id == CRASHING_CHECKPOINT:
            HadoopTableOperations.commit = lambda *_: _die()
        return commit(committer, committable, *more, **keywords)

    return wrapped
