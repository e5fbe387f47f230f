"""Manifest lists: the manifests of one snapshot, written to and read from Avro (spec: Manifest Lists).

Written once per commit attempt; new manifests then get their sequence number, snapshot id and first row id.
Invariant: manifests that are already in the table are listed exactly as they were.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields, replace
from io import BytesIO
from typing import Any

from streamlake.errors import DataInvalidError, FeatureUnsupportedError
from streamlake.formats.avro.avro_container import AvroFile, container_writer, damaged
from streamlake.formats.columns.format_options import AvroCompression
from streamlake.formats.manifests.manifest_records import manifest_record
from streamlake.formats.manifests.manifest_schemas import manifest_list_schema
from streamlake.formats.manifests.manifests import with_counts
from streamlake.formats.manifests.stored_manifests import stored_manifest_list
from streamlake.spec.metadata.manifest import FieldSummary, ManifestContent, ManifestFile
from streamlake.spec.metadata.snapshot import Snapshot
from streamlake.storage.file_io import FileIO

WRITTEN_VERSIONS = (2, 3)
_GZIP = AvroCompression()

# Positions of ManifestFile's fields.
_SLOTS = [part.name for part in fields(ManifestFile)]
_CONTENT = _SLOTS.index("content")
_SPEC_ID = _SLOTS.index("partition_spec_id")
_SEQUENCE_NUMBER = _SLOTS.index("sequence_number")
_MIN_SEQUENCE_NUMBER = _SLOTS.index("min_sequence_number")
_PARTITIONS = _SLOTS.index("partitions")


def assign_ids(
    manifests: Iterable[ManifestFile], snapshot_id: int, sequence_number: int, first_row_id: int | None = None
) -> tuple[list[ManifestFile], int | None]:
    """The manifests as the snapshot lists them, and the table's next row id after it (None before v3).

    New manifests get what they leave open: snapshot id, sequence numbers, and, for data manifests of a v3
    table, the first row id, with space for all added and existing rows (spec: First Row ID Assignment).
    """
    numbered, next_row_id = [], first_row_id
    for manifest in manifests:
        changes: dict[str, Any] = {}
        if manifest.added_snapshot_id is None:
            changes["added_snapshot_id"] = snapshot_id
        if manifest.sequence_number is None:
            changes["sequence_number"] = sequence_number
        if manifest.min_sequence_number is None:
            changes["min_sequence_number"] = sequence_number
        if (
            next_row_id is not None
            and manifest.content == ManifestContent.DATA
            and manifest.first_row_id is None
        ):
            changes["first_row_id"] = next_row_id
            next_row_id += (manifest.added_rows_count or 0) + (manifest.existing_rows_count or 0)
        numbered.append(replace(manifest, **changes) if changes else manifest)
    return numbered, next_row_id


def write_manifest_list(  # noqa: PLR0913
    io: FileIO,
    path: str,
    manifests: Iterable[ManifestFile],
    snapshot_id: int,
    parent_id: int | None,
    sequence_number: int,
    format_version: int,
    first_row_id: int | None = None,
    compression: AvroCompression = _GZIP,
) -> int | None:
    """Write the manifest list of a snapshot; returns the table's next row id after it (v3), else None.

    Ids that a manifest leaves open are assigned as `assign_ids` does. v3 needs `first_row_id`, the table's
    next row id. Raises FeatureUnsupportedError for a format version other than 2 and 3.
    """
    if format_version not in WRITTEN_VERSIONS:
        raise FeatureUnsupportedError(
            f"{path}: manifest lists of format version {format_version} are not written; upgrade the table "
            "to version 2"
        )
    if format_version < 3:
        first_row_id = None
    elif first_row_id is None:
        raise DataInvalidError(
            f"{path}: the manifest list of a version 3 table needs the table's next row id"
        )
    counted = [manifest if _is_counted(manifest) else with_counts(io, manifest) for manifest in manifests]
    numbered, next_row_id = assign_ids(counted, snapshot_id, sequence_number, first_row_id)
    metadata = {
        "snapshot-id": str(snapshot_id),
        "parent-snapshot-id": "null" if parent_id is None else str(parent_id),
        "sequence-number": str(sequence_number),
        "format-version": str(format_version),
    }
    if first_row_id is not None:
        metadata["first-row-id"] = str(first_row_id)
    sink = BytesIO()
    writer = container_writer(sink, manifest_list_schema(format_version), metadata, compression)
    for manifest in numbered:
        writer.write(manifest_record(manifest, format_version))
    writer.flush()
    io.write_bytes(path, sink.getvalue())
    return next_row_id


def read_manifest_list(io: FileIO, path: str) -> list[ManifestFile]:
    """The manifests of a list, in its order.

    Raises MissingFileError, and DataInvalidError for a damaged file.
    """
    file = AvroFile(io.read_bytes(path), path)
    try:
        return [_from_record(values) for values in stored_manifest_list(file.schema_text).manifests(file)]
    except (DataInvalidError, KeyError, TypeError, ValueError) as cause:
        if isinstance(cause, DataInvalidError) and path in str(cause):
            raise
        raise damaged(path, f"{type(cause).__name__}: {cause}") from cause


def snapshot_manifests(io: FileIO, snapshot: Snapshot) -> list[ManifestFile]:
    """The manifests of a snapshot: from its manifest list or, in old v1 metadata, from embedded paths."""
    if snapshot.manifest_list is not None:
        return read_manifest_list(io, snapshot.manifest_list)
    return [_embedded(io, path, snapshot) for path in snapshot.manifests or ()]


def _embedded(io: FileIO, path: str, snapshot: Snapshot) -> ManifestFile:
    data = io.read_bytes(path)
    metadata = AvroFile(data, path).metadata
    return ManifestFile(
        manifest_path=path,
        manifest_length=len(data),
        partition_spec_id=int(metadata.get("partition-spec-id", 0)),
        content=ManifestContent.DATA,
        sequence_number=0,
        min_sequence_number=0,
        added_snapshot_id=snapshot.snapshot_id,
        added_files_count=None,
        existing_files_count=None,
        deleted_files_count=None,
        added_rows_count=None,
        existing_rows_count=None,
        deleted_rows_count=None,
    )


def _is_counted(manifest: ManifestFile) -> bool:
    return None not in (
        manifest.added_files_count,
        manifest.existing_files_count,
        manifest.deleted_files_count,
        manifest.added_rows_count,
        manifest.existing_rows_count,
        manifest.deleted_rows_count,
    )


def _from_record(values: list[Any]) -> ManifestFile:
    """A manifest from the fields that a list holds.

    v1 lists lack some fields; their inherited value is 0.
    """
    values[_CONTENT] = ManifestContent(values[_CONTENT] or 0)
    values[_SPEC_ID] = values[_SPEC_ID] or 0
    values[_SEQUENCE_NUMBER] = values[_SEQUENCE_NUMBER] or 0
    values[_MIN_SEQUENCE_NUMBER] = values[_MIN_SEQUENCE_NUMBER] or 0
    if values[_PARTITIONS] is not None:
        values[_PARTITIONS] = tuple([FieldSummary(*summary) for summary in values[_PARTITIONS]])
    return ManifestFile(*values)
