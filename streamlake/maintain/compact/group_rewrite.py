"""The rewrite of one file group: its live rows, in order, into new files, with a map of their positions.

Rows stream from the readers through one batch after the other into rolling writers, so memory depends on
neither the number nor the size of the files. Rows of tables of format version 3 keep their ids and the
sequence numbers of their last change (spec: Row Lineage). Invariant: every live row is written exactly once,
and an attempt that fails leaves no file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from streamlake.ahead import in_order
from streamlake.errors import StreamlakeError
from streamlake.failpoints import failpoint
from streamlake.formats.columns.lineage_columns import LAST_UPDATED_SEQUENCE_NUMBER, ROW_ID, ROW_POSITION
from streamlake.formats.columns.name_mapping import NameMapping
from streamlake.maintain.compact.compact_options import CompactOptions
from streamlake.maintain.compact.file_groups import FileGroup
from streamlake.maintain.compact.position_map import MovesRecorder, PositionMap
from streamlake.maintain.compact.sorted_rows import sorted_rows
from streamlake.read.column_selection import select_columns
from streamlake.read.deletes import DeleteReader
from streamlake.read.file_rows import FileRows
from streamlake.read.planning import FileScanTask
from streamlake.spec.metadata.data_file import DataFile
from streamlake.spec.partitioning.sort_order import UNSORTED, SortOrder
from streamlake.spec.types.schema import Schema
from streamlake.storage.file_io import FileIO
from streamlake.table.table import Table
from streamlake.write.files.placed_writer import PlacedWriter
from streamlake.write.rows.partitioner import Partitioner
from streamlake.write.rows.sort import RowSorter
from streamlake.write.target.output_files import OutputFiles
from streamlake.write.target.target import WriteTarget
from streamlake.write.task_writer import data_file_opener, task_errors

JOB = "compaction"
_POSITION = ROW_POSITION.name
_FILE = "__streamlake_file"
_BATCH_BYTES = 8 * 1024 * 1024
_MOST_ROWS, _FEWEST_ROWS = 65_536, 16
_IN_MEMORY = 8
"""About how many bytes in memory a byte of a data file becomes."""
_READERS = 2
_PARTS_PER_FILE = 8


@dataclass(frozen=True)
class RewrittenGroup:
    """A group with the data files that were written for it; `rows` counts their rows."""

    group: FileGroup
    data_files: tuple[DataFile, ...]
    positions: PositionMap

    @property
    def rows(self) -> int:
        """The rows of the new files."""
        return sum(file.record_count for file in self.data_files)

    @property
    def bytes(self) -> int:
        """The bytes of the new files."""
        return sum(file.file_size_in_bytes for file in self.data_files)


@dataclass(frozen=True)
class GroupRewrite:
    """What the rewrite of any group of one compaction needs. Can be sent to other processes.

    `schemas`: the current one first. The target's spec is that of the output, its sort order the one that
    rows are sorted by (unsorted: they keep their order).
    """

    io: FileIO
    schemas: tuple[Schema, ...]
    name_mapping: str | None
    target: WriteTarget
    options: CompactOptions

    @staticmethod
    def of(
        table: Table, options: CompactOptions, sort_order: SortOrder | None, operation_uuid: str
    ) -> GroupRewrite:
        """The rewrite for a table at its present version. `sort_order` None: rows keep their order."""
        target = WriteTarget.for_table(
            table.metadata, io=table.io, job_id=JOB, checkpoint_id=0, operation_uuid=operation_uuid
        )
        spec = table.metadata.spec_by_id(options.output_spec_id)
        schema = target.schema
        if target.format_version >= 3:
            schema = replace(schema, fields=(*schema.fields, ROW_ID, LAST_UPDATED_SEQUENCE_NUMBER))
        target = replace(target, schema=schema, spec=spec, sort_order=sort_order or UNSORTED)
        others = sorted(table.schemas.values(), key=lambda each: -each.schema_id)
        return GroupRewrite(table.io, (table.schema, *others), target.name_mapping, target, options)

    def rewrite(
        self,
        group: FileGroup,
        on_file: Callable[[], None] = lambda: None,
        is_stopped: Callable[[], bool] = lambda: False,
    ) -> RewrittenGroup:
        """Write a group's live rows. `on_file` is called after each old file.

        Raises DataInvalidError, StorageError, FeatureUnsupportedError; StreamlakeError when stopped.
        """
        output = OutputFiles(self.target, group.number, 0, 0)
        writer = self._writer(group, output)
        moves = MovesRecorder()
        ends = iter(range(1, group.output_files))
        end = next(ends, None)
        try:
            with task_errors(self.target, group.number, 0):
                for rows, share in self._rows(group, on_file):
                    if is_stopped():
                        raise StreamlakeError(f"{self.target.location}: the compaction was stopped")
                    numbers, old = rows.column(_FILE).to_numpy(), rows.column(_POSITION).to_numpy()
                    places = writer.write(rows.drop_columns([_FILE, _POSITION]))
                    moves.add_mixed(numbers, old, places.files, places.positions)
                    if end is not None and share * group.output_files >= end and not group.moves:
                        writer.roll()
                        end = next(ends, None)
                files = writer.close()
            failpoint("file-group-rewritten")
        except BaseException:
            writer.abort()
            output.delete_all()
            raise
        by_path = {file.file_path: file for file in files}
        written = [by_path[path] for path in writer.paths]
        old_paths = [file.file_path for file in group.files]
        return RewrittenGroup(
            group, tuple(written), moves.map(old_paths, [file.file_path for file in written])
        )

    def _writer(self, group: FileGroup, output: OutputFiles) -> PlacedWriter:
        target, options = self.target, self.options
        open_file, _ = data_file_opener(target, output)
        spread = group.moves and not target.spec.is_unpartitioned
        stays = (None,) * len(target.spec.fields) if group.moves else group.files[0].partition
        return PlacedWriter(
            Partitioner(target.schema, target.spec) if spread else None,
            open_file,
            unpartitioned=stays,
            target_bytes=options.target_file_size if group.moves else options.largest_output,
            buffer_bytes=target.options.memory_budget_bytes // 2,
            max_open_files=target.options.max_open_files,
        )

    def _rows(self, group: FileGroup, on_file: Callable[[], None]) -> Iterator[tuple[pa.Table, float]]:
        """Live rows with the number of their old file and their position; and the share that is done."""
        order = self.target.sort_order
        if order.is_unsorted:
            yield from self._in_file_order(group, on_file)
            return
        tables = (rows for rows, _ in self._in_file_order(group, on_file))
        counted = _Counted(tables)
        done = 0
        for rows in sorted_rows(counted, RowSorter(self.target.schema, order)):
            done += rows.num_rows
            yield rows, done / counted.rows

    def _in_file_order(
        self, group: FileGroup, on_file: Callable[[], None]
    ) -> Iterator[tuple[pa.Table, float]]:
        reader = self._reader(group)
        before, total = 0, max(1, group.bytes)

        def read(item: tuple[int, FileScanTask]) -> Iterator[tuple[int, pa.RecordBatch]]:
            for batch in reader.read(item[1]):
                yield item[0], batch

        current = 0
        for number, batch in in_order(enumerate(group.tasks), read, workers=min(_READERS, len(group.tasks))):
            while current < number:
                before += group.tasks[current].data_file.file_size_in_bytes
                current += 1
                on_file()
            file = group.tasks[number].data_file
            reached = (batch.column(_POSITION)[-1].as_py() + 1) / max(1, file.record_count)
            rows = pa.Table.from_batches([batch])
            numbers = pa.array(np.full(batch.num_rows, number, dtype=np.int32))
            yield rows.append_column(_FILE, numbers), (before + reached * file.file_size_in_bytes) / total
        for _ in range(current, len(group.tasks)):
            on_file()

    def _reader(self, group: FileGroup) -> FileRows:
        mapping = None if self.name_mapping is None else NameMapping.from_json(self.name_mapping)
        lineage = self.target.schema.fields[len(self.schemas[0].fields) :]
        columns = ("*", _POSITION, *(part.name for part in lineage))
        deletes = DeleteReader(self.io, self.schemas, mapping)
        return FileRows(
            self.io, select_columns(self.schemas[0], columns), deletes, mapping, _batch_rows(group)
        )


class _Counted:
    """Counts the rows of tables while they are taken."""

    def __init__(self, tables: Iterator[pa.Table]) -> None:
        self._tables = tables
        self.rows = 0

    def __iter__(self) -> Iterator[pa.Table]:
        for table in self._tables:
            self.rows += table.num_rows
            yield table


def _batch_rows(group: FileGroup) -> int:
    """How many rows are read at a time: few of wide rows, and a fraction of those of a new file."""
    rows = max(1, group.rows)
    fits = _BATCH_BYTES * rows // max(1, group.bytes * _IN_MEMORY)
    share = max(1_000, rows // (group.output_files * _PARTS_PER_FILE))
    return max(_FEWEST_ROWS, min(_MOST_ROWS, fits, share))
