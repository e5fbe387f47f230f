"""The batch reader of the format "streamlake": plans splits on the driver, reads them in tasks.

Place in the flow: Spark makes one per action in a Python process beside the driver, asks it for partitions,
and sends a pickled one to the tasks. Invariant: all actions on one DataFrame read the rows that it had when
it was loaded.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from streamlake.pipeline.iceberg.batch_plan import batch_plan, batch_point, batch_scan
from streamlake.pipeline.iceberg.frames.frame_options import FrameOptions
from streamlake.pipeline.iceberg.frames.pushed_filters import pushed_filters
from streamlake.pipeline.iceberg.frames.table_frame import TableFrame
from streamlake.read.splits.split_protocols import TaskSplit
from streamlake.spec.expressions.expressions import Expression, all_of
from streamlake.table.table import Table


@dataclass
class SplitPartition(InputPartition):
    """What one task of a batch reads."""

    splits: tuple[TaskSplit, ...]


class _PushFilters:
    """`pushFilters` of a reader, which Spark takes for the inherited one.

    With `spark.sql.python.filterPushdown.enabled` at its default, false, Spark refuses a reader that has its
    own. Filters are pushed where it is true, and everything else is the same in both cases.
    """

    def __init__(self, reader: TableBatchReader) -> None:
        self._reader = reader
        self.__func__ = getattr(DataSourceReader, "pushFilters", None)

    def __call__(self, filters: list[Any]) -> Iterable[Any]:
        return self._reader.push_filters(filters)


class TableBatchReader(DataSourceReader):
    """Reads the rows of one batch. Raises InvalidOptionError for options of streams."""

    def __init__(self, options: FrameOptions, frame: TableFrame, table: Table) -> None:
        options.source.as_batch()
        self._options = options
        self._frame = frame
        self._table: Table | None = table
        self._pushed: tuple[Expression, ...] = ()
        self._rows = frame.rows
        self._scan = batch_scan(table, options.source, frame.schema_id, has_row_ids=frame.has_row_ids)
        self.pushFilters = _PushFilters(self)

    def push_filters(self, filters: list[Any]) -> Iterable[Any]:
        """Take over filters of a query; returns those that Spark has to check itself."""
        # A limit counts the rows before the query filters them.
        # A filter of changes is for old and new values alike: a query's filter of changes means others.
        if self._options.limit is not None or self._options.source.settings.read_mode == "changes":
            return filters
        found = pushed_filters(filters, self._frame.stored)
        self._pushed = found.expressions
        return found.left

    def partitions(self) -> list[InputPartition]:
        """The partitions, one per split; with a limit a single one."""
        assert self._table is not None
        source, table = self._options.source, self._table
        point = self._frame.point
        if point is None:
            point = replace(
                batch_point(table, source),
                schema_id=self._frame.schema_id,
                has_row_ids=self._frame.has_row_ids,
            )
        if self._pushed:
            schema = table.metadata.schema_by_id(point.schema_id)
            source = replace(source, filter=all_of(source.filter_for(schema), *self._pushed))
        splits = batch_plan(table, source, point).splits
        if self._options.limit is not None:
            return [SplitPartition(splits)]
        return [SplitPartition((split,)) for split in splits]

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        """The rows of a partition. Raises DataInvalidError, StorageError."""
        if not isinstance(partition, SplitPartition):
            # Spark asks for one partition even if there is none.
            return iter(())
        return self._rows.read(self._scan, partition.splits, self._options.limit)

    def __getstate__(self) -> dict[str, Any]:
        state = {**self.__dict__, "_table": None}
        state.pop("pushFilters", None)
        return state
