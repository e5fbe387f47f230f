"""Carried deletes: rows that others delete while files are rewritten are deleted from the new files as well.

A commit of a stream deletes by position: old file, position. The position map says where that row is now. An
old file may be gone altogether, because all its rows were deleted, or because somebody else rewrote it: then
the new files lose all of its rows. Called at each attempt of the commit, each delete file is read once.
Invariant: what is live after the compaction is what was live before it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np

from streamlake import ids
from streamlake.failpoints import failpoint
from streamlake.formats.deletes.deletion_vectors import read_deletion_vector
from streamlake.formats.deletes.position_deletes import merged_positions, read_position_deletes
from streamlake.maintain.compact.group_rewrite import JOB, RewrittenGroup
from streamlake.maintain.compact.position_map import PositionMap
from streamlake.spec.metadata.data_file import DataFile
from streamlake.spec.metadata.table_metadata import TableMetadata
from streamlake.table.table import Table
from streamlake.write.deletes.deleted_file import DeletedFile
from streamlake.write.deletes.deletion_vectors import write_deletion_vectors
from streamlake.write.deletes.position_deletes import write_position_deletes
from streamlake.write.target.output_files import OutputFiles
from streamlake.write.target.target import WriteTarget

Array = np.ndarray[Any, Any]


class CarriedDeletes:
    """The `CarryOver` of one commit of rewritten groups. `rows` counts the carried deletes."""

    def __init__(self, table: Table, groups: Sequence[RewrittenGroup]) -> None:
        self._table = table
        self._maps: dict[str, PositionMap] = {
            path: each.positions for each in groups for path in each.positions.moves
        }
        self._new = {file.file_path: file for each in groups for file in each.data_files}
        self._read: dict[tuple[str, int | None], dict[str, Array]] = {}
        self._outputs: list[OutputFiles] = []
        self.rows = 0

    def __call__(
        self, base: TableMetadata, added: Sequence[DataFile], gone: Collection[str]
    ) -> Sequence[DataFile]:
        """The delete files for the new files, for all deletes in `added` and all old files in `gone`."""
        parts: dict[str, list[Array]] = {}
        found = [self._carried(file) for file in added]
        found += [self._maps[path].all_of(path) for path in gone]
        for each in found:
            for path, positions in each.items():
                parts.setdefault(path, []).append(positions)
        deleted = {self._place(path): merged_positions(several) for path, several in parts.items()}
        self.rows = sum(map(len, deleted.values()))
        if not deleted:
            return ()
        target = WriteTarget.for_table(
            base, io=self._table.io, job_id=JOB, checkpoint_id=0, operation_uuid=ids.new_uuid()
        )
        output = OutputFiles(target, 0, 0, 0)
        self._outputs.append(output)
        write = write_deletion_vectors if base.format_version >= 3 else write_position_deletes
        files = write(target, output, deleted)
        failpoint("deletes-carried-over")
        return files

    def clean_up(self, *, committed: bool) -> None:
        """Delete what was written and is not committed: all, or all but that of the last call."""
        for output in self._outputs[:-1] if committed else self._outputs:
            output.delete_all()

    def _carried(self, file: DataFile) -> dict[str, Array]:
        """The positions of new files that a delete file of old ones stands for, by path."""
        if file.identity not in self._read:
            if file.is_deletion_vector:
                old = {file.referenced_data_file or "": read_deletion_vector(self._table.io, file)}
            else:
                old = read_position_deletes(self._table.io, file)
            found: dict[str, list[Array]] = {}
            for path, positions in old.items():
                moves = self._maps.get(path)
                for new, carried in ({} if moves is None else moves.carried(path, positions)).items():
                    found.setdefault(new, []).append(carried)
            self._read[file.identity] = {path: merged_positions(parts) for path, parts in found.items()}
        return self._read[file.identity]

    def _place(self, path: str) -> DeletedFile:
        file = self._new[path]
        return DeletedFile(path, file.spec_id, file.partition)
