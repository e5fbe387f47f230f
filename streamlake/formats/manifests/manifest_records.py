"""Converts manifest entries and manifests to the records that fastavro writes (schemas: `manifest_schemas`).

Values are in their stored form: dates and timestamps as numbers, decimals and UUIDs as bytes, maps as lists
of pairs. Lists name their branch of the union, `("array", values)`, because fastavro would otherwise check
each of their items to find it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from streamlake.formats.avro.avro_schemas import avro_name, decimal_size
from streamlake.spec.metadata.data_file import DataFile, FileContent
from streamlake.spec.metadata.manifest import ManifestContent, ManifestEntry, ManifestFile
from streamlake.spec.types.data_types import DecimalType, IcebergType, StructType, UUIDType
from streamlake.spec.types.values import unscaled, uuid_bytes

Record = dict[str, Any]


def entry_record(entry: ManifestEntry, partition_type: StructType, format_version: int) -> Record:
    """A manifest entry as a record of `manifest_schema`."""
    return {
        "status": entry.status,
        "snapshot_id": entry.snapshot_id,
        "sequence_number": entry.sequence_number,
        "file_sequence_number": entry.file_sequence_number,
        "data_file": file_record(entry.data_file, partition_type, format_version),
    }


def file_record(file: DataFile, partition_type: StructType, format_version: int) -> Record:
    """A file as the field `data_file` of `manifest_schema`."""
    record = {
        "content": file.content,
        "file_path": file.file_path,
        "file_format": file.file_format.upper(),
        "partition": {
            name: value if value is None or convert is None else convert(value)
            for (name, convert), value in zip(_partition(partition_type), file.partition, strict=True)
        },
        "record_count": file.record_count,
        "file_size_in_bytes": file.file_size_in_bytes,
        "column_sizes": _pairs(file.column_sizes),
        "value_counts": _pairs(file.value_counts),
        "null_value_counts": _pairs(file.null_value_counts),
        "nan_value_counts": _pairs(file.nan_value_counts),
        "lower_bounds": _pairs(file.lower_bounds),
        "upper_bounds": _pairs(file.upper_bounds),
        "key_metadata": file.key_metadata,
        "split_offsets": _array(file.split_offsets),
        "equality_ids": _array(file.equality_ids),
        "sort_order_id": file.sort_order_id,
        "referenced_data_file": file.referenced_data_file,
    }
    if format_version >= 3:
        record["first_row_id"] = file.first_row_id if file.content == FileContent.DATA else None
        record["content_offset"] = file.content_offset
        record["content_size_in_bytes"] = file.content_size_in_bytes
    return record


def manifest_record(manifest: ManifestFile, format_version: int) -> Record:
    """A manifest as a record of `manifest_list_schema`."""
    summaries = manifest.partitions and [
        {
            "contains_null": summary.contains_null,
            "contains_nan": summary.contains_nan,
            "lower_bound": summary.lower_bound,
            "upper_bound": summary.upper_bound,
        }
        for summary in manifest.partitions
    ]
    record = {
        "manifest_path": manifest.manifest_path,
        "manifest_length": manifest.manifest_length,
        "partition_spec_id": manifest.partition_spec_id,
        "content": manifest.content,
        "sequence_number": manifest.sequence_number,
        "min_sequence_number": manifest.min_sequence_number,
        "added_snapshot_id": manifest.added_snapshot_id,
        "added_files_count": manifest.added_files_count,
        "existing_files_count": manifest.existing_files_count,
        "deleted_files_count": manifest.deleted_files_count,
        "added_rows_count": manifest.added_rows_count,
        "existing_rows_count": manifest.existing_rows_count,
        "deleted_rows_count": manifest.deleted_rows_count,
        "partitions": _array(summaries),
        "key_metadata": manifest.key_metadata,
    }
    if format_version >= 3:
        record["first_row_id"] = manifest.first_row_id if manifest.content == ManifestContent.DATA else None
    return record


def _array(values: Sequence[Any] | None) -> tuple[str, Sequence[Any]] | None:
    return None if values is None else ("array", values)


def _pairs(values: Mapping[int, Any] | None) -> tuple[str, Sequence[Any]] | None:
    if values is None:
        return None
    return "array", [{"key": key, "value": value} for key, value in values.items()]


@lru_cache(maxsize=64)
def _partition(partition_type: StructType) -> tuple[tuple[str, Callable[[Any], Any] | None], ...]:
    """The fields of partition records: their names, and converters for values whose stored form differs."""
    return tuple([(avro_name(part.name), _stored(part.type)) for part in partition_type.fields])


def _stored(type_: IcebergType) -> Callable[[Any], Any] | None:
    if isinstance(type_, DecimalType):
        size, scale = decimal_size(type_.precision), type_.scale
        return lambda value: unscaled(value, scale).to_bytes(size, "big", signed=True)
    return uuid_bytes if isinstance(type_, UUIDType) else None
