"""Our maintenance beside Iceberg's own Spark procedures: the same snapshots survive, the same files go, rows stay."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from streamlake import clock
from streamlake.catalog.open import create, open_table
from streamlake.maintain.deletes.delete_conversion import convert_deletes
from streamlake.maintain.expire import expire_snapshots
from streamlake.maintain.manifest_rewrite import rewrite_manifests
from streamlake.maintain.orphans import remove_orphans
from streamlake.maintain.reachable_files import storage_key
from streamlake.spec.partitioning.partition_spec import parse_partition_by
from streamlake.spec.types.ddl import parse_ddl
from streamlake.table.table import Table
from streamlake.table.updates.manage_refs import ManageRefs
from streamlake.tables import load_table
from tests.helpers.batch_write import append
from tests.helpers.invariants import check_table, live_entries
from tests.helpers.row_deltas import row_delta
from tests.helpers.spark import ICE_CATALOG
from tests.helpers.tables import ALL_MAY_EXPIRE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.interop, pytest.mark.iceberg_runtime, pytest.mark.spark]

DDL = "id long, category string"
_NUMBERS: Iterator[int] = itertools.count()


class Maintained:
    """A table in the directory of Java's catalog, which both sides know."""

    def __init__(self, spark: SparkSession, home: Path) -> None:
        self.short = f"interop.maintained_{next(_NUMBERS)}"
        self.name = f"{ICE_CATALOG}.{self.short}"
        self.location = str(home / self.short.partition(".")[2])
        self._spark = spark

    def sql(self, text: str) -> list[dict[str, Any]]:
        return [
            row.asDict(recursive=True) for row in self._spark.sql(text.replace("{t}", self.name)).collect()
        ]

    def call(self, procedure: str, arguments: str) -> list[dict[str, Any]]:
        self.sql("REFRESH TABLE {t}")
        return self.sql(f"CALL {ICE_CATALOG}.system.{procedure}(table => '{self.short}', {arguments})")

    @property
    def ours(self) -> Table:
        return open_table(self.location)

    def files(self) -> set[str]:
        return {
            str(path)
            for path in Path(self.location).rglob("*")
            if path.is_file() and not path.name.endswith((".json", ".crc", ".text"))
        }

    def rows(self, columns: str = "id, category") -> dict[int, list[Any]]:
        """The rows of every snapshot, by Iceberg's reader."""
        self.sql("REFRESH TABLE {t}")
        ids = [row["snapshot_id"] for row in self.sql("SELECT snapshot_id FROM {t}.snapshots")]
        return {
            each: sorted(
                tuple(row.values()) for row in self.sql(f"SELECT {columns} FROM {{t}} VERSION AS OF {each}")
            )
            for each in ids
        }


def rows(*ids: int) -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64()), "category": pa.array([f"c{each % 3}" for each in ids])})


