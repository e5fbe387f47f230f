"""Metadata tables: snapshots, history, refs, manifests, files and partitions of a table as rows.

Reads metadata and manifests, never data. Column names and meanings are those of Iceberg's metadata tables, so
that the rows can be compared with another engine's. Rows are plain dicts of natural Python values: times are
datetimes, partitions are dicts of field name to value, bounds in `readable_metrics` are decoded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from streamlake.errors import FeatureUnsupportedError
from streamlake.formats.manifests.manifests import read_manifest
from streamlake.read.natural_values import instant, natural_value
from streamlake.spec.metadata.data_file import DataFile, FileContent
from streamlake.spec.metadata.manifest import FieldSummary, ManifestContent, ManifestEntry, ManifestFile
from streamlake.spec.metadata.snapshot import Snapshot
from streamlake.spec.metadata.table_metadata import TableMetadata
from streamlake.spec.partitioning.partition_spec import PartitionSpec
from streamlake.spec.partitioning.transforms import UnknownTransform, Void
from streamlake.spec.types.data_types import IcebergType, NestedField, PrimitiveType
from streamlake.spec.types.schema import Schema
from streamlake.spec.types.values import from_bytes
from streamlake.table.table import Table

Row = dict[str, Any]
Convert = Callable[[IcebergType, Any], Any]


def snapshot_rows(table: Table) -> list[Row]:
    """One row per snapshot of the metadata, in its order.

    As in Iceberg, `summary` is without the operation.
    """
    return [
        {
            "committed_at": instant(snapshot.timestamp_ms),
            "snapshot_id": snapshot.snapshot_id,
            "parent_id": snapshot.parent_snapshot_id,
            "operation": snapshot.operation,
            "manifest_list": snapshot.manifest_list,
            "summary": {key: value for key, value in snapshot.summary.items() if key != "operation"},
        }
        for snapshot in table.snapshots
    ]


def history_rows(table: Table) -> list[Row]:
    """One row per change of the current snapshot, oldest first."""
    metadata = table.metadata
    ancestors = {snapshot.snapshot_id for snapshot in metadata.ancestors(metadata.current_snapshot_id)}
    rows = []
    for entry in metadata.snapshot_log:
        snapshot = metadata.snapshot(entry.snapshot_id)
        rows.append(
            {
                "made_current_at": instant(entry.timestamp_ms),
                "snapshot_id": entry.snapshot_id,
                "parent_id": None if snapshot is None else snapshot.parent_snapshot_id,
                "is_current_ancestor": entry.snapshot_id in ancestors,
            }
        )
    return rows


def ref_rows(table: Table) -> list[Row]:
    """One row per branch and tag."""
    return [
        {
            "name": name,
            "type": ref.type.upper(),
            "snapshot_id": ref.snapshot_id,
            "max_reference_age_in_ms": ref.max_ref_age_ms,
            "min_snapshots_to_keep": ref.min_snapshots_to_keep,
            "max_snapshot_age_in_ms": ref.max_snapshot_age_ms,
        }
        for name, ref in table.refs.items()
    ]


def manifest_rows(table: Table, snapshot: Snapshot | None) -> list[Row]:
    """One row per manifest of a snapshot.

    The bounds of `partition_summaries` are texts as in partition paths.
    """
    rows = []
    for manifest in table.manifests(snapshot):
        counts = (manifest.added_files_count, manifest.existing_files_count, manifest.deleted_files_count)
        is_data = manifest.content == ManifestContent.DATA
        data, deletes = (counts, (0, 0, 0)) if is_data else ((0, 0, 0), counts)
        spec = table.metadata.spec_by_id(manifest.partition_spec_id)
        rows.append(
            {
                "content": int(manifest.content),
                "path": manifest.manifest_path,
                "length": manifest.manifest_length,
                "partition_spec_id": manifest.partition_spec_id,
                "added_snapshot_id": manifest.added_snapshot_id,
                "added_data_files_count": data[0],
                "existing_data_files_count": data[1],
                "deleted_data_files_count": data[2],
                "added_delete_files_count": deletes[0],
                "existing_delete_files_count": deletes[1],
                "deleted_delete_files_count": deletes[2],
                "partition_summaries": [
                    _summary_row(summary, spec, at, table.schema)
                    for at, summary in enumerate(manifest.partitions or ())
                ],
            }
        )
    return rows


def file_rows(table: Table, snapshot: Snapshot | None) -> list[Row]:
    """One row per live data and delete file of a snapshot.

    Column maps are keyed by field id. Their bounds are single-value bytes (Appendix D); those in
    `readable_metrics` are decoded.
    """
    columns = FileColumns.of(table.metadata)
    return [columns.row(entry.data_file) for entry in live_entries(table, table.manifests(snapshot))]


def partition_rows(table: Table, snapshot: Snapshot | None, convert: Convert = natural_value) -> list[Row]:
    """One row per partition with live files, in the order of first occurrence.

    An unpartitioned table has one row. `convert` is applied to partition values.
    """
    metadata = table.metadata
    columns = FileColumns.of(metadata, convert)
    rows: dict[tuple[Any, ...], Row] = {}
    for entry in live_entries(table, table.manifests(snapshot), with_stats=False):
        file = entry.data_file
        partition = columns.partition(file)
        row = rows.setdefault(_key(partition), _empty_partition(partition))
        _add_file(row, file)
        _touch(row, file, metadata.snapshot(entry.snapshot_id) if entry.snapshot_id is not None else None)
    return list(rows.values())


def union_partition_fields(metadata: TableMetadata) -> tuple[NestedField, ...]:
    """Every partition field that any spec has had, by field id, if its source column is still in the schema.

    Fields that are void in every spec are left out. Raises FeatureUnsupportedError for a transform whose
    result type is unknown.
    """
    found: dict[int, NestedField] = {}
    void: set[int] = set()
    for spec in sorted(metadata.specs, key=lambda spec: spec.spec_id, reverse=True):
        for part, typed in zip(spec.fields, spec.partition_type(metadata.schema).fields, strict=True):
            if isinstance(part.transform, UnknownTransform):
                raise FeatureUnsupportedError(
                    f"{metadata.location}: the partition field '{part.name}' has the transform "
                    f"'{part.transform}', which is not known here, so partitions cannot be shown"
                )
            if metadata.schema.field(part.source_id) is None:
                continue
            if part.field_id not in found:
                found[part.field_id] = typed
                if isinstance(part.transform, Void):
                    void.add(part.field_id)
            elif part.field_id in void and not isinstance(part.transform, Void):
                found[part.field_id] = NestedField(part.field_id, found[part.field_id].name, typed.type)
                void.discard(part.field_id)
    return tuple(found[field_id] for field_id in sorted(found.keys() - void))


def live_entries(
    table: Table, manifests: Iterable[ManifestFile], *, with_stats: bool = True
) -> Iterator[ManifestEntry]:
    """The entries of the files that belong to the snapshot of these manifests."""
    for manifest in manifests:
        yield from read_manifest(
            table.io, manifest, table.specs, table.schema, with_stats=with_stats, live_only=True
        )


@dataclass(frozen=True)
class FileColumns:
    """Makes the columns of files of one version of a table.

    `partition_fields` are those of all specs, `readable` the columns of `readable_metrics` with their dotted
    names. `convert` is applied to partition values and bounds, which are in the specification's domain.
    """

    metadata: TableMetadata
    partition_fields: tuple[NestedField, ...]
    readable: tuple[tuple[str, NestedField], ...]
    convert: Convert

    @staticmethod
    def of(metadata: TableMetadata, convert: Convert = natural_value) -> FileColumns:
        """The columns of a table's files. Raises as `union_partition_fields`."""
        schema = metadata.schema
        named = (
            (schema.names_by_id[field_id], column)
            for field_id, column in schema.fields_by_id.items()
            if isinstance(column.type, PrimitiveType)
        )
        readable = tuple(sorted(named, key=lambda pair: pair[0]))
        return FileColumns(metadata, union_partition_fields(metadata), readable, convert)

    def partition(self, file: DataFile) -> Row:
        """The file's partition, with a field for each that any spec has had."""
        spec = self.metadata.spec_by_id(file.spec_id)
        by_id = {part.field_id: value for part, value in zip(spec.fields, file.partition, strict=True)}
        return {
            part.name: self.convert(part.type, by_id.get(part.field_id)) for part in self.partition_fields
        }

    def row(self, file: DataFile) -> Row:
        """The row of a file."""
        return {
            "content": int(file.content),
            "file_path": file.file_path,
            "file_format": file.file_format.upper(),
            "spec_id": file.spec_id,
            "partition": self.partition(file),
            "record_count": file.record_count,
            "file_size_in_bytes": file.file_size_in_bytes,
            "column_sizes": file.column_sizes,
            "value_counts": file.value_counts,
            "null_value_counts": file.null_value_counts,
            "nan_value_counts": file.nan_value_counts,
            "lower_bounds": file.lower_bounds,
            "upper_bounds": file.upper_bounds,
            "key_metadata": file.key_metadata,
            "split_offsets": None if file.split_offsets is None else list(file.split_offsets),
            "equality_ids": None if file.equality_ids is None else list(file.equality_ids),
            "sort_order_id": file.sort_order_id,
            "first_row_id": file.first_row_id,
            "referenced_data_file": file.referenced_data_file,
            "content_offset": file.content_offset,
            "content_size_in_bytes": file.content_size_in_bytes,
            "readable_metrics": {name: self._metrics(file, column) for name, column in self.readable},
        }

    def _metrics(self, file: DataFile, column: NestedField) -> Row:
        at = column.field_id
        return {
            "column_size": (file.column_sizes or {}).get(at),
            "value_count": (file.value_counts or {}).get(at),
            "null_value_count": (file.null_value_counts or {}).get(at),
            "nan_value_count": (file.nan_value_counts or {}).get(at),
            "lower_bound": self._bound(column.type, (file.lower_bounds or {}).get(at)),
            "upper_bound": self._bound(column.type, (file.upper_bounds or {}).get(at)),
        }

    def _bound(self, type_: IcebergType, data: bytes | None) -> Any:
        return None if data is None else self.convert(type_, from_bytes(type_, data))


