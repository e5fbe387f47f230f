"""Append: adds data files. The operation of every streamed checkpoint that only adds rows."""

from __future__ import annotations

from collections.abc import Sequence

from streamlake.errors import InvalidOptionError
from streamlake.spec.metadata.data_file import DataFile, FileContent
from streamlake.spec.metadata.manifest import ManifestContent, ManifestFile
from streamlake.table.producers.snapshot_producer import SnapshotProducer


class AppendFiles(SnapshotProducer):
    """Adds data files. It never conflicts with other writers: an append is valid on any newer version."""

    @property
    def operation(self) -> str:
        """`append`, for the snapshot summary."""
        return "append"

    def append_file(self, file: DataFile) -> AppendFiles:
        """Add one data file. Adding the same path again changes nothing."""
        if file.content != FileContent.DATA:
            raise InvalidOptionError(
                f"{file.file_path} is a delete file, and an append takes data files only"
            )
        self._new.add(file, self._table.metadata)
        return self

    def append_manifest(self, manifest: ManifestFile, files: Sequence[DataFile] | None = None) -> AppendFiles:
        """Add a staged delta manifest (added entries, no snapshot id) to the snapshot without rewriting it.

        With `files`, its entries, it need not be read for the summary.
        """
        if manifest.content != ManifestContent.DATA:
            raise InvalidOptionError(
                f"{manifest.manifest_path} lists delete files, and an append takes data files only"
            )
        self._new.stage(manifest, files, self._table.io, self._table.metadata)
        return self
