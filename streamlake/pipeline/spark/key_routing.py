"""The routing of changes to the upsert tasks: all changes of a key go to the task that owns the key's bucket.

Spark computes the bucket itself wherever its `xxhash64` gives the codec's hash of the value as it is stored;
for other columns a helper column is computed in Arrow. Invariant: partition i of the result holds the rows of
bucket i and no others. A value that the row check will refuse goes to any bucket, because it ends the
checkpoint there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql import types as T  # noqa: N812
from pyspark.sql.pandas.types import to_arrow_type

from streamlake.errors import SchemaMismatchError
from streamlake.index.bucketing import Bucketing
from streamlake.index.keys.key_codec import KeyCodec
from streamlake.options import suggestion
from streamlake.pipeline.spark.column_names import quoted
from streamlake.spec.types.data_types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IcebergType,
    IntegerType,
    LongType,
    NestedField,
    StringType,
    TimestampType,
    TimestamptzType,
    UUIDType,
)
from streamlake.tasks.key_buckets import key_buckets
from streamlake.write.rows.conversion import NotConvertibleError, converted

_BUCKET = "__streamlake_bucket"
_SPARK_TYPES: dict[type[IcebergType], T.DataType] = {
    BooleanType: T.BooleanType(),
    IntegerType: T.IntegerType(),
    LongType: T.LongType(),
    FloatType: T.FloatType(),
    DoubleType: T.DoubleType(),
    DateType: T.DateType(),
    TimestampType: T.TimestampNTZType(),
    TimestamptzType: T.TimestampType(),
    # As their bytes, because Spark hashes text by its collation.
    StringType: T.BinaryType(),
    BinaryType: T.BinaryType(),
    FixedType: T.BinaryType(),
}


def route_by_key(
    frame: DataFrame, key: Sequence[str], codec: KeyCodec, bucketing: Bucketing, table: str
) -> DataFrame:
    """The frame in as many partitions as buckets, bucket i in partition i; the columns stay the same.

    `key` are the names of the codec's fields in the frame, with dots for parts of structs. Raises
    SchemaMismatchError, which names `table`, for a key column that the frame lacks or that never fits the
    table's type.
    """
    bucket = bucket_column(frame, key, codec, bucketing.count, table)
    if bucket is not None and bucketing.message_key is None:
        return repartition_by_bucket(frame, bucket, bucketing.count)
    prepared = _with_helper(frame, key, codec, bucketing)
    routed = repartition_by_bucket(prepared, F.col(_BUCKET), bucketing.count)
    return routed.select(*map(quoted, frame.columns))


def bucket_column(
    frame: DataFrame, key: Sequence[str], codec: KeyCodec, buckets: int, table: str
) -> Column | None:
    """An int column: `bucket_of` the codec's hash of the key columns converted to the table's types.

    None where Spark cannot compute it. Raises SchemaMismatchError as `route_by_key` does.
    """
    values = [
        _table_value(_column(name), _checked_type(frame.schema, name, part, table), part.type)
        for name, part in zip(key, codec.fields, strict=True)
    ]
    found = [value for value in values if value is not None]
    if len(found) < len(values) or not codec.is_native:
        return None
    high = F.shiftrightunsigned(F.xxhash64(*found), 32)
    return F.shiftrightunsigned(high * F.lit(buckets).cast("bigint"), 32).cast("int")


def repartition_by_bucket(frame: DataFrame, bucket: Column, buckets: int) -> DataFrame:
    """The frame in `buckets` partitions; rows whose `bucket` (int, 0..buckets-1) is i are in partition i."""
    if hasattr(frame, "repartitionById"):
        by_id: DataFrame = frame.repartitionById(buckets, bucket)
        return by_id
    return _repartition_by_hash(frame, bucket, buckets)


def _repartition_by_hash(frame: DataFrame, bucket: Column, buckets: int) -> DataFrame:
    """Repartition on Spark 4.0, which always hashes: by numbers whose hash leads to the wanted partition."""
    numbers = F.array([F.lit(number) for number in _numbers_per_partition(buckets)])
    return frame.repartition(buckets, F.get(numbers, bucket))


@lru_cache(maxsize=16)
def _numbers_per_partition(partitions: int) -> tuple[int, ...]:
    """For each partition the first int whose Murmur3 hash (seed 42), modulo `partitions`, is its number."""
    found: Any = np.full(partitions, -1, dtype=np.int64)
    start, size = 0, max(1_024, partitions * 4)
    while (found < 0).any():
        numbers: Any = np.arange(start, start + size, dtype=np.int64)
        places, first = np.unique(_spark_hash(numbers) % partitions, return_index=True)
        new = found[places] < 0
        found[places[new]] = numbers[first[new]]
        start += size
    return tuple(found.tolist())


def _spark_hash(numbers: Any) -> Any:
    """Spark's hash of ints when it repartitions; (n,) non-negative int64 below 2**32 -> (n,) signed int64."""
    mask = np.uint64(0xFFFFFFFF)

    def turned(value: Any, bits: int) -> Any:
        return ((value << np.uint64(bits)) | (value >> np.uint64(32 - bits))) & mask

    def times(value: Any, factor: int) -> Any:
        return (value * np.uint64(factor)) & mask

    word = times(turned(times(numbers.astype(np.uint64), 0xCC9E2D51), 15), 0x1B873593)
    h = (times(turned(word ^ np.uint64(42), 13), 5) + np.uint64(0xE6546B64)) & mask
    h ^= np.uint64(4)
    h = times(h ^ (h >> np.uint64(16)), 0x85EBCA6B)
    h = times(h ^ (h >> np.uint64(13)), 0xC2B2AE35)
    h ^= h >> np.uint64(16)
    return h.astype(np.uint32).view(np.int32).astype(np.int64)


