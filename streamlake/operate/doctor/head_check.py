"""Checks one snapshot's live files against each other, for all that a reader of the snapshot relies on.

It takes the entries of the snapshot's manifests, in any order. Invariant: a data file is kept as a path and a
few numbers, so that a snapshot of a million files fits into memory; delete files are few.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

from streamlake.operate.doctor.finding import Findings
from streamlake.spec.metadata.data_file import DataFile, FileContent
from streamlake.spec.metadata.manifest import ManifestEntry
from streamlake.spec.metadata.snapshot import Snapshot
from streamlake.spec.metadata.table_metadata import TableMetadata

_ROLL_BACK = (
    "roll the table back to a snapshot before the one that added it (`streamlake inspect {} snapshots`)"
)


class LiveData(NamedTuple):
    """What the checks need of a live data file. `place` is its partition spec and partition."""

    records: int
    sequence_number: int | None
    place: tuple[Any, ...]
    first_row_id: int | None


@dataclass(frozen=True)
class LiveDelete:
    """A live delete file and its data sequence number (None where it is not known)."""

    file: DataFile
    sequence_number: int | None


class HeadCheck:
    """The live files of one snapshot. `name` is the snapshot's in messages, such as `branch 'main'`."""

    def __init__(self, metadata: TableMetadata, snapshot: Snapshot, name: str, findings: Findings) -> None:
        self.data: dict[str, LiveData] = {}
        self.deletes: list[LiveDelete] = []
        self.name = name
        self._metadata = metadata
        self._snapshot = snapshot
        self._findings = findings
        self._places: dict[tuple[Any, ...], tuple[Any, ...]] = {}
        self._delete_ids: set[tuple[str, int | None]] = set()
        self._fix = _ROLL_BACK.format(metadata.location)

    def add(self, entries: Iterable[ManifestEntry]) -> None:
        """Take the entries of one of the snapshot's manifests."""
        for entry in entries:
            if not entry.is_live:
                continue
            file = entry.data_file
            if (entry.sequence_number or 0) > self._snapshot.sequence_number:
                what = (
                    f"its sequence number is {entry.sequence_number}, above that of {self.name}, "
                    f"{self._snapshot.sequence_number}"
                )
                self._findings.error("sequence-numbers", file.file_path, what, self._fix)
            if file.spec_id not in self._metadata.specs_by_id:
                what = f"has the partition spec {file.spec_id}, which the metadata does not have"
                self._findings.error("metadata-ids", file.file_path, what, self._fix)
            if file.is_data:
                self._add_data(file, entry)
            else:
                self._add_delete(file, entry)

    def finish(self) -> None:
        """Compare the files with each other, after all entries have been taken."""
        vectors: dict[str, str] = {}
        for delete in self.deletes:
            self._check_delete(delete, vectors)
        if self._metadata.format_version >= 3 and self._snapshot.first_row_id is not None:
            self._check_row_ids()

    def _add_data(self, file: DataFile, entry: ManifestEntry) -> None:
        if file.file_path in self.data:
            what = f"is live twice in {self.name}: its rows are read twice"
            self._findings.error("file-live-twice", file.file_path, what, self._fix)
            return
        place = place_of(file)
        place = self._places.setdefault(place, place)
        self.data[file.file_path] = LiveData(
            file.record_count, entry.sequence_number, place, file.first_row_id
        )

    def _add_delete(self, file: DataFile, entry: ManifestEntry) -> None:
        if file.identity in self._delete_ids:
            what = f"is live twice in {self.name}"
            self._findings.error("file-live-twice", _shown(file), what, self._fix)
            return
        self._delete_ids.add(file.identity)
        self.deletes.append(LiveDelete(file, entry.sequence_number))

    def _check_delete(self, delete: LiveDelete, vectors: dict[str, str]) -> None:
        file = delete.file
        if file.content == FileContent.EQUALITY_DELETES:
            known = {field_id for schema in self._metadata.schemas for field_id in schema.fields_by_id}
            if not file.equality_ids or not set(file.equality_ids) <= known:
                what = (
                    f"equality deletes over the field ids {file.equality_ids}, which no schema of the table "
                    "has"
                )
                self._findings.error("delete-scope", file.file_path, what, self._fix)
            return
        target_path = file.deletes_from
        if file.is_deletion_vector:
            self._check_vector(file, target_path, vectors)
        target = None if target_path is None else self.data.get(target_path)
        if target is None:
            return
        if target.place != place_of(file):
            self._findings.error(
                "delete-scope",
                _shown(file),
                f"is of partition {_place_text(file)}, its data file {target_path} is not: readers that "
                "look for deletes by partition do not find it, and its rows come back",
                f"{self._fix}; then write these deletes again",
            )
        if (delete.sequence_number or 0) < (target.sequence_number or 0):
            what = (
                f"has sequence number {delete.sequence_number}, its data file {target_path} the newer "
                f"{target.sequence_number}: it deletes nothing"
            )
            self._findings.error("delete-scope", _shown(file), what, self._fix)

    def _check_vector(self, file: DataFile, target: str | None, vectors: dict[str, str]) -> None:
        if target is None:
            what = "is a deletion vector that does not name its data file"
            self._findings.error("deletion-vector", _shown(file), what, self._fix)
            return
        if target in vectors:
            self._findings.error(
                "deletion-vector",
                target,
                f"has two deletion vectors in {self.name}, {vectors[target]} and {_shown(file)}: readers "
                "reject that",
                self._fix,
            )
        vectors[target] = _shown(file)
        if target not in self.data:
            self._findings.warning(
                "deletion-vector",
                _shown(file),
                f"is left for {target}, which is not live in {self.name} any more",
                "nothing reads it; the next rewrite of the table's delete manifests removes it",
            )

    def _check_row_ids(self) -> None:
        ranges = []
        for path, data in self.data.items():
            if data.first_row_id is None:
                what = "has no first row id, in a table that has row lineage"
                self._findings.error("row-lineage", path, what, self._fix)
            else:
                ranges.append((data.first_row_id, data.first_row_id + data.records, path))
        ranges.sort()
        for (_, end, path), (start, _, other) in pairwise(ranges):
            if end > start:
                what = f"has row ids up to {end - 1}, {other} from {start} on: rows share ids"
                self._findings.error("row-lineage", path, what, self._fix)
        last = max((end for _, end, _ in ranges), default=0)
        if last > (self._metadata.next_row_id or 0):
            what = f"its rows have ids up to {last - 1}, next-row-id is {self._metadata.next_row_id}"
            self._findings.error("row-lineage", self.name, what, self._fix)


def place_of(file: DataFile) -> tuple[Any, ...]:
    """Partition spec and partition of a file; NaN equals NaN in it."""
    return (file.spec_id, *("NaN" if value != value else value for value in file.partition))


def _place_text(file: DataFile) -> str:
    return f"{file.partition} of spec {file.spec_id}"


def _shown(file: DataFile) -> str:
    return file.file_path if file.content_offset is None else f"{file.file_path} at {file.content_offset}"
