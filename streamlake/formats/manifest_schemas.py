"""The Avro schemas of manifests and manifest lists, for writing (v2, v3) and for reading (whatever was written).

Stored fields are found by id, and by name only where there is none, because writers have named some of them
differently over the years. Invariant: each distinct schema is prepared once per process.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from streamlake.errors import DataInvalidError
from streamlake.formats.avro_decoding import Decoder, Layout, decoder_of
from streamlake.formats.avro_encoding import Encoder, encoder_of
from streamlake.formats.avro_schemas import avro_name, record_schema
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

_STATS_FIELD_IDS = frozenset({108, 109, 110, 137, 125, 128})

# The slots of a decoded record are the fields of the value that it becomes.
_ENTRY_FIELD_IDS = (0, 1, 3, 4, 2)
_DATA_FILE_FIELD_IDS = (
    *(134, 100, 101, 141, _PARTITION_ID, 103, 104, 108, 109, 110, 137, 125, 128, 131, 132, 135, 140),
    *(142, 143, 144, 145),
)
_MANIFEST_FILE_FIELD_IDS = (
    *(500, 501, 502, 517, 515, 516, 503, 504, 505, 506, 512, 513, 514, 507, 519, 520),
)


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


@lru_cache(maxsize=256)
def manifest_decoder(
    schema_text: str, partition_fields: tuple[tuple[int, str], ...], *, with_stats: bool
) -> Decoder:
    """The decoder of a stored manifest's entries, with partition values in the order of `partition_fields`.

    An entry is the list [status, snapshot id, sequence number, file sequence number, data file], the data file the
    list of DataFile's fields. Raises DataInvalidError when the text is no schema of a manifest.
    """
    slots: dict[int, tuple[int, Layout | None]] = {
        field_id: (at, None) for at, (field_id, _) in enumerate(partition_fields)
    }
    names = {avro_name(name): field_id for field_id, name in partition_fields}
    partition = Layout(len(partition_fields), slots, names)
    left_out: frozenset[int] = frozenset() if with_stats else _STATS_FIELD_IDS
    data_file = _layout(_DATA_FILE_FIELD_IDS, {_PARTITION_ID: partition}, left_out)
    return _decoder(schema_text, _layout(_ENTRY_FIELD_IDS, {2: data_file}), "file_path")


@lru_cache(maxsize=64)
def manifest_list_decoder(schema_text: str) -> Decoder:
    """The decoder of a stored manifest list: the list of ManifestFile's fields, summaries as lists of theirs.

    Raises DataInvalidError when the text is no schema of a manifest list.
    """
    summary = _layout(tuple(part.field_id for part in _SUMMARY.fields), {})
    return _decoder(schema_text, _layout(_MANIFEST_FILE_FIELD_IDS, {507: summary}), "manifest_path")


def _layout(
    field_ids: tuple[int, ...], inner: dict[int, Layout], left_out: frozenset[int] = frozenset()
) -> Layout:
    slots = {part: (at, inner.get(part)) for at, part in enumerate(field_ids) if part not in left_out}
    return Layout(len(field_ids), slots, _IDS_BY_NAME)


def _decoder(schema_text: str, layout: Layout, must_have: str) -> Decoder:
    try:
        schema = json.loads(schema_text)
        if f'"{must_have}"' not in schema_text:
            raise ValueError(f"there is no field {must_have}")
        return decoder_of(schema, layout)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as cause:
        raise DataInvalidError(f"its Avro schema makes no sense ({cause})") from cause


_IDS_BY_NAME = {
    part.name: part.field_id
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
