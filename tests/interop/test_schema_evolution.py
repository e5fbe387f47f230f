"""Tables whose schemas were changed here are read and written by the other engines, and by us after Iceberg's engine has
changed them."""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from streamlake import load_table
from streamlake.catalog.open import create, open_table
from streamlake.formats.arrow.arrow_schema import schema_to_arrow
from streamlake.spec.partitioning.partition_spec import parse_partition_by
from streamlake.spec.types.ddl import parse_ddl
from streamlake.table.schema.update_schema import UpdateSchema
from streamlake.table.table import Table
from tests.helpers.batch_write import append
from tests.helpers.invariants import check_table
from tests.helpers.local_upserts import LocalUpserts
from tests.helpers.readers import Reader, SparkReader, rows
from tests.interop.java_tables import JavaTable, create_java_table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DDL = (
    "id int not null, ratio float, price decimal(9,2), name string not null, place struct<x: int, y: string>,"
    " tags array<struct<t: string>>, gone string"
)
OLD = [
    {
        "id": at,
        "ratio": at / 4,
        "price": Decimal(at) / 4,
        "name": f"n{at}",
        "place": {"x": at, "y": "old"},
        "tags": [{"t": "a"}],
        "gone": "g",
    }
    for at in range(8)
]
NEW = [
    {
        "id": 2**40 + at,
        "more": at,
        "ratio": 1e300,
        "price": Decimal("123456789012.25"),
        "title": None,
        "place": {"x": 2**40, "y": None, "z": date(2024, 1, 1 + at)},
        "tags": [{"t": None, "n": at}],
        "state": "given",
    }
    for at in range(4)
]


def insert(table: Table, found: list[dict[str, object]]) -> None:
    append(table, pa.Table.from_pylist(found, schema=schema_to_arrow(table.schema, field_ids=False)))


def evolved(location: Path, version: int) -> Table:
    """A table that holds OLD, had its schema changed in every way, and holds NEW."""
    schema = parse_ddl(DDL)
    spec = parse_partition_by(["bucket(2, id)", "truncate(10, price)"], schema)
    table = create(str(location), schema, spec, format_version=version)
    insert(table, OLD)
    update = (
        UpdateSchema(table)
        .widen("id", "long")
        .widen("ratio", "double")
        .widen("price", "decimal(20,2)")
        .widen("place.x", "long")
        .add_column("z", "date", parent="place")
        .add_column("n", "int", parent="tags")
        .add_column("more", "int", doc="new")
        .make_optional("name")
        .rename("name", "title")
        .delete("gone")
        .move_after("more", "id")
    )
    if version == 3:
        update.add_column("state", "string", required=True, default="old")
    else:
        update.add_column("state", "string")
    update.commit()
    insert(table, NEW)
    return table


def expected(version: int) -> list[dict[str, object]]:
    old = [
        {
            "id": row["id"],
            "more": None,
            "ratio": row["ratio"],
            "price": row["price"],
            "title": row["name"],
            "place": {**row["place"], "z": None},
            "tags": [{"t": "a", "n": None}],
            "state": "old" if version == 3 else None,
        }
        for row in OLD
    ]
    return [*old, *NEW]


@pytest.fixture(scope="module", params=[2, 3])
def table(request: pytest.FixtureRequest, interop_home: Path) -> tuple[Table, int]:
    return evolved(interop_home / f"evolved{request.param}", request.param), request.param


@pytest.mark.parametrize("reader", ["spark", "duckdb", "pyiceberg"], indirect=True)
def test_engines_read_an_evolved_table(table: tuple[Table, int], reader: Reader) -> None:
    ours, version = table
    names = ["id", "more", "ratio", "price", "title", "place", "tags", "state"]
    wanted = pa.Table.from_pylist(expected(version), schema=schema_to_arrow(ours.schema, field_ids=False))
    found = reader.read(Path(ours.location), names)
    assert rows(found, "id", reader.loose) == rows(wanted.select(names), "id", reader.loose)
    assert load_table(ours.location).scan().count() == len(OLD) + len(NEW)


def test_spark_writes_into_an_evolved_table(
    interop_home: Path, iceberg_spark: SparkSession, spark_reader: SparkReader
) -> None:
    location = interop_home / "evolved_written"
    evolved(location, 2)
    name = "ice.interop.evolved_written"
    iceberg_spark.sql(
        f"INSERT INTO {name} SELECT id + 100, 1, 0.5D, price, title, named_struct('x', 1L, 'y', 'spark', 'z', NULL), tags,"
        f" 's' FROM {name} WHERE id < 3"
    )
    iceberg_spark.sql(f"DELETE FROM {name} WHERE id = 5")
    iceberg_spark.sql(f"ALTER TABLE {name} ADD COLUMN theirs timestamp_ntz FIRST")
    iceberg_spark.sql(f"ALTER TABLE {name} ALTER COLUMN more TYPE bigint")
    table = open_table(str(location))
    used = {field_id for schema in table.schemas.values() for field_id in schema.fields_by_id}
    UpdateSchema(table).add_column("ours", "timestamp_ntz").rename("theirs", "mine").commit()
    assert table.schema.find("ours").field_id not in used  # type: ignore[union-attr]
    insert(table, [{"id": 999, "mine": datetime(2024, 1, 1), "ours": datetime(2024, 1, 2), "more": 2**40}])
    found = load_table(str(location)).scan().to_arrow()
    assert found.num_rows == len(OLD) + len(NEW) + 3 - 1 + 1
    assert rows(found, "id") == rows(spark_reader.read(location), "id")
    by_id = {row["id"]: row for row in found.to_pylist()}
    assert by_id[102]["place"] == {"x": 1, "y": "spark", "z": None}
    assert (by_id[999]["more"], by_id[999]["mine"]) == (2**40, datetime(2024, 1, 1))


