"""The Avro schemas of manifests and manifest lists, for writing (v2, v3) and for reading (whatever was written).

Stored fields are found by id, never by name, because writers have named some of them differently over the years. For
decoding, schemas lose their logical types: dates stay days, decimals stay bytes. Invariant: each distinct schema is
prepared once per process.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import lru_cache
from typing import Any
from uuid import UUID

from streamlake.errors import DataInvalidError
from streamlake.formats.avro_container import ParsedSchema, parse_schema
from streamlake.formats.avro_encoding import Encoder, encoder_of
from streamlake.formats.avro_schemas import record_schema
from streamlake.spec.types import (
    BinaryType,
    BooleanType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
)
from streamlake.spec.values import scaled

Json = Any

_INT, _LONG, _STRING, _BINARY = IntegerType(), LongType(), StringType(), BinaryType()


def _field(field_id: int, name: str, type_: IcebergType, *, required: bool = False) -> NestedField:
    return NestedField(field_id, name, type_, required)


def _counts(key_id: int, value_id: int) -> MapType:
    return MapType(key_id, _INT, value_id, _LONG, True)


def _bounds(key_id: int, value_id: int) -> MapType:
    return MapType(key_id, _INT, value_id, _BINARY, True)


_PARTITION_ID = 102
_DATA_FILE_HEAD = (
    _field(134, "content", _INT, required=True),
    _field(100, "file_path", _STRING, required=True),
    _field(101, "file_format", _STRING, required=True),
)
_DATA_FILE_TAIL = (
    _field(103, "record_count", _LONG, required=True),
    _field(104, "file_size_in_bytes", _LONG, required=True),
    _field(108, "column_sizes", _counts(117, 118)),
    _field(109, "value_counts", _counts(119, 120)),
    _field(110, "null_value_counts", _counts(121, 122)),
    _field(137, "nan_value_counts", _counts(138, 139)),
    _field(125, "lower_bounds", _bounds(126, 127)),
    _field(128, "upper_bounds", _bounds(129, 130)),
    _field(131, "key_metadata", _BINARY),
    _field(132, "split_offsets", ListType(133, _LONG, True)),
    _field(135, "equality_ids", ListType(136, _INT, True)),
    _field(140, "sort_order_id", _INT),
)
_FIRST_ROW_ID = _field(142, "first_row_id", _LONG)
_REFERENCED_DATA_FILE = _field(143, "referenced_data_file", _STRING)
_BLOB = (_field(144, "content_offset", _LONG), _field(145, "content_size_in_bytes", _LONG))
_DATA_FILE_BY_VERSION = {
    2: (*_DATA_FILE_TAIL, _REFERENCED_DATA_FILE),
    3: (*_DATA_FILE_TAIL, _FIRST_ROW_ID, _REFERENCED_DATA_FILE, *_BLOB),
}
_ENTRY_HEAD = (
    _field(0, "status", _INT, required=True),
    _field(1, "snapshot_id", _LONG),
    _field(3, "sequence_number", _LONG),
    _field(4, "file_sequence_number", _LONG),
)
_SUMMARY = StructType(
    (
        _field(509, "contains_null", BooleanType(), required=True),
        _field(518, "contains_nan", BooleanType()),
        _field(510, "lower_bound", _BINARY),
        _field(511, "upper_bound", _BINARY),
    )
)
_MANIFEST_FILE = (
    _field(500, "manifest_path", _STRING, required=True),
    _field(501, "manifest_length", _LONG, required=True),
    _field(502, "partition_spec_id", _INT, required=True),
    _field(517, "content", _INT, required=True),
    _field(515, "sequence_number", _LONG, required=True),
    _field(516, "min_sequence_number", _LONG, required=True),
    _field(503, "added_snapshot_id", _LONG, required=True),
    _field(504, "added_files_count", _INT, required=True),
    _field(505, "existing_files_count", _INT, required=True),
    _field(506, "deleted_files_count", _INT, required=True),
    _field(512, "added_rows_count", _LONG, required=True),
    _field(513, "existing_rows_count", _LONG, required=True),
    _field(514, "deleted_rows_count", _LONG, required=True),
    _field(507, "partitions", ListType(508, _SUMMARY, True)),
    _field(519, "key_metadata", _BINARY),
)
_MANIFEST_FILE_BY_VERSION = {
    2: _MANIFEST_FILE,
    3: (*_MANIFEST_FILE, _field(520, "first_row_id", _LONG)),
}

STATS_FIELD_IDS = frozenset({108, 109, 110, 137, 125, 128})
_NAMES = {
    part.field_id: part.name
    for part in (
        *_ENTRY_HEAD,
        _field(2, "data_file", StructType(())),
        *_DATA_FILE_HEAD,
        _field(_PARTITION_ID, "partition", StructType(())),
        *_DATA_FILE_BY_VERSION[3],
        *_MANIFEST_FILE_BY_VERSION[3],
        *_SUMMARY.fields,
    )
}


@dataclass(frozen=True, eq=False)
class WrittenSchema:
    """The schema text of a file to write, and the encoder of its records: tuples in the order of the fields."""

    text: str
    encode: Encoder


@lru_cache(maxsize=64)
def manifest_schema(format_version: int, partition: StructType) -> WrittenSchema:
    """How `manifest_entry` is written in a format version, for partition tuples of type `partition`."""
    data_file = StructType(
        (
            *_DATA_FILE_HEAD,
            _field(_PARTITION_ID, "partition", partition, required=True),
            *_DATA_FILE_BY_VERSION[format_version],
        )
    )
    entry = StructType((*_ENTRY_HEAD, _field(2, "data_file", data_file, required=True)))
    return _written(entry, "manifest_entry")


@lru_cache(maxsize=4)
def manifest_list_schema(format_version: int) -> WrittenSchema:
    """How `manifest_file` is written in a format version."""
    return _written(StructType(_MANIFEST_FILE_BY_VERSION[format_version]), "manifest_file")


def _written(struct: StructType, name: str) -> WrittenSchema:
    return WrittenSchema(json.dumps(record_schema(struct, name), separators=(",", ":")), encoder_of(struct))


@dataclass(frozen=True, eq=False)
class PartitionField:
    """How one field of a stored partition tuple becomes a value: its key in the record and what its bytes mean."""

    field_id: int
    key: str
    logical_type: str | None
    scale: int

    def value(self, raw: Any) -> Any:
        """The value in streamlake's domain of what is stored."""
        if raw is None or self.logical_type is None:
            return raw
        if self.logical_type == "uuid":
            return UUID(raw) if isinstance(raw, str) else UUID(bytes=bytes(raw))
        if self.logical_type == "decimal":
            return scaled(int.from_bytes(raw, "big", signed=True), self.scale)
        return raw


