"""The manifests that one snapshot producer writes and reads.

It lies between the producer and `formats/`: it names new manifests, remembers which ones it wrote (for
clean-up), and keeps their entries in memory, so that merging or a retry reads nothing back. Entries taken
over from other manifests stay encoded, and the table keeps them for the next commits. Invariant: every file
in `written` was created by this object, and it never deletes any other.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from streamlake import ids
from streamlake.errors import StorageError
from streamlake.formats.columns.format_options import AvroCompression
from streamlake.formats.manifests.encoded_entries import (
    EncodedEntry,
    EntryLayout,
    carried_over,
    encoded_entry,
)
from streamlake.formats.manifests.manifests import read_encoded, write_manifest
from streamlake.spec.metadata.manifest import ManifestContent, ManifestEntry, ManifestFile
from streamlake.spec.metadata.table_metadata import TableMetadata
from streamlake.storage.file_io import FileIO
from streamlake.storage.locations import TableLocations
from streamlake.table.manifests.held_entries import HeldEntries, LiveEntries

ManifestKey = tuple[str, int | None, int]
"""What a rewritten manifest depends on: the old one's path and first
row id, and the table's format version.
"""


class ManifestFiles:
    """Writes, reads and cleans up manifests for one snapshot id."""

    def __init__(self, io: FileIO, base: TableMetadata, snapshot_id: int, held: HeldEntries) -> None:
        self.snapshot_id = snapshot_id
        self.commit_uuid = ids.new_uuid()
        self._io = io
        self._base = base
        self._held = held
        self._count = 0
        self._own_entries: dict[str, Sequence[ManifestEntry]] = {}
        self.written: list[str] = []
        self.entries_read = 0

    def rebase(self, base: TableMetadata) -> None:
        """Use the schema, specs and format version of refreshed metadata from now on."""
        self._base = base

    def key_of(self, manifest: ManifestFile) -> ManifestKey:
        """The key under which a manifest is cached over attempts.

        Between two attempts the table may be upgraded, and another writer's commit may give the
        rows of an old manifest their ids.
        """
        return manifest.manifest_path, manifest.first_row_id, self._base.format_version

    @property
    def locations(self) -> TableLocations:
        """Where new files of the table are written."""
        return TableLocations(self._base.location, self._base.properties)

    def write(self, entries: Sequence[ManifestEntry], spec_id: int, content: ManifestContent) -> ManifestFile:
        """Write one new manifest. Sequence numbers that are None are inherited when it is committed."""
        path = self.locations.manifest(self.commit_uuid, self._count)
        self._count += 1
        self.written.append(path)
        manifest = write_manifest(
            self._io,
            path,
            entries,
            self._base.spec_by_id(spec_id),
            self._base.schema,
            self._base.format_version,
            content,
            self.snapshot_id,
            AvroCompression.from_properties(self._base.properties, "write.manifest"),
        )
        self._own_entries[path] = entries
        return manifest

    def live(self, manifest: ManifestFile) -> LiveEntries:
        """The live entries of a committed manifest, as a new one lists them."""
        layout = self._layout(manifest)
        live = self._held.of(manifest, layout)
        if live is None:
            live = LiveEntries.of(read_encoded(self._io, manifest, self._base.specs_by_id, layout), manifest)
            self._held.hold(manifest, layout, live)
        self.entries_read += live.stored_count
        return live

    def carried(self, manifest: ManifestFile) -> Sequence[ManifestEntry]:
        """The entries that a merged manifest takes over from this one.

        These are the live ones of a committed manifest, and all of one that this object wrote.
        """
        own = self._own_entries.get(manifest.manifest_path)
        if own is None:
            return self.live(manifest).entries
        layout = self._layout(manifest)
        return [encoded_entry(entry, layout) for entry in own]

    def _layout(self, manifest: ManifestFile) -> EntryLayout:
        spec = self._base.spec_by_id(manifest.partition_spec_id)
        return EntryLayout.of(self._base.format_version, spec, self._base.schema)

    def hold_committed(self, manifests: Iterable[ManifestFile]) -> None:
        """Let the table keep the entries of committed `manifests` that this object wrote, for later commits.

        Manifests of new entries, which were never encoded one by one, are not
        kept; they are read when needed.
        """
        for manifest in manifests:
            own = self._own_entries.get(manifest.manifest_path, ())
            encoded = [entry for entry in own if isinstance(entry, EncodedEntry)]
            if encoded and len(encoded) == len(own):
                live = LiveEntries.of(carried_over(encoded, manifest), manifest)
                self._held.hold(manifest, encoded[0].layout, live)

    def written_entries(self, manifest: ManifestFile) -> Sequence[ManifestEntry]:
        """The entries of a manifest that this object wrote.

        Empty for any other manifest, which is not read.
        """
        return self._own_entries.get(manifest.manifest_path, ())

    def delete_written(self, keep: Collection[str] = ()) -> None:
        """Delete the files that this object wrote, except the paths in `keep`.

        A file that cannot be deleted stays as an orphan.
        """
        for path in self.written:
            if path not in keep:
                try:
                    self._io.delete(path)
                except StorageError:
                    continue
        self.written = [path for path in self.written if path in keep]
