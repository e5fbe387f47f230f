"""Appending files: the operation behind every streamed checkpoint that only adds rows."""

from __future__ import annotations

from collections.abc import Sequence

from streamlake.errors import InvalidOptionError
from streamlake.spec.data_file import DataFile, FileContent
from streamlake.spec.manifest import ManifestContent, ManifestFile
from streamlake.table.snapshot_producer import SnapshotProducer


class AppendFiles(SnapshotProducer):
    """Adds data files. Never conflicts with other writers: an append is valid on any newer version."""

    @property
    def operation(self) -> str:
        return "append"

    def append_file(self, file: DataFile) -> AppendFiles:
        """Add one data file; the same path again changes nothing."""
        if file.content != FileContent.DATA:
            raise InvalidOptionError(
                f"{file.file_path} is a delete file, and an append takes data files only"
            )
        self._new.add(file, self._table.metadata)
        return self

    def append_manifest(self, manifest: ManifestFile, files: Sequence[DataFile] | None = None) -> AppendFiles:
        """Take up a staged delta manifest (added entries, no snapshot id) as one of the snapshot's manifests, without
        rewriting it. `files` spares reading it for the summary."""
        if manifest.content != ManifestContent.DATA:
            raise InvalidOptionError(
                f"{manifest.manifest_path} lists delete files, and an append takes data files only"
            )
        self._new.stage(manifest, files, self._table.io, self._table.metadata)
        return self
