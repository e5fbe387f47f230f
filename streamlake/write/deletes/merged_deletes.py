"""Merges newly deleted positions with older ones: one deletion vector or position delete file per data file.

In version 2 with the granularity "partition" it writes one file with the new positions per partition
instead. Done by the task that owns a data file, and by the driver for files in which several tasks
found rows. Invariants: a data file ends with at most one deletion vector, which holds every position
that was ever deleted from it; a data file without live rows is removed instead (spec: Deletion
Vectors; Position Delete Files).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from streamlake.formats.deletes.deletion_vectors import read_deletion_vector
from streamlake.formats.deletes.position_deletes import merged_positions, read_position_deletes
from streamlake.spec.metadata.data_file import DataFile
from streamlake.storage.file_io import FileIO
from streamlake.write.deletes.deleted_file import DeletedFile
from streamlake.write.deletes.deletion_vectors import write_deletion_vectors
from streamlake.write.deletes.live_file import LiveFile
from streamlake.write.deletes.position_deletes import write_position_deletes
from streamlake.write.target.options import PER_FILE, PER_PARTITION
from streamlake.write.target.output_files import OutputFiles
from streamlake.write.target.target import WriteTarget

Array = Any  # numpy array


@dataclass(frozen=True)
class MergedDeletes:
    """The outcome of merging deletes.

    `delete_files` replace the delete files that are in `removed`. The data files in `removed` have no live
    row left. `rows` counts the rows that were live before.
    """

    delete_files: tuple[DataFile, ...] = ()
    removed: tuple[DataFile, ...] = ()
    rows: int = 0


def merge_deletes(
    target: WriteTarget,
    output: OutputFiles,
    deleted: Mapping[str, Array],
    files: Mapping[str, LiveFile],
    *,
    keep_files: bool = False,
) -> MergedDeletes:
    """Write the deletes of `deleted` (path -> ascending positions, each once) for the data files in `files`.

    With `write.delete.granularity=partition` a table of version 2 gets one delete file per partition beside
    the older ones. `keep_files`: a file without a live row stays, because it is only being added. Raises
    DataInvalidError for a damaged delete file, StorageError.
    """
    if target.format_version < 3 and target.options.delete.granularity == PER_PARTITION:
        return _beside_others(target, output, deleted, files, keep_files=keep_files)
    written: dict[DeletedFile, Array] = {}
    removed: list[DataFile] = []
    rows = 0
    for path, positions in deleted.items():
        live = files[path]
        before, own = _deleted(target.io, live)
        together = merged_positions([before, positions])
        if len(together) == len(before):
            continue
        rows += len(together) - len(before)
        file = live.data_file
        if len(together) == file.record_count and not keep_files:
            removed.append(file)
        else:
            # Version 2 leaves delete files that are shared with other data files in
            # place, and so their positions.
            new = together if target.format_version >= 3 else merged_positions([own, positions])
            written[DeletedFile(path, file.spec_id, file.partition)] = new
        removed += _replaced(live)
    if target.format_version >= 3:
        delete_files = write_deletion_vectors(target, output, written)
    else:
        delete_files = write_position_deletes(target, output, written, granularity=PER_FILE)
    return MergedDeletes(delete_files, tuple(removed), rows)


def _beside_others(
    target: WriteTarget,
    output: OutputFiles,
    deleted: Mapping[str, Array],
    files: Mapping[str, LiveFile],
    *,
    keep_files: bool,
) -> MergedDeletes:
    """Write delete files for whole partitions. They replace no other, so older deletes are not read."""
    written: dict[DeletedFile, Array] = {}
    removed: list[DataFile] = []
    for path, positions in deleted.items():
        live = files[path]
        file = live.data_file
        if len(positions) == file.record_count and not keep_files:
            removed += [file, *_replaced(live)]
        elif len(positions):
            written[DeletedFile(path, file.spec_id, file.partition)] = positions
    delete_files = write_position_deletes(target, output, written, granularity=PER_PARTITION)
    return MergedDeletes(delete_files, tuple(removed), sum(map(len, deleted.values())))


def _replaced(live: LiveFile) -> list[DataFile]:
    """The delete files that apply to this data file alone, which a new one replaces."""
    return [file for file in live.delete_files if file.deletes_from is not None]


def deleted_before(io: FileIO, live: LiveFile) -> Array:
    """The positions of a data file that are deleted so far, ascending, each once."""
    return _deleted(io, live)[0]


def _deleted(io: FileIO, live: LiveFile) -> tuple[Array, Array]:
    """All positions deleted so far, and those of them in delete files of this data file alone."""
    path = live.data_file.file_path
    shared: list[Array] = []
    own: list[Array] = []
    for file in live.delete_files:
        if file.is_deletion_vector:
            own.append(read_deletion_vector(io, file))
        else:
            found = read_position_deletes(io, file).get(path)
            if found is not None:
                (shared if file.deletes_from is None else own).append(found)
    return merged_positions([*shared, *own]), merged_positions(own)
