"""The second half of the direct path's tasks: writes rows of tables, with one outcome for each table.

    append   the task that reads a range writes its rows too
    upsert   a task takes the shuffle blocks of its slots, each the changes of one bucket of one table
    owned    the task that reads the partitions of a bucket writes its changes too

They run on the executors. Invariant: an error of one table is that table's outcome, and the others are
written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby

import pyarrow as pa

from streamlake.source.offsets import OffsetRange
from streamlake.tasks.intake import Batches, Intake, intake_of
from streamlake.tasks.record_screen import no_rejects_table
from streamlake.tasks.reported import reported
from streamlake.tasks.routed_append import append_routed
from streamlake.tasks.routed_intake import RoutedIntake
from streamlake.tasks.shuffle_blocks import ShuffleBlock, unpacked
from streamlake.tasks.watermarks import Watermarks, together
from streamlake.tasks.worker_memory import keep_freed_memory
from streamlake.tasks.worker_paths import keep_archive_directories
from streamlake.write.files.outcomes import TaskOutcome
from streamlake.write.files.result import WriteResult
from streamlake.write.target.target import WriteTarget
from streamlake.write.task import TaskContext, write_rows
from streamlake.write.task_writer import TaskWriter
from streamlake.write.upsert.upsert_target import UpsertTarget
from streamlake.write.upsert.upsert_task import write_changes


@dataclass(frozen=True)
class AppendTask:
    """A `mapInArrow` function: offset ranges in, outcomes out.

    `targets`: by table number, rejects tables too.
    """

    intakes: Mapping[str, Intake | RoutedIntake]
    targets: Mapping[int, WriteTarget]
    context: TaskContext

    def __call__(self, batches: Batches) -> Batches:
        """The outcomes of the tables that the ranges in `batches` have rows for."""
        keep_archive_directories()
        keep_freed_memory()
        ids = self.context()
        by_table: dict[int, list[tuple[Intake, OffsetRange]]] = {}
        parted: dict[int, tuple[RoutedIntake, list[OffsetRange]]] = {}
        for batch in batches:
            for piece in batch.to_pylist():
                intake = intake_of(self.intakes, piece["topic"])
                if isinstance(intake, RoutedIntake):
                    parted.setdefault(intake.family, (intake, []))[1].append(OffsetRange(**piece))
                elif intake is not None:
                    by_table.setdefault(intake.table, []).append((intake, OffsetRange(**piece)))
        for table, pieces in by_table.items():
            rejects = _Rejected(self.targets.get(rejects_of(table)), ids)
            times = Watermarks(pieces[0][0].reader.watermark_column)
            rows = (rows for intake, piece in pieces for rows in intake.rows(piece, rejects.write, times))
            yield from _outcomes(table, partial(write_rows, self.targets[table], rows, *ids), times, rejects)
        for family, ranges in parted.values():
            for outcome in append_routed(family, ranges, self.targets, ids):
                yield outcome.to_batch()


@dataclass(frozen=True)
class OwnedTask:
    """A `mapInArrow` function: ranges of the partitions that make up buckets of tables in, outcomes out.

    Each batch has all ranges of one bucket. `targets`: by table number, rejects tables too.
    """

    intakes: Mapping[str, Intake]
    targets: Mapping[int, WriteTarget | UpsertTarget]
    context: TaskContext

    def __call__(self, batches: Batches) -> Batches:
        """The outcomes of the tables whose buckets are in `batches`."""
        keep_archive_directories()
        keep_freed_memory()
        _, task_id, attempt = self.context()
        for batch in batches:
            pieces = [OffsetRange(**piece) for piece in batch.to_pylist()]
            first = intake_of(self.intakes, pieces[0].topic)
            assert first is not None
            target, beside = self.targets[first.table], self.targets.get(rejects_of(first.table))
            assert isinstance(target, UpsertTarget)
            assert not isinstance(beside, UpsertTarget)
            bucket = pieces[0].partition % target.buckets
            rejects = _Rejected(beside, (bucket, task_id, attempt))
            times = Watermarks(first.reader.watermark_column)
            rows = _owned_rows(self.intakes, pieces, bucket, rejects, times)
            write = partial(write_changes, target, rows, bucket, task_id, attempt)
            yield from _outcomes(first.table, write, times, rejects)


def _owned_rows(
    intakes: Mapping[str, Intake],
    pieces: Sequence[OffsetRange],
    bucket: int,
    rejects: _Rejected,
    times: Watermarks,
) -> Iterator[pa.RecordBatch]:
    """The changes of some ranges, all of one bucket. Raises MisplacedKeyError for a row of another bucket."""
    order = 0
    for piece in pieces:
        intake = intake_of(intakes, piece.topic)
        assert intake is not None
        assert intake.route is not None
        for rows in intake.rows(piece, rejects.write, times):
            if rows.num_rows:
                yield intake.route.owned(rows, order, bucket)
                order += rows.num_rows


def rejects_of(table: int) -> int:
    """The number of the rejects table of table number `table`."""
    return ~table


class _Rejected:
    """The rejects that a task collects while it writes a table."""

    def __init__(self, target: WriteTarget | None, ids: tuple[int, int, int]) -> None:
        self._writer = None if target is None else TaskWriter(target, *ids)

    def write(self, rows: pa.RecordBatch) -> None:
        if self._writer is None:
            raise no_rejects_table(rows)
        self._writer.write(rows)

    def close(self) -> WriteResult | None:
        return None if self._writer is None else self._writer.close()

    def abort(self) -> None:
        if self._writer is not None:
            self._writer.abort()


def _outcomes(
    table: int, write: Callable[[], WriteResult], times: Watermarks, rejects: _Rejected
) -> Iterator[pa.RecordBatch]:
    """The outcome of a table, and that of the rejects that `write` collects."""
    try:
        yield from outcome_of(table, write, times.taken)
    except BaseException:
        rejects.abort()
        raise
    result = rejects.close()
    if result is not None and result.rows:
        yield TaskOutcome(rejects_of(table), result.to_bytes()).to_batch()


@dataclass(frozen=True)
class ChangeTask:
    """A `mapInArrow` function: shuffle blocks in, one slot after the other; outcomes out.

    `slots` has (table number, bucket) for each slot. `targets`: by table number; rejects tables are appended
    to. What comes for a number without a target is passed on as it is.
    """

    slots: tuple[tuple[int, int], ...]
    targets: Mapping[int, WriteTarget | UpsertTarget]
    context: TaskContext

    def __call__(self, batches: Batches) -> Batches:
        """The outcomes of the tables whose slots are in `batches`."""
        keep_archive_directories()
        keep_freed_memory()
        _, task_id, attempt = self.context()
        for slot, shuffle_blocks in groupby(unpacked(batches), key=lambda shuffle_block: shuffle_block.slot):
            table, bucket = self.slots[slot]
            target = self.targets.get(table)
            if target is None:
                for shuffle_block in shuffle_blocks:
                    outcome = TaskOutcome(table, None, shuffle_block.error, shuffle_block.newest)
                    yield outcome.to_batch()
                continue
            newest: list[bytes | None] = []
            rows = _rows(shuffle_blocks, newest)
            write: Callable[[], WriteResult]
            if isinstance(target, UpsertTarget):
                write = partial(write_changes, target, rows, bucket, task_id, attempt)
            else:
                write = partial(write_rows, target, rows, bucket, task_id, attempt)
            yield from outcome_of(table, write, partial(together, newest))


def _rows(shuffle_blocks: Iterator[ShuffleBlock], newest: list[bytes | None]) -> Iterator[pa.RecordBatch]:
    """The rows of shuffle blocks; their watermarks are added to `newest`."""
    for shuffle_block in shuffle_blocks:
        newest.append(shuffle_block.newest)
        yield from shuffle_block.batches()


def outcome_of(
    table: int, write: Callable[[], WriteResult], newest: Callable[[], bytes | None]
) -> Iterator[pa.RecordBatch]:
    """The outcome of `write`; `newest` is called when everything has been written."""

    def written() -> Iterator[pa.RecordBatch]:
        result = write().to_bytes()
        yield TaskOutcome(table, result, newest=newest()).to_batch()

    return reported(table, written())
