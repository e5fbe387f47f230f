"""The tasks of a query that reads a table: splits in, rows written or shuffle blocks out.

    append   the task that reads a split writes its rows too
    upsert   a task turns splits into shuffle blocks, and another writes those of a bucket; see `table_tasks`

They run on the executors. Invariant: rows come in the order of the splits and of the rows in them, so that of
two changes of a key the later one wins.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from streamlake.decode.cdc.row_kinds import row_kinds
from streamlake.records import RowKind
from streamlake.tasks.intake import Batches, KeyRoute
from streamlake.tasks.shuffle_block_task import ORDER_BITS
from streamlake.tasks.shuffle_blocks import by_bucket, noted, packed_error
from streamlake.tasks.table_tasks import outcome_of
from streamlake.tasks.task_errors import FINAL_ERRORS
from streamlake.tasks.watermarks import Watermarks
from streamlake.tasks.worker_memory import keep_freed_memory
from streamlake.tasks.worker_paths import keep_archive_directories
from streamlake.write.target.target import WriteTarget
from streamlake.write.task import TaskContext, write_rows

ONLY_TABLE = 0
"""The number of the one table that such a query writes."""

_TASK_BITS, _ROW_BITS = 40, 26
"""Of the place of a change: how many bits are below its snapshot's number, and below the task's."""
_SNAPSHOT_BITS = 21
"""Of the number of a snapshot in its micro-batch."""

Array = Any  # numpy arrays; numpy's type stubs are not required

Splits = Iterator[Any]
SplitTask = Callable[[Splits], Batches]
"""Splits of one Spark task in, Arrow batches out."""


class SplitRows(Protocol):
    """What reads the splits of a table. Frozen and picklable; called once per split of a task, in order."""

    @property
    def arrow_schema(self) -> pa.Schema:
        """The schema of the rows."""
        ...

    def read(self, split: Any) -> Iterator[pa.RecordBatch]:
        """The rows of a split, the same whenever they are read."""
        ...


@dataclass(frozen=True)
class SplitReader:
    """Reads splits as rows with these `columns`. `watermark_column` is one of the columns of `scan`, None for
    no watermark; `part` is the source table's name there.
    """

    scan: SplitRows
    columns: tuple[str, ...]
    watermark_column: str | None = None
    part: str = ""

    def rows(self, splits: Iterable[Any], times: Watermarks) -> Iterator[pa.RecordBatch]:
        """The rows of the splits. Raises DataInvalidError, StorageError for files that cannot be read."""
        names = list(self.columns)
        is_all = self.scan.arrow_schema.names == names
        for split in splits:
            for rows in self.scan.read(split):
                times.see_rows(self.part, rows)
                yield rows if is_all else rows.select(names)


@dataclass(frozen=True)
class AppendSplits:
    """A SplitTask that writes the rows of its splits and gives the outcome."""

    reader: SplitReader
    target: WriteTarget
    context: TaskContext

    def __call__(self, splits: Splits) -> Batches:
        """The outcome of the table."""
        keep_archive_directories()
        keep_freed_memory()
        times = Watermarks(self.reader.watermark_column)
        write = partial(write_rows, self.target, self.reader.rows(splits, times), *self.context())
        yield from outcome_of(ONLY_TABLE, write, times.taken)


@dataclass(frozen=True)
class ChangeOrder:
    """The order of changes that say themselves which snapshot made them: by its number in the stream, and of
    one snapshot what it removed before what it added, whichever split that is in.

    With `is_net` each row has its first and its last state only, and the number of the last snapshot that
    changed it. So all that is removed comes first: its key may be another row's by then. `column` has the
    numbers; it is removed unless `keeps_column`. `first` is the smallest in the micro-batch.
    """

    column: str
    first: int
    keeps_column: bool
    is_net: bool = False

    def of(
        self, rows: pa.RecordBatch, route: KeyRoute, task: int, before: int
    ) -> Iterator[tuple[int, pa.RecordBatch]]:
        """The rows in parts of one place each, with it; the task has read `before` rows before them."""
        numbers = rows.column(self.column).to_numpy(zero_copy_only=False).astype(np.int64) - self.first
        kinds = row_kinds(rows.column(route.row_kind), route.where).to_numpy()
        adds = (kinds == RowKind.INSERT) | (kinds == RowKind.UPDATE_AFTER)
        if not self.keeps_column:
            rows = rows.drop_columns([self.column])
        # Rows of one number and kind are in no order among each other that could matter.
        low = ((task << _ROW_BITS) + before) & ((1 << _TASK_BITS) - 1)
        places = numbers + (adds.astype(np.int64) << _SNAPSHOT_BITS) if self.is_net else numbers * 2 + adds
        for number, part in by_bucket(rows, places):
            yield (number << _TASK_BITS) + low, part


@dataclass(frozen=True)
class SplitBlocks:
    """A SplitTask that turns the rows of its splits into shuffle blocks of changes. `order` None: they are in
    the order in which they are read. `moves_keys`: an update may change the key.
    """

    reader: SplitReader
    route: KeyRoute
    context: TaskContext
    order: ChangeOrder | None = None
    moves_keys: bool = False

    def __call__(self, splits: Splits) -> Batches:
        """The shuffle blocks; an error takes the place of the rows after it."""
        keep_archive_directories()
        keep_freed_memory()
        task, count = self.context()[0], 0
        times = Watermarks(self.reader.watermark_column)
        try:
            for read in self.reader.rows(splits, times):
                rows = _with_moves(read, self.route) if self.moves_keys else read
                for place, part in self._placed(rows, task, count):
                    yield from noted(self.route.shuffle_blocks(part, place), times.taken())
                count += rows.num_rows
        except FINAL_ERRORS as error:
            yield packed_error(self.route.first_slot, (task << ORDER_BITS) + count, error)

    def _placed(self, rows: pa.RecordBatch, task: int, count: int) -> Iterable[tuple[int, pa.RecordBatch]]:
        if self.order is None:
            return [((task << ORDER_BITS) + count, rows)]
        return self.order.of(rows, self.route, task, count)


def _with_moves(rows: pa.RecordBatch, route: KeyRoute) -> pa.RecordBatch:
    """The changes, where the old row of an update that changes the key is a delete.

    Mode upsert takes the old row of an update for replaced by the new one, which has another key there. An
    old row whose new one is in the next batch is a delete, too: the new one comes after it.
    """
    assert route.row_kind is not None
    kinds = row_kinds(rows.column(route.row_kind), route.where).to_numpy()
    old = np.flatnonzero(kinds == RowKind.UPDATE_BEFORE)
    if not len(old):
        return rows
    keys = route.codec.encode([rows.column(name) for name in route.columns])
    stays: Array = np.zeros(rows.num_rows, dtype=bool)
    paired = old[old + 1 < rows.num_rows]
    stays[paired] = keys.take(paired).equal(keys.take(paired + 1))
    moved = (kinds == RowKind.UPDATE_BEFORE) & ~stays
    codes = pa.array(np.where(moved, RowKind.DELETE, kinds).astype(np.int8))
    at = rows.schema.get_field_index(route.row_kind)
    return rows.set_column(at, route.row_kind, codes)
