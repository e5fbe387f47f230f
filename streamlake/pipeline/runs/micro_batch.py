"""The steps of one checkpoint, on one page: recover, write, stage, commit.

Spark calls the sink with a micro-batch; when this function returns, Spark writes its commit log and moves on.
Everything before the swap of the table's metadata can be done again; the swap happens once; everything after
it can be skipped. Where writing may run ahead of committing, a staged checkpoint counts like a committed one:
it is as durable, and nobody commits past it. One table of a DataFrame and many tables of topics go through
the same steps; they differ in the write job alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, TypeVar

from pyspark.sql import DataFrame

from streamlake import clock
from streamlake.checkpoint.committable import Committable
from streamlake.checkpoint.identity import CheckpointIdentity
from streamlake.commit.receipt import (
    REJECTED_COUNTER,
    CommitReceipt,
    Outcome,
)
from streamlake.errors import IndexDamagedError, OutdatedValuesError, StagedUnfitError, StreamlakeError
from streamlake.failpoints import failpoint
from streamlake.pipeline.runs.filtered_tables import skipped_counters, skipped_summary
from streamlake.pipeline.runs.parallel import Ending, in_parallel
from streamlake.pipeline.runs.rejects import REJECTED_RECORDS
from streamlake.pipeline.runs.sink_run import SinkRun
from streamlake.pipeline.runs.stages import WriteEnding, Written
from streamlake.table.options import RetryOptions
from streamlake.write.files.result import WriteResult


class TablePart(Protocol):
    """One table's part in a micro-batch."""

    @property
    def run(self) -> SinkRun:
        """The table's run."""
        ...

    @property
    def identity(self) -> CheckpointIdentity:
        """The checkpoint's identity in the table."""
        ...

    @property
    def may_idle(self) -> bool:
        """Whether a table without any results had no records, so that nothing is due."""
        ...


Part = TypeVar("Part", bound=TablePart)
WriteJob = Callable[[Sequence[Part]], Sequence[WriteEnding]]
"""Writes the files of a micro-batch for these tables, and gives one ending per table. Its feed is its own: a
DataFrame, or offset ranges. Called once, and again for tables whose rows others have changed meanwhile."""


@dataclass(frozen=True)
class _OnlyTable:
    """The part of a table that takes all of a DataFrame."""

    run: SinkRun
    identity: CheckpointIdentity
    may_idle: bool = False


def run_micro_batch(run: SinkRun, frame: DataFrame, identity: CheckpointIdentity) -> CommitReceipt | None:
    """Write the rows of `frame` into the table exactly once.

    Returns None when the checkpoint is staged, and the run's queue will commit it and deliver its receipt.
    """

    def write(due: Sequence[_OnlyTable]) -> list[WriteEnding]:
        return [run.write(frame, identity) for _ in due]

    [ending] = run_micro_batches([_OnlyTable(run, identity)], write)
    if isinstance(ending, StreamlakeError):
        raise ending
    return ending


def run_micro_batches(
    parts: Sequence[Part],
    write: WriteJob[Part],
    *,
    seeks_tables: bool = False,
) -> list[Ending]:
    """Write a micro-batch of tables, each exactly once; one ending for each of `parts`.

    `write` is asked for those tables that do not have the records yet. Each table commits on its own, so a
    replay writes only where something is missing, and an error of one table does not end the others. With
    `seeks_tables` `write` is called in any case: there may be rows of tables that are not discovered yet.
    Raises what ends the write job.
    """
    endings: list[Ending] = in_parallel(parts, lambda each: receipt_if_known(each.run, each.identity))
    due = [at for at, ending in enumerate(endings) if ending is None]
    started = clock.monotonic()

    def finished(written: tuple[Part, WriteEnding]) -> CommitReceipt | None:
        part, results = written
        if isinstance(results, StreamlakeError):
            raise results
        return finish(part.run, part.identity, results, started, is_idle=part.may_idle and not results)

    while due or seeks_tables:
        failpoint("before-tasks")
        written = write([parts[at] for at in due])
        failpoint("results-collected")
        staged = [(parts[at], each) for at, each in zip(due, written, strict=True)]
        for at, ending in zip(due, in_parallel(staged, finished), strict=True):
            endings[at] = ending
        due = [at for at in due if _is_written_again(parts[at].run, started, endings[at])]
        seeks_tables = False
    return endings


def _is_written_again(run: SinkRun, started: float, ending: Ending) -> bool:
    """Whether others changed rows that the checkpoint took values from, with time left to write it again."""
    if not isinstance(ending, OutdatedValuesError):
        return False
    return _elapsed_ms(started) <= RetryOptions.for_commit(run.table.properties).total_timeout_ms


def receipt_if_known(run: SinkRun, identity: CheckpointIdentity) -> CommitReceipt | None:
    """Commit what a crashed predecessor staged; the receipt of this checkpoint where the table has it
    already, else None.
    """
    queue = run.queue
    if queue is not None:
        queue.check()
    if queue is None or not queue.is_used:
        receipt = _recover(run, identity) or run.outage_retry.through(
            lambda: run.committer.receipt_if_committed(identity)
        )
        if run.rejects is not None:
            run.rejects.recover(run.committer.last_checkpoint_id)
        if receipt is not None:
            run.note_commit(identity)
            return receipt
    run.require_own(identity)
    return None


