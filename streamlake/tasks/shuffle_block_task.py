"""The first half of an upsert: a task that turns offset ranges into shuffle blocks.

Each block is for one table and bucket. It runs on the executors. Invariant: an error in one table's records
goes into a shuffle block of that table, in their place.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa

from streamlake.errors import StreamlakeError
from streamlake.source.offsets import OffsetRange
from streamlake.tasks.intake import Batches, Intake, intake_of
from streamlake.tasks.record_screen import no_rejects_table
from streamlake.tasks.routed_intake import Part, RoutedIntake, RowParting
from streamlake.tasks.shuffle_blocks import noted, packed, packed_error, packed_note
from streamlake.tasks.task_errors import FINAL_ERRORS
from streamlake.tasks.watermarks import Watermarks
from streamlake.tasks.worker_memory import keep_freed_memory
from streamlake.tasks.worker_paths import keep_archive_directories
from streamlake.write.task import TaskContext

ShuffleBlocks = Generator[pa.RecordBatch, None, int]

ORDER_BITS = 33
"""How many bits of a place count the rows of one task; those above are the task's number."""


@dataclass(frozen=True)
class ShuffleBlockTask:
    """A `mapInArrow` function: offset ranges in, shuffle blocks of changes out. `context`: see write.task."""

    intakes: Mapping[str, Intake | RoutedIntake]
    context: TaskContext

    def __call__(self, batches: Batches) -> Batches:
        """The shuffle blocks of the ranges in `batches`."""
        keep_archive_directories()
        keep_freed_memory()
        order = self.context()[0] << ORDER_BITS
        partings: dict[int, _Parted] = {}
        for batch in batches:
            for piece in batch.to_pylist():
                intake = intake_of(self.intakes, piece["topic"])
                if isinstance(intake, RoutedIntake):
                    parted = partings.setdefault(intake.family, _Parted(intake))
                    order = yield from parted.shuffle_blocks(OffsetRange(**piece), order)
                elif intake is not None:
                    order = yield from _shuffle_blocks(intake, OffsetRange(**piece), order)
        for parted in partings.values():
            yield from parted.end(order)


def _shuffle_blocks(intake: Intake, piece: OffsetRange, order: int) -> ShuffleBlocks:
    """The shuffle blocks of a range for one table; returns the place of what comes next."""
    if intake.route is None:
        return order
    rejected: list[pa.RecordBatch] = []
    times = Watermarks(intake.reader.watermark_column)
    try:
        for rows in intake.rows(piece, rejected.append, times):
            yield from _rejected(intake.rejects_slot, rejected, order)
            rejected.clear()
            if rows.num_rows:
                yield from noted(intake.route.shuffle_blocks(rows, order), times.taken())
            order += rows.num_rows
        if times.has_named:
            yield packed_note(intake.route.first_slot, order, times.taken(), None)
    except FINAL_ERRORS as error:
        yield packed_error(intake.route.first_slot, order, error)
    return order


class _Parted:
    """Turns ranges of routed topics into shuffle blocks, for one task."""

    def __init__(self, intake: RoutedIntake) -> None:
        self._intake = intake
        self._parting = RowParting(intake)
        self._failed = False

    def shuffle_blocks(self, piece: OffsetRange, order: int) -> ShuffleBlocks:
        """The shuffle blocks of a range; returns the place of what comes next."""
        slot = self._intake.slot
        if slot is None or self._failed:
            return order
        try:
            for part in self._parting.parts(piece):
                yield from self._of(part, order)
                order += part.rows.num_rows
        except FINAL_ERRORS as error:
            self._failed = True
            yield packed_error(slot, order, error)
        return order

    def end(self, order: int) -> Iterator[pa.RecordBatch]:
        """The rejects, errors and notes that are reported after all ranges have been read."""
        if self._intake.slot is not None and not self._failed:
            newest, error = self._parting.times.taken(), self._parting.new_tables()
            if newest is not None or error is not None:
                yield packed_note(self._intake.slot, order, newest, error)

    def _of(self, part: Part, order: int) -> Iterator[pa.RecordBatch]:
        branch = part.branch
        assert branch.route is not None
        error: StreamlakeError | None = part.error
        if error is None:
            try:
                if part.rejected is not None:
                    yield from _rejected(branch.rejects_slot, [part.rejected], order)
                if part.rows.num_rows:
                    yield from branch.route.shuffle_blocks(part.rows, order)
            except FINAL_ERRORS as found:
                error = found
        if error is not None:
            self._parting.give_up(branch)
            yield packed_error(branch.route.first_slot, order, error)


def _rejected(slot: int | None, waiting: Iterable[pa.RecordBatch], order: int) -> Batches:
    """Shuffle blocks of rejects. Raises NoRejectsTableError."""
    for rows in waiting:
        if slot is None:
            raise no_rejects_table(rows)
        yield from packed(slot, order, rows)
