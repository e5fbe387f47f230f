"""Tables with rows in them, written without Spark."""

from __future__ import annotations

import pyarrow as pa

from streamlake import ids
from streamlake.formats.arrow.arrow_schema import schema_to_arrow
from streamlake.table.producers.append_files import AppendFiles
from streamlake.tables import LoadedTable
from streamlake.write.target.target import WriteTarget
from streamlake.write.task import write_rows


def rows_of(table: LoadedTable, rows: list[dict]) -> pa.Table:
    """Rows as an Arrow table of the table's schema."""
    return pa.Table.from_pylist(rows, schema=schema_to_arrow(table.schema))


def data_files(table: LoadedTable, rows: pa.Table | list[dict], **properties: str):
    """Write rows to data files that no snapshot has yet."""
    data = rows_of(table, rows) if isinstance(rows, list) else rows
    target = WriteTarget.for_table(
        table.metadata,
        io=table.table.io,
        job_id="job",
        checkpoint_id=0,
        operation_uuid=ids.new_uuid(),
        properties=properties,
    )
    return write_rows(target, data.to_batches(), 0, 0, 0).data_files


def append(table: LoadedTable, rows: pa.Table | list[dict], **properties: str):
    """Append rows as one snapshot and return it; the table is refreshed."""
    operation = AppendFiles(table.table)
    for file in data_files(table, rows, **properties):
        operation.append_file(file)
    snapshot = operation.commit()
    table.refresh()
    return snapshot
