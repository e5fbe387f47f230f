"""Iceberg's own engine rewrites files under a stream, and places in the log that the key index alone knows still count."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from streamlake import load_table
from streamlake.catalog.open import open_table
from streamlake.records import ROW_KIND, ROW_SEQUENCE, RowKind
from tests.helpers.invariants import check_table
from tests.helpers.local_upserts import LocalUpserts
from tests.interop.java_tables import create_java_table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

STATEMENTS = {
    "rewrite_data_files": "CALL ice.system.rewrite_data_files(table => '{n}', options => map('rewrite-all', 'true'))",
    "a row deleted by copy-on-write": "DELETE FROM {t} WHERE id = 2",
    "a row updated by copy-on-write": "UPDATE {t} SET v = 'theirs' WHERE id = 2",
}


def changes(rows: dict[int, str], place: int, kind: RowKind = RowKind.UPDATE_AFTER) -> pa.Table:
    return pa.table(
        {
            "id": pa.array(list(rows), pa.int64()),
            "v": list(rows.values()),
            ROW_SEQUENCE: pa.array([place] * len(rows), pa.int64()),
            ROW_KIND: pa.array([int(kind)] * len(rows), pa.int8()),
        }
    )


@pytest.mark.parametrize("version", [2, 3])
def test_older_changes_are_late_after_another_engine_has_rewritten_files(
    iceberg_spark: SparkSession, spark_home: Path, version: int
) -> None:
    for name, statement in STATEMENTS.items():
        java = create_java_table(
            iceberg_spark, spark_home, "id bigint, v string", format_version=str(version)
        )
        stream = LocalUpserts(str(java.location), key=["id"], sequence_by=[ROW_SEQUENCE])
        stream.checkpoint(changes({1: "new", 2: "other", 3: "gone"}, 100))
        stream.checkpoint(changes({3: ""}, 110, RowKind.DELETE))
        iceberg_spark.sql(f"REFRESH TABLE {java.name}")
        java.sql(statement.replace("{n}", java.name.removeprefix("ice.")))
        stream.checkpoint(changes({1: "old", 3: "old"}, 50))
        check_table(open_table(str(java.location)), files_exist=True)
        rows = load_table(str(java.location)).scan().to_arrow().to_pylist()
        assert {row["id"]: row["v"] for row in rows if row["id"] != 2} == {1: "new"}, name
