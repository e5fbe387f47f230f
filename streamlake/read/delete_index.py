"""Index of the delete files of a snapshot: which of them apply to which data file (spec: Scan Planning).

Built once per scan from the snapshot's live delete entries. Equality deletes of one scope (a partition, or
the whole table) and one set of columns stay together, so that a reader can merge them once for all data
files. Invariant: a delete file that applies to a data file is always found; one whose file path bounds
exclude the data file may be left out.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from streamlake.errors import DataInvalidError
from streamlake.formats.deletes.position_deletes import FILE_PATH_ID
from streamlake.spec.metadata.data_file import DataFile, FileContent
from streamlake.spec.metadata.manifest import ManifestEntry
from streamlake.spec.metadata.partition_keys import PartitionKey, partition_key
from streamlake.spec.partitioning.partition_spec import PartitionSpec


@dataclass(frozen=True, eq=False)
class EqualityDeletes:
    """All equality delete files of one scope that compare the columns `field_ids`.

    The oldest comes first; each has its data sequence number. A file's keys are deleted from data files with
    a smaller one.
    """

    field_ids: tuple[int, ...]
    files: tuple[DataFile, ...]
    sequence_numbers: tuple[int, ...]

    def applies_to(self, sequence_number: int) -> bool:
        """Whether any of the files applies to data of this sequence number."""
        return self.sequence_numbers[-1] > sequence_number


class _Scope:
    """The equality deletes of one partition or of the table."""

    def __init__(self) -> None:
        self.entries: list[ManifestEntry] = []
        self._after: tuple[int, tuple[DataFile, ...]] = (-1, ())

    @cached_property
    def _sorted(self) -> list[ManifestEntry]:
        return sorted(self.entries, key=_number)

    @cached_property
    def _numbers(self) -> list[int]:
        return [_number(entry) for entry in self._sorted]

    @cached_property
    def groups(self) -> tuple[EqualityDeletes, ...]:
        by_ids: defaultdict[tuple[int, ...], list[ManifestEntry]] = defaultdict(list)
        for entry in self._sorted:
            by_ids[_equality_ids(entry.data_file)].append(entry)
        return tuple(
            EqualityDeletes(
                ids, tuple(entry.data_file for entry in group), tuple(_number(entry) for entry in group)
            )
            for ids, group in by_ids.items()
        )

    def after(self, number: int) -> tuple[DataFile, ...]:
        """The files that apply to data with sequence number `number`.

        Data files of one commit share the result.
        """
        at = bisect_right(self._numbers, number)
        if at != self._after[0]:
            self._after = at, tuple(entry.data_file for entry in self._sorted[at:])
        return self._after[1]


class _SharedPositions:
    """The position delete files of one partition that may name several data files.

    They are found by the bounds of their paths.
    """

    def __init__(self) -> None:
        self.entries: list[ManifestEntry] = []

    @cached_property
    def _bounded(self) -> list[tuple[bytes, bytes | None, ManifestEntry]]:
        """(lower bound, upper bound if there is one, entry), ascending by lower bound."""
        bounded = []
        for entry in self.entries:
            lower = (entry.data_file.lower_bounds or {}).get(FILE_PATH_ID, b"")
            bounded.append((lower, (entry.data_file.upper_bounds or {}).get(FILE_PATH_ID), entry))
        return sorted(bounded, key=lambda each: each[0])

    @cached_property
    def _lowers(self) -> list[bytes]:
        return [lower for lower, _, _ in self._bounded]

    def that_may_name(self, path: str) -> Iterator[ManifestEntry]:
        """All files but those whose bounds exclude the path."""
        data = path.encode("utf-8")
        for _, upper, entry in self._bounded[: bisect_right(self._lowers, data)]:
            if upper is None or data <= upper:
                yield entry


class DeleteFileIndex:
    """The delete files of one snapshot, by what they can apply to."""

    def __init__(self, specs: Mapping[int, PartitionSpec], entries: Iterable[ManifestEntry]) -> None:
        self._vectors: dict[str, ManifestEntry] = {}
        self._positions_by_path: defaultdict[str, list[ManifestEntry]] = defaultdict(list)
        self._positions: defaultdict[PartitionKey, _SharedPositions] = defaultdict(_SharedPositions)
        self._equalities: defaultdict[PartitionKey, _Scope] = defaultdict(_Scope)
        self._global_equalities = _Scope()
        for entry in entries:
            self._add(entry, specs)

    def _add(self, entry: ManifestEntry, specs: Mapping[int, PartitionSpec]) -> None:
        file = entry.data_file
        if file.content == FileContent.EQUALITY_DELETES:
            if specs[file.spec_id].is_unpartitioned:
                self._global_equalities.entries.append(entry)
            else:
                self._equalities[partition_key(file.spec_id, file.partition)].entries.append(entry)
        elif file.is_deletion_vector:
            self._add_vector(entry)
        else:
            if file.deletes_from is not None:
                self._positions_by_path[file.deletes_from].append(entry)
            else:
                self._positions[partition_key(file.spec_id, file.partition)].entries.append(entry)

    def _add_vector(self, entry: ManifestEntry) -> None:
        file = entry.data_file
        target = file.referenced_data_file
        if target is None:
            raise DataInvalidError(
                f"{file.file_path}: a deletion vector without referenced_data_file; the table's metadata is "
                "damaged, roll it back to an earlier snapshot"
            )
        if target in self._vectors:
            raise DataInvalidError(
                f"{target} has two deletion vectors ({self._vectors[target].data_file.file_path} and "
                f"{file.file_path}); a data file has at most one: the table's metadata is damaged, roll it "
                "back to an earlier snapshot"
            )
        self._vectors[target] = entry

    def deletes_of(self, data_file: DataFile, sequence_number: int | None) -> tuple[DataFile, ...]:
        """The delete files to apply to a data file with this data sequence number."""
        number = sequence_number or 0
        key = partition_key(data_file.spec_id, data_file.partition)
        found = self._global_equalities.after(number)
        if key in self._equalities:
            found += self._equalities[key].after(number)
        vector = self._vectors.get(data_file.file_path)
        if (
            vector is not None
            and _number(vector) >= number
            and _same_partition(vector.data_file, data_file, key)
        ):
            return (*found, vector.data_file)
        by_path = [
            entry
            for entry in self._positions_by_path.get(data_file.file_path, ())
            if _same_partition(entry.data_file, data_file, key)
        ]
        shared = self._positions[key].that_may_name(data_file.file_path) if key in self._positions else ()
        return found + tuple(entry.data_file for entry in (*by_path, *shared) if _number(entry) >= number)

    def equality_deletes_of(
        self, data_file: DataFile, sequence_number: int | None
    ) -> tuple[EqualityDeletes, ...]:
        """The groups of equality deletes with a file that applies.

        All data files of a scope get the same objects.
        """
        key = partition_key(data_file.spec_id, data_file.partition)
        groups = self._global_equalities.groups
        if key in self._equalities:
            groups += self._equalities[key].groups
        return tuple(group for group in groups if group.applies_to(sequence_number or 0))


def _number(entry: ManifestEntry) -> int:
    return entry.sequence_number or 0


def _equality_ids(file: DataFile) -> tuple[int, ...]:
    if not file.equality_ids:
        raise DataInvalidError(
            f"{file.file_path}: an equality delete file without equality ids; the table's metadata is damaged"
        )
    return tuple(sorted(set(file.equality_ids)))


def _same_partition(delete_file: DataFile, data_file: DataFile, key: PartitionKey) -> bool:
    """Whether a delete file of one data file is in its partition (`key`).

    It is an error when the delete file references the data file from another partition.
    """
    if partition_key(delete_file.spec_id, delete_file.partition) == key:
        return True
    if delete_file.referenced_data_file is None:
        return False
    raise DataInvalidError(
        f"{delete_file.file_path} deletes rows of {data_file.file_path}, but is of another partition (spec "
        f"{delete_file.spec_id}, {delete_file.partition}; the data file: spec {data_file.spec_id}, "
        f"{data_file.partition}); the table's metadata is damaged, roll it back to an earlier snapshot"
    )
