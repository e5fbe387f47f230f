"""Write targets for tests, and the way back from files to rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from streamlake.formats.arrow.arrow_schema import schema_to_arrow
from streamlake.spec.metadata.data_file import DataFile
from streamlake.spec.partitioning.partition_spec import UNPARTITIONED, parse_partition_by
from streamlake.spec.partitioning.sort_order import UNSORTED, parse_sort_by
from streamlake.spec.types.ddl import parse_ddl
from streamlake.storage.local import LocalFileIO
from streamlake.storage.locations import TableLocations
from streamlake.write.files.result import WriteResult
from streamlake.write.target.options import WriteOptions
from streamlake.write.target.target import WriteTarget
from streamlake.write.task import write_rows

DDL = "id long, category string, amount double, ts timestamp_ntz"


def make_target(
    location: Path,
    ddl: str = DDL,
    *,
    partition_by: Iterable[str] = (),
    sort_by: Iterable[str] = (),
    properties: dict[str, str] | None = None,
    **fields: Any,
) -> WriteTarget:
    schema = parse_ddl(ddl)
    given: dict[str, Any] = {"job_id": "job", "checkpoint_id": 7, "operation_uuid": "operation", **fields}
    return WriteTarget(
        locations=TableLocations(str(location), properties or {}),
        io=LocalFileIO(),
        schema=schema,
        spec=parse_partition_by(list(partition_by), schema) if partition_by else UNPARTITIONED,
        sort_order=parse_sort_by(list(sort_by), schema) if sort_by else UNSORTED,
        options=WriteOptions.from_properties(properties or {}),
        **given,
    )


def write(target: WriteTarget, rows: pa.Table | list[dict[str, Any]], batch_rows: int = 1000) -> WriteResult:
    if isinstance(rows, list):
        rows = pa.Table.from_pylist(rows, schema=schema_to_arrow(target.schema))
    return write_rows(target, rows.to_batches(max_chunksize=batch_rows), 3, 11, 0)


def read(file: DataFile) -> pa.Table:
    return pq.ParquetFile(file.file_path).read()


def read_all(files: Iterable[DataFile]) -> pa.Table:
    return pa.concat_tables([read(file) for file in files])


def paths_under(directory: Path) -> list[str]:
    return sorted(str(path.relative_to(directory)) for path in directory.rglob("*") if path.is_file())


def batches_of(*batches: pa.RecordBatch, then: Exception | None = None) -> Iterator[pa.RecordBatch]:
    """Batches, and then perhaps an error, as an input that breaks."""
    yield from batches
    if then is not None:
        raise then
