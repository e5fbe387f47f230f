"""The public door: tables from any kind of schema, loaded by path, URI or name."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pytest

import streamlake
from streamlake.errors import (
    FeatureUnsupportedError,
    InvalidOptionError,
    TableAlreadyExistsError,
    TableNotFoundError,
)
from streamlake.spec.types.ddl import parse_ddl
from streamlake.tables import LoadedTable, create_table, load_table
from tests.unit.read.written_tables import append

SPARK_JSON = """{"type": "struct", "fields": [
    {"name": "id", "type": "long", "nullable": false, "metadata": {}},
    {"name": "at", "type": "timestamp", "nullable": true, "metadata": {}}]}"""


@pytest.mark.parametrize(
    "schema",
    [
        "id long not null, at timestamp",
        parse_ddl("id long not null, at timestamp"),
        pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("at", pa.timestamp("us", "UTC"))]),
        SimpleNamespace(json=lambda: SPARK_JSON, fields=[]),
    ],
    ids=["ddl", "Schema", "pyarrow", "spark"],
)
def test_any_kind_of_schema(tmp_path, schema):
    table = create_table(tmp_path / "t", schema, partition_by=["day(at)"], sort_by=["id desc"])
    assert [(part.name, str(part.type), part.required) for part in table.schema.fields] == [
        ("id", "long", True),
        ("at", "timestamptz", False),
    ]
    assert [str(part.transform) for part in table.spec.fields] == ["day"]
    assert table.sort_order.fields[0].direction == "desc"
    assert table.format_version == 2


def test_other_schemas_are_refused(tmp_path):
    with pytest.raises(InvalidOptionError, match="not list"):
        create_table(tmp_path / "t", ["id"])
    with pytest.raises(InvalidOptionError, match="partition_by"):
        create_table(tmp_path / "t", "id long", partition_by=["day(idd)"])
    with pytest.raises(FeatureUnsupportedError):
        create_table(tmp_path / "t", "id long", format_version=1)


def test_format_version_and_properties(tmp_path):
    assert create_table(tmp_path / "a", "id long", format_version=3).format_version == 3
    assert create_table(tmp_path / "b", "id long", properties={"format-version": "3"}).format_version == 3
    table = create_table(tmp_path / "c", "id long", properties={"owner": "me"})
    assert table.properties["owner"] == "me"
    assert create_table(tmp_path / "d", "id long", format_version=None).format_version == 2


def test_loading(tmp_path):
    location = str(tmp_path / "t")
    made = create_table(location, "id long")
    append(made, [{"id": 1}])
    for name in (location, tmp_path / "t", f"file://{location}", location + "/"):
        loaded = load_table(name)
        assert isinstance(loaded, LoadedTable)
        assert loaded.scan().to_arrow()["id"].to_pylist() == [1]
    assert loaded.current_snapshot.summary["operation"] == "append"
    assert loaded.current_snapshot.summary["added-records"] == "1"
    assert [snapshot.snapshot_id for snapshot in loaded.snapshots] == [loaded.current_snapshot.snapshot_id]
    assert loaded.refs["main"].snapshot_id == loaded.current_snapshot.snapshot_id
    assert loaded.location.endswith("/t")
    assert str(loaded.current_snapshot.snapshot_id) in repr(loaded)
    assert loaded.metadata.table_uuid


def test_named_tables(tmp_path):
    catalog = {"type": "hadoop", "warehouse": str(tmp_path)}
    create_table("db.orders", "id long", catalog)
    assert (
        load_table("db.orders", catalog=catalog).location == load_table(tmp_path / "db" / "orders").location
    )
    with pytest.raises(TableNotFoundError, match="db/other"):
        load_table("db.other", catalog=catalog)


def test_what_is_missing_or_there_already(tmp_path):
    with pytest.raises(TableNotFoundError, match="nothing"):
        load_table(tmp_path / "nothing")
    create_table(tmp_path / "t", "id long")
    with pytest.raises(TableAlreadyExistsError):
        create_table(tmp_path / "t", "id long")


def test_the_package_offers_them():
    assert streamlake.load_table is load_table
    assert streamlake.create_table is create_table


@pytest.mark.parametrize(
    ("name", "value"), [("write.format.default", "parkay"), ("write.target-file-size-bytes", "big")]
)
def test_no_table_that_nobody_could_write_to(name: str, value: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidOptionError, match=f"{name}.*{value}"):
        create_table(tmp_path / "t", "id long", properties={name: value})
    assert not (tmp_path / "t").exists()