@pytest.fixture(params=["ours-2", "ours-3", "javas-2", "javas-3"])
def table(request: pytest.FixtureRequest, iceberg_spark: SparkSession, interop_home: Path) -> Maintained:
    """Appends, updates, deletes, compaction; branches and tags, some with a retention of their own."""
    made = Maintained(iceberg_spark, interop_home)
    kind, _, version = request.param.partition("-")
    if kind == "ours":
        schema = parse_ddl(DDL)
        spec = parse_partition_by(["category"], schema)
        ours = create(made.location, schema, spec, format_version=int(version), properties=ALL_MAY_EXPIRE)
        append(ours, rows(1, 2, 3, 4))
        append(ours, rows(5, 6))
        row_delta(ours, {1, 5}, rows(7)).commit()
        ManageRefs(ours).create_tag("tag").commit()
        row_delta(ours, {2}, rows(8, 9)).commit()
        append(ours, rows(10))
    else:
        made.sql(
            "CREATE TABLE {t} (id bigint, category string) USING iceberg PARTITIONED BY (category) TBLPROPERTIES "
            f"('format-version'='{version}', 'write.delete.mode'='merge-on-read', "
            "'write.update.mode'='merge-on-read', 'write.distribution-mode'='none')"
        )
        for part in ("1, 'a'), (2, 'b'), (3, 'a'", "5, 'a'), (6, 'b'", "7, 'c'"):
            made.sql(f"INSERT INTO {{t}} VALUES ({part})")
        made.sql("DELETE FROM {t} WHERE id = 1")
        made.sql("ALTER TABLE {t} CREATE TAG tag")
        made.sql("UPDATE {t} SET category = 'z' WHERE id = 6")
        made.call("rewrite_data_files", "options => map('rewrite-all', 'true')")
    made.sql("REFRESH TABLE {t}")
    made.sql("ALTER TABLE {t} CREATE BRANCH side WITH SNAPSHOT RETENTION 2 SNAPSHOTS")
    for each in (20, 21, 22):
        made.sql(f"INSERT INTO {{t}}.branch_side VALUES ({each}, 'side')")
    made.sql("ALTER TABLE {t} CREATE BRANCH young WITH SNAPSHOT RETENTION 5 DAYS")
    made.sql("INSERT INTO {t}.branch_young VALUES (30, 'young')")
    made.sql("INSERT INTO {t} VALUES (40, 'main'), (41, 'main')")
    made.sql("ALTER TABLE {t} CREATE BRANCH gone RETAIN 30 DAYS")
    return made


FUTURE = "TIMESTAMP '2199-01-01 00:00:00'"


@pytest.mark.parametrize("retain_last", [1, 3])
def test_expiry_leaves_what_iceberg_leaves(table: Maintained, retain_last: int) -> None:
    """What we would do, and what Iceberg does: snapshots, branches, tags, and every single file."""
    had = table.files()
    before = table.rows()
    plan = expire_snapshots(
        table.ours, older_than_ms=clock.now_ms() + 10**9, retain_last=retain_last, dry_run=True
    )
    assert plan.snapshots
    refs_before = set(table.ours.refs)
    table.call("expire_snapshots", f"older_than => {FUTURE}, retain_last => {retain_last}")
    after = table.ours
    assert set(before) - after.metadata.snapshots_by_id.keys() == set(plan.snapshots)
    assert refs_before - set(after.refs) == set(plan.refs)
    assert had - table.files() == set(map(storage_key, plan.files.in_order))
    nothing = expire_snapshots(after, older_than_ms=clock.now_ms() + 10**9, retain_last=retain_last)
    assert (nothing.snapshots, nothing.files.in_order) == ((), [])


def test_iceberg_reads_what_our_expiry_leaves(table: Maintained) -> None:
    before = table.rows()
    done = expire_snapshots(table.ours, older_than_ms=clock.now_ms() + 1)
    assert done.deleted.files > 0
    after = table.rows()
    assert after == {key: before[key] for key in after}
    assert len(after) < len(before)
    check_table(table.ours, files_exist=True)
    had = table.files()
    table.call("expire_snapshots", f"older_than => {FUTURE}, retain_last => 1")
    assert table.rows() == after
    assert table.files() == had, "Iceberg finds nothing that we have left"
    orphans = table.call(
        "remove_orphan_files", "dry_run => true, older_than => TIMESTAMP '2020-01-01 00:00:00'"
    )
    assert orphans == []


def test_the_same_orphans(table: Maintained) -> None:
    litter = [f"{table.location}/{name}" for name in ("data/x.parquet", "data/a=1/y.orc", "metadata/z.avro")]
    for path in map(Path, litter):
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"x")
    then = clock.now_ms() / 1000 - 10 * 86_400
    for path in Path(table.location).rglob("*"):
        os.utime(path, (then, then))
    ours = {storage_key(orphan.path) for orphan in remove_orphans(table.ours, dry_run=True).orphans}
    assert ours == set(litter)
    day = "timestamp_millis(" + str(clock.now_ms() - 3 * 86_400_000) + ")"
    (stamp,) = table.sql(f"SELECT cast({day} AS string) AS t")
    theirs = table.call("remove_orphan_files", f"dry_run => true, older_than => TIMESTAMP '{stamp['t']}'")
    assert {storage_key(row["orphan_file_location"]) for row in theirs} == ours
    remove_orphans(table.ours)
    assert not table.files() & set(litter)
    check_table(table.ours, files_exist=True)


