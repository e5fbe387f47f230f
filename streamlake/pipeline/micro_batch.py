"""The story of one checkpoint, on one page.

Spark calls the sink with a micro-batch; when this function returns, Spark writes its commit log and moves on.
Everything before the swap can be done again; the swap happens once; everything after it can be skipped.
"""

from __future__ import annotations

from dataclasses import replace

from pyspark.sql import DataFrame

from streamlake import clock
from streamlake.checkpoint.committable import Committable
from streamlake.checkpoint.identity import CheckpointIdentity
from streamlake.commit.receipt import CommitReceipt, Outcome
from streamlake.errors import IndexDamagedError
from streamlake.failpoints import failpoint
from streamlake.pipeline.sink_run import Reader, SinkRun, elapsed_ms


def run_micro_batch(
    run: SinkRun, frame: DataFrame, identity: CheckpointIdentity, read: Reader | None = None
) -> CommitReceipt:
    """Bring one checkpoint into the table exactly once.

    `read` turns rows of offset ranges into records on the executors (direct sources); None for a frame of rows.
    """
    receipt = _recover(run, identity) or run.committer.receipt_if_committed(identity)
    if receipt is not None:
        run.note_commit()
        return receipt

    started = clock.monotonic()
    failpoint("before-tasks")
    results = run.write(frame, identity, read)
    failpoint("results-collected")
    committable = run.stage(identity, results)
    write_ms = elapsed_ms(started)
    if committable is None:
        return CommitReceipt(identity.job_id, identity.checkpoint_id, Outcome.EMPTY, None, write_ms=write_ms)

    receipt = replace(run.commit(committable, results), write_ms=write_ms)
    failpoint("before-commit-note")
    run.note_commit()
    run.forget_before(identity)
    failpoint("before-return")
    return receipt


def _recover(run: SinkRun, identity: CheckpointIdentity) -> CommitReceipt | None:
    """Commit what a crashed predecessor staged and did not commit, oldest first; what the table has is skipped."""
    receipt = None
    for committable in run.pending():
        if _is_due(run, committable, identity):
            failpoint("before-recommit")
            try:
                committed = run.commit(committable, outcome=Outcome.RECOVERED)
            except IndexDamagedError:
                if committable.identity.checkpoint_id != identity.checkpoint_id:
                    raise
                # Its own part of the key index is lost, but Spark has its rows here again.
                return None
            failpoint("after-recommit")
            run.forget_before(committable.identity)
            if committable.identity.checkpoint_id == identity.checkpoint_id:
                receipt = committed
    return receipt


def _is_due(run: SinkRun, committable: Committable, identity: CheckpointIdentity) -> bool:
    staged = committable.identity
    if staged.checkpoint_id > identity.checkpoint_id:
        return False
    if staged.checkpoint_id == identity.checkpoint_id and not staged.covers_the_same(identity):
        return False
    marker = run.committer.marker(staged)
    return marker is None or marker.checkpoint_id < staged.checkpoint_id