def _key(partition: Row) -> tuple[Any, ...]:
    """A dict key in which NaN equals NaN, and -0.0 differs from 0.0, as in partition tuples."""
    return tuple(repr(value) if isinstance(value, float) else value for value in partition.values())


def _summary_row(summary: FieldSummary, spec: PartitionSpec, at: int, schema: Schema) -> Row:
    return {
        "contains_null": summary.contains_null,
        "contains_nan": summary.contains_nan,
        "lower_bound": _human_bound(summary.lower_bound, spec, at, schema),
        "upper_bound": _human_bound(summary.upper_bound, spec, at, schema),
    }


def _human_bound(data: bytes | None, spec: PartitionSpec, at: int, schema: Schema) -> str:
    part = spec.fields[at]
    value = None if data is None else from_bytes(spec.partition_type(schema).fields[at].type, data)
    return part.transform.human(value, part.source_type(schema))


def _empty_partition(partition: Row) -> Row:
    return {
        "partition": partition,
        "spec_id": 0,
        "record_count": 0,
        "file_count": 0,
        "total_data_file_size_in_bytes": 0,
        "position_delete_record_count": 0,
        "position_delete_file_count": 0,
        "equality_delete_record_count": 0,
        "equality_delete_file_count": 0,
        "last_updated_at": None,
        "last_updated_snapshot_id": None,
    }


_COUNTERS = {
    FileContent.DATA: ("record_count", "file_count"),
    FileContent.POSITION_DELETES: ("position_delete_record_count", "position_delete_file_count"),
    FileContent.EQUALITY_DELETES: ("equality_delete_record_count", "equality_delete_file_count"),
}


def _add_file(row: Row, file: DataFile) -> None:
    records, files = _COUNTERS[file.content]
    row[records] += file.record_count
    row[files] += 1
    if file.is_data:
        row["total_data_file_size_in_bytes"] += file.file_size_in_bytes


def _touch(row: Row, file: DataFile, snapshot: Snapshot | None) -> None:
    """Record the newest snapshot that changed the partition, if it has not been expired."""
    if snapshot is None:
        return
    committed_at = instant(snapshot.timestamp_ms)
    if row["last_updated_at"] is None or committed_at > row["last_updated_at"]:
        row["spec_id"] = file.spec_id
        row["last_updated_at"] = committed_at
        row["last_updated_snapshot_id"] = snapshot.snapshot_id