def test_a_table_of_java_evolves_here(iceberg_spark: SparkSession, spark_home: Path) -> None:
    java = create_java_table(
        iceberg_spark, spark_home, "id int, v string", ["bucket(2, id)"], format_version="2"
    )
    java.sql("INSERT INTO {t} VALUES (1, 'a'), (2, 'b')")
    UpdateSchema(open_table(str(java.location))).widen("id", "long").add_column(
        "w", "map<string, int>"
    ).commit()
    iceberg_spark.sql(f"REFRESH TABLE {java.name}")
    java.sql("INSERT INTO {t} VALUES (1099511627776, 'c', map('k', 1))")
    assert java.sql("SELECT id, v, w FROM {t} ORDER BY id") == [
        {"id": 1, "v": "a", "w": None},
        {"id": 2, "v": "b", "w": None},
        {"id": 2**40, "v": "c", "w": {"k": 1}},
    ]
    assert load_table(str(java.location)).scan(filter="id = 1").count() == 1


@pytest.mark.parametrize("delete_mode", ["position", "copy-on-write"])
@pytest.mark.parametrize("version", [2, 3])
def test_a_stream_goes_on_after_spark_drops_a_partition_column(
    iceberg_spark: SparkSession, spark_home: Path, version: int, delete_mode: str
) -> None:
    """Spark drops the partition field and then its column; the files of the old spec stay."""
    java = create_java_table(
        iceberg_spark, spark_home, "id bigint, part int, v string", ["part"], format_version=str(version)
    )
    location = str(java.location)
    java.sql("INSERT INTO {t} VALUES (1, 5, 'a'), (2, 200, 'a'), (3, 200, 'a')")
    upserts(location, delete_mode, {"id": [1, 2], "part": [5, 200], "v": ["b", "b"]})
    java.sql("ALTER TABLE {t} DROP PARTITION FIELD part")
    java.sql("ALTER TABLE {t} DROP COLUMN part")
    wanted = {1: "c", 2: "b", 3: "c", 4: "c"}
    upserts(location, delete_mode, {"id": [1, 3, 4], "v": ["c", "c", "c"]}, job_id="second")
    assert both_read(java, iceberg_spark) == wanted
    java.sql("DELETE FROM {t} WHERE id = 2")
    iceberg_spark.sql(f"CALL ice.system.rewrite_manifests('{java.name.removeprefix('ice.')}')")
    upserts(location, delete_mode, {"id": [3], "v": ["d"]}, job_id="third")
    assert both_read(java, iceberg_spark) == {1: "c", 3: "d", 4: "c"}
    check_table(open_table(location), files_exist=True)


@pytest.mark.parametrize("others", [[], ["bucket(2, id)"]], ids=["alone", "beside-another"])
def test_a_void_field_of_a_column_that_spark_dropped(
    iceberg_spark: SparkSession, spark_home: Path, others: list[str]
) -> None:
    java = create_java_table(
        iceberg_spark, spark_home, "id bigint, part int, v string", ["part", *others], format_version="1"
    )
    location = str(java.location)
    java.sql("INSERT INTO {t} VALUES (1, 5, 'a'), (2, 200, 'a')")
    java.sql("ALTER TABLE {t} DROP PARTITION FIELD part")
    java.sql("ALTER TABLE {t} SET TBLPROPERTIES ('format-version' = '2')")
    java.sql("ALTER TABLE {t} DROP COLUMN part")
    append(open_table(location), pa.table({"id": [3], "v": ["n"]}))
    upserts(location, "position", {"id": [1, 4], "v": ["n", "n"]})
    assert both_read(java, iceberg_spark) == {1: "n", 2: "a", 3: "n", 4: "n"}
    check_table(open_table(location), files_exist=True)


def upserts(location: str, delete_mode: str, changes: dict[str, list[object]], job_id: str = "first") -> None:
    stream = LocalUpserts(location, key=["id"], delete_mode=delete_mode, job_id=job_id, pipeline=job_id)
    arrow = schema_to_arrow(stream.table.schema, field_ids=False)
    stream.checkpoint(pa.table(changes, schema=arrow))


def both_read(java: JavaTable, spark: SparkSession) -> dict[int, str]:
    """The rows as we and Spark read them."""
    spark.sql(f"REFRESH TABLE {java.name}")
    theirs = {row["id"]: row["v"] for row in java.sql("SELECT id, v FROM {t}")}
    found = load_table(str(java.location)).scan().to_arrow()
    assert dict(zip(found["id"].to_pylist(), found["v"].to_pylist(), strict=True)) == theirs
    assert found.num_rows == len(theirs)
    return theirs