def finish(
    run: SinkRun,
    identity: CheckpointIdentity,
    results: Sequence[WriteResult],
    started: float,
    *,
    is_idle: bool = False,
) -> CommitReceipt | None:
    """Stage what the tasks wrote and commit it; None when the run's queue commits it, or when there is
    nothing to commit.

    `is_idle`: a table that had no records has nothing to stage, not even a commit marker that moves.
    """
    queue, written = run.queue, Written.of(results)
    if run.rejects is not None:
        written = replace(written, rejected=run.rejects.stage(identity))
    if is_idle and not written.rejected:
        run.forget_superseded(identity)
        return None
    committable = run.stage(identity, written)
    write_ms = _elapsed_ms(started)
    if committable is None:
        run.forget_superseded(identity)
        run.note_passed(identity)
        empty = CommitReceipt(
            identity.job_id,
            identity.checkpoint_id,
            Outcome.EMPTY,
            None,
            write_ms=write_ms,
            counters=skipped_counters(skipped_summary(written.passed_over, written.nulls)),
        )
        if queue is None or not queue.is_used:
            return empty
        queue.put(lambda: empty)
        return None
    if queue is not None:
        run.note_staged(identity)
        queue.put(lambda: _commit(run, committable, written, write_ms))
        return None
    receipt = _commit(run, committable, written, write_ms)
    failpoint("before-return")
    return receipt


def _commit(
    run: SinkRun, committable: Committable, results: Sequence[WriteResult], write_ms: int
) -> CommitReceipt:
    receipt = replace(run.commit(committable, results), write_ms=write_ms)
    if run.rejects is not None:
        run.rejects.commit(committable.identity)
        rejected = int(committable.summary.get(REJECTED_RECORDS, 0))
        receipt = replace(receipt, counters={**receipt.counters, REJECTED_COUNTER: rejected})
    skipped = skipped_counters(committable.summary)
    if skipped:
        receipt = replace(receipt, counters={**receipt.counters, **skipped})
    failpoint("before-commit-note")
    if run.queue is None:
        run.note_commit(committable.identity)
    run.forget_before(committable.identity)
    return receipt


def commit_staged(run: SinkRun, identity: CheckpointIdentity) -> None:
    """Commit what earlier checkpoints have staged, while the records of this one are not there yet. What
    cannot be committed now is handled when there are records. Raises the error of a failed commit of the
    run's queue.
    """
    if run.queue is not None:
        run.queue.check()
        if run.queue.is_used:
            return
    for committable in run.pending():
        is_before = committable.identity.checkpoint_id < identity.checkpoint_id
        if is_before and _is_due(run, committable, identity):
            _recommit(run, committable, identity)
    if run.rejects is not None:
        marker = run.outage_retry.through(lambda: run.committer.marker(identity))
        run.rejects.recover(None if marker is None else marker.checkpoint_id)


def _recover(run: SinkRun, identity: CheckpointIdentity) -> CommitReceipt | None:
    """Commit what a crashed predecessor staged and did not commit, oldest first; checkpoints that the table
    has are skipped.
    """
    receipt = last = None
    for committable in run.pending():
        if _is_due(run, committable, identity):
            committed = _recommit(run, committable, identity)
            if committed is None:
                break
            last = committable.identity
            if committable.identity.checkpoint_id == identity.checkpoint_id:
                receipt = committed
    run.end_recovery(last)
    return receipt


def _recommit(run: SinkRun, committable: Committable, identity: CheckpointIdentity) -> CommitReceipt | None:
    """Commit what a predecessor staged. None where it has to be written again, which is possible for
    `identity` only.
    """
    failpoint("before-recommit")
    try:
        run.require_fit(committable)
        committed = run.commit(committable, outcome=Outcome.RECOVERED)
    except StagedUnfitError as error:
        run.unfit(committable, error, identity)
        return None
    except OutdatedValuesError as error:
        run.unfit(committable, error, identity)
        return None
    except IndexDamagedError:
        if committable.identity.checkpoint_id != identity.checkpoint_id:
            raise
        # The checkpoint's own part of the key index is lost, but Spark has its rows here again.
        return None
    failpoint("after-recommit")
    run.forget_before(committable.identity)
    return committed


def _is_due(run: SinkRun, committable: Committable, identity: CheckpointIdentity) -> bool:
    staged = committable.identity
    if staged.checkpoint_id > identity.checkpoint_id:
        return False
    if staged.checkpoint_id == identity.checkpoint_id and not staged.covers_the_same(identity):
        return False
    if staged.checkpoint_id == identity.checkpoint_id - 1 and staged.end_offsets != identity.start_offsets:
        return False  # of a copy of the directory, which continued differently
    marker = run.outage_retry.through(lambda: run.committer.marker(staged))
    if marker is not None and marker.checkpoint_id >= staged.checkpoint_id:
        return False
    run.require_predecessor(committable, marker)
    return True


def _elapsed_ms(started: float) -> int:
    """Milliseconds since `started`, a time of `clock.monotonic`."""
    return round((clock.monotonic() - started) * 1000)
