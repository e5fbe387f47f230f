"""Types of partition values whose source column no schema of the table has any more, from stored manifests.

A partition field may be dropped, then its source column, and at last the old schema may be removed with expired
snapshots; files of the old partition spec stay, and each manifest names the types of its partition values itself (spec:
Manifests). Asked once per table and spec; metadata whose schemas have all source columns costs nothing.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

from streamlake.errors import StreamlakeError
from streamlake.formats.arrow_schema import type_from_arrow
from streamlake.formats.avro_container import AvroFile
from streamlake.formats.avro_file_schema import AvroFileSchema
from streamlake.formats.manifest_lists import snapshot_manifests
from streamlake.formats.stored_manifests import partition_fields
from streamlake.spec.manifest import ManifestFile
from streamlake.spec.partition_spec import PartitionSpec
from streamlake.spec.table_metadata import TableMetadata
from streamlake.spec.transforms import Void
from streamlake.spec.types import IcebergType, UnknownType, UUIDType
from streamlake.storage.file_io import FileIO

_known: dict[tuple[str, int, int], IcebergType] = {}
"""By table uuid, spec and partition field: what a manifest of the spec has is so for good."""


def with_stored_sources(io: FileIO, metadata: TableMetadata) -> TableMetadata:
    """The metadata, with the types that manifests know where no schema does. Manifests that cannot be read say nothing."""
    lost = metadata.lost_sources
    if not lost:
        return metadata
    specs = tuple(_with_sources(io, metadata, spec, lost) for spec in metadata.specs)
    object.__setattr__(metadata, "specs", specs)
    return metadata


def _with_sources(io: FileIO, metadata: TableMetadata, spec: PartitionSpec, lost: set[int]) -> PartitionSpec:
    wanted = {
        part.field_id: part.source_id
        for part in spec.fields
        if part.source_id in lost and not isinstance(part.transform, Void)
    }
    table = metadata.table_uuid
    if any((table, spec.spec_id, field_id) not in _known for field_id in wanted):
        for manifest in _manifests(io, metadata, spec.spec_id):
            for field_id, type_ in _stored_types(io, manifest).items():
                if field_id in wanted and not isinstance(type_, UnknownType):
                    _known.setdefault((table, spec.spec_id, field_id), type_)
            if all((table, spec.spec_id, field_id) in _known for field_id in wanted):
                break
    types = {
        source_id: _known[table, spec.spec_id, field_id]
        for field_id, source_id in wanted.items()
        if (table, spec.spec_id, field_id) in _known
    }
    return spec.with_former_sources(types)


def _manifests(io: FileIO, metadata: TableMetadata, spec_id: int) -> Iterator[ManifestFile]:
    """Manifests of the spec that branches and tags have, those of the current snapshot first."""
    heads = [metadata.current_snapshot_id, *(ref.snapshot_id for ref in metadata.refs.values())]
    for snapshot_id in dict.fromkeys(heads):
        snapshot = None if snapshot_id is None else metadata.snapshot(snapshot_id)
        try:
            manifests = () if snapshot is None else tuple(snapshot_manifests(io, snapshot))
        except StreamlakeError:
            continue
        yield from (manifest for manifest in manifests if manifest.partition_spec_id == spec_id)


def _stored_types(io: FileIO, manifest: ManifestFile) -> dict[int, IcebergType]:
    """The types of a manifest's partition values, by partition field id."""
    path = manifest.manifest_path
    try:
        stored = partition_fields(AvroFile(io.read_bytes(path), path).schema_text)
        return {field_id: _type(schema, path) for field_id, schema in stored.items()}
    except (StreamlakeError, ValueError, KeyError, TypeError, AttributeError):
        return {}


def _type(schema: object, path: str) -> IcebergType:
    if isinstance(schema, dict) and schema.get("logicalType") == "uuid":
        return UUIDType()
    record = {"type": "record", "name": "partition", "fields": [{"name": "value", "type": schema}]}
    return type_from_arrow(AvroFileSchema.parse(json.dumps(record), path).column_types[0], column="partition")
