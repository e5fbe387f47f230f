"""Writes positions of deleted rows to position delete files, for tables of version 2.

Spec: Position Delete Files. Rows are sorted by path and position, and every file carries the spec and
partition of the data files that it deletes from. With the granularity "file" a delete file belongs to one
data file, so that a later one can replace it; with "partition" it serves many, up to the target size.
Invariant: a file that deletes from one data file names it in `referenced_data_file` and has exact bounds; one
that deletes from several has no bounds at all, as in Iceberg.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from streamlake.errors import DataInvalidError, FeatureUnsupportedError
from streamlake.failpoints import failpoint
from streamlake.formats.arrow.arrow_schema import schema_to_arrow
from streamlake.formats.columns.metrics_config import FULL, MetricsOptions
from streamlake.formats.data_files import DataWriters
from streamlake.formats.deletes.position_deletes import POSITION_DELETES, Positions, merged_positions
from streamlake.spec.metadata.data_file import DataFile, FileContent
from streamlake.write.deletes.deleted_file import DeletedFile
from streamlake.write.files.open_content import OpenContent
from streamlake.write.files.rolling import RollingWriter
from streamlake.write.target.options import PER_FILE, DeleteOptions
from streamlake.write.target.output_files import OutputFiles
from streamlake.write.target.target import WriteTarget

_ARROW_SCHEMA = schema_to_arrow(POSITION_DELETES)
_ROWS_AT_ONCE = 1 << 16
_ROW_GROUP_BYTES = 64 << 20


class PositionDeleteContent(OpenContent):
    """One open position delete file of one partition. Rows must come sorted by path and position."""

    def __init__(
        self, writers: DataWriters, path: str, file_format: str, spec_id: int, partition: tuple[Any, ...]
    ) -> None:
        super().__init__(writers, path, file_format, spec_id, partition)
        self._first: str | None = None
        self._last: str | None = None

    def write(self, rows: pa.Table) -> None:
        """Take rows of POSITION_DELETES."""
        if rows.num_rows:
            self._first = self._first or rows.column(0)[0].as_py()
            self._last = rows.column(0)[-1].as_py()
            self._writer.write(rows)

    def close(self) -> DataFile:
        """Finish the file and describe it, with its referenced data file where there is only one."""
        metrics = replace(
            self._writer.close(), value_counts=None, null_value_counts=None, nan_value_counts=None
        )
        failpoint("delete-file-closed")
        one = self._first if self._first == self._last else None
        if one is None:
            metrics = replace(metrics, lower_bounds=None, upper_bounds=None)
        return replace(self._described(FileContent.POSITION_DELETES, metrics), referenced_data_file=one)


def write_position_deletes(
    target: WriteTarget,
    output: OutputFiles,
    positions: Mapping[DeletedFile, Positions],
    granularity: str | None = None,
) -> tuple[DataFile, ...]:
    """Write the positions (in any order) of each data file. No data files make no file.

    `granularity` is "file" or "partition"; None: the table's. Raises FeatureUnsupportedError when
    the table's format version is not 2, DataInvalidError for a data file without positions or
    with a negative one, StorageError.
    """
    if target.format_version != 2:
        raise FeatureUnsupportedError(
            f"{target.location}: position delete files are not written to a table of format version "
            f"{target.format_version}; version 1 has no deletes, version 3 has deletion vectors instead"
        )
    options = target.options.delete
    if granularity is not None:
        options = replace(options, granularity=granularity)
    writers = _data_writers(target, options)
    files: list[DataFile] = []
    for group in _groups(positions, options.granularity):
        files += _write_group(target, output, writers, options, group, positions)
    return tuple(files)


def _data_writers(target: WriteTarget, options: DeleteOptions) -> DataWriters:
    # Paths are long and alike: a row group of the usual size would hold far more
    # of them in memory than on disk.
    row_group_bytes = min(options.format.parquet_row_group_size_bytes, _ROW_GROUP_BYTES)
    exact = replace(
        options.format,
        metrics=MetricsOptions(default=FULL),
        parquet_row_group_size_bytes=row_group_bytes,
    )
    return DataWriters(options.file_format, target.io, POSITION_DELETES, exact)


def _groups(files: Iterable[DeletedFile], granularity: str) -> list[list[DeletedFile]]:
    """The data files whose deletes go together, sorted by path."""
    ordered = sorted(files, key=lambda each: each.file_path)
    if granularity == PER_FILE:
        return [[file] for file in ordered]
    groups: dict[tuple[int, tuple[Any, ...]], list[DeletedFile]] = {}
    for file in ordered:
        # As text, NaN is one partition, and -0.0 differs from 0.0.
        key = tuple(repr(value) if isinstance(value, float) else value for value in file.partition)
        groups.setdefault((file.spec_id, key), []).append(file)
    return list(groups.values())


def _write_group(
    target: WriteTarget,
    output: OutputFiles,
    writers: DataWriters,
    options: DeleteOptions,
    group: list[DeletedFile],
    positions: Mapping[DeletedFile, Positions],
) -> tuple[DataFile, ...]:
    first = group[0]
    open_file = partial(_open_file, target, output, writers, options.file_format, first)
    if options.granularity == PER_FILE:
        content = open_file()
        try:
            for rows in _rows(first, positions[first]):
                content.write(rows)
            return (content.close(),)
        except BaseException:
            content.abort()
            raise
    rolling = RollingWriter(open_file, options.target_file_size_bytes)
    try:
        for file in group:
            for rows in _rows(file, positions[file]):
                rolling.write(rows)
        return rolling.close()
    except BaseException:
        rolling.abort()
        raise


def _open_file(
    target: WriteTarget, output: OutputFiles, writers: DataWriters, file_format: str, file: DeletedFile
) -> PositionDeleteContent:
    path = output.new_delete_path(target.spec_by_id(file.spec_id), file.partition, file_format)
    return PositionDeleteContent(writers, path, file_format, file.spec_id, file.partition)


def _rows(file: DeletedFile, positions: Positions) -> Iterator[pa.Table]:
    ordered = merged_positions([np.asarray(positions, dtype=np.int64)])
    if not len(ordered):
        raise DataInvalidError(
            f"{file.file_path}: position deletes without a position; write none for this file"
        )
    if ordered[0] < 0:
        raise DataInvalidError(f"{file.file_path}: position {ordered[0]} is negative")
    paths = pa.repeat(pa.scalar(file.file_path, pa.string()), min(_ROWS_AT_ONCE, len(ordered)))
    for start in range(0, len(ordered), _ROWS_AT_ONCE):
        part = ordered[start : start + _ROWS_AT_ONCE]
        yield pa.Table.from_arrays([paths.slice(0, len(part)), pa.array(part)], schema=_ARROW_SCHEMA)
