"""Our row deltas and Java's own MERGE, DELETE and maintenance on one table, by turns."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from streamlake import load_table
from streamlake.catalog.open import open_table
from streamlake.errors import ConflictValidationError, HeadMovedError
from streamlake.table.producers.row_delta import RowDelta
from tests.helpers.invariants import check_table, live_entries
from tests.helpers.row_deltas import row_delta
from tests.interop.java_tables import JavaTable, create_java_table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Model = dict[int, tuple[str, str]]

MERGE_ON_READ = {f"write.{kind}.mode": "merge-on-read" for kind in ("delete", "update", "merge")}
CASES = [(2, "parquet", ()), (2, "avro", ("part",)), (3, "parquet", ("part",)), (3, "orc", ())]


class Turns:
    """One table that both engines change, and what it must hold."""

    def __init__(self, table: JavaTable) -> None:
        self.java = table
        self.where = table.name.removeprefix("ice.")
        self.model: Model = {}

    def check(self) -> None:
        expected = sorted((key, *values) for key, values in self.model.items())
        ours = load_table(str(self.java.location)).scan().to_arrow().select(["id", "part", "v"])
        assert sorted(zip(*(column.to_pylist() for column in ours.columns), strict=True)) == expected
        theirs = self.java.sql("SELECT id, part, v FROM {t}")
        assert sorted((row["id"], row["part"], row["v"]) for row in theirs) == expected
        check_table(open_table(str(self.java.location)))

    def delta(self, keys: range, value: str, deleted: range = range(0)) -> RowDelta:
        """Our upsert of `keys`, some of whose rows move to the other partition, and our deletes; not committed."""
        rows = {key: (f"p{(key + len(value)) % 2}", value) for key in keys if key not in deleted}
        self.change: Callable[[], None] = lambda: self._apply({*keys, *deleted}, rows)
        table = pa.table(
            {"id": list(rows), "part": [row[0] for row in rows.values()], "v": [value] * len(rows)},
            pa.schema([("id", pa.int64()), ("part", pa.string()), ("v", pa.string())]),
        )
        return row_delta(open_table(str(self.java.location)), {*keys, *deleted}, table)

    def _apply(self, gone: set[int], rows: Model) -> None:
        self.model = {key: row for key, row in self.model.items() if key not in gone} | rows

    def ours(self, keys: range, value: str, deleted: range = range(0)) -> dict[str, str]:
        summary = self.delta(keys, value, deleted).commit().summary
        self.change()
        self.check()
        return dict(summary)

    def theirs(self, statement: str, keys: range, rows: Model) -> None:
        self.java.sql(statement)
        self._apply(set(keys), rows)
        self.check()

    def call(self, procedure: str, arguments: str) -> dict[str, object]:
        (row,) = self.java.sql(f"CALL ice.system.{procedure}(table => '{self.where}', {arguments})")
        self.check()
        return row

    def merge(self, keys: range, value: str) -> None:
        source = f"(SELECT id, 'p0' AS part FROM range({keys.start}, {keys.stop}, {keys.step}))"
        self.theirs(
            f"MERGE INTO {{t}} t USING {source} s ON t.id = s.id WHEN MATCHED THEN UPDATE SET v = '{value}', "
            f"part = s.part WHEN NOT MATCHED THEN INSERT (id, part, v) VALUES (s.id, s.part, '{value}')",
            keys,
            dict.fromkeys(keys, ("p0", value)),
        )


def turns(
    spark: SparkSession, home: Path, version: int, file_format: str = "parquet", spec: tuple[str, ...] = ()
) -> Turns:
    table = create_java_table(
        spark,
        home,
        "id bigint, part string, v string",
        spec,
        properties={
            **MERGE_ON_READ,
            "write.format.default": file_format,
            "commit.manifest.min-count-to-merge": "4",
        },
        format_version=str(version),
    )
    started = Turns(table)
    started.theirs(
        "INSERT INTO {t} SELECT /*+ COALESCE(1) */ id, concat('p', id % 2), 'java' FROM range(1000)",
        range(1000),
        {key: (f"p{key % 2}", "java") for key in range(1000)},
    )
    return started


@pytest.mark.parametrize(("version", "file_format", "spec"), CASES)
def test_engines_in_turn(
    version: int, file_format: str, spec: tuple[str, ...], iceberg_spark: SparkSession, spark_home: Path
) -> None:
    table = turns(iceberg_spark, spark_home, version, file_format, spec)
    first = table.ours(range(0, 1100, 7), "first")
    assert first["operation"] == "overwrite"
    assert int(first["added-position-deletes"]) == 143
    table.ours(range(0, 1100, 11), "again", deleted=range(3, 200, 11))
    table.merge(range(0, 1200, 5), "merged")
    after = table.ours(range(0, 1200, 3), "after merge")
    replaced = int(after.get("removed-dvs" if version >= 3 else "removed-position-delete-files", 0))
    # Java names the data file of version 2 by the bounds alone, which Avro files do not have.
    assert (replaced > 0) == (file_format != "avro"), "Java's deletes are replaced by ours"
    table.theirs("DELETE FROM {t} WHERE id % 13 = 1", range(1, 1300, 13), {})
    table.ours(range(1, 1200, 17), "after delete")
    if version < 3:
        rewritten = table.call("rewrite_position_delete_files", "options => map('rewrite-all', 'true')")
        assert rewritten["rewritten_delete_files_count"]
    table.ours(range(2, 1200, 19), "after rewritten deletes")
    table.call(
        "rewrite_data_files", "options => map('rewrite-all', 'true', 'remove-dangling-deletes', 'true')"
    )
    table.ours(range(2, 1200, 23), "after compaction")
    table.call("expire_snapshots", "older_than => now(), retain_last => 1")
    last = table.ours(range(0, 1200, 29), "after expiry", deleted=range(5, 1200, 29))
    table.call("rewrite_data_files", "options => map('rewrite-all', 'true')")
    assert int(last["total-equality-deletes"]) == 0


@pytest.mark.parametrize("version", [2, 3])
def test_a_compaction_meanwhile_is_a_conflict_and_the_change_can_be_computed_again(
    version: int, iceberg_spark: SparkSession, spark_home: Path
) -> None:
    table = turns(iceberg_spark, spark_home, version)
    table.ours(range(0, 500, 3), "first")
    late = table.delta(range(0, 900, 4), "second")
    head = open_table(str(table.java.location)).current_snapshot
    assert head is not None
    compacted = table.call("rewrite_data_files", "options => map('rewrite-all', 'true')")
    assert compacted["rewritten_data_files_count"]
    with pytest.raises(HeadMovedError) as caught:
        late.commit()
    assert caught.value.expected == head.snapshot_id
    table.check()
    table.ours(range(0, 900, 4), "second")


@pytest.mark.parametrize("version", [2, 3])
def test_a_delete_meanwhile_is_a_conflict(
    version: int, iceberg_spark: SparkSession, spark_home: Path
) -> None:
    """Java deletes rows of the very file: with version 3 it replaces the deletion vector that we replace."""
    table = turns(iceberg_spark, spark_home, version)
    table.ours(range(0, 500, 3), "first")
    ours = open_table(str(table.java.location))
    head = ours.current_snapshot
    assert head is not None
    deletes = [entry.data_file for entry in live_entries(ours) if not entry.data_file.is_data]
    table.theirs("DELETE FROM {t} WHERE id = 1", range(1, 2), {})
    late = RowDelta(ours).validate_from_snapshot(head.snapshot_id)
    for file in deletes:
        late.remove_deletes(file)
    with pytest.raises(ConflictValidationError, match="no longer in the table"):
        late.commit()
    table.check()
