"""A loaded table: one catalog entry's current metadata, and what can be asked of it without reading data.

Made by `catalog`, handed to the operations of this room (`AppendFiles(table)`, ...) and to `read`. Invariant: what
it shows is one version of the metadata; it moves only by `refresh()` and by commits made through it.
"""

from __future__ import annotations

from collections.abc import Mapping

from streamlake.errors import InvalidOptionError
from streamlake.formats.manifest_lists import snapshot_manifests
from streamlake.spec.manifest import ManifestFile
from streamlake.spec.partition_spec import PartitionSpec
from streamlake.spec.schema import Schema
from streamlake.spec.snapshot import Snapshot, SnapshotRef
from streamlake.spec.sort_order import SortOrder
from streamlake.spec.table_metadata import TableMetadata
from streamlake.storage.file_io import FileIO
from streamlake.storage.locations import TableLocations
from streamlake.table.held_entries import HeldEntries
from streamlake.table.operations import TableOperations

_REMEMBERED_LISTS = 8


class Table:
    """One table. Not thread-safe; load it again for another thread."""

    def __init__(self, name: str, operations: TableOperations) -> None:
        self.name = name
        self.operations = operations
        self._lists: dict[str, tuple[ManifestFile, ...]] = {}
        self.held_entries = HeldEntries()

    def __repr__(self) -> str:
        return f"Table({self.name!r}, location={self.location!r})"

    @property
    def metadata(self) -> TableMetadata:
        return self.operations.current()

    def refresh(self) -> Table:
        """Move to the newest version; returns the table itself."""
        self.operations.refresh()
        return self

    @property
    def location(self) -> str:
        return self.metadata.location

    @property
    def io(self) -> FileIO:
        return self.operations.io

    @property
    def locations(self) -> TableLocations:
        """Where new files of the table go."""
        return TableLocations(self.metadata.location, self.metadata.properties)

    @property
    def format_version(self) -> int:
        return self.metadata.format_version

    @property
    def uuid(self) -> str:
        return self.metadata.table_uuid

    @property
    def schema(self) -> Schema:
        return self.metadata.schema

    @property
    def schemas(self) -> dict[int, Schema]:
        return {schema.schema_id: schema for schema in self.metadata.schemas}

    @property
    def spec(self) -> PartitionSpec:
        return self.metadata.spec

    @property
    def specs(self) -> dict[int, PartitionSpec]:
        return self.metadata.specs_by_id

    @property
    def sort_order(self) -> SortOrder:
        return self.metadata.sort_order

    @property
    def properties(self) -> Mapping[str, str]:
        return self.metadata.properties

    @property
    def snapshots(self) -> tuple[Snapshot, ...]:
        return self.metadata.snapshots

    @property
    def current_snapshot(self) -> Snapshot | None:
        return self.metadata.current_snapshot

    @property
    def refs(self) -> Mapping[str, SnapshotRef]:
        return self.metadata.refs

    def snapshot_by(
        self, *, snapshot_id: int | None = None, ref: str | None = None, as_of_ms: int | None = None
    ) -> Snapshot | None:
        """The snapshot chosen by id, by branch or tag, or by time (epoch milliseconds, as the snapshot log has it);
        without a choice the current one (None for an empty table).

        Raises InvalidOptionError when more than one is given or when there is no such snapshot.
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
                f"table {self.name} has no {what}; it may have expired: `streamlake inspect {self.location} snapshots`"
                " lists what there is"
            )
        return snapshot

    def manifests(self, snapshot: Snapshot | None) -> tuple[ManifestFile, ...]:
        """The manifests of a snapshot, in the order of its manifest list. The latest lists are remembered."""
        if snapshot is None:
            return ()
        known = None if snapshot.manifest_list is None else self._lists.get(snapshot.manifest_list)
        if known is None:
            known = tuple(snapshot_manifests(self.io, snapshot))
            if snapshot.manifest_list is not None:
                self.remember_manifests(snapshot.manifest_list, known)
        return known

    def remember_manifests(self, manifest_list: str, manifests: tuple[ManifestFile, ...]) -> None:
        """Keep a manifest list's content (files never change) so that the next commit need not read it."""
        while len(self._lists) >= _REMEMBERED_LISTS:
            del self._lists[next(iter(self._lists))]
        self._lists[manifest_list] = manifests