def test_rows_are_equal_after_a_rewrite_of_manifests(table: Maintained) -> None:
    ours = table.ours
    lineage = ", _row_id, _last_updated_sequence_number" if ours.format_version >= 3 else ""
    columns = f"id, category{lineage}"
    for each in (50, 51, 52, 53):
        append(ours, rows(each))
    before = table.rows(columns)
    head = ours.metadata.current_snapshot_id
    assert head is not None
    done = rewrite_manifests(ours)
    assert done.rewritten > done.added
    after = table.rows(columns)
    assert done.snapshot_id is not None
    assert after.pop(done.snapshot_id) == before[head]
    assert after == before
    check_table(table.ours, files_exist=True)
    (row,) = table.sql(f"SELECT * FROM {{t}}.snapshots WHERE snapshot_id = {done.snapshot_id}")
    assert row["operation"] == "replace"
    table.sql("INSERT INTO {t} VALUES (60, 'c0')")
    table.call("rewrite_manifests", "use_caching => false")
    assert len(table.sql("SELECT * FROM {t}")) == len(before[head]) + 1
    check_table(table.ours, files_exist=True)


@pytest.mark.parametrize("version", [2, 3])
def test_iceberg_reads_and_writes_on_after_our_conversion(
    version: int, iceberg_spark: SparkSession, interop_home: Path
) -> None:
    """Spark's position deletes of version 2, an upgrade, Spark's deletes after ours, and its own rewrite of them."""
    made = Maintained(iceberg_spark, interop_home)
    made.sql(
        "CREATE TABLE {t} (id bigint, category string) USING iceberg PARTITIONED BY (category) TBLPROPERTIES "
        "('format-version'='2', 'write.delete.mode'='merge-on-read', 'write.delete.granularity'='partition', "
        "'write.distribution-mode'='none')"
    )
    for first in (0, 10, 20):
        some = ", ".join(f"({each}, 'c{each % 2}')" for each in range(first, first + 10))
        made.sql(f"INSERT INTO {{t}} VALUES {some}")
    for each in (1, 2, 11, 12, 21):
        made.sql(f"DELETE FROM {{t}} WHERE id = {each}")
    if version == 3:
        made.sql("ALTER TABLE {t} SET TBLPROPERTIES ('format-version'='3')")
    rows_of = "SELECT id FROM {t} ORDER BY id"
    expected = [each for each in range(30) if each not in (1, 2, 11, 12, 21)]
    table = made.ours
    before = [entry.data_file for entry in live_entries(table) if not entry.data_file.is_data]
    done = convert_deletes(table, {"rewrite-all": True})
    assert done.position_deletes == len(before) > 0
    check_table(made.ours, files_exist=True)
    after = [entry.data_file for entry in live_entries(made.ours) if not entry.data_file.is_data]
    assert {file.is_deletion_vector for file in after} == {version == 3}
    made.sql("REFRESH TABLE {t}")
    assert [row["id"] for row in made.sql(rows_of)] == expected
    made.sql("DELETE FROM {t} WHERE id IN (3, 13)")
    expected = [each for each in expected if each not in (3, 13)]
    assert [row["id"] for row in made.sql(rows_of)] == expected
    made.call("rewrite_position_delete_files", "options => map('rewrite-all', 'true')")
    made.call("rewrite_data_files", "options => map('rewrite-all', 'true')")
    made.sql("REFRESH TABLE {t}")
    assert [row["id"] for row in made.sql(rows_of)] == expected
    convert_deletes(made.ours)
    check_table(made.ours, files_exist=True)
    found = load_table(made.location).scan(columns=["id"]).to_arrow()["id"].to_pylist()
    assert sorted(found) == expected
