"""The columns of metadata tables, as Iceberg's own have them.

The types of partitions and of bounds are those of one version of the table. A table that was never
partitioned has no column of partitions.
"""

from __future__ import annotations

from collections.abc import Iterable

from streamlake.read.metadata_tables import FileColumns
from streamlake.spec.metadata.table_metadata import TableMetadata
from streamlake.spec.types.data_types import (
    GeographyType,
    GeometryType,
    IcebergType,
    LongType,
    NestedField,
    StructType,
    VariantType,
)
from streamlake.spec.types.ddl import parse_ddl
from streamlake.spec.types.schema import Schema, fresh_schema

_UNREAD = (VariantType, GeometryType, GeographyType)
_MANIFESTS = (
    "content int, path string, length long, partition_spec_id int, added_snapshot_id long, "
    "added_data_files_count int, existing_data_files_count int, deleted_data_files_count int, "
    "added_delete_files_count int, existing_delete_files_count int, deleted_delete_files_count int, "
    "partition_summaries array<struct<contains_null: boolean, contains_nan: boolean, lower_bound: string, "
    "upper_bound: string>>"
)
_FIXED = {
    "snapshots": (
        "committed_at timestamp, snapshot_id long, parent_id long, operation string, manifest_list string, "
        "summary map<string, string>"
    ),
    "history": ("made_current_at timestamp, snapshot_id long, parent_id long, is_current_ancestor boolean"),
    "refs": (
        "name string, type string, snapshot_id long, max_reference_age_in_ms long, "
        "min_snapshots_to_keep int, max_snapshot_age_in_ms long"
    ),
    "metadata_log_entries": (
        "timestamp timestamp, file string, latest_snapshot_id long, latest_schema_id int, "
        "latest_sequence_number long"
    ),
    "manifests": _MANIFESTS,
    "all_manifests": f"{_MANIFESTS}, reference_snapshot_id long, key_metadata binary",
}
_FILE_BEFORE = parse_ddl("content int, file_path string, file_format string, spec_id int").fields
_FILE_AFTER = parse_ddl(
    "record_count long, file_size_in_bytes long, column_sizes map<int, long>, value_counts map<int, long>, "
    "null_value_counts map<int, long>, nan_value_counts map<int, long>, lower_bounds map<int, binary>, "
    "upper_bounds map<int, binary>, key_metadata binary, split_offsets array<long>, equality_ids array<int>, "
    "sort_order_id int, first_row_id long, referenced_data_file string, content_offset long, "
    "content_size_in_bytes long"
).fields
_ENTRY = parse_ddl("status int, snapshot_id long, sequence_number long, file_sequence_number long").fields
_PARTITION = parse_ddl(
    "record_count long, file_count int, total_data_file_size_in_bytes long, "
    "position_delete_record_count long, position_delete_file_count int, equality_delete_record_count long, "
    "equality_delete_file_count int, last_updated_at timestamp, last_updated_snapshot_id long"
).fields
_COUNTS = ("column_size", "value_count", "null_value_count", "nan_value_count")


def metadata_schema(name: str, metadata: TableMetadata) -> Schema:
    """The columns of a metadata table. Raises as `union_partition_fields`."""
    if name in _FIXED:
        return parse_ddl(_FIXED[name])
    columns = FileColumns.of(metadata)
    partition = _partition(columns)
    if name == "partitions":
        spec_id = [_column("spec_id", _FILE_BEFORE[-1].type)] if partition else []
        return _schema((*partition, *spec_id, *_PARTITION))
    file = (*_FILE_BEFORE, *partition, *_FILE_AFTER)
    metrics = _column("readable_metrics", StructType(tuple(_metrics(columns))))
    if name.endswith("entries"):
        return _schema((*_ENTRY, _column("data_file", StructType(file)), metrics))
    return _schema((*file, metrics))


def _partition(columns: FileColumns) -> list[NestedField]:
    fields = columns.partition_fields
    return [_column("partition", StructType(fields))] if fields else []


def _metrics(columns: FileColumns) -> Iterable[NestedField]:
    for name, column in columns.readable:
        if not isinstance(column.type, _UNREAD):
            counts = (_column(count, LongType()) for count in _COUNTS)
            bounds = (_column(bound, column.type) for bound in ("lower_bound", "upper_bound"))
            yield _column(name, StructType((*counts, *bounds)))


def _column(name: str, type_: IcebergType) -> NestedField:
    return NestedField(0, name, type_)


def _schema(fields: Iterable[NestedField]) -> Schema:
    return fresh_schema(Schema(tuple(fields)))
