"""Whether a staged checkpoint is in a table that has lost its marks: told by its files, which have names of their own.

Asked where neither the property nor the ancestry knows the job, before a staged checkpoint is committed again. Invariant:
a checkpoint is only said not to be in the table when no manifest of the branch, in whatever snapshot is left, tells of
one of its files.
"""

from __future__ import annotations

from collections.abc import Iterator

from streamlake.checkpoint.committable import Committable
from streamlake.errors import MissingFileError
from streamlake.formats.manifests import read_manifest
from streamlake.spec.manifest import ManifestFile
from streamlake.spec.partition_spec import PartitionSpec
from streamlake.table.table import Table

STAGED_AT = "staged-at-sequence-number"
"""In a Committable's `extra`: the table's last sequence number when it was staged; a commit of it has a later one."""


def holds(table: Table, branch: str, committable: Committable) -> bool:
    """Whether the branch, as the table is loaded, tells of a file of a staged checkpoint: then it was committed.

    A checkpoint without files leaves no trace. Reads the manifests that are newer than the staging.
    """
    staged = {manifest.manifest_path for manifest in committable.manifests}
    newer = []
    for manifest in _manifests(table, branch) if staged else ():
        if manifest.manifest_path in staged:
            return True
        number = manifest.sequence_number or 0  # those of format version 1 have none
        if not number or number > committable.extra.get(STAGED_AT, 0):
            newer.append(manifest)
    if not newer:
        return False
    files = _files(table, committable) or set()
    return any(not files.isdisjoint(_paths(table, manifest)) for manifest in newer)


def is_gone(table: Table, committable: Committable) -> bool:
    """Whether files of a staged checkpoint are no longer there: it was committed, rewritten by somebody and expired, or
    they were deleted as orphans."""
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
    """The paths in a manifest, those of files that it removes too, whether or not the table has its partition spec."""
    anywhere = {manifest.partition_spec_id: PartitionSpec(manifest.partition_spec_id)}
    entries = read_manifest(table.io, manifest, anywhere, with_stats=False)
    return {entry.data_file.file_path for entry in entries}