@dataclass(frozen=True, eq=False)
class StoredSchema:
    """A writer's schema prepared for decoding: records keyed by the spec's names, partition values by field id."""

    parsed: ParsedSchema
    partition: tuple[PartitionField, ...]


@lru_cache(maxsize=256)
def stored_schema(schema_text: str, *, with_stats: bool = True) -> StoredSchema:
    """Prepare the schema text of a manifest or manifest list. Raises DataInvalidError when it is none."""
    try:
        schema = json.loads(schema_text)
        writer = _raw(schema, frozenset())
        reader = None if with_stats else _raw(schema, STATS_FIELD_IDS)
        return StoredSchema(parse_schema(writer, reader), _partition_fields(schema))
    except (ValueError, KeyError, TypeError, AttributeError) as cause:
        raise DataInvalidError(f"its Avro schema makes no sense ({cause})") from cause


def _partition_key(field_id: int) -> str:
    return f"p{field_id}"


def _raw(schema: Json, leave_out: frozenset[int], *, in_partition: bool = False) -> Json:
    """`schema` without logical types, with canonical field names, and without the fields of some ids."""
    if isinstance(schema, list):
        return [_raw(branch, leave_out, in_partition=in_partition) for branch in schema]
    if not isinstance(schema, dict):
        return schema
    out = {key: value for key, value in schema.items() if key not in ("logicalType", "precision", "scale")}
    if schema["type"] == "record":
        out["fields"] = [
            _raw_field(part, leave_out, in_partition=in_partition)
            for part in schema["fields"]
            if part.get("field-id") not in leave_out
        ]
        return out
    for inside in ("items", "values"):
        if inside in out:
            out[inside] = _raw(out[inside], leave_out, in_partition=in_partition)
    if isinstance(schema["type"], (dict, list)):
        out["type"] = _raw(schema["type"], leave_out, in_partition=in_partition)
    return out


def _raw_field(part: dict[str, Json], leave_out: frozenset[int], *, in_partition: bool) -> dict[str, Json]:
    field_id = part.get("field-id")
    name = (
        _partition_key(field_id)
        if in_partition and field_id is not None
        else _NAMES.get(-1 if field_id is None else field_id, part["name"])
    )
    is_partition = in_partition or field_id == _PARTITION_ID or part["name"] == "partition"
    return {"name": name, "type": _raw(part["type"], leave_out, in_partition=is_partition)}


def _partition_fields(schema: Json) -> tuple[PartitionField, ...]:
    data_file = _find(schema, 2, "data_file")
    partition = None if data_file is None else _find(data_file, _PARTITION_ID, "partition")
    if partition is None:
        return ()
    fields, named = [], {}
    for at, part in enumerate(partition["fields"]):
        type_ = part["type"]
        if isinstance(type_, list):
            type_ = next(branch for branch in type_ if branch != "null")
        if isinstance(type_, dict) and "name" in type_:
            named[type_["name"]] = type_
        definition = named.get(type_, {}) if isinstance(type_, str) else type_
        field_id = part.get("field-id", 1000 + at)
        fields.append(
            PartitionField(
                field_id=field_id,
                key=_partition_key(field_id) if "field-id" in part else part["name"],
                logical_type=definition.get("logicalType"),
                scale=definition.get("scale", 0),
            )
        )
    return tuple(fields)


def _find(schema: Json, field_id: int, name: str) -> Json:
    for part in schema.get("fields", ()):
        if part.get("field-id", field_id if part["name"] == name else None) == field_id:
            return part["type"]
    return None
