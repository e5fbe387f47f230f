"""Rows of a scan as rows of a DataFrame: the columns that Spark gets, and splits read into them.

Place in the flow: the driver makes a FrameRows from a frame's schema, tasks read splits with it. It pickles,
and knows neither the table nor Spark.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa

from streamlake.pipeline.iceberg.frames.uuid_text import with_uuid_text
from streamlake.read.splits.split_protocols import TaskScan, TaskSplit
from streamlake.spec.types.schema import Schema

_BATCH_ROWS = 10_000
"""Spark reads many small Arrow batches faster than few large ones."""


@dataclass(frozen=True)
class FrameRows:
    """Turns batches of a scan into batches of a DataFrame.

    `stored` are the columns of the scan, `arrow_schema` those of the DataFrame.
    """

    stored: Schema
    arrow_schema: pa.Schema

    def read(
        self, scan: TaskScan, splits: Iterable[TaskSplit], limit: int | None = None
    ) -> Iterator[pa.RecordBatch]:
        """The rows of splits in order, at most `limit`, in batches of at most 10,000.

        Raises as `TaskScan.read`.
        """
        return self.limited((batch for split in splits for batch in scan.read(split)), limit)

    def limited(self, batches: Iterable[pa.RecordBatch], limit: int | None) -> Iterator[pa.RecordBatch]:
        """Batches of a scan, at most `limit` rows of them, as a DataFrame has them."""
        left = limit
        for batch in batches:
            found = batch if left is None else batch.slice(0, left)
            for at in range(0, found.num_rows, _BATCH_ROWS):
                yield self.converted(found.slice(at, _BATCH_ROWS))
            if left is not None:
                left -= found.num_rows
                if left == 0:
                    return

    def converted(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """One batch of a scan, as a DataFrame has it."""
        arrays = [
            with_uuid_text(array, stored.type).cast(wanted.type)
            for array, stored, wanted in zip(
                batch.columns, self.stored.fields, self.arrow_schema, strict=True
            )
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self.arrow_schema)
