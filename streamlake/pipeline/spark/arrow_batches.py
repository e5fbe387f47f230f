"""The size of Arrow batches: how many rows go from the JVM to a writer task at once.

Spark 4.1 measures an Arrow batch after every row to hold `spark.sql.execution.arrow.maxBytesPerBatch`; that
is about a quarter of the cost of passing the row on. Fewer rows per batch bound its bytes as well, without
the measuring. Invariant: only the session of the running query is changed, which Structured Streaming clones
for it, and a limit that the user has set is left alone.
"""

from __future__ import annotations

from pyspark.sql import SparkSession

MAX_BYTES = "spark.sql.execution.arrow.maxBytesPerBatch"
MAX_RECORDS = "spark.sql.execution.arrow.maxRecordsPerBatch"
ROWS_PER_BATCH = 1_000
SHUFFLE_BLOCKS_PER_BATCH = 32
"""A shuffle block has about a megabyte at most."""
_NO_LIMIT = str(2**31 - 1)


def bound_by_rows(session: SparkSession) -> None:
    """Bound the batches of this query's session by rows, unless the user set a limit in bytes."""
    if session.conf.get(MAX_BYTES, None) is None:
        session.conf.set(MAX_BYTES, _NO_LIMIT)
        _bound(session, ROWS_PER_BATCH)


def bound_by_shuffle_blocks(session: SparkSession) -> None:
    """Bound the batches of a query whose rows are shuffle blocks, few and large, in any case by rows."""
    if session.conf.get(MAX_BYTES, None) is None:
        session.conf.set(MAX_BYTES, _NO_LIMIT)
    _bound(session, SHUFFLE_BLOCKS_PER_BATCH)


def _bound(session: SparkSession, most: int) -> None:
    rows = int(session.conf.get(MAX_RECORDS, "10000"))
    session.conf.set(MAX_RECORDS, str(min(rows, most) if rows > 0 else most))
