"""The entry point for reading data files of any format, as Arrow batches of a projected table schema.

It is called once per file (or per split of one). It does not apply deletes; with `_pos` in the projection its
caller can. Invariant: batches come in file order, and a row is left out only when `row_filter` is not true
for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from streamlake.errors import FeatureUnsupportedError
from streamlake.formats.avro.avro_data import read_avro_file
from streamlake.formats.columns.column_projection import Projection
from streamlake.formats.columns.file_batches import FileBatches, RowGroupFilter, Split
from streamlake.formats.columns.lineage_columns import LineageColumns, RowLineage, stored_schema
from streamlake.formats.columns.name_mapping import NameMapping, with_field_ids
from streamlake.formats.orc.orc_reader import read_orc_file
from streamlake.formats.parquet.parquet_reader import read_parquet_file
from streamlake.spec.types.schema import Schema
from streamlake.storage.file_io import FileIO

DEFAULT_BATCH_ROWS = 65_536

_READERS: dict[str, Callable[..., FileBatches]] = {
    "parquet": read_parquet_file,
    "avro": read_avro_file,
    "orc": read_orc_file,
}


def read_data_file(  # noqa: PLR0913
    io: FileIO,
    file_format: str,
    path: str,
    schema: Schema,
    *,
    name_mapping: NameMapping | None = None,
    row_filter: pc.Expression | None = None,
    row_group_filter: RowGroupFilter | None = None,
    batch_size: int = DEFAULT_BATCH_ROWS,
    constants: Mapping[int, Any] | None = None,
    lineage: RowLineage | None = None,
    split: Split | None = None,
    use_threads: bool = False,
) -> Iterator[pa.RecordBatch]:
    """Read a data file as batches of `schema`.

    `schema` is the projection: fields by id, nested ones too, and reserved metadata columns where wanted.
    `name_mapping` serves files without field ids. `row_filter` refers to the projected columns.
    `row_group_filter` gets the statistics of each Parquet row group as a DataFile and decides whether to read
    it. `constants` holds identity partition values by source field id, for columns that the file lacks.
    `split` (offset, length in bytes) restricts the read to row groups or ORC stripes that start inside of it;
    an Avro file belongs to the split at its start.

    Raises DataInvalidError for a damaged file or one that contradicts the schema, StorageError when it cannot
    be read.
    """
    reader = _READERS.get(file_format.lower())
    if reader is None:
        raise FeatureUnsupportedError(f"{path}: data files in the format {file_format!r} are not read")
    stored = stored_schema(schema)

    def with_ids(file_schema: pa.Schema) -> pa.Schema:
        return with_field_ids(file_schema, name_mapping, path)

    batches = reader(
        io,
        path,
        stored,
        with_ids=with_ids,
        batch_size=batch_size,
        row_group_filter=row_group_filter,
        split=split,
        use_threads=use_threads,
    )
    lines = LineageColumns(schema, path, lineage or RowLineage())
    projection: Projection | None = None
    for position, batch in batches:
        if projection is None:
            projection = Projection(with_ids(batch.schema), stored, path, constants)
        projected = lines.fill(projection.apply(batch), position)
        if row_filter is not None:
            projected = projected.filter(row_filter)
        if projected.num_rows:
            yield projected
