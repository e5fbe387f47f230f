"""Turns: one DataFrame per micro-batch, table and branch, so that a second write of it is not lost.

A checkpoint that the table holds is skipped, and the table cannot distinguish a replay from a second
DataFrame that a user's function writes to it in the same micro-batch. Replays come in another run of the
query (or with the very same DataFrame, where a user's function tries again), so the driver can distinguish
them here. Invariant: two different DataFrames of one micro-batch never both count as written.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from pyspark.sql import DataFrame

from streamlake.checkpoint.identity import CheckpointIdentity
from streamlake.errors import InvalidOptionError
from streamlake.pipeline.runs.sink_run import SinkRun


@dataclass(frozen=True)
class _Turn:
    run_id: str
    checkpoint_id: int
    frame: weakref.ref[DataFrame]


_turns: dict[tuple[str, str, str], _Turn] = {}
_lock = threading.Lock()


@contextmanager
def turn(run: SinkRun, identity: CheckpointIdentity, frame: DataFrame) -> Iterator[None]:
    """Hold the turn while `frame` is written; a failed write gives it back.

    Raises InvalidOptionError for a second frame.
    """
    key = (identity.job_id, run.table.uuid, run.branch)
    mine = _Turn(run.run_id, identity.checkpoint_id, weakref.ref(frame))
    with _lock:
        taken = _turns.get(key)
        again = taken is not None and (taken.run_id, taken.checkpoint_id) == (run.run_id, mine.checkpoint_id)
        if taken is not None and again and taken.frame() is not frame:
            raise InvalidOptionError(
                f"two DataFrames of {identity} were given to IcebergSinks of branch '{run.branch}' of "
                f"{run.table.location}. A checkpoint is one snapshot, so the second would count as written "
                "already and its rows would be lost: give one sink the union of both, or write them to "
                "different tables"
            )
        _turns[key] = mine
    try:
        yield
    except BaseException:
        with _lock:
            if not again and _turns.get(key) is mine:
                del _turns[key]
        raise
