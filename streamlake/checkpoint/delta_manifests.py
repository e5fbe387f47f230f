"""Writes a checkpoint's files into delta manifests, one per partition spec and content (spec: Manifests).

The entries carry no snapshot id and no sequence numbers. They inherit both from the commit that takes up the
manifests, so a manifest becomes part of the snapshot without being rewritten, in whatever attempt that is.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from streamlake.failpoints import failpoint
from streamlake.formats.columns.format_options import AvroCompression
from streamlake.formats.manifests.manifests import write_manifest
from streamlake.spec.metadata.data_file import DataFile
from streamlake.spec.metadata.manifest import EntryStatus, ManifestContent, ManifestEntry, ManifestFile
from streamlake.spec.metadata.table_metadata import TableMetadata
from streamlake.storage.file_io import FileIO
from streamlake.storage.locations import TableLocations


def write_delta_manifests(
    io: FileIO, locations: TableLocations, metadata: TableMetadata, files: Iterable[DataFile], uuid: str
) -> tuple[ManifestFile, ...]:
    """Write the manifests of one checkpoint. `uuid` makes their names unique to this attempt."""
    compression = AvroCompression.from_properties(metadata.properties, "write.manifest")
    groups: dict[tuple[int, ManifestContent], list[ManifestEntry]] = defaultdict(list)
    for file in files:
        content = ManifestContent.DATA if file.is_data else ManifestContent.DELETES
        groups[file.spec_id, content].append(ManifestEntry(EntryStatus.ADDED, None, None, None, file))
    written = []
    for number, ((spec_id, content), entries) in enumerate(sorted(groups.items())):
        manifest = write_manifest(
            io,
            locations.manifest(uuid, number),
            entries,
            spec=metadata.spec_by_id(spec_id),
            schema=metadata.schema,
            format_version=metadata.format_version,
            content=content,
            snapshot_id=None,
            compression=compression,
        )
        failpoint("delta-manifest-written")
        written.append(manifest)
    return tuple(written)
