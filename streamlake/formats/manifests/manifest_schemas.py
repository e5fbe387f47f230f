"""Avro schemas of manifests and manifest lists, with field ids (spec: Manifests, Manifest Lists).

v2 and v3 are written; stored files are read by the same ids and names (`stored_manifests`). Invariant: each
distinct schema is prepared once per process.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import fastavro

from streamlake.formats.avro.avro_schemas import record_schema
from streamlake.spec.types.data_types import (
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

_INT, _LONG, _STRING, _BINARY = IntegerType(), LongType(), StringType(), BinaryType()


def _field(field_id: int, name: str, type_: IcebergType, *, required: bool = False) -> NestedField:
    return NestedField(field_id, name, type_, required)


def _counts(key_id: int, value_id: int) -> MapType:
    return MapType(key_id, _INT, value_id, _LONG, True)


def _bounds(key_id: int, value_id: int) -> MapType:
    return MapType(key_id, _INT, value_id, _BINARY, True)


PARTITION_ID = 102
DATA_FILE_ID = 2
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


def _ids_by_name(fields: tuple[NestedField, ...]) -> dict[str, int]:
    return {part.name: part.field_id for part in fields}


ENTRY_IDS = {**_ids_by_name(_ENTRY_HEAD), "data_file": DATA_FILE_ID}
DATA_FILE_IDS = {
    **_ids_by_name(_DATA_FILE_HEAD),
    "partition": PARTITION_ID,
    **_ids_by_name(_DATA_FILE_BY_VERSION[3]),
}
MANIFEST_FILE_IDS = _ids_by_name(_MANIFEST_FILE_BY_VERSION[3])
SUMMARY_IDS = _ids_by_name(_SUMMARY.fields)


@lru_cache(maxsize=64)
def manifest_schema(format_version: int, partition: StructType) -> Any:
    """The schema of `manifest_entry` in a format version, in fastavro's form.

    `partition` is the type of the partition tuples.
    """
    data_file = StructType(
        (
            *_DATA_FILE_HEAD,
            _field(PARTITION_ID, "partition", partition, required=True),
            *_DATA_FILE_BY_VERSION[format_version],
        )
    )
    entry = StructType((*_ENTRY_HEAD, _field(DATA_FILE_ID, "data_file", data_file, required=True)))
    return fastavro.parse_schema(record_schema(entry, "manifest_entry"))


@lru_cache(maxsize=4)
def manifest_list_schema(format_version: int) -> Any:
    """The schema of `manifest_file` in a format version; fastavro's form."""
    return fastavro.parse_schema(
        record_schema(StructType(_MANIFEST_FILE_BY_VERSION[format_version]), "manifest_file")
    )
