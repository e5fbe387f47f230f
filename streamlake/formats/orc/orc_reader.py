"""Reader of ORC data files, stripe by stripe."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
from pyarrow import orc

from streamlake.errors import FeatureUnsupportedError
from streamlake.formats.arrow.arrow_ids import field_id_of
from streamlake.formats.columns.file_batches import FileBatches, RowGroupFilter, Split, in_split, read_errors
from streamlake.formats.orc.orc_schema import schema_with_ids
from streamlake.spec.types.schema import Schema
from streamlake.storage.file_io import FileIO


def read_orc_file(
    io: FileIO,
    path: str,
    schema: Schema,
    *,
    with_ids: Callable[[pa.Schema], pa.Schema],
    batch_size: int,
    row_group_filter: RowGroupFilter | None,
    split: Split | None,
    use_threads: bool,
) -> FileBatches:
    """Batches of the wanted columns, each with the position of its first row in the file."""
    if not in_split(0, split):
        return
    with read_errors(path), io.open_input(path) as stream:
        file = orc.ORCFile(stream)
        if not file.nrows:
            return
        file_schema = with_ids(schema_with_ids(file.schema))
        wanted = {part.field_id for part in schema.fields}
        names = [part.name for part in file_schema if field_id_of(part) in wanted]
        fields = [part for part in file_schema if part.name in names]
        position = 0
        for at in range(file.nstripes):
            stripe = _stripe(file, at, names or file_schema.names[:1], path)
            columns = [stripe.column(part.name).cast(part.type) for part in fields]
            whole = (
                pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields)) if fields else stripe.select([])
            )
            for start in range(0, whole.num_rows, batch_size):
                batch = whole.slice(start, batch_size)
                yield position, batch
                position += batch.num_rows


def _stripe(file: orc.ORCFile, at: int, names: list[str], path: str) -> pa.RecordBatch:
    try:
        return file.read_stripe(at, columns=names)
    except pa.ArrowException as cause:
        if "nanosecond" in str(cause):
            raise FeatureUnsupportedError(
                f"{path}: the ORC file holds timestamps outside of the years 1677 to 2262, which pyarrow "
                "cannot read; rewrite the table as Parquet with another engine"
            ) from cause
        raise
