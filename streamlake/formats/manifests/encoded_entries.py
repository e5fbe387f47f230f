"""Manifest entries that keep the bytes of their `data_file` record, for copying to another manifest.

A commit that removes a few files rewrites their manifests without them. Decoding and encoding all remaining
entries would make its cost grow with the table, so the bytes are copied. Only an entry's head (status and
ids) is encoded for each manifest. `manifests.read_encoded` makes these entries, `manifests.write_manifest`
writes them. Invariant: the bytes are those of the entry's `layout`, and hold the first row id that the entry
inherits (spec: Manifests, Row Lineage).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from io import BytesIO
from typing import Any

import fastavro

from streamlake.formats.avro.avro_container import (
    BLOCK_BYTES,
    AvroFile,
    EncodedBlock,
    ParsedSchema,
    container_writer,
    parse_record,
)
from streamlake.formats.columns.format_options import AvroCompression
from streamlake.formats.manifests.manifest_records import file_record
from streamlake.formats.manifests.manifest_schemas import manifest_schema
from streamlake.formats.manifests.stored_manifests import (
    StoredManifest,
    file_of,
    stored_manifest,
    without_statistics,
)
from streamlake.spec.metadata.data_file import DataFile
from streamlake.spec.metadata.manifest import EntryStatus, ManifestContent, ManifestEntry, ManifestFile
from streamlake.spec.partitioning.partition_spec import PartitionSpec
from streamlake.spec.types.data_types import StructType
from streamlake.spec.types.schema import Schema

# The last fields of a v3 record when all of them are null; the first of them is the first row id.
_NULL_TAIL = b"\x00\x00\x00\x00"


@dataclass(frozen=True)
class EntryLayout:
    """What determines the bytes of an entry: the format version and the partition type."""

    format_version: int
    partition_type: StructType

    @staticmethod
    def of(format_version: int, spec: PartitionSpec, schema: Schema) -> EntryLayout:
        """The layout of entries of this partition spec."""
        return EntryLayout(format_version, spec.partition_type(schema))


@dataclass(frozen=True)
class EncodedEntry(ManifestEntry):
    """An entry with the bytes of its `data_file` record.

    The `data_file` of a data file has no column statistics; `complete_file` has them.
    """

    encoded: bytes
    layout: EntryLayout


def encoded_entry(entry: ManifestEntry, layout: EntryLayout) -> EncodedEntry:
    """The entry encoded in this layout.

    Raises TypeError, ValueError, AttributeError or OverflowError for values of wrong types.
    """
    if isinstance(entry, EncodedEntry):
        if entry.layout == layout:
            return entry
        entry = replace(_plain(entry), data_file=complete_file(entry))
    sink = BytesIO()
    record = file_record(entry.data_file, layout.partition_type, layout.format_version)
    fastavro.schemaless_writer(sink, _codec(layout).writer, record)
    file = entry.data_file
    return EncodedEntry(
        entry.status,
        entry.snapshot_id,
        entry.sequence_number,
        entry.file_sequence_number,
        without_statistics(file) if file.is_data else file,
        sink.getvalue(),
        layout,
    )


def _plain(entry: ManifestEntry) -> ManifestEntry:
    return ManifestEntry(
        entry.status, entry.snapshot_id, entry.sequence_number, entry.file_sequence_number, entry.data_file
    )


def complete_file(entry: EncodedEntry) -> DataFile:
    """The entry's file with its column statistics."""
    codec = _codec(entry.layout)
    record = fastavro.schemaless_reader(BytesIO(entry.encoded), codec.file.writer, None)
    return file_of(codec.stored.file_values(record), entry.data_file.spec_id)


def is_stored_as(file: AvroFile, layout: EntryLayout) -> bool:
    """Whether the entries of a stored manifest are encoded in this layout."""
    return file.schema_text == _codec(layout).schema_text


def stored_records(
    file: AvroFile, layout: EntryLayout, content: ManifestContent
) -> Iterator[tuple[list[Any], bytes]]:
    """The records of a manifest for which `is_stored_as` is true, each with the bytes of its `data_file`.

    Records are as `StoredManifest.entries` returns them. Statistics are decoded for delete files only,
    because their bounds may name the data file that they apply to.
    """
    codec = _codec(layout)
    parsed = codec.bare_file if content == ManifestContent.DATA else codec.file
    for head, record, encoded in file.split_records(codec.head, parsed):
        yield [*head.values(), codec.stored.file_values(record)], encoded


