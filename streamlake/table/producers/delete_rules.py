"""Rules for delete files of a commit: format version, partition, one deletion vector per data file.

Used by `RowDelta`, with the files of the commit itself and the manifests that it wrote. The table's
other manifests are not read, so the cost depends on the change alone. Spec: Delete Formats,
Deletion Vectors, Scan Planning.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from streamlake.errors import ConflictValidationError, DataInvalidError
from streamlake.spec.metadata.data_file import DataFile, FileContent
from streamlake.spec.metadata.manifest import ManifestFile
from streamlake.spec.metadata.partition_keys import PartitionKey, partition_key
from streamlake.table.manifests.manifest_files import ManifestFiles


def unfit(file: DataFile, format_version: int) -> str | None:
    """Why a table of this version cannot have such a delete file; None when it can."""
    if file.content == FileContent.EQUALITY_DELETES:
        return None if file.equality_ids else "it is an equality delete file without equality ids"
    if not file.is_deletion_vector:
        if format_version >= 3:
            return (
                f"a table of format version {format_version} takes deletion vectors, no new position delete "
                "files"
            )
        return None
    if format_version < 3:
        return f"a table of format version {format_version} takes position delete files, no deletion vectors"
    needed = (file.referenced_data_file, file.content_offset, file.content_size_in_bytes)
    return "it is a deletion vector without data file, offset or size" if None in needed else None


class NewDeletes:
    """The delete files of one commit, with its data files and its removals."""

    def __init__(self, added: Iterable[DataFile], removed: Iterable[DataFile]) -> None:
        self._removed = list(removed)
        self._data: dict[str, DataFile] = {}
        self.files: list[DataFile] = []
        for file in added:
            if file.is_data:
                self._data[file.file_path] = file
            else:
                self.files.append(file)
        self._targets = _targets(self.files)

    @property
    def vectors(self) -> dict[str, DataFile]:
        """The added deletion vectors by the path of their data file."""
        return {file.referenced_data_file or "": file for file in self.files if file.is_deletion_vector}

    def check(self, table: str) -> None:
        """Raises DataInvalidError when the commit contradicts itself, whatever the table holds."""
        vectors: dict[str, DataFile] = {}
        for file in self.files:
            target = file.deletes_from
            if (
                file.is_deletion_vector
                and target is not None
                and vectors.setdefault(target, file) is not file
            ):
                raise DataInvalidError(
                    f"{table}: this commit has two deletion vectors for {target}, in "
                    f"{vectors[target].file_path} and in {file.file_path}; merge them into one"
                )
        for file in self._removed:
            if file.is_data and file.file_path in self._targets:
                raise DataInvalidError(
                    f"{table}: {file.file_path} is removed by the commit that also deletes rows of it"
                    f" ({self._targets[file.file_path][0].file_path}); do one of both"
                )
            if file.is_data and file.file_path in self._data:
                raise DataInvalidError(f"{table}: {file.file_path} is both added and removed by this commit")
            if file.deletes_from is not None:
                self._require_same_place(file.deletes_from, file, table)
        for path, file in self._data.items():
            self._require_same_place(path, file, table)

    def check_written(self, manifests: Iterable[ManifestFile], files: ManifestFiles, table: str) -> None:
        """Check the manifests that the commit wrote, including entries merged into them.

        Raises ConflictValidationError for a second deletion vector, DataInvalidError for a delete file that
        is not in its data file's partition.
        """
        vectors = self.vectors
        for manifest in manifests if self._targets else ():
            for entry in files.written_entries(manifest):
                file = entry.data_file
                if file.file_path in self._targets and entry.is_live and file.is_data:
                    self._require_same_place(file.file_path, file, table)
                new = vectors.get(file.referenced_data_file or "")
                if (
                    new is not None
                    and entry.is_live
                    and file.is_deletion_vector
                    and new.identity != file.identity
                ):
                    raise ConflictValidationError(
                        f"{table}: {file.referenced_data_file} would have two deletion vectors, the one in "
                        f"{file.file_path} is not replaced; read the table again, merge both and redo the "
                        "change"
                    )

    def _require_same_place(self, path: str, other: DataFile, table: str) -> None:
        for file in self._targets.get(path, ()):
            if _place(file) != _place(other):
                raise DataInvalidError(
                    f"{table}: {file.file_path} deletes rows of {path}, but has partition {file.partition} "
                    f"of spec {file.spec_id}, not {other.partition} of spec {other.spec_id}; delete files "
                    "belong into their data file's partition"
                )


def _targets(deletes: Iterable[DataFile]) -> Mapping[str, list[DataFile]]:
    targets: dict[str, list[DataFile]] = {}
    for file in deletes:
        if file.deletes_from is not None:
            targets.setdefault(file.deletes_from, []).append(file)
    return targets


def _place(file: DataFile) -> PartitionKey:
    return partition_key(file.spec_id, file.partition)
