"""What streams need of a table beside its snapshots: the files of staged checkpoints, and the bases of those.

A staged checkpoint is committed by the next driver, perhaps days later. Its files are in no snapshot yet, or
in one that was rolled back; its deletes by position fit only onto its base snapshot. Invariant: whatever a
staged checkpoint that is there names stays. One that cannot be read stops the maintenance before it begins.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from streamlake.catalog.hadoop_operations import HadoopTableOperations
from streamlake.checkpoint.committable import Committable, committable_from_bytes
from streamlake.commit.history import History, marker_of
from streamlake.commit.marker import PROPERTY_PREFIX, parsed_property
from streamlake.errors import DataInvalidError, MissingFileError
from streamlake.formats.manifests.manifests import read_manifest
from streamlake.maintain.reachable_files import storage_key
from streamlake.spec.metadata.table_metadata import TableMetadata
from streamlake.spec.partitioning.partition_spec import PartitionSpec
from streamlake.table.table import Table


@dataclass(frozen=True)
class StagedNeeds:
    """What the staged checkpoints of a table need: `files`, as they name them, and ids of `snapshots`."""

    files: frozenset[str] = frozenset()
    snapshots: frozenset[int] = frozenset()

    @cached_property
    def _keys(self) -> frozenset[str]:
        return frozenset(map(storage_key, self.files))

    def has(self, path: str) -> bool:
        """Whether a staged checkpoint needs this file."""
        return storage_key(path) in self._keys


def staged_needs(table: Table) -> StagedNeeds:
    """What the checkpoints that are staged now need, on every branch and of every job.

    Raises DataInvalidError for one that cannot be read.
    """
    files: set[str] = set()
    snapshots: set[int] = set()
    for committable in _staged(table):
        files.update(_files(table, committable))
        if committable.base_snapshot_id is not None and _is_pending(table, committable):
            snapshots.add(committable.base_snapshot_id)
    return StagedNeeds(frozenset(files), frozenset(snapshots))


def lineage_needs(table: Table, metadata: TableMetadata) -> frozenset[int]:
    """The snapshots from the heads of branches down to the last one of each pipeline, in catalogs.

    A file system table keeps the parents' ids of what is left, which show a stream that older snapshots have
    expired. PyIceberg's clients erase them, and a stream whose last snapshot is gone would look rolled back.
    """
    if isinstance(table.operations, HadoopTableOperations):
        return frozenset()
    held: set[int] = set()
    for name in metadata.properties:
        recorded = None
        if name.startswith(PROPERTY_PREFIX):
            with contextlib.suppress(DataInvalidError):
                recorded = parsed_property(metadata, name)
        head = None if recorded is None else metadata.head(recorded.branch)
        if recorded is None or head is None:
            continue
        newer = []
        for snapshot in metadata.ancestors(head.snapshot_id):
            newer.append(snapshot.snapshot_id)
            if marker_of(snapshot, recorded.marker.job_id) is not None:
                held.update(newer)
                break
    return frozenset(held)


def _staged(table: Table) -> Iterator[Committable]:
    for info in table.io.list_prefix(table.locations.committables_directory):
        if not info.path.endswith(".json") or not info.size:
            continue
        try:
            data = table.io.read_bytes(info.path)
        except MissingFileError:
            continue  # committed and removed meanwhile
        if data:
            yield committable_from_bytes(data, info.path)


def _files(table: Table, committable: Committable) -> Iterator[str]:
    for manifest in committable.manifests:
        yield manifest.manifest_path
        anywhere = {manifest.partition_spec_id: PartitionSpec(manifest.partition_spec_id)}
        try:
            entries = read_manifest(table.io, manifest, anywhere, with_stats=False)
        except MissingFileError:
            continue  # replaced by one that was staged again, or deleted: nothing can be committed of it
        for entry in entries:
            yield entry.data_file.file_path
            if entry.data_file.referenced_data_file is not None:
                yield entry.data_file.referenced_data_file
    for file in committable.removed:
        yield file.file_path


def _is_pending(table: Table, committable: Committable) -> bool:
    """Whether it may still be committed: the table does not certainly hold it, or a later one of its job."""
    identity = committable.identity
    if committable.table_uuid != table.uuid:
        return False
    try:
        history = History.of(table.metadata, committable.branch, identity.pipeline, identity.job_id)
    except DataInvalidError:
        return True
    if history.finding() is not None:
        return True
    marker = history.marker
    return marker is None or marker.checkpoint_id < identity.checkpoint_id
