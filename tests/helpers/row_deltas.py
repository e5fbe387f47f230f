"""Upserts by reading the whole table: positions found the slow and simple way, committed as row deltas.

For tests of what comes after the positions are known. Deletes are written as the table's format version has them and
take the place of those that are for one data file alone.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamlake import ids
from streamlake.formats.deletes.deletion_vectors import read_deletion_vector
from streamlake.formats.deletes.position_deletes import read_position_deletes
from streamlake.formats.readers import read_data_file
from streamlake.spec.metadata.data_file import DataFile, FileContent
from streamlake.table.producers.row_delta import RowDelta
from streamlake.table.table import Table
from streamlake.write.deletes.deleted_file import DeletedFile
from streamlake.write.deletes.deletion_vectors import write_deletion_vectors
from streamlake.write.deletes.position_deletes import write_position_deletes
from streamlake.write.target.output_files import OutputFiles
from streamlake.write.target.target import WriteTarget
from tests.helpers.batch_write import write_files
from tests.helpers.invariants import live_entries

Positions = np.ndarray[Any, np.dtype[np.int64]]


def row_delta(table: Table, gone: Collection[int], rows: pa.Table | None = None) -> RowDelta:
    """Rows whose `id` is in `gone` are deleted and `rows` added, onto the head as it is now; not committed yet."""
    table.refresh()
    head = table.current_snapshot
    delta = RowDelta(table).require_head(None if head is None else head.snapshot_id)
    for file in () if rows is None else write_files(table, rows).data_files:
        delta.add_rows(file)
    files = [entry.data_file for entry in live_entries(table)]
    deletes = [file for file in files if file.content == FileContent.POSITION_DELETES]
    known = _known_positions(table, deletes)
    positions: dict[DeletedFile, Positions] = {}
    for file in files:
        if not file.is_data:
            continue
        before = _union([found.get(file.file_path) for found in known])
        new = np.setdiff1d(_positions_of(table, file, gone), before)
        if not len(new):
            continue
        everything = np.union1d(before, new)
        if len(everything) == file.record_count:
            delta.remove_rows(file)
            continue
        delta.validate_data_files_exist([file.file_path])
        place = DeletedFile(file.file_path, file.spec_id, file.partition)
        positions[place] = new
        for delete, found in zip(deletes, known, strict=True):
            if delete.deletes_from == file.file_path:
                positions[place] = np.union1d(positions[place], found[file.file_path])
                delta.remove_deletes(delete)
            elif table.format_version >= 3 and file.file_path in found:
                positions[place] = np.union1d(positions[place], found[file.file_path])
    write = write_deletion_vectors if table.format_version >= 3 else write_position_deletes
    target = WriteTarget.for_table(
        table.metadata, io=table.io, job_id="deltas", checkpoint_id=0, operation_uuid=ids.new_uuid()
    )
    for file in write(target, OutputFiles(target, 0, 0, 0), positions):
        delta.add_deletes(file)
    return delta


def _known_positions(table: Table, deletes: list[DataFile]) -> list[dict[str, Positions]]:
    return [
        {file.referenced_data_file or "": read_deletion_vector(table.io, file)}
        if file.is_deletion_vector
        else dict(read_position_deletes(table.io, file))
        for file in deletes
    ]


def _union(parts: list[Positions | None]) -> Positions:
    found = [part for part in parts if part is not None]
    return np.unique(np.concatenate(found)) if found else np.empty(0, np.int64)


def _positions_of(table: Table, file: DataFile, gone: Collection[int]) -> Positions:
    schema = table.schema.select(["id"])
    batches = list(read_data_file(table.io, file.file_format, file.file_path, schema))
    values = pa.chunked_array([batch.column(0) for batch in batches], pa.int64())
    return np.flatnonzero(pc.is_in(values, pa.array(sorted(gone), pa.int64())).to_numpy(zero_copy_only=False))