def with_first_row_id(encoded: bytes, file: DataFile, layout: EntryLayout) -> bytes | None:
    """The bytes of a data file's v3 record, with the first row id of `file` added.

    None where the record must be encoded anew.
    """
    unset = (file.referenced_data_file, file.content_offset, file.content_size_in_bytes) == (None, None, None)
    if layout.format_version < 3 or file.first_row_id is None or not unset:
        return None
    return encoded[: -len(_NULL_TAIL)] + _optional(file.first_row_id) + _NULL_TAIL[1:]


def carried_over(entries: Iterable[EncodedEntry], manifest: ManifestFile) -> list[EncodedEntry]:
    """The live entries of a manifest that is committed now, as a later manifest lists them.

    They are EXISTING and have the values that they inherit. `entries` are those written to the manifest, in
    file order.
    """
    carried = []
    next_row_id = manifest.first_row_id if manifest.content == ManifestContent.DATA else None
    for entry in entries:
        if not entry.is_live:
            continue
        file = entry.data_file
        if next_row_id is not None and file.first_row_id is None:
            entry = _with_row_id(entry, next_row_id)
            next_row_id += file.record_count
        if entry.status == EntryStatus.ADDED:
            numbers = (entry.sequence_number, entry.file_sequence_number)
            data, own = [manifest.sequence_number if number is None else number for number in numbers]
            entry = replace(
                entry,
                status=EntryStatus.EXISTING,
                snapshot_id=manifest.added_snapshot_id if entry.snapshot_id is None else entry.snapshot_id,
                sequence_number=data,
                file_sequence_number=own,
            )
        carried.append(entry)
    return carried


def _with_row_id(entry: EncodedEntry, first_row_id: int) -> EncodedEntry:
    file = replace(entry.data_file, first_row_id=first_row_id)
    encoded = with_first_row_id(entry.encoded, file, entry.layout)
    if encoded is None:
        complete = replace(complete_file(entry), first_row_id=first_row_id)
        return encoded_entry(replace(_plain(entry), data_file=complete), entry.layout)
    return replace(entry, data_file=file, encoded=encoded)


def blocks(entries: Iterable[EncodedEntry]) -> Iterator[EncodedBlock]:
    """Entries of one layout as the blocks of a manifest."""
    pieces: list[bytes] = []
    size = count = 0
    for entry in entries:
        head = _head(entry.status, entry.snapshot_id, entry.sequence_number, entry.file_sequence_number)
        pieces += (head, entry.encoded)
        size += len(head) + len(entry.encoded)
        count += 1
        if size >= BLOCK_BYTES:
            yield EncodedBlock(count, BytesIO(b"".join(pieces)))
            pieces, size, count = [], 0, 0
    if count:
        yield EncodedBlock(count, BytesIO(b"".join(pieces)))


@lru_cache(maxsize=4096)
def _head(
    status: int, snapshot_id: int | None, sequence_number: int | None, file_sequence_number: int | None
) -> bytes:
    return (
        _long(status) + _optional(snapshot_id) + _optional(sequence_number) + _optional(file_sequence_number)
    )


def _optional(value: int | None) -> bytes:
    """A value of the Avro union of null and long."""
    return b"\x00" if value is None else b"\x02" + _long(value)


def _long(value: int) -> bytes:
    sink = BytesIO()
    fastavro.schemaless_writer(sink, "long", int(value))
    return sink.getvalue()


@dataclass(frozen=True, eq=False)
class _Codec:
    """Encoders and decoders of the parts of entries of one layout."""

    schema_text: str
    writer: Any
    head: ParsedSchema
    file: ParsedSchema
    bare_file: ParsedSchema
    stored: StoredManifest


@lru_cache(maxsize=64)
def _codec(layout: EntryLayout) -> _Codec:
    schema = manifest_schema(layout.format_version, layout.partition_type)
    sink = BytesIO()
    container_writer(sink, schema, {}, AvroCompression()).flush()
    text = AvroFile(sink.getvalue(), "a new manifest").schema_text
    names = tuple([(part.field_id, part.name) for part in layout.partition_type.fields])
    stored = stored_manifest(text, names, with_stats=True)
    head, file, bare_file = stored.parts(text)
    return _Codec(
        text,
        fastavro.parse_schema(file),
        parse_record(head),
        parse_record(file),
        parse_record(file, bare_file),
        stored,
    )
