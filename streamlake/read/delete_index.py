"""Which delete files apply to which data file (spec: Scan Planning, the scope rules).

Built once per scan from the snapshot's live delete entries. Invariant: a delete file that applies to a data file is
always found; one whose file path bounds exclude the data file may be left out.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping

from streamlake.errors import DataInvalidError
from streamlake.formats.position_deletes import FILE_PATH_ID
from streamlake.spec.data_file import DataFile, FileContent
from streamlake.spec.manifest import ManifestEntry
from streamlake.spec.partition_spec import PartitionSpec
from streamlake.table.partition_keys import PartitionKey, partition_key


class DeleteFileIndex:
    """The delete files of one snapshot, by what they can apply to."""

    def __init__(self, specs: Mapping[int, PartitionSpec], entries: Iterable[ManifestEntry]) -> None:
        self._vectors: dict[str, ManifestEntry] = {}
        self._positions_by_path: defaultdict[str, list[ManifestEntry]] = defaultdict(list)
        self._positions: defaultdict[PartitionKey, list[ManifestEntry]] = defaultdict(list)
        self._equalities: defaultdict[PartitionKey, list[ManifestEntry]] = defaultdict(list)
        self._global_equalities: list[ManifestEntry] = []
        for entry in entries:
            self._add(entry, specs)

    def _add(self, entry: ManifestEntry, specs: Mapping[int, PartitionSpec]) -> None:
        file = entry.data_file
        if file.content == FileContent.EQUALITY_DELETES:
            if specs[file.spec_id].is_unpartitioned:
                self._global_equalities.append(entry)
            else:
                self._equalities[partition_key(file.spec_id, file.partition)].append(entry)
        elif file.is_deletion_vector:
            self._add_vector(entry)
        elif file.referenced_data_file is not None:
            self._positions_by_path[file.referenced_data_file].append(entry)
        else:
            self._positions[partition_key(file.spec_id, file.partition)].append(entry)

    def _add_vector(self, entry: ManifestEntry) -> None:
        file = entry.data_file
        target = file.referenced_data_file
        if target is None:
            raise DataInvalidError(
                f"{file.file_path}: a deletion vector without referenced_data_file; the table's metadata is damaged, "
                "roll it back to an earlier snapshot"
            )
        if target in self._vectors:
            raise DataInvalidError(
                f"{target} has two deletion vectors ({self._vectors[target].data_file.file_path} and {file.file_path}); "
                "a data file has at most one: the table's metadata is damaged, roll it back to an earlier snapshot"
            )
        self._vectors[target] = entry

    def deletes_of(self, data_file: DataFile, sequence_number: int | None) -> tuple[DataFile, ...]:
        """The delete files to apply to a data file with this data sequence number."""
        number = sequence_number or 0
        key = partition_key(data_file.spec_id, data_file.partition)
        equalities = [*self._global_equalities, *self._equalities.get(key, ())]
        found = [entry.data_file for entry in equalities if (entry.sequence_number or 0) > number]
        vector = self._vectors.get(data_file.file_path)
        if vector is not None and (vector.sequence_number or 0) >= number:
            return (*found, vector.data_file)
        by_path = self._positions_by_path.get(data_file.file_path, ())
        positions = [*by_path, *self._positions.get(key, ())]
        found += [
            entry.data_file
            for entry in positions
            if (entry.sequence_number or 0) >= number and _may_name(entry.data_file, data_file.file_path)
        ]
        return tuple(found)


def _may_name(delete_file: DataFile, path: str) -> bool:
    """False when the bounds of a position delete file's `file_path` column exclude `path`."""
    data = path.encode("utf-8")
    lower = (delete_file.lower_bounds or {}).get(FILE_PATH_ID)
    upper = (delete_file.upper_bounds or {}).get(FILE_PATH_ID)
    return (lower is None or lower <= data) and (upper is None or data <= upper)
