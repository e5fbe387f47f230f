"""Gathers many small Arrow batches into few large tables, without a copy.

Spark sends batches of 10,000 rows. Partitioning and encoding cost much less per row when done for
hundreds of thousands at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa

MAX_ROWS = 1 << 20


def gather(batches: Iterable[pa.RecordBatch], max_bytes: int, max_rows: int = MAX_ROWS) -> Iterator[pa.Table]:
    """Tables of consecutive batches with one schema.

    Each table has at least one batch, else at most the given bytes or rows.
    """
    waiting: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        if not batch.num_rows:
            continue
        batch_bytes = batch.nbytes
        if waiting and (
            rows + batch.num_rows > max_rows
            or size + batch_bytes > max_bytes
            or not batch.schema.equals(waiting[0].schema)
        ):
            yield pa.Table.from_batches(waiting)
            waiting, rows, size = [], 0, 0
        waiting.append(batch)
        rows += batch.num_rows
        size += batch_bytes
    if waiting:
        yield pa.Table.from_batches(waiting)
