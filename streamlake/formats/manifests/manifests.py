"""Manifests: entries of data or delete files, written to and read from Avro (spec: Manifests).

Checkpoints and commits write them; scans, merges and overwrites read them. What an entry inherits from the
manifest list (snapshot id, sequence numbers, first row id) is filled in while reading. Invariant: a manifest
is immutable, and one that ends early, or has another number of entries than its manifest list says, is an
error.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import lru_cache
from io import BytesIO
from typing import Any

from streamlake.errors import DataInvalidError, FeatureUnsupportedError
from streamlake.formats.avro.avro_container import AvroFile, container_writer, damaged
from streamlake.formats.columns.format_options import AvroCompression
from streamlake.formats.columns.metrics import uuid_bounds
from streamlake.formats.manifests.encoded_entries import (
    EncodedEntry,
    EntryLayout,
    blocks,
    carried_over,
    complete_file,
    encoded_entry,
    is_stored_as,
    stored_records,
    with_first_row_id,
)
from streamlake.formats.manifests.manifest_records import entry_record
from streamlake.formats.manifests.manifest_schemas import manifest_schema
from streamlake.formats.manifests.stored_manifests import (
    CONTENT,
    FILE_FORMAT,
    FIRST_ROW_ID,
    RECORD_COUNT,
    file_of,
    stored_manifest,
)
from streamlake.spec.metadata.data_file import DataFile, FileContent
from streamlake.spec.metadata.manifest import (
    EntryStatus,
    FieldSummary,
    ManifestContent,
    ManifestEntry,
    ManifestFile,
)
from streamlake.spec.partitioning.partition_spec import PartitionSpec, fields_to_json
from streamlake.spec.types.data_types import DoubleType, FloatType, IcebergType, StructType, UUIDType
from streamlake.spec.types.schema import Schema
from streamlake.spec.types.type_json import schema_to_json
from streamlake.spec.types.values import to_bytes, uuid_bytes
from streamlake.storage.file_io import FileIO

WRITTEN_VERSIONS = (2, 3)
_WRONG_TYPES = (TypeError, ValueError, AttributeError, OverflowError)
_CONTENT_NAMES = {ManifestContent.DATA: "data", ManifestContent.DELETES: "deletes"}
_COUNT_NAMES = {EntryStatus.EXISTING: "existing", EntryStatus.ADDED: "added", EntryStatus.DELETED: "deleted"}
_STATUSES = tuple(EntryStatus)

_GZIP = AvroCompression()


def write_manifest(  # noqa: PLR0913
    io: FileIO,
    path: str,
    entries: Iterable[ManifestEntry],
    spec: PartitionSpec,
    schema: Schema,
    format_version: int,
    content: ManifestContent,
    snapshot_id: int | None,
    compression: AvroCompression = _GZIP,
) -> ManifestFile:
    """Write entries of one partition spec to `path`; returns the manifest as a manifest list describes it.

    ADDED entries may leave their ids None, to be inherited. With `snapshot_id` None the manifest is staged:
    the snapshot that commits it gives the id. The returned sequence numbers are None where the commit has to
    assign them. Raises DataInvalidError for an entry that does not belong here, FeatureUnsupportedError for a
    format version other than 2 and 3.
    """
    if format_version not in WRITTEN_VERSIONS:
        raise FeatureUnsupportedError(
            f"{path}: manifests of format version {format_version} are not written; upgrade the table to "
            "version 2"
        )
    entries = list(entries)
    partition_type = spec.partition_type(schema)
    sink = BytesIO()
    writer = container_writer(
        sink,
        manifest_schema(format_version, partition_type),
        _metadata(format_version, spec, schema, content),
        compression,
    )
    layout = EntryLayout(format_version, partition_type)
    for entry in entries:
        _check_entry(entry, path, spec, content)
    if any(isinstance(entry, EncodedEntry) for entry in entries):
        for block in blocks(_encoded(entry, layout, path) for entry in entries):
            writer.write_block(block)
    else:
        for entry in entries:
            try:
                writer.write(entry_record(entry, partition_type, format_version))
            except _WRONG_TYPES as cause:
                raise _wrong_type(path, entry, cause) from cause
    writer.flush()
    data = sink.getvalue()
    io.write_bytes(path, data)
    return _manifest_file(path, len(data), entries, spec, partition_type, content, snapshot_id)


def _encoded(entry: ManifestEntry, layout: EntryLayout, path: str) -> EncodedEntry:
    try:
        return encoded_entry(entry, layout)
    except _WRONG_TYPES as cause:
        raise _wrong_type(path, entry, cause) from cause


def _wrong_type(path: str, entry: ManifestEntry, cause: Exception) -> DataInvalidError:
    return DataInvalidError(
        f"{path}: the entry of {entry.data_file.file_path} holds a value of the wrong type: {cause}"
    )


def read_encoded(
    io: FileIO, manifest: ManifestFile, specs: Mapping[int, PartitionSpec], layout: EntryLayout
) -> list[EncodedEntry]:
    """The live entries of a committed manifest as a later one lists them.

    They are EXISTING, in this layout, and have the values that they inherit. What is stored in this layout is
    not encoded again. Raises what `read_manifest` raises, and DataInvalidError for a value that the layout
    cannot hold.
    """
    path = manifest.manifest_path
    file = _opened(io, manifest, specs)
    if not is_stored_as(file, layout):
        entries = read_manifest(io, manifest, specs, live_only=True)
        return carried_over([_encoded(entry, layout, path) for entry in entries], manifest)
    stored: list[tuple[bytes, list[Any]]] = []

    def records() -> Iterator[list[Any]]:
        for record, encoded in stored_records(file, layout, manifest.content):
            values = record[-1]
            stored.append((encoded, [values[FILE_FORMAT], values[FIRST_ROW_ID]]))
            yield record

    with _naming(path):
        entries = _EntryReader(manifest).entries(records())
        _check_count(manifest, len(entries))
        return [
            _as_stored(entry, encoded, values, layout, path)
            for entry, (encoded, values) in zip(entries, stored, strict=True)
            if entry.is_live
        ]


def _as_stored(
    entry: ManifestEntry, encoded: bytes, stored: list[Any], layout: EntryLayout, path: str
) -> EncodedEntry:
    """The entry as an EXISTING one with its stored bytes.

    Only where our writer would store the same bytes but for the row id.
    """
    file = entry.data_file
    numbers = (entry.snapshot_id, entry.sequence_number, entry.file_sequence_number)
    kept: bytes | None = encoded
    if stored[1] is None and file.first_row_id is not None:
        kept = with_first_row_id(encoded, file, layout)
        stored = [stored[0], file.first_row_id]
    carried = EncodedEntry(EntryStatus.EXISTING, *numbers, file, encoded, layout)
    if kept is not None and stored == [file.file_format.upper(), file.first_row_id if file.is_data else None]:
        return carried if kept is encoded else replace(carried, encoded=kept)
    whole = replace(complete_file(carried), first_row_id=file.first_row_id)
    return _encoded(ManifestEntry(EntryStatus.EXISTING, *numbers, whole), layout, path)


def read_manifest(
    io: FileIO,
    manifest: ManifestFile,
    specs: Mapping[int, PartitionSpec],
    schema: Schema | None = None,
    *,
    with_stats: bool = True,
    live_only: bool = False,
) -> list[ManifestEntry]:
    """The entries of a manifest in file order, with the values that they inherit.

    `with_stats=False` skips sizes, counts and bounds per column, which is faster; `live_only` leaves out
    DELETED entries. `schema` is not needed: a manifest knows the types of its partition tuples. Raises
    MissingFileError, and DataInvalidError for a manifest that is damaged or incomplete.
    """
    del schema
    file = _opened(io, manifest, specs)
    fields = _partition_fields(specs[manifest.partition_spec_id])
    with _naming(manifest.manifest_path):
        stored = stored_manifest(file.schema_text, fields, with_stats=with_stats)
        entries = _EntryReader(manifest).entries(stored.entries(file))
    _check_count(manifest, len(entries))
    return [entry for entry in entries if entry.is_live] if live_only else entries


def _opened(io: FileIO, manifest: ManifestFile, specs: Mapping[int, PartitionSpec]) -> AvroFile:
    path = manifest.manifest_path
    if manifest.partition_spec_id not in specs:
        raise DataInvalidError(
            f"{path} was written with partition spec {manifest.partition_spec_id}, which the table's "
            "metadata does not have; restore an earlier metadata file"
        )
    data = io.read_bytes(path)
    if len(data) < manifest.manifest_length:
        raise damaged(path, f"it has {len(data)} bytes of {manifest.manifest_length}")
    return AvroFile(data, path)


@contextmanager
def _naming(path: str) -> Iterator[None]:
    """Context manager: errors while a manifest is decoded name its file."""
    try:
        yield
    except (DataInvalidError, KeyError, TypeError, ValueError, IndexError) as cause:
        if isinstance(cause, DataInvalidError) and path in str(cause):
            raise
        raise damaged(path, f"{type(cause).__name__}: {cause}") from cause


def with_counts(io: FileIO, manifest: ManifestFile) -> ManifestFile:
    """The manifest with the counts that an old manifest list may lack, computed from its entries."""
    path = manifest.manifest_path
    file = AvroFile(io.read_bytes(path), path)
    files, rows = [0, 0, 0], [0, 0, 0]
    try:
        stored = stored_manifest(file.schema_text, (), with_stats=False)
        for status, _, _, _, data_file in stored.entries(file):
            files[status] += 1
            rows[status] += data_file[RECORD_COUNT]
    except (DataInvalidError, KeyError, TypeError, IndexError) as cause:
        raise damaged(path, f"{type(cause).__name__}: {cause}") from cause
    return replace(manifest, **_counts(files, rows))


def _counts(files: Sequence[int], rows: Sequence[int]) -> dict[str, Any]:
    counts: dict[str, Any] = {}
    for status, name in _COUNT_NAMES.items():
        counts[f"{name}_files_count"] = files[status]
        counts[f"{name}_rows_count"] = rows[status]
    return counts


def _check_count(manifest: ManifestFile, found: int) -> None:
    counts = (manifest.added_files_count, manifest.existing_files_count, manifest.deleted_files_count)
    if None in counts:
        return
    expected = sum(count or 0 for count in counts)
    if expected != found:
        raise damaged(
            manifest.manifest_path, f"it holds {found} entries, its manifest list counts {expected}"
        )


@lru_cache(maxsize=64)
def _metadata(
    format_version: int, spec: PartitionSpec, schema: Schema, content: ManifestContent
) -> Mapping[str, str]:
    return {
        "schema": json.dumps(schema_to_json(schema), separators=(",", ":")),
        "schema-id": str(schema.schema_id),
        "partition-spec": json.dumps(fields_to_json(spec), separators=(",", ":")),
        "partition-spec-id": str(spec.spec_id),
        "format-version": str(format_version),
        "content": _CONTENT_NAMES[content],
    }


def _check_entry(entry: ManifestEntry, path: str, spec: PartitionSpec, content: ManifestContent) -> None:
    file = entry.data_file
    if file.spec_id != spec.spec_id or len(file.partition) != len(spec.fields):
        raise DataInvalidError(
            f"{file.file_path} has the partition {file.partition} of spec {file.spec_id}; it cannot go into "
            f"{path}, which is of spec {spec.spec_id} with {len(spec.fields)} fields"
        )
    if (file.content == FileContent.DATA) != (content == ManifestContent.DATA):
        raise DataInvalidError(f"{file.file_path} holds {file.content.name}; it cannot go into {path}")
    if entry.status != EntryStatus.ADDED and (
        entry.sequence_number is None or entry.file_sequence_number is None
    ):
        raise DataInvalidError(
            f"{path}: the {entry.status.name} entry of {file.file_path} has no sequence numbers; only ADDED "
            "ones inherit"
        )


def _manifest_file(
    path: str,
    length: int,
    entries: Sequence[ManifestEntry],
    spec: PartitionSpec,
    partition_type: StructType,
    content: ManifestContent,
    snapshot_id: int | None,
) -> ManifestFile:
    files, rows = [0, 0, 0], [0, 0, 0]
    for entry in entries:
        files[entry.status] += 1
        rows[entry.status] += entry.data_file.record_count
    live = [entry.sequence_number for entry in entries if entry.is_live]
    assigned = [number for number in live if number is not None]
    return ManifestFile(
        manifest_path=path,
        manifest_length=length,
        partition_spec_id=spec.spec_id,
        content=content,
        sequence_number=None,
        min_sequence_number=min(assigned) if assigned else None,
        added_snapshot_id=snapshot_id,
        **_counts(files, rows),
        partitions=partition_summaries(partition_type, [entry.data_file.partition for entry in entries]),
    )


def partition_summaries(
    partition_type: StructType, partitions: Sequence[tuple[Any, ...]]
) -> tuple[FieldSummary, ...] | None:
    """One summary per partition field over partition tuples (spec: Manifest Lists, field_summary).

    None, which means unknown, when UUIDs have no bounds that hold in every reader's order.
    """
    distinct = set(partitions)
    summaries = [
        _summary(part.type, {values[at] for values in distinct})
        for at, part in enumerate(partition_type.fields)
    ]
    known = tuple(summary for summary in summaries if summary is not None)
    return known if len(known) == len(summaries) else None


def _summary(type_: IcebergType, values: set[Any]) -> FieldSummary | None:
    present = [value for value in values if value is not None]
    contains_nan = False
    order: Any = None
    if isinstance(type_, (FloatType, DoubleType)):
        contains_nan = any(math.isnan(value) for value in present)
        present = [value for value in present if not math.isnan(value)]
        present = [zero for value in present for zero in ((-0.0, 0.0) if value == 0 else (value,))]
        order = _total_order
    elif isinstance(type_, UUIDType):
        order = uuid_bytes
    if not present:
        return FieldSummary(None in values, contains_nan)
    lower, upper = min(present, key=order), max(present, key=order)
    if isinstance(type_, UUIDType):
        lower, upper = uuid_bounds(lower, upper)
        if lower is None or upper is None:
            return None
    return FieldSummary(None in values, contains_nan, to_bytes(type_, lower), to_bytes(type_, upper))


def _total_order(value: float) -> tuple[float, float]:
    """A sort key that puts -0.0 before 0.0 and leaves everything else as it is."""
    return value, math.copysign(1.0, value)


def _partition_fields(spec: PartitionSpec) -> tuple[tuple[int, str], ...]:
    return tuple([(part.field_id, part.name) for part in spec.fields])


class _EntryReader:
    """Turns the decoded records of one manifest into entries.

    They come in file order, because the first row id depends on it.
    """

    def __init__(self, manifest: ManifestFile) -> None:
        self._spec_id = manifest.partition_spec_id
        self._snapshot_id = manifest.added_snapshot_id
        self._sequence_number = manifest.sequence_number
        self._next_row_id = manifest.first_row_id

    def entries(self, records: Iterable[list[Any]]) -> list[ManifestEntry]:
        inherited_by_all = self._sequence_number == 0
        found = []
        for number, snapshot_id, sequence_number, file_sequence_number, data_file in records:
            status = _STATUSES[number]
            if status is EntryStatus.ADDED or inherited_by_all:
                if sequence_number is None:
                    sequence_number = self._sequence_number
                if file_sequence_number is None:
                    file_sequence_number = self._sequence_number
            if snapshot_id is None:
                snapshot_id = self._snapshot_id
            file = self._data_file(data_file, status)
            found.append(ManifestEntry(status, snapshot_id, sequence_number, file_sequence_number, file))
        return found

    def _data_file(self, values: list[Any], status: EntryStatus) -> DataFile:
        if (
            self._next_row_id is not None
            and values[FIRST_ROW_ID] is None
            and status is not EntryStatus.DELETED
            and (values[CONTENT] or 0) == FileContent.DATA
        ):
            values[FIRST_ROW_ID] = self._next_row_id
            self._next_row_id += values[RECORD_COUNT]
        return file_of(values, self._spec_id)
