"""Our compaction beside Iceberg's `rewrite_data_files`: the same files are chosen, and its readers see the same rows and row ids."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from streamlake.catalog.open import create
from streamlake.maintain.compact.compact_options import CompactSettings
from streamlake.maintain.compact.compaction import rewrite_data_files
from streamlake.spec.metadata.data_file import FileContent
from streamlake.spec.partitioning.partition_spec import parse_partition_by
from streamlake.spec.types.ddl import parse_ddl
from streamlake.tables import load_table
from tests.helpers.batch_write import append
from tests.helpers.invariants import check_table, live_entries
from tests.helpers.row_deltas import row_delta
from tests.interop.test_maintenance import DDL, Maintained, rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.interop, pytest.mark.iceberg_runtime, pytest.mark.spark]

LINEAGE = "id, category, _row_id, _last_updated_sequence_number"
SETTINGS: list[tuple[dict[str, str], str | None]] = [
    ({}, None),
    ({"min-input-files": "2"}, None),
    ({"min-input-files": "2"}, "category = 'c1'"),
    ({"min-input-files": "2", "max-file-group-size-bytes": "100"}, None),
    ({"min-input-files": "2", "max-file-group-input-files": "3"}, None),
    ({"min-input-files": "100", "delete-ratio-threshold": "0.2"}, None),
    ({"min-input-files": "100", "delete-file-threshold": "1"}, None),
    ({"min-input-files": "2", "max-files-to-rewrite": "4", "rewrite-job-order": "bytes-desc"}, None),
    ({"rewrite-all": "true"}, None),
]


def made_table(spark: SparkSession, home: Path, version: int) -> Maintained:
    made = Maintained(spark, home)
    schema = parse_ddl(DDL)
    create(made.location, schema, parse_partition_by(["category"], schema), format_version=version)
    return made


def grow(made: Maintained, numbers: Iterator[int], files: int) -> None:
    """Small files in three partitions, and deletes in some of them."""
    table = made.ours
    for each in range(files):
        some = [next(numbers) for _ in range(12 - each)]
        append(table, rows(*some))
        if each % 2:
            row_delta(table, set(some[: 2 + each])).commit()


@pytest.mark.parametrize("version", [2, 3])
def test_the_same_files_are_chosen(iceberg_spark: SparkSession, interop_home: Path, version: int) -> None:
    made = made_table(iceberg_spark, interop_home, version)
    numbers = iter(range(100_000))
    chosen = []
    for options, where in SETTINGS:
        grow(made, numbers, 5)
        planned = rewrite_data_files(made.ours, CompactSettings(filter=where, options=options, dry_run=True))
        texts = ", ".join(f"'{name}', '{value}'" for name, value in options.items())
        given = [f"options => map({texts})"] if options else []
        given += [f'where => "{where}"'] if where else []
        [done] = made.call("rewrite_data_files", ", ".join([*given, "strategy => 'binpack'"]))
        assert done["rewritten_data_files_count"] == planned.rewritten.files, options
        # Which files of many have a place left in a group depends on the order in which Java reads manifests.
        if not any(name.startswith("max-file") for name in options):
            assert done["rewritten_bytes_count"] == planned.rewritten.bytes, options
        chosen.append(planned.rewritten.files)
    assert len(set(chosen)) > 4, f"the settings make a difference: {chosen}"


@pytest.mark.parametrize("strategy", ["binpack", "sort"])
@pytest.mark.parametrize("kind", ["ours-2", "ours-3", "javas-2", "javas-3"])
def test_iceberg_reads_what_we_have_compacted(
    iceberg_spark: SparkSession, interop_home: Path, kind: str, strategy: str
) -> None:
    writer, _, text = kind.partition("-")
    version = int(text)
    made = made_table(iceberg_spark, interop_home, version)
    columns = LINEAGE if version == 3 else "id, category"
    if writer == "ours":
        grow(made, iter(range(1000)), 4)
    else:
        made.sql(
            "ALTER TABLE {t} SET TBLPROPERTIES ('write.delete.mode'='merge-on-read', "
            "'write.update.mode'='merge-on-read', 'write.distribution-mode'='none')"
        )
        for start in range(0, 40, 10):
            values = ", ".join(f"({each}, 'c{each % 3}')" for each in range(start, start + 10))
            made.sql(f"INSERT INTO {{t}} VALUES {values}")
        made.sql("DELETE FROM {t} WHERE id IN (3, 14, 15)")
        made.sql("UPDATE {t} SET category = 'c2' WHERE id IN (4, 5, 21)")
    before = head_rows(made, columns)
    sort_by = ("id desc",) if strategy == "sort" else ()
    settings = CompactSettings(strategy, sort_by, options={"rewrite-all": "true"})

    def beside() -> None:
        """While the files are rewritten Iceberg deletes, updates and adds rows."""
        made.sql("REFRESH TABLE {t}")
        made.sql("DELETE FROM {t} WHERE id IN (6, 7)")
        made.sql("UPDATE {t} SET category = 'c0' WHERE id = 8")
        made.sql("INSERT INTO {t} VALUES (5000, 'c1')")
        during.append(head_rows(made, columns))

    during: list[list[tuple[object, ...]]] = []
    done = rewrite_data_files(
        made.ours, settings, before_commit=lambda producer, groups: beside() if not during else None
    )
    assert done.snapshots
    # Without the property, Iceberg rewrites the files that lose rows: all of their rows move.
    assert done.carried_rows == 3 if writer == "javas" else done.carried_rows > 3
    assert head_rows(made, columns) == during[0] != before
    loaded = load_table(made.location)
    assert (
        sorted(tuple(row.values()) for row in loaded.scan(columns=columns.split(", ")).to_arrow().to_pylist())
        == during[0]
    )
    check_table(loaded.table, files_exist=True)
    made.sql("DELETE FROM {t} WHERE id = 9")
    made.sql("UPDATE {t} SET category = 'c1' WHERE id = 10")
    left = {row[0] for row in head_rows(made, "id, category")}
    assert left == {row[0] for row in during[0]} - {9}
    rewrite_data_files(made.ours, settings)
    assert {row[0] for row in head_rows(made, "id, category")} == left
    contents = {entry.data_file.content for entry in live_entries(made.ours)}
    assert contents == {FileContent.DATA}
    check_table(made.ours, files_exist=True)


def head_rows(made: Maintained, columns: str) -> list[tuple[object, ...]]:
    """The rows of the head, by Iceberg's reader."""
    made.sql("REFRESH TABLE {t}")
    return sorted(tuple(row.values()) for row in made.sql(f"SELECT {columns} FROM {{t}}"))
