"""Our upserts take tables over that Flink's Iceberg sink has filled: the index is built over rows that Flink's equality
deletes, position deletes and deletion vectors have left, and the stream goes on.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from streamlake import IcebergSink, load_table
from streamlake.catalog.open import open_table
from streamlake.records import ROW_KIND
from streamlake.spec.metadata.data_file import FileContent
from tests.helpers.flink_tables import CASES, FlinkTable, change_events, changes_table
from tests.helpers.invariants import check_table, live_entries
from tests.helpers.local_upserts import LocalUpserts
from tests.helpers.readers import SparkReader, rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SHAPES_OF_EVERY_MODE = ("plain", "composite", "by_category", "null_keys")


def next_changes(table: FlinkTable, source: random.Random, count: int = 200) -> pa.Table:
    """The next checkpoint of the stream that Flink has read; the model follows."""
    return changes_table(table.schema, list(change_events(table.case, table.model, source, count)))


def assert_is_the_model(table: FlinkTable) -> None:
    check_table(open_table(str(table.location)))
    found = load_table(str(table.location)).scan().to_arrow()
    assert rows(found, table.key) == rows(table.expected(), table.key)


def equality_deletes(location: Path) -> set[str]:
    files = [entry.data_file for entry in live_entries(open_table(str(location)))]
    return {file.file_path for file in files if file.content == FileContent.EQUALITY_DELETES}


@pytest.mark.parametrize(
    ("name", "delete_mode"),
    [(case.name, "position") for case in CASES]
    + [
        (case.name, mode)
        for case in CASES
        if case.shape in SHAPES_OF_EVERY_MODE
        for mode in ("equality", "copy-on-write")
    ],
)
def test_the_stream_goes_on(
    name: str,
    delete_mode: str,
    flink_tables: dict[str, FlinkTable],
    spark_reader: SparkReader,
    tmp_path: Path,
) -> None:
    table = flink_tables[name].fork(tmp_path / name)
    flinks = equality_deletes(table.location)
    source = random.Random(name)
    upserts = LocalUpserts(
        str(table.location),
        key=table.key,
        mode="upsert" if table.case.upsert else "changelog",
        delete_mode=delete_mode,
    )
    for number in range(3):
        receipt = upserts.checkpoint(next_changes(table, source))
        assert receipt is not None
        if delete_mode == "position":
            # Only the first has no index, and reads the table.
            assert (receipt.counters["rows-indexed"] > 0) == (number == 0)
        assert_is_the_model(table)
    upserts.restart()
    upserts.checkpoint(next_changes(table, source))
    assert_is_the_model(table)
    if delete_mode != "equality":
        assert equality_deletes(table.location) <= flinks
    assert rows(spark_reader.read(table.location), table.key) == rows(table.expected(), table.key)
    # Flink's own table is as it was.
    assert_is_the_model(flink_tables[name])


@pytest.mark.parametrize("name", ["composite_v2", "plain_v3"])
def test_a_streaming_query_takes_over(
    name: str, flink_tables: dict[str, FlinkTable], spark: SparkSession, tmp_path: Path
) -> None:
    table = flink_tables[name].fork(tmp_path / name)
    folder, source = tmp_path / "changes", random.Random(name)
    folder.mkdir()
    for number in range(3):
        # One row group: the order of the changes is that of the rows.
        pq.write_table(next_changes(table, source), folder / f"{number}.parquet")
    frame = (
        spark.readStream.schema(spark.read.parquet(str(folder)).schema)
        .option("maxFilesPerTrigger", 1)
        .parquet(str(folder))
    )
    sink = IcebergSink(str(table.location), mode="upsert", key=list(table.key), row_kind=ROW_KIND)
    query = sink.start(
        frame, checkpoint_location=str(tmp_path / "checkpoint"), trigger={"availableNow": True}
    )
    query.awaitTermination()
    assert len(sink.receipts) == 3
    assert_is_the_model(table)
