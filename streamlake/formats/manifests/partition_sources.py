"""Finds the types of partition values whose source column is in no schema of the table any more.

A partition field may be dropped, then its source column, and at last the old schema may be removed with
expired snapshots. Files of the old partition spec stay, and each manifest records the types of its partition
values itself (spec: Manifests). Manifests are read once per table and spec; metadata whose schemas have all
source columns costs nothing.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

from streamlake.errors import StreamlakeError
from streamlake.formats.arrow.arrow_schema import type_from_arrow
from streamlake.formats.avro.avro_container import AvroFile
from streamlake.formats.avro.avro_file_schema import AvroFileSchema
from streamlake.formats.manifests.manifest_lists import snapshot_manifests
from streamlake.formats.manifests.stored_manifests import partition_fields
from streamlake.spec.metadata.manifest import ManifestFile
from streamlake.spec.metadata.table_metadata import TableMetadata
from streamlake.spec.partitioning.partition_spec import PartitionSpec
from streamlake.spec.partitioning.transforms import Void
from streamlake.spec.types.data_types import IcebergType, UnknownType, UUIDType
from streamlake.storage.file_io import FileIO

_known: dict[tuple[str, int, int], IcebergType] = {}
"""By table uuid, spec id and partition field id; the types of a spec never change."""


def with_stored_sources(io: FileIO, metadata: TableMetadata) -> TableMetadata:
    """The metadata, completed with types from manifests where no schema has the source column.

    Manifests that cannot be read are skipped.
    """
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
    """Manifests of the spec in branches and tags, those of the current snapshot first."""
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