def _checked_type(schema: T.StructType, name: str, part: NestedField, table: str) -> T.DataType:
    """The Spark type of a key column. Raises SchemaMismatchError where it is missing or never fits."""
    type_: T.DataType = schema
    for step in name.split("."):
        inner = (
            {field.name: field.dataType for field in type_.fields} if isinstance(type_, T.StructType) else {}
        )
        if step not in inner:
            near = suggestion(step, inner)
            hint = f"Did you mean '{near}'?" if near else f"The columns of the rows are {', '.join(inner)}."
            raise SchemaMismatchError(
                f"{table}: the rows lack the key column '{name}'. {hint} Every change needs its whole key, a "
                "delete too: add or rename the column in the stream."
            )
        type_ = inner[step]
    try:
        converted(pa.array([], to_arrow_type(type_)), part.type, name)
    except NotConvertibleError as error:
        raise SchemaMismatchError(f"{table}: the key column '{error.path}' {error.message}") from error
    except PySparkException as error:
        raise SchemaMismatchError(
            f"{table}: the key column '{name}' has the type {type_.simpleString()}, the table's is "
            f"{part.type}: cast the column to the table's type in the stream"
        ) from error
    return type_


def _table_value(column: Column, spark_type: T.DataType, type_: IcebergType) -> Column | None:
    """The column as Spark hashes the stored value, null where a value does not fit; None: not possible."""
    if isinstance(type_, UUIDType) and isinstance(spark_type, T.StringType):
        digits: Column = F.unhex(F.translate(column.cast("string"), "-", ""))
        return digits
    if isinstance(type_, DecimalType):
        return column.try_cast(T.DecimalType(type_.precision, type_.scale))
    target = T.BinaryType() if isinstance(type_, UUIDType) else _SPARK_TYPES.get(type(type_))
    if target is None:
        return None
    return column if spark_type == target else column.try_cast(target)


def _with_helper(frame: DataFrame, key: Sequence[str], codec: KeyCodec, bucketing: Bucketing) -> DataFrame:
    schema = T.StructType([*frame.schema.fields, T.StructField(_BUCKET, T.IntegerType(), False)])
    paths = []
    for name in key:
        first, *inner = name.split(".")
        paths.append((frame.columns.index(first), inner))
    return frame.mapInArrow(_helper_column(paths, codec, bucketing), schema)


def _helper_column(
    paths: list[tuple[int, list[str]]], codec: KeyCodec, bucketing: Bucketing
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def with_buckets(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            columns = [batch.column(at) for at, _ in paths]
            columns = [
                pc.struct_field(column, inner) if inner else column
                for column, (_, inner) in zip(columns, paths, strict=True)
            ]
            found = pa.array(key_buckets(columns, codec, bucketing))
            yield batch.append_column(pa.field(_BUCKET, pa.int32(), nullable=False), found)

    return with_buckets


def _column(name: str) -> Column:
    return F.col(".".join(map(quoted, name.split("."))))
