"""The changes of a micro-batch from Spark to the upsert tasks: columns checked, order kept, routed by key.

The frame has the table's columns, and the row kind where the stream has one. Invariant: a shuffle does not
lose the order of the source, because every row carries its place in it.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from streamlake.index.bucketing import Bucketing
from streamlake.pipeline.runs.column_check import check_columns
from streamlake.pipeline.runs.upsert_options import UpsertOptions
from streamlake.pipeline.spark.arrow_batches import bound_by_rows
from streamlake.pipeline.spark.column_names import quoted
from streamlake.pipeline.spark.key_routing import route_by_key
from streamlake.records import ROW_KIND, ROW_ORDER
from streamlake.table.table import Table
from streamlake.tasks.row_kind_task import reading_kinds
from streamlake.write.task import Task


class ChangeFrame:
    """The changes of one DataFrame for `table`. Raises SchemaMismatchError for columns that do not fit."""

    def __init__(self, frame: DataFrame, table: Table, options: UpsertOptions) -> None:
        self._kind = options.row_kind
        needed = dict.fromkeys((*options.key.all_columns, *([] if self._kind is None else [self._kind])))
        check_columns(frame.columns, table, beside=tuple(needed))
        self._frame = frame
        self._table = table
        self._key = options.key

    def by_bucket(self, bucketing: Bucketing) -> DataFrame:
        """The changes in as many partitions as there are buckets, the keys of bucket i in partition i. Beside
        the table's columns they have ROW_ORDER and, where the stream has row kinds, ROW_KIND.
        """
        frame = self._frame
        bound_by_rows(frame.sparkSession)
        if self._kind is not None:
            frame = frame.withColumn(ROW_KIND, F.col(quoted(self._kind)))
            if self._kind not in self._table.schema.column_names and self._kind != ROW_KIND:
                frame = frame.drop(self._kind)
        frame = frame.withColumn(ROW_ORDER, F.monotonically_increasing_id())
        return route_by_key(frame, self._key.columns, self._key.codec, bucketing, self._table.location)

    def reading(self, task: Task) -> Task:
        """The task, which first translates the stream's spellings of row kinds where there are any."""
        return (
            task
            if self._kind is None
            else reading_kinds(task, f"{self._table.location}: column '{self._kind}'")
        )
