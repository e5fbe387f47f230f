"""The distribution of rows to the writer tasks: `write.distribution-mode` none, hash or range, as in Iceberg.

none leaves rows where they are; hash brings the rows of a partition together, so that a task writes few
partitions; range also orders them by the table's sort order. Without the property a sorted table gets range,
a partitioned one hash, any other none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql import types as T  # noqa: N812

from streamlake.errors import InvalidOptionError
from streamlake.formats.arrow.arrow_transforms import transform_array
from streamlake.pipeline.spark.column_names import quoted
from streamlake.spec.partitioning.partition_spec import PartitionSpec
from streamlake.spec.partitioning.sort_order import SortField, SortOrder
from streamlake.spec.partitioning.transforms import (
    Bucket,
    Day,
    Hour,
    Identity,
    Month,
    Transform,
    Truncate,
    Void,
    Year,
)
from streamlake.spec.types.data_types import (
    DateType,
    DecimalType,
    IcebergType,
    IntegerType,
    LongType,
    StringType,
)
from streamlake.spec.types.schema import Schema
from streamlake.write.target.options import DISTRIBUTION_MODE, DISTRIBUTION_MODES

_HELPER_PREFIX = "__streamlake_"


def distribution_mode(properties: Mapping[str, str], spec: PartitionSpec, order: SortOrder) -> str:
    """The distribution mode of a table. Raises InvalidOptionError for a value that is none of the three."""
    default = "range" if order.fields else "none" if spec.is_unpartitioned else "hash"
    mode = properties.get(DISTRIBUTION_MODE, default).lower()
    if mode not in DISTRIBUTION_MODES:
        raise InvalidOptionError(
            f"the table property {DISTRIBUTION_MODE} is '{mode}'; it can be none, hash or range"
        )
    return mode


def distribute(
    frame: DataFrame,
    schema: Schema,
    spec: PartitionSpec,
    order: SortOrder,
    properties: Mapping[str, str],
    tasks: int | None = None,
) -> DataFrame:
    """The frame with its rows distributed as the mode says; the columns stay the same. `tasks`: in this many
    partitions, by a shuffle also in the mode none. Raises InvalidOptionError for a mode that is none of the
    three, and for a spec or sort order over a dropped column.
    """
    mode = distribution_mode(properties, spec, order)
    count = () if tasks is None else (tasks,)
    if mode == "none" or (mode == "hash" and spec.is_unpartitioned):
        return frame if tasks is None else frame.repartition(tasks)
    columns = list(frame.columns)
    terms = [
        _Term(schema, part.source_id, part.transform)
        for part in spec.fields
        if not isinstance(part.transform, Void)
    ]
    if mode == "hash":
        prepared, keys = _with_keys(frame, terms)
        return prepared.repartition(*count, *keys).select(*map(quoted, columns))
    sort_terms = [_Term(schema, part.source_id, part.transform) for part in order.fields]
    prepared, keys = _with_keys(frame, terms + sort_terms)
    ordered = keys[: len(terms)] + [
        _directed(key, part) for key, part in zip(keys[len(terms) :], order.fields, strict=True)
    ]
    if not ordered:
        return frame if tasks is None else frame.repartition(tasks)
    return (
        prepared.repartitionByRange(*count, *ordered)
        .sortWithinPartitions(*ordered)
        .select(*map(quoted, columns))
    )


def _directed(key: Column, part: SortField) -> Column:
    if part.direction == "asc":
        return key.asc_nulls_first() if part.null_order == "nulls-first" else key.asc_nulls_last()
    return key.desc_nulls_first() if part.null_order == "nulls-first" else key.desc_nulls_last()


class _Term:
    """A transform of one column by which rows are distributed."""

    def __init__(self, schema: Schema, source_id: int, transform: Transform) -> None:
        source = schema.field(source_id)
        name = schema.name_of(source_id)
        if source is None or name is None:
            raise InvalidOptionError(
                f"the table's partition spec or sort order refers to the dropped column {source_id}"
            )
        self.name = name
        self.type = source.type
        self.transform = transform


def _with_keys(frame: DataFrame, terms: list[_Term]) -> tuple[DataFrame, list[Column]]:
    """Key columns for the terms: Spark expressions where possible, else helper columns computed in Arrow."""
    keys: list[Column] = []
    for at, term in enumerate(terms):
        column = F.col(".".join(map(quoted, term.name.split("."))))
        key = _expression(column, term.transform, term.type)
        if key is None:
            helper = f"{_HELPER_PREFIX}{at}"
            frame = _with_helper(frame.withColumn(helper, column), helper, term)
            key = F.col(helper)
        keys.append(key)
    return frame, keys


def _expression(column: Column, transform: Transform, type_: IcebergType) -> Column | None:
    if isinstance(transform, Identity):
        return column
    if isinstance(transform, Truncate):
        if isinstance(type_, StringType):
            return F.substring(column, 1, transform.width)
        if isinstance(type_, (IntegerType, LongType)):
            return column - F.pmod(column, F.lit(transform.width))
        return None
    if isinstance(transform, (Year, Month)):
        return F.date_trunc(str(transform), column) if isinstance(type_, DateType) else None
    if isinstance(transform, Day) and isinstance(type_, DateType):
        return column
    return None


def _with_helper(frame: DataFrame, helper: str, term: _Term) -> DataFrame:
    at = frame.columns.index(helper)
    schema = T.StructType([*frame.schema.fields[:at], T.StructField(helper, T.IntegerType())])
    if not isinstance(term.transform, (Bucket, Year, Month, Day, Hour)):
        schema = frame.schema
    return frame.mapInArrow(_helper_column(at, term.transform, term.type), schema)


def _helper_column(
    at: int, transform: Transform, type_: IcebergType
) -> Callable[[Iterator[Any]], Iterator[Any]]:
    def with_helper(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            column = batch.column(at)
            if isinstance(type_, DecimalType):
                column = column.cast(pa.decimal128(type_.precision, type_.scale))
            values = transform_array(transform, column, type_)
            if pa.types.is_date32(values.type):
                values = values.cast(pa.int32())
            yield batch.set_column(at, batch.schema.field(at).with_type(values.type), values)

    return with_helper
