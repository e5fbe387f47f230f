from __future__ import annotations

from pathlib import Path

import pytest

from streamlake.catalog.hadoop import HadoopCatalog
from streamlake.catalog.new_tables import TableDefinition
from streamlake.catalog.open import create, open_table
from streamlake.errors import (
    FeatureUnsupportedError,
    InvalidOptionError,
    TableAlreadyExistsError,
    TableNotFoundError,
)
from streamlake.spec.partitioning.partition_spec import parse_partition_by
from streamlake.spec.partitioning.sort_order import parse_sort_by
from streamlake.spec.types.data_types import NestedField, VariantType
from streamlake.spec.types.ddl import parse_ddl
from streamlake.spec.types.schema import Schema


def test_names_are_directories_of_the_warehouse(tmp_path: Path) -> None:
    catalog = HadoopCatalog(str(tmp_path))
    definition = TableDefinition(parse_ddl("id long"))
    table = catalog.create_table("db.orders", definition)
    assert table.location == f"{tmp_path}/db/orders"
    assert catalog.load_table("db.orders").name == "db.orders"
    catalog.create_table("db.inner.lines", definition)
    with pytest.raises(TableAlreadyExistsError):
        catalog.create_table("db.orders", definition)
    assert catalog.list_tables("db") == ["db.orders"]
    assert catalog.list_namespaces() == ["db"]
    assert catalog.list_namespaces("db") == ["db.inner"]
    with pytest.raises(TableNotFoundError, match="nowhere"):
        catalog.list_tables("nowhere")
    assert catalog.table_exists("db.orders")
    with pytest.raises(TableNotFoundError, match="db/missing"):
        catalog.load_table("db.missing")
    for wrong in ("", "db.", "db..x", "db/x", "db.../x"):
        with pytest.raises(InvalidOptionError, match="table name"):
            catalog.load_table(wrong)


def test_a_catalog_is_given_as_a_mapping(tmp_path: Path) -> None:
    catalog = {"type": "hadoop", "warehouse": str(tmp_path)}
    create("db.t", parse_ddl("id long"), catalog=catalog)
    assert open_table("db.t", catalog).location == f"{tmp_path}/db/t"
    with pytest.raises(InvalidOptionError, match="warehouse"):
        open_table("db.t", {"type": "hadoop"})


def test_fresh_ids_are_assigned_and_followed(tmp_path: Path) -> None:
    schema = parse_ddl("id long, s struct<x:int,y:string>, ts timestamp")
    shifted = Schema(
        tuple(NestedField(part.field_id + 40, part.name, part.type, part.required) for part in schema.fields)
    )
    spec = parse_partition_by(["day(ts)", "bucket(16, id)"], shifted)
    order = parse_sort_by(["ts desc"], shifted)
    table = create(str(tmp_path), shifted, spec, order)
    assert [(part.name, part.field_id) for part in table.schema.fields] == [("id", 1), ("s", 2), ("ts", 3)]
    assert [(part.source_id, part.field_id) for part in table.spec.fields] == [(3, 1000), (1, 1001)]
    assert [part.source_id for part in table.sort_order.fields] == [3]
    assert table.sort_order.order_id == 1
    assert table.metadata.last_column_id == 5
    assert table.properties["write.parquet.compression-codec"] == "zstd"
    assert open_table(str(tmp_path)).schema == table.schema


def test_format_versions_of_new_tables(tmp_path: Path) -> None:
    schema = parse_ddl("id long")
    assert create(str(tmp_path / "a"), schema).format_version == 2
    by_property = create(str(tmp_path / "b"), schema, properties={"format-version": "3"})
    assert (by_property.format_version, "format-version" in by_property.properties) == (3, False)
    assert by_property.metadata.next_row_id == 0
    for version in (1, 4):
        with pytest.raises(FeatureUnsupportedError, match=f"version {version}"):
            create(str(tmp_path / "c"), schema, format_version=version)
    with pytest.raises(InvalidOptionError, match="reserved"):
        create(str(tmp_path / "c"), schema, properties={"uuid": "x"})
    assert not (tmp_path / "c").exists()


def test_types_that_cannot_be_written_are_refused_when_a_table_is_created(tmp_path: Path) -> None:
    with pytest.raises(InvalidOptionError, match="format version 3"):
        create(str(tmp_path), parse_ddl("id long, t timestamp_ns"))
    create(str(tmp_path / "v3"), parse_ddl("id long, t timestamp_ns"), format_version=3)
    variant = Schema((NestedField(1, "v", VariantType()),))
    with pytest.raises(FeatureUnsupportedError, match="variant"):
        create(str(tmp_path), variant, format_version=3)
