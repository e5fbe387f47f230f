"""Tables that we look after and Iceberg's own Spark runtime: each reads what the other has changed, and both change alike."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from streamlake import (
    ManageRefs,
    ReplaceSortOrder,
    UpdatePartitionSpec,
    UpdateSchema,
    create_namespace,
    create_table,
    drop_table,
    list_tables,
    load_table,
    register_table,
    rename_table,
)
from streamlake.catalog.open import open_table
from streamlake.spec.partitioning.partition_spec import spec_to_json
from streamlake.spec.partitioning.sort_order import sort_order_to_json
from tests.helpers.batch_write import append
from tests.helpers.hive_server import HiveServer
from tests.helpers.invariants import check_table
from tests.helpers.spark import ICE_CATALOG

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.interop, pytest.mark.iceberg_runtime, pytest.mark.spark]
_NUMBERS: Iterator[int] = itertools.count()


def rows(*ids: int, **more: Any) -> pa.Table:
    columns = {"id": pa.array(ids, pa.int64()), "day": pa.array([f"d{each % 3}" for each in ids])}
    return pa.table({**columns, **{name: pa.array([value] * len(ids)) for name, value in more.items()}})


class Both:
    """One table under its name in Spark."""

    def __init__(self, spark: SparkSession, name: str) -> None:
        self._spark, self.name = spark, name

    def sql(self, text: str) -> list[Any]:
        self._spark.sql(f"REFRESH TABLE {self.name}")
        return [tuple(row) for row in self._spark.sql(text.replace("{t}", self.name)).collect()]

    def ids(self, where: str = "true") -> list[int]:
        return sorted(row[0] for row in self.sql(f"SELECT id FROM {{t}} WHERE {where}"))


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("mode", ["copy-on-write", "merge-on-read"])
def test_each_deletes_and_evolves_and_the_other_reads(
    spark: SparkSession, interop_home: Path, version: int, mode: str
) -> None:
    short = f"looked_after_{next(_NUMBERS)}"
    location = str(interop_home / short)
    properties = {"write.delete.mode": mode}
    create_table(location, "id long, day string", format_version=version, properties=properties)
    append(open_table(location), rows(*range(20)))
    both = Both(spark, f"{ICE_CATALOG}.interop.{short}")
    assert load_table(location).delete("id < 3 or day = 'd1'").rows == 9
    ours = sorted(load_table(location).scan().to_arrow()["id"].to_pylist())
    assert both.ids() == ours
    table = open_table(location)
    UpdateSchema(table).add_column("n", "int").rename("day", "part").move_first("n").commit()
    UpdatePartitionSpec(table).add_field("part").add_field("bucket(4, id)").commit()
    ReplaceSortOrder(table).by("id desc").commit()
    ManageRefs(table).create_tag("t").create_branch("b").commit()
    append(open_table(location), rows(*range(20, 30), n=7).rename_columns(["id", "part", "n"]))
    both.sql("DELETE FROM {t} WHERE id in (5, 21, 22)")
    ours = sorted(load_table(location).scan().to_arrow()["id"].to_pylist())
    assert both.ids() == ours
    assert not {5, 21, 22} & set(ours)
    both.sql("ALTER TABLE {t} DROP PARTITION FIELD part")
    both.sql("ALTER TABLE {t} ADD COLUMN later string")
    both.sql("INSERT INTO {t} (id, part, n, later) VALUES (40, 'd0', 1, 'x'), (41, null, null, null)")
    assert load_table(location).delete("later is null and (id >= 24 or part = 'd0')").rows == len(
        [each for each in [*ours, 41] if each >= 24 or each % 3 == 0]
    )
    found = load_table(location)
    ours = sorted(found.scan().to_arrow()["id"].to_pylist())
    assert both.ids() == ours
    assert 40 in ours
    assert both.sql("SELECT count(*) FROM {t} VERSION AS OF 't'") == [(11,)]
    check_table(found.table, files_exist=True)


def test_partitions_and_sort_orders_evolve_as_in_iceberg(spark: SparkSession, interop_home: Path) -> None:
    """The same changes make the same specs and orders, with the same ids and names."""
    names = [f"evolved_{next(_NUMBERS)}" for _ in range(2)]
    tables = []
    for name in names:
        create_table(str(interop_home / name), "id long, day string, at timestamp", partition_by=["day"])
        tables.append(Both(spark, f"{ICE_CATALOG}.interop.{name}"))
    ours, theirs = str(interop_home / names[0]), tables[1]
    steps = [
        ("ADD PARTITION FIELD bucket(4, id)", lambda spec: spec.add_field("bucket(4, id)")),
        ("DROP PARTITION FIELD day", lambda spec: spec.remove_field("day")),
        ("ADD PARTITION FIELD truncate(2, day)", lambda spec: spec.add_field("truncate(2, day)")),
        ("ADD PARTITION FIELD days(at) AS moment", lambda spec: spec.add_field("days(at)", "moment")),
        ("DROP PARTITION FIELD bucket(4, id)", lambda spec: spec.remove_field("bucket(4, id)")),
        ("ADD PARTITION FIELD day", lambda spec: spec.add_field("day")),
        ("ADD PARTITION FIELD bucket(4, id)", lambda spec: spec.add_field("bucket(4, id)")),
        ("DROP PARTITION FIELD moment", lambda spec: spec.remove_field("moment")),
        ("ADD PARTITION FIELD days(at)", lambda spec: spec.add_field("days(at)")),
    ]
    for text, change in steps:
        theirs.sql(f"ALTER TABLE {{t}} {text}")
        change(UpdatePartitionSpec(open_table(ours))).commit()
        mine, java = open_table(ours).metadata, open_table(str(interop_home / names[1])).metadata
        assert [spec_to_json(spec) for spec in mine.specs] == [spec_to_json(spec) for spec in java.specs], (
            text
        )
        assert (mine.default_spec_id, mine.last_partition_id) == (
            java.default_spec_id,
            java.last_partition_id,
        )
    for text, terms in (
        ("WRITE ORDERED BY id DESC NULLS LAST, day", ("id desc nulls last", "day")),
        ("WRITE ORDERED BY bucket(4, id)", ("bucket(4, id)",)),
        ("WRITE UNORDERED", ()),
        ("WRITE ORDERED BY id DESC NULLS LAST, day", ("id desc nulls last", "day")),
    ):
        theirs.sql(f"ALTER TABLE {{t}} {text}")
        ReplaceSortOrder(open_table(ours)).by(*terms).commit()
        mine, java = open_table(ours).metadata, open_table(str(interop_home / names[1])).metadata
        assert sort_order_to_json(mine.sort_order) == sort_order_to_json(java.sort_order), text


@pytest.mark.hive
def test_a_hive_table_is_renamed_and_registered_by_both(
    spark: SparkSession, hive_server: HiveServer, tmp_path: Path
) -> None:
    database = f"db_{next(_NUMBERS)}_{abs(hash(str(tmp_path)))}"
    warehouse = f"file://{tmp_path}/wh"
    catalog = {"type": "hive", "uri": hive_server.uri, "warehouse": warehouse, "name": "lake"}
    java = f"hms_{next(_NUMBERS)}"
    settings = {"": "org.apache.iceberg.spark.SparkCatalog", ".type": "hive", ".uri": hive_server.uri}
    for key, value in {**settings, ".warehouse": warehouse, ".cache-enabled": "false"}.items():
        spark.conf.set(f"spark.sql.catalog.{java}{key}", value)
    create_namespace(database, catalog)
    append(create_table(f"{database}.t", "id long, day string", catalog).table, rows(1, 2))
    rename_table(f"{database}.t", f"{database}.u", catalog)
    renamed = Both(spark, f"{java}.{database}.u")
    assert renamed.ids() == [1, 2]
    renamed.sql("INSERT INTO {t} VALUES (3, 'x')")
    spark.sql(f"ALTER TABLE {java}.{database}.u RENAME TO {java}.{database}.w")
    assert list_tables(catalog, database) == [f"{database}.w"]
    append(open_table(f"{database}.w", catalog), rows(4))
    path = open_table(f"{database}.w", catalog).operations.metadata_path  # type: ignore[attr-defined]
    drop_table(f"{database}.w", catalog)
    assert spark.sql(f"SHOW TABLES IN {java}.{database}").collect() == []
    register_table(f"{database}.again", path, catalog)
    again = Both(spark, f"{java}.{database}.again")
    assert again.ids() == [1, 2, 3, 4]
    again.sql("INSERT INTO {t} VALUES (5, 'x')")
    assert load_table(f"{database}.again", catalog).delete("id < 3").rows == 2
    assert again.ids() == [3, 4, 5]
    drop_table(f"{database}.again", catalog, purge=True)
    assert spark.sql(f"SHOW TABLES IN {java}.{database}").collect() == []
