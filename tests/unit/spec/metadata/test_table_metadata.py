"""Schemas, specs, orders and metadata: JSON both ways, nothing that is not understood is dropped."""

from __future__ import annotations

import pytest

from streamlake.errors import DataInvalidError, FeatureUnsupportedError, InvalidOptionError
from streamlake.spec.metadata.table_metadata import metadata_from_json, metadata_to_json, new_table_metadata
from streamlake.spec.partitioning.partition_spec import parse_partition_by
from streamlake.spec.partitioning.sort_order import parse_sort_by
from streamlake.spec.types.data_types import ListType, MapType, StructType, TimestampType, TimestamptzType
from streamlake.spec.types.ddl import parse_ddl
from streamlake.spec.types.type_json import parse_primitive, schema_from_json, schema_to_json

DDL = (
    "id bigint not null, name string comment 'it''s', amount decimal(12,2), at timestamp, local timestamp_ntz, "
    "tags array<string>, attributes map<string, array<int>>, inner struct<a: int not null, b struct<c: double>>"
)


def full_metadata() -> dict:
    schema = parse_ddl(DDL)
    metadata = new_table_metadata(
        location="/warehouse/t",
        table_uuid="9c12d441-03fe-4693-9a96-a0705ddf69c1",
        now_ms=1_600_000_000_000,
        schema=schema,
        spec=parse_partition_by(["day(at)", "bucket(16, id)"], schema),
        sort_order=parse_sort_by(["at desc"], schema),
        format_version=3,
        properties={"a": "b"},
    )
    obj = metadata_to_json(metadata)
    obj["current-snapshot-id"] = 2
    obj["snapshots"] = [
        {
            "snapshot-id": 1,
            "sequence-number": 1,
            "timestamp-ms": 5,
            "manifest-list": "/l1",
            "summary": {"operation": "append"},
        },
        {
            "snapshot-id": 2,
            "parent-snapshot-id": 1,
            "sequence-number": 2,
            "timestamp-ms": 6,
            "manifest-list": "/l2",
            "summary": {"operation": "append", "x": "y"},
            "schema-id": 0,
            "first-row-id": 10,
            "added-rows": 5,
            "of-a-later-version": [1],
        },
    ]
    obj["refs"] = {
        "main": {"snapshot-id": 2, "type": "branch"},
        "t": {"snapshot-id": 1, "type": "tag", "max-ref-age-ms": 7},
    }
    obj["snapshot-log"] = [{"timestamp-ms": 5, "snapshot-id": 1}, {"timestamp-ms": 6, "snapshot-id": 2}]
    obj["metadata-log"] = [{"timestamp-ms": 4, "metadata-file": "/v1.metadata.json"}]
    obj["statistics"] = [{"snapshot-id": 1, "statistics-path": "/s.puffin", "blob-metadata": []}]
    obj["partition-statistics"] = [
        {"snapshot-id": 1, "statistics-path": "/p.parquet", "file-size-in-bytes": 9}
    ]
    obj["encryption-keys"] = [{"key-id": "k"}]
    obj["next-row-id"] = 15
    return obj


def test_round_trip_keeps_everything():
    obj = full_metadata()
    assert metadata_to_json(metadata_from_json(obj)) == obj


def test_lookups():
    metadata = metadata_from_json(full_metadata())
    assert metadata.current_snapshot.snapshot_id == 2
    assert [snapshot.snapshot_id for snapshot in metadata.ancestors(2)] == [2, 1]
    assert metadata.head("t").snapshot_id == 1
    assert metadata.head("absent") is None
    assert metadata.sort_order.order_id == 1
    with pytest.raises(DataInvalidError, match="schema with id 9"):
        metadata.schema_by_id(9)


def test_version_1_without_the_lists():
    schema = schema_to_json(parse_ddl("id long, day date"))
    del schema["schema-id"]
    metadata = metadata_from_json(
        {
            "format-version": 1,
            "location": "/t",
            "last-updated-ms": 1,
            "last-column-id": 2,
            "schema": schema,
            "partition-spec": [{"name": "day", "transform": "identity", "source-id": 2}],
            "current-snapshot-id": -1,
        }
    )
    assert metadata.spec.fields[0].field_id == 1000
    assert metadata.current_snapshot is None
    assert metadata.refs == {}
    assert metadata.last_partition_id == 1000


@pytest.mark.parametrize(
    ("obj", "error", "match"),
    [
        ({"format-version": 4}, FeatureUnsupportedError, "format version 4"),
        ({}, FeatureUnsupportedError, "None"),
        ({"format-version": 2}, DataInvalidError, "schema"),
    ],
)
def test_damaged_metadata(obj, error, match):
    with pytest.raises(error, match=match):
        metadata_from_json(obj)


def test_ddl_numbers_fields_level_by_level():
    schema = parse_ddl(DDL)
    assert [part.field_id for part in schema.fields] == list(range(1, 9))
    assert schema.find("inner.b.c").field_id == 15
    assert schema.name_of(schema.find("attributes.value.element").field_id) == "attributes.value.element"
    assert schema.find("id").required
    assert schema.find("name").doc == "it's"
    assert isinstance(schema.find("at").type, TimestamptzType)
    assert isinstance(schema.find("local").type, TimestampType)
    assert isinstance(schema.find("tags").type, ListType)
    assert isinstance(schema.find("attributes").type, MapType)
    assert schema_from_json(schema_to_json(schema)) == schema
    assert schema.parents[schema.find("inner.b.c").field_id] == schema.find("inner.b").field_id


def test_select_prunes_structs():
    narrowed = parse_ddl(DDL).select(["inner.b.c", "id"])
    assert narrowed.column_names == ["id", "inner"]
    assert isinstance(narrowed.find("inner").type, StructType)
    assert narrowed.find("inner.a") is None
    with pytest.raises(KeyError, match="absent"):
        narrowed.select(["absent"])


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("", "empty"),
        ("id", "ends too early"),
        ("id lonng", r"'lonng' is not a type \(did you mean 'long'\?\)"),
        ("id long id2 int", "',' was expected"),
        ("id long, id int", "'id' twice"),
        ("m map<string>", "',' was expected"),
    ],
)
def test_ddl_errors_point_at_the_place(text, match):
    with pytest.raises(InvalidOptionError, match=match):
        parse_ddl(text)


@pytest.mark.parametrize(
    "text",
    [
        "decimal(9, 2)",
        "fixed[16]",
        "timestamptz_ns",
        "geometry(srid:4326)",
        "geography(a, karney)",
        "variant",
        "unknown",
    ],
)
def test_primitive_texts(text):
    assert str(parse_primitive(text)) == text


def test_partition_by_errors_name_the_option():
    schema = parse_ddl("id long, at timestamp, d double")
    for parts, match in [
        (["day(absent)"], "'absent'"),
        (["dya(at)"], "not understood"),
        (["bucket(4, d)"], "cannot be applied"),
        (["id", "id"], "second partition field"),
        (["hour(id)"], "cannot be applied"),
    ]:
        with pytest.raises(InvalidOptionError, match=match):
            parse_partition_by(parts, schema)


def test_partition_path_is_encoded():
    schema = parse_ddl("name string, at timestamp_ntz, id int")
    spec = parse_partition_by(["name", "hours(at)", "truncate(id, 10)"], schema)
    assert [part.name for part in spec.fields] == ["name", "at_hour", "id_trunc"]
    assert (
        spec.partition_path(("a b/é=", 1, None), schema)
        == "name=a+b%2F%C3%A9%3D/at_hour=1970-01-01-01/id_trunc=null"
    )
