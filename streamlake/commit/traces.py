"""Finds out from file names whether a staged checkpoint is in a table that has lost its commit markers.

Asked before a staged checkpoint is committed again, where neither the property nor the ancestry records the
job. File names are unique, so a manifest that lists one of them shows the commit. Invariant: a checkpoint
counts as not committed only when no manifest of the branch, in any snapshot that is left, lists one of its
files.
"""

from __future__ import annotations

from collections.abc import Iterator

from streamlake.checkpoint.committable import Committable
from streamlake.checkpoint.staged_extra import TableThen
from streamlake.errors import MissingFileError
from streamlake.formats.manifests.manifests import read_manifest
from streamlake.spec.metadata.manifest import ManifestFile
from streamlake.spec.partitioning.partition_spec import PartitionSpec
from streamlake.table.table import Table


def holds(table: Table, branch: str, committable: Committable) -> bool:
    """Whether the branch of the loaded table lists a file of a staged checkpoint: then it was committed.

    A checkpoint without files leaves no trace. Reads the manifests that are newer than the staging.
    """
    staged = {manifest.manifest_path for manifest in committable.manifests}
    then = committable.extra.table or TableThen()
    newer = []
    for manifest in _manifests(table, branch) if staged else ():
        if manifest.manifest_path in staged:
            return True
        number = manifest.sequence_number or 0  # manifests of format version 1 have no sequence number
        if not number or number > then.sequence_number:
            newer.append(manifest)
    if not newer:
        return False
    files = _files(table, committable) or set()
    return any(not files.isdisjoint(_paths(table, manifest)) for manifest in newer)


def is_gone(table: Table, committable: Committable) -> bool:
    """Whether files of a staged checkpoint no longer exist.

    Either it was committed, then rewritten and expired by others, or its files were deleted as orphans.
    """
    files = _files(table, committable)
    return files is None or not all(map(table.io.exists, files))


def _files(table: Table, committable: Committable) -> set[str] | None:
    """The paths of a staged checkpoint's files; None when its manifests are gone."""
    try:
        return {path for manifest in committable.manifests for path in _paths(table, manifest)}
    except MissingFileError:
        return None


def _manifests(table: Table, branch: str) -> Iterator[ManifestFile]:
    """Every manifest of the branch once, those of the newest snapshot first."""
    seen: set[str] = set()
    head = table.metadata.head(branch)
    for snapshot in table.metadata.ancestors(None if head is None else head.snapshot_id):
        for manifest in table.manifests(snapshot):
            if manifest.manifest_path not in seen:
                seen.add(manifest.manifest_path)
                yield manifest


def _paths(table: Table, manifest: ManifestFile) -> set[str]:
    """The paths in a manifest, removed files included, whether or not the table has its partition spec."""
    anywhere = {manifest.partition_spec_id: PartitionSpec(manifest.partition_spec_id)}
    entries = read_manifest(table.io, manifest, anywhere, with_stats=False)
    return {entry.data_file.file_path for entry in entries}
