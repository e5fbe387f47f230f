"""Reader of Parquet data files.

Row groups are pruned by split and by statistics; columns are chosen by field id.
"""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pyarrow.parquet as pq

from streamlake.formats.arrow.arrow_ids import arrow_parts, field_id_of
from streamlake.formats.columns.column_projection import selected_fields
from streamlake.formats.columns.file_batches import FileBatches, RowGroupFilter, Split, in_split, read_errors
from streamlake.formats.columns.leaves import Leaf
from streamlake.formats.columns.metrics import bound_bytes
from streamlake.formats.columns.metrics_config import FULL
from streamlake.formats.parquet.parquet_metrics import footer_stats, row_group_start
from streamlake.spec.metadata.data_file import DataFile, FileContent
from streamlake.spec.types.data_types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    LongType,
    PrimitiveType,
    StringType,
    StructType,
    TimestampNsType,
    TimestampType,
    TimestamptzNsType,
    TimestamptzType,
    TimeType,
)
from streamlake.spec.types.schema import Schema
from streamlake.storage.file_io import FileIO


def read_parquet_file(
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
    with read_errors(path), io.open_input(path) as stream:
        file = pq.ParquetFile(stream, coerce_int96_timestamp_unit="us", pre_buffer=True)
        footer = file.metadata
        file_schema = with_ids(file.schema_arrow)
        columns = selected_fields(file_schema, schema)
        wanted = row_group_pruning(footer, file_schema, schema, path, row_group_filter)
        position = 0
        for at in range(footer.num_row_groups):
            group = footer.row_group(at)
            first, position = position, position + group.num_rows
            if not group.num_rows or not in_split(row_group_start(group), split):
                continue
            if not wanted(at):
                continue
            for batch in file.iter_batches(
                batch_size=batch_size, row_groups=[at], columns=columns, use_threads=use_threads
            ):
                yield first, batch
                first += batch.num_rows


def row_group_pruning(
    footer: pq.FileMetaData,
    file_schema: pa.Schema,
    schema: Schema,
    path: str,
    row_group_filter: RowGroupFilter | None,
) -> Callable[[int], bool]:
    """A test whether a row group, by number, may hold wanted rows; `file_schema` has field ids."""
    if row_group_filter is None:
        return lambda at: True
    prunable = _prunable_leaves(file_schema, schema)
    return lambda at: row_group_filter(_described(footer, at, prunable, path))


def _described(footer: pq.FileMetaData, at: int, leaves: list[Leaf], path: str) -> DataFile:
    """The statistics of one row group as a manifest entry, for the evaluators of whole files."""
    values: dict[int, int] = {}
    nulls: dict[int, int] = {}
    lowers: dict[int, bytes] = {}
    uppers: dict[int, bytes] = {}
    for leaf in leaves:
        stats = footer_stats(footer, leaf, (at,))
        if stats is None:
            continue
        values[leaf.field_id], nulls[leaf.field_id] = stats.value_count, stats.null_count
        lower, upper = bound_bytes(leaf.type, stats, FULL)
        if lower is not None and upper is not None:
            lowers[leaf.field_id], uppers[leaf.field_id] = lower, upper
    group = footer.row_group(at)
    return DataFile(
        content=FileContent.DATA,
        file_path=path,
        file_format="parquet",
        spec_id=0,
        partition=(),
        record_count=group.num_rows,
        file_size_in_bytes=group.total_byte_size,
        value_counts=values,
        null_value_counts=nulls,
        lower_bounds=lowers,
        upper_bounds=uppers,
    )


def _prunable_leaves(file_schema: pa.Schema, schema: Schema) -> list[Leaf]:
    """Leaves outside of lists and maps whose stored statistics mean the same in the table's type."""
    found: list[Leaf] = []
    index = 0

    def visit(source: pa.Field, type_: IcebergType | None, above: tuple[int, ...]) -> None:
        nonlocal index
        parts = arrow_parts(source.type)
        if not parts:
            if isinstance(type_, PrimitiveType) and _same_statistics(source.type, type_):
                found.append(Leaf(index, field_id_of(source) or 0, type_, above, source.name, False))
            index += 1
            return
        inner = {}
        if pa.types.is_struct(source.type) and isinstance(type_, StructType):
            inner = {part.field_id: part.type for part in type_.fields}
        for position, part in enumerate(parts):
            visit(part, inner.get(field_id_of(part) or 0), (*above, position))

    wanted = {part.field_id: part.type for part in schema.fields}
    for position, part in enumerate(file_schema):
        visit(part, wanted.get(field_id_of(part) or 0), (position,))
    return found


def _same_statistics(source: pa.DataType, type_: PrimitiveType) -> bool:
    """Whether the raw statistics of a stored type are values of the table's type without conversion."""
    if isinstance(type_, DecimalType):
        return bool(pa.types.is_decimal(source)) and source.scale == type_.scale
    if isinstance(type_, (TimestampType, TimestamptzType)):
        return bool(pa.types.is_timestamp(source)) and source.unit == "us"
    if isinstance(type_, (TimestampNsType, TimestamptzNsType)):
        return bool(pa.types.is_timestamp(source)) and source.unit == "ns"
    tests: dict[type[PrimitiveType], Callable[[pa.DataType], bool]] = {
        BooleanType: pa.types.is_boolean,
        IntegerType: pa.types.is_int32,
        LongType: lambda stored: stored in (pa.int32(), pa.int64()),
        FloatType: pa.types.is_float32,
        DoubleType: pa.types.is_floating,
        DateType: pa.types.is_date32,
        TimeType: lambda stored: stored == pa.time64("us"),
        StringType: lambda stored: pa.types.is_string(stored) or pa.types.is_large_string(stored),
        BinaryType: lambda stored: pa.types.is_binary(stored) or pa.types.is_large_binary(stored),
    }
    test = tests.get(type(type_))
    return test is not None and bool(test(source))
