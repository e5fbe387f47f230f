"""The log of a table's earlier metadata files, which every commit extends and may shorten.

Properties: `write.metadata.previous-versions-max` and `write.metadata.delete-after-commit.enabled`.
"""

from __future__ import annotations

from collections.abc import Iterable

from streamlake.errors import StorageError
from streamlake.spec.metadata.snapshot import MetadataLogEntry
from streamlake.spec.metadata.table_metadata import TableMetadata
from streamlake.storage.file_io import FileIO
from streamlake.table.options import MetadataOptions
from streamlake.table.updates.metadata_changes import changed


def logged(
    base: TableMetadata, base_path: str, new: TableMetadata, options: MetadataOptions
) -> tuple[TableMetadata, tuple[MetadataLogEntry, ...]]:
    """`new` with the file of `base` in its log, and the entries that left the log."""
    entries = (*base.metadata_log, MetadataLogEntry(base.last_updated_ms, base_path))
    kept = entries[-options.previous_versions_max :]
    return changed(new, metadata_log=kept), entries[: len(entries) - len(kept)]


def delete_superseded(io: FileIO, entries: Iterable[MetadataLogEntry], options: MetadataOptions) -> None:
    """Delete the files of entries that left the log, if the table wants it.

    A failure leaves an orphan and is no error.
    """
    if not options.delete_after_commit:
        return
    for entry in entries:
        try:
            io.delete(entry.metadata_file)
        except StorageError:
            continue
