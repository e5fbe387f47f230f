"""A loaded table: the current metadata of one catalog entry, and all that it shows without data files.

Made by `catalog`, passed to the operations of this package (`AppendFiles(table)`, ...) and
to `read`. Invariant: it shows one version of the metadata, which changes only by `refresh()`
and by commits made through it.
"""

from __future__ import annotations

from collections.abc import Mapping

from streamlake.errors import InvalidOptionError
from streamlake.formats.manifests.manifest_lists import snapshot_manifests
from streamlake.spec.metadata.manifest import ManifestFile
from streamlake.spec.metadata.snapshot import Snapshot, SnapshotRef
from streamlake.spec.metadata.table_metadata import TableMetadata
from streamlake.spec.partitioning.partition_spec import PartitionSpec
from streamlake.spec.partitioning.sort_order import SortOrder
from streamlake.spec.types.schema import Schema
from streamlake.storage.file_io import FileIO
from streamlake.storage.locations import TableLocations
from streamlake.table.manifests.held_entries import HeldEntries
from streamlake.table.operations import TableOperations

_REMEMBERED_LISTS = 8


class Table:
    """One table of a catalog. Not thread-safe; load it again for another thread."""

    def __init__(self, name: str, operations: TableOperations) -> None:
        self.name = name
        self.operations = operations
        self._lists: dict[str, tuple[ManifestFile, ...]] = {}
        self.held_entries = HeldEntries()

    def __repr__(self) -> str:
        return f"Table({self.name!r}, location={self.location!r})"

    @property
    def metadata(self) -> TableMetadata:
        """The metadata as last read."""
        return self.operations.current()

    def refresh(self) -> Table:
        """Read the newest version; returns the table itself."""
        self.operations.refresh()
        return self

    @property
    def location(self) -> str:
        """The table's base location."""
        return self.metadata.location

    @property
    def io(self) -> FileIO:
        """Where the table's files are read and written."""
        return self.operations.io

    @property
    def locations(self) -> TableLocations:
        """Where new files of the table are written."""
        return TableLocations(self.metadata.location, self.metadata.properties)

    @property
    def format_version(self) -> int:
        """The format version: 1, 2 or 3."""
        return self.metadata.format_version

    @property
    def uuid(self) -> str:
        """The table's UUID as text."""
        return self.metadata.table_uuid

    @property
    def schema(self) -> Schema:
        """The current schema."""
        return self.metadata.schema

    @property
    def schemas(self) -> dict[int, Schema]:
        """All schemas by schema id."""
        return {schema.schema_id: schema for schema in self.metadata.schemas}

    @property
    def spec(self) -> PartitionSpec:
        """The current partition spec."""
        return self.metadata.spec

    @property
    def specs(self) -> dict[int, PartitionSpec]:
        """All partition specs by spec id."""
        return self.metadata.specs_by_id

    @property
    def sort_order(self) -> SortOrder:
        """The current sort order."""
        return self.metadata.sort_order

    @property
    def properties(self) -> Mapping[str, str]:
        """The table properties."""
        return self.metadata.properties

    @property
    def snapshots(self) -> tuple[Snapshot, ...]:
        """All snapshots that have not been expired, in the order of the metadata."""
        return self.metadata.snapshots

    @property
    def current_snapshot(self) -> Snapshot | None:
        """The current snapshot; None for an empty table."""
        return self.metadata.current_snapshot

    @property
    def refs(self) -> Mapping[str, SnapshotRef]:
        """The branches and tags by name."""
        return self.metadata.refs

    def snapshot_by(
        self, *, snapshot_id: int | None = None, ref: str | None = None, as_of_ms: int | None = None
    ) -> Snapshot | None:
        """The snapshot chosen by id, by branch or tag, or by time (epoch milliseconds, by the snapshot log).

        Without a choice it is the current one (None for an empty table). Raises InvalidOptionError when more
        than one is given or when there is no such snapshot.
        """
        given = [choice for choice in (snapshot_id, ref, as_of_ms) if choice is not None]
        if len(given) > 1:
            raise InvalidOptionError("choose a snapshot by one of snapshot_id, ref and as_of, not by several")
        if snapshot_id is not None:
            return self._found(self.metadata.snapshot(snapshot_id), f"snapshot {snapshot_id}")
        if ref is not None:
            if ref == "main" and ref not in self.refs:
                return None
            return self._found(self.metadata.head(ref), f"branch or tag {ref!r}")
        if as_of_ms is not None:
            past = [entry for entry in self.metadata.snapshot_log if entry.timestamp_ms <= as_of_ms]
            chosen = self.metadata.snapshot(past[-1].snapshot_id) if past else None
            return self._found(chosen, f"snapshot as of {as_of_ms} ms")
        return self.current_snapshot

    def _found(self, snapshot: Snapshot | None, what: str) -> Snapshot:
        if snapshot is None:
            raise InvalidOptionError(
                f"table {self.name} has no {what}; it may have expired: `streamlake inspect {self.location} "
                "snapshots` lists what there is"
            )
        return snapshot

    def manifests(self, snapshot: Snapshot | None) -> tuple[ManifestFile, ...]:
        """The manifests of a snapshot, in the order of its manifest list.

        The latest lists are kept in memory.
        """
        if snapshot is None:
            return ()
        known = None if snapshot.manifest_list is None else self._lists.get(snapshot.manifest_list)
        if known is None:
            known = tuple(snapshot_manifests(self.io, snapshot))
            if snapshot.manifest_list is not None:
                self.remember_manifests(snapshot.manifest_list, known)
        return known

    def remember_manifests(self, manifest_list: str, manifests: tuple[ManifestFile, ...]) -> None:
        """Keep a manifest list's content, which never changes. So the next commit need not read it."""
        while len(self._lists) >= _REMEMBERED_LISTS:
            del self._lists[next(iter(self._lists))]
        self._lists[manifest_list] = manifests
