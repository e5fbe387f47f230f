"""Other writers of a table, between our checkpoints and during them: each opens the table anew and commits once."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamlake import ids
from streamlake.catalog.open import open_table
from streamlake.commit.marker import JOB_ID
from streamlake.pipeline.key_index.covered import live_tasks
from streamlake.spec.metadata.data_file import DataFile
from streamlake.spec.metadata.table_metadata import TableMetadata
from streamlake.spec.partitioning.partition_spec import PartitionField, PartitionSpec, parse_partition_by
from streamlake.table.producers.overwrite_files import OverwriteFiles
from streamlake.table.producers.row_delta import RowDelta
from streamlake.table.table import Table
from streamlake.table.updates.manage_refs import ManageRefs
from streamlake.table.updates.metadata_changes import changed
from streamlake.table.updates.metadata_update import commit_metadata
from streamlake.table.updates.update_properties import UpdateProperties
from streamlake.tables import LoadedTable
from streamlake.write.deletes.deleted_file import DeletedFile
from streamlake.write.deletes.live_file import LiveFile
from streamlake.write.deletes.merged_deletes import merge_deletes
from streamlake.write.deletes.position_deletes import write_position_deletes
from streamlake.write.target.output_files import OutputFiles
from streamlake.write.target.target import WriteTarget
from tests.helpers.batch_write import append, write_files


def append_rows(location: str, rows: pa.Table) -> None:
    append(open_table(location), rows)


def compact(location: str, chosen: Callable[[int], bool], *, by_row_delta: bool = False) -> None:
    """The live rows of some data files (by their number in order of path) go into new files."""
    table = open_table(location)
    files = {path: task.data_file for path, task in live_tasks(table, table.current_snapshot).items()}
    old = [path for at, path in enumerate(sorted(files)) if chosen(at)]
    if not old:
        return
    rows = LoadedTable(table).scan(columns=["*", "_file"]).to_arrow()
    live = rows.filter(pc.is_in(rows.column("_file"), pa.array(old))).drop_columns(["_file"])
    new: Sequence[DataFile] = write_files(table, live).data_files if live.num_rows else ()
    if by_row_delta:
        delta = RowDelta(table).require_head(_head(table))
        for path in old:
            delta.remove_rows(files[path])
        for file in new:
            delta.add_rows(file)
        delta.commit()
        return
    overwrite = OverwriteFiles(table)
    for path in old:
        overwrite.delete_file(files[path])
    for file in new:
        overwrite.add_file(file)
    overwrite.commit()


def delete_rows(
    location: str, numbers: Collection[int], *, shared: bool = False, column: str = "number"
) -> None:
    """Rows with these values in `column` are deleted by position; where the format has no deletion vectors and with
    `shared`, one delete file holds the positions of many data files."""
    table = open_table(location)
    rows = LoadedTable(table).scan(columns=[column, "_file", "_pos"]).to_arrow()
    gone = rows.filter(pc.is_in(rows.column(column), pa.array(sorted(numbers), pa.int64())))
    if not gone.num_rows:
        return
    parts: dict[str, list[int]] = {}
    for path, position in zip(gone["_file"].to_pylist(), gone["_pos"].to_pylist(), strict=True):
        parts.setdefault(path, []).append(position)
    positions = {path: np.array(sorted(part), np.int64) for path, part in parts.items()}
    target = WriteTarget.for_table(
        table.metadata, io=table.io, job_id="foreign", checkpoint_id=0, operation_uuid=ids.new_uuid()
    )
    output = OutputFiles(target, 0, 0, 0)
    delta = RowDelta(table).require_head(_head(table))
    tasks = live_tasks(table, table.current_snapshot)
    if shared and table.format_version < 3:
        places: Mapping[DeletedFile, np.ndarray] = {
            DeletedFile(path, tasks[path].data_file.spec_id, tasks[path].data_file.partition): part
            for path, part in positions.items()
        }
        for file in write_position_deletes(target, output, places, granularity="partition"):
            delta.add_deletes(file)
    else:
        live = {
            path: LiveFile(task.data_file, tuple(file for file in task.delete_files if not _by_key(file)))
            for path, task in tasks.items()
        }
        merged = merge_deletes(target, output, positions, live)
        for file in merged.delete_files:
            delta.add_deletes(file)
        for file in merged.removed:
            if file.is_data:
                delta.remove_rows(file)
            else:
                delta.remove_deletes(file)
    delta.commit()


def roll_back(location: str) -> int | None:
    """To the newest snapshot that a stream made, or the oldest there is; its id, None: the table is there already."""
    table = open_table(location)
    target = None
    for target in table.metadata.ancestors(table.metadata.current_snapshot_id):
        if JOB_ID in target.summary:
            break
    if target is None or target.snapshot_id == table.metadata.current_snapshot_id:
        return None
    ManageRefs(table).set_branch("main", target.snapshot_id).commit()
    return target.snapshot_id


def evolve(location: str, partition_by: Sequence[str]) -> None:
    """The table gets a partition spec, one that it had before if it is the same."""

    def change(base: TableMetadata) -> TableMetadata:
        wanted = parse_partition_by(list(partition_by), base.schema)
        known = {(part.source_id, str(part.transform)): part for spec in base.specs for part in spec.fields}
        fields: list[PartitionField] = []
        last = base.last_partition_id
        for part in wanted.fields:
            same = known.get((part.source_id, str(part.transform)))
            if same is None:
                last += 1
            fields.append(same or replace(part, field_id=last))
        for spec in base.specs:
            if spec.fields == tuple(fields):
                return changed(base, default_spec_id=spec.spec_id)
        spec = PartitionSpec(max(each.spec_id for each in base.specs) + 1, tuple(fields))
        return changed(base, specs=(*base.specs, spec), default_spec_id=spec.spec_id, last_partition_id=last)

    commit_metadata(open_table(location), change)


def upgrade(location: str) -> None:
    """To format version 3."""
    table = open_table(location)
    if table.format_version < 3:
        UpdateProperties(table).upgrade_format_version(3).commit()


def _by_key(file: DataFile) -> bool:
    return file.equality_ids is not None


def _head(table: Table) -> int | None:
    return None if table.current_snapshot is None else table.current_snapshot.snapshot_id
