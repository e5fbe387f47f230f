"""Upgraded deletes: position deletes staged for format version 2, converted for a table of version 3.

Only those of the checkpoint's own data files: the rows of older files are looked up again. Invariant: the
same rows are deleted, and a data file of the checkpoint has one deletion vector (spec: Deletion Vectors).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from streamlake.formats.deletes.position_deletes import merged_positions, read_position_deletes
from streamlake.spec.metadata.data_file import DataFile, FileContent
from streamlake.table.producers.delete_rules import unfit
from streamlake.write.deletes.live_file import LiveFile
from streamlake.write.deletes.merged_deletes import merge_deletes
from streamlake.write.target.output_files import OutputFiles
from streamlake.write.target.target import WriteTarget

Array = Any  # numpy array


def outdated(files: Iterable[DataFile], format_version: int) -> bool:
    """Whether a table of this version refuses a delete file of `files` that an older version allows."""
    return any(_is_positions(file) and unfit(file, format_version) is not None for file in files)


def own_deletes(
    target: WriteTarget,
    files: Iterable[DataFile],
    number: int = 0,
    late: Mapping[str, Array] | None = None,
) -> tuple[DataFile, ...]:
    """The position deletes in `files` that apply to data files in `files`, in the form that `target` needs:
    as they are, or as new deletion vectors. Rows that came too `late` (path -> ascending positions) are
    deleted as well. `number` is the output's; `target` has no other output of that number.
    """
    files = list(files)
    data = {file.file_path: LiveFile(file) for file in files if file.is_data}
    deletes = [file for file in files if not file.is_data and file.content == FileContent.POSITION_DELETES]
    kept = [file for file in deletes if file.deletes_from in data]
    others = [file for file in deletes if file.deletes_from is None]  # those of older files are there too
    if outdated(deletes, target.format_version):
        kept, others = [], deletes
    parts: dict[str, list[Array]] = defaultdict(list)
    for file in others:
        for path, positions in read_position_deletes(target.io, file).items():
            if path in data:
                parts[path].append(positions)
    for path, positions in (late or {}).items():
        parts[path].append(positions)
    for path in parts:
        before = tuple(file for file in kept if file.deletes_from == path)
        data[path] = LiveFile(data[path].data_file, before)
    deleted = {path: merged_positions(found) for path, found in parts.items()}
    output = OutputFiles(target, number, 0, 0)
    merged = merge_deletes(target, output, deleted, data, keep_files=True)
    return (*(file for file in kept if file not in merged.removed), *merged.delete_files)


def _is_positions(file: DataFile) -> bool:
    return not file.is_data and file.content == FileContent.POSITION_DELETES and not file.is_deletion_vector
