"""How many rows cross from the JVM to a writer task at once.

Spark 4.1 measures an Arrow batch after every row to hold `spark.sql.execution.arrow.maxBytesPerBatch`; that is about a
quarter of what it costs to hand the row over. Fewer rows per batch bound its bytes as well, without the measuring.
Invariant: only the session of the running query is changed, which Structured Streaming clones for it, and a limit that
the user has set is left alone.
"""

from __future__ import annotations

from pyspark.sql import SparkSession

MAX_BYTES = "spark.sql.execution.arrow.maxBytesPerBatch"
MAX_RECORDS = "spark.sql.execution.arrow.maxRecordsPerBatch"
ROWS_PER_BATCH = 1_000
PARCELS_PER_BATCH = 32
"""Parcels are about a megabyte at most."""
_NO_LIMIT = str(2**31 - 1)


def bound_by_rows(session: SparkSession) -> None:
    """Make the batches of this query's session small in rows instead of measured in bytes, unless the user has set a
    limit in bytes."""
    if session.conf.get(MAX_BYTES, None) is None:
        session.conf.set(MAX_BYTES, _NO_LIMIT)
        _bound(session, ROWS_PER_BATCH)


def bound_by_parcels(session: SparkSession) -> None:
    """The same for a query whose rows are parcels: they are few and large, so that their number is bounded in any case."""
    if session.conf.get(MAX_BYTES, None) is None:
        session.conf.set(MAX_BYTES, _NO_LIMIT)
    _bound(session, PARCELS_PER_BATCH)


def _bound(session: SparkSession, most: int) -> None:
    rows = int(session.conf.get(MAX_RECORDS, "10000"))
    session.conf.set(MAX_RECORDS, str(min(rows, most) if rows > 0 else most))
