"""Rows reach the writer tasks in small batches, by the settings of the running query's session only."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from streamlake.pipeline.spark.arrow_batches import MAX_BYTES, MAX_RECORDS, ROWS_PER_BATCH, bound_by_rows
from tests.helpers.landing import Landing


@pytest.mark.parametrize(
    ("given", "expected"),
    [(None, ROWS_PER_BATCH), ("500", 500), ("0", ROWS_PER_BATCH), ("20000", ROWS_PER_BATCH)],
)
def test_rows_bound_a_batch(given: str | None, expected: int, spark: SparkSession) -> None:
    session = spark.newSession()
    if given is not None:
        session.conf.set(MAX_RECORDS, given)
    bound_by_rows(session)
    bound_by_rows(session)
    assert session.conf.get(MAX_RECORDS) == str(expected)

    def sizes(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield pa.record_batch({"rows": pa.array([batch.num_rows], pa.int64())})

    found = session.range(0, 2_500, numPartitions=1).mapInArrow(sizes, "rows bigint").collect()
    assert sum(row["rows"] for row in found) == 2_500
    assert max(row["rows"] for row in found) == expected


def test_a_limit_in_bytes_that_the_user_set_is_kept(spark: SparkSession) -> None:
    session = spark.newSession()
    session.conf.set(MAX_BYTES, "1000000")
    bound_by_rows(session)
    assert session.conf.get(MAX_BYTES) == "1000000"
    assert session.conf.get(MAX_RECORDS, None) is None


def test_the_users_session_stays_as_it_is(spark: SparkSession, tmp_path: Path) -> None:
    landing = Landing(spark, tmp_path)
    landing.land()
    landing.run(landing.sink())
    assert landing.ids() == list(range(100))
    assert spark.conf.get(MAX_BYTES, None) is None
    assert spark.conf.get(MAX_RECORDS, None) is None
