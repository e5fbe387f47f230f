"""The replacement of deletes as it fits onto the head of a branch, with what others have committed meanwhile.

A row that was deleted in the planned snapshot is deleted in all that descend from it. So new deletes hold on
whatever is newer; what may have changed is which files there are. Invariants: a deletion vector that another
writer has committed is merged, never lost; an equality delete leaves only where every data file that it
applies to was covered, a rewrite of older rows that came meanwhile included; and what is no longer there is
not removed again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from streamlake.errors import ConflictValidationError
from streamlake.maintain.deletes.delete_plan import DeletePlan, Identity
from streamlake.maintain.deletes.written_deletes import DeleteWriter, NewDeletesOf
from streamlake.read.planning import read_manifests
from streamlake.spec.metadata.data_file import DataFile
from streamlake.spec.metadata.manifest import ManifestContent, ManifestEntry, ManifestFile
from streamlake.spec.metadata.partition_keys import partition_key
from streamlake.spec.metadata.snapshot import Snapshot
from streamlake.spec.metadata.table_metadata import TableMetadata
from streamlake.table.producers.replace_deletes import DeleteReplacement, NewDelete
from streamlake.table.table import Table


class NothingLeftError(Exception):
    """Other writers have removed everything that was to be replaced."""


@dataclass(frozen=True)
class _Head:
    """What the head of the branch has: live deletes, vectors by data file, and data files that are new.

    `merged_meanwhile` are the paths of data files that got position deletes of their own since the planned
    snapshot. `moved` are those of data files in manifests that it does not have, `older` the entries that
    came since then with an older data sequence number.
    """

    manifest_paths: frozenset[str]
    deletes: dict[Identity, ManifestEntry]
    vectors: dict[str, ManifestEntry]
    merged_meanwhile: frozenset[str]
    moved: frozenset[str]
    older: tuple[ManifestEntry, ...]


class CarriedReplacement:
    """Gives each attempt of the commit its replacement. `kept` are equality deletes that had to stay."""

    def __init__(
        self, table: Table, plan: DeletePlan, new: Iterable[NewDeletesOf], writer: DeleteWriter
    ) -> None:
        self._table = table
        self._plan = plan
        self._new = tuple(new)
        self._writer = writer
        self.result = DeleteReplacement()
        self.kept: tuple[DataFile, ...] = ()

    def __call__(self, base: TableMetadata, parent: Snapshot | None) -> DeleteReplacement:
        """The replacement on this base.

        Raises ConflictValidationError where the plan has to be made again, NothingLeftError where nothing is
        left of it.
        """
        if base.format_version != self._plan.format_version:
            raise self._conflict(f"the table has format version {base.format_version} now")
        if parent is not None and parent.snapshot_id == self._plan.snapshot_id:
            self.result, self.kept = self._as_planned(), ()
        else:
            self.result = self._carried(base, parent)
        if not (self.result.added or self.result.removed):
            raise NothingLeftError
        return self.result

    def _as_planned(self) -> DeleteReplacement:
        plan = self._plan
        added = [NewDelete(file, new.number) for new in self._new for file in new.written]
        removed = [*plan.dangling, *plan.shared, *(entry.data_file for entry in plan.equality)]
        removed += [file for new in self._new for file in _own(new)]
        return DeleteReplacement(tuple(added), _each_once(removed))

    def _carried(self, base: TableMetadata, parent: Snapshot | None) -> DeleteReplacement:
        plan = self._plan
        newer = self._newer(base, parent)
        head = self._head(base, parent, newer)
        for file in (*plan.shared, *(entry.data_file for entry in plan.equality)):
            self._require(file.identity in head.deletes, file.file_path)
        added: list[NewDelete] = []
        removed: list[DataFile] = [*plan.dangling, *plan.shared]
        again: list[tuple[ManifestEntry, NewDelete]] = []
        for new in self._new:
            written = [NewDelete(file, new.number) for file in new.written]
            vector = self._vector_of_others(new, head)
            there = [file for file in _own(new) if file.identity in head.deletes]
            if vector is not None:
                again += [(vector, each) for each in written]
                removed += there
            elif not self._is_done(new, head):
                added += written
                removed += there
        vectors, replaced = self._merged_again(again)
        late = {
            identity for identity, entry in plan.deletes.items() if self._applies_to_older(entry, head.older)
        }
        equality = [entry.data_file for entry in plan.equality]
        self.kept = tuple(file for file in equality if file.identity in late)
        gone = [file for file in (*removed, *replaced, *equality) if file.identity not in late]
        there_now = [file for file in gone if file.identity in head.deletes]
        return DeleteReplacement((*added, *vectors), _each_once(there_now))

    def _vector_of_others(self, new: NewDeletesOf, head: _Head) -> ManifestEntry | None:
        """The deletion vector that another writer has given a data file meanwhile."""
        vector = head.vectors.get(new.files[0].path)
        is_known = vector is None or vector.data_file.identity in self._plan.deletes
        return None if is_known or not self._is_live(new, head) else vector

    def _is_live(self, new: NewDeletesOf, head: _Head) -> bool:
        """Whether a data file is in the table; of several, one may be gone without harm."""
        if len(new.files) > 1:
            return True
        [file] = new.files
        return file.manifest_path in head.manifest_paths or file.path in head.moved

    def _is_done(self, new: NewDeletesOf, head: _Head) -> bool:
        """Whether nothing is left to do: the data file is gone, or another writer has merged its deletes."""
        if not self._is_live(new, head):
            return True
        lost = [file for file in _own(new) if file.identity not in head.deletes]
        if not lost:
            return False
        for file in lost:
            self._require(file.deletes_from in head.merged_meanwhile, file.file_path)
        return not new.rows and all(each.deletes_from is not None for each in new.files[0].merged)

    def _require(self, is_explained: bool, path: str) -> None:
        """Deletes that are gone, with none that took over what they deleted, may have been undone."""
        if not is_explained:
            raise self._conflict(f"another writer has removed {path}")

    def _merged_again(
        self, again: list[tuple[ManifestEntry, NewDelete]]
    ) -> tuple[list[NewDelete], list[DataFile]]:
        """New vectors in place of those of other writers, and the ones that they replace."""
        merged = self._writer.merged_vectors([(entry.data_file, mine.file) for entry, mine in again])
        added, replaced = [], []
        for entry, mine in again:
            vector = merged[entry.data_file.referenced_data_file or ""]
            if vector is not None:
                number = max(entry.sequence_number or 0, mine.sequence_number)
                added.append(NewDelete(vector, number))
                replaced.append(entry.data_file)
        return added, replaced

    def _newer(self, base: TableMetadata, parent: Snapshot | None) -> set[int]:
        """The ids of the snapshots that were committed since the planned one."""
        found: set[int] = set()
        for snapshot in base.ancestors(None if parent is None else parent.snapshot_id):
            if snapshot.snapshot_id == self._plan.snapshot_id:
                return found
            found.add(snapshot.snapshot_id)
        raise self._conflict(
            f"snapshot {self._plan.snapshot_id} is no longer in the branch's history (rolled back, or "
            "expired)"
        )

    def _head(self, base: TableMetadata, parent: Snapshot | None, newer: set[int]) -> _Head:
        live = [each for each in self._table.manifests(parent) if each.may_have_live_files]
        with_deletes = [each for each in live if each.content == ManifestContent.DELETES]
        deletes = {
            entry.data_file.identity: entry for entry in self._entries(with_deletes, base, with_stats=True)
        }
        known = self._plan.deletes
        targets = {
            entry.data_file.deletes_from
            for identity, entry in deletes.items()
            if identity not in known and entry.data_file.deletes_from is not None
        }
        vectors = {
            entry.data_file.referenced_data_file or "": entry
            for entry in deletes.values()
            if entry.data_file.is_deletion_vector
        }
        mine = {file.path for new in self._new for file in new.files}
        newest = max(map(_number, known.values()), default=0)
        moved: set[str] = set()
        older: list[ManifestEntry] = []
        others = [
            each
            for each in live
            if each.content == ManifestContent.DATA and each.manifest_path not in self._plan.manifest_paths
        ]
        for entry in self._entries(others, base, with_stats=False):
            if entry.data_file.file_path in mine:
                moved.add(entry.data_file.file_path)
            if entry.snapshot_id in newer and _number(entry) < newest:
                older.append(entry)
        paths = frozenset(each.manifest_path for each in live)
        return _Head(
            paths,
            deletes,
            vectors,
            frozenset(path for path in targets if path),
            frozenset(moved),
            tuple(older),
        )

    def _entries(
        self, manifests: list[ManifestFile], base: TableMetadata, *, with_stats: bool
    ) -> Iterator[ManifestEntry]:
        for entries in read_manifests(self._table.io, manifests, base.specs_by_id, with_stats=with_stats):
            yield from entries

    def _applies_to_older(self, delete: ManifestEntry, older: Iterable[ManifestEntry]) -> bool:
        """Whether an equality delete applies to a data file that was not there when it was converted."""
        file = delete.data_file
        if not file.equality_ids:
            return False
        everywhere = self._table.specs[file.spec_id].is_unpartitioned
        key = partition_key(file.spec_id, file.partition)
        return any(
            _number(entry) < _number(delete)
            and (everywhere or partition_key(entry.data_file.spec_id, entry.data_file.partition) == key)
            for entry in older
        )

    def _conflict(self, why: str) -> ConflictValidationError:
        return ConflictValidationError(
            f"{self._table.name}: the deletes cannot be replaced as planned, {why}; nothing was committed"
        )


def _own(new: NewDeletesOf) -> Iterator[DataFile]:
    """The deletes that the new ones replace, but for those that delete from other data files as well."""
    for file in new.files:
        for each in file.merged:
            if each.deletes_from is not None:
                yield each


def _each_once(files: Iterable[DataFile]) -> tuple[DataFile, ...]:
    return tuple({file.identity: file for file in files}.values())


def _number(entry: ManifestEntry) -> int:
    return entry.sequence_number or 0
