"""Spark sends every change to the task that owns its key: its hash is the codec's, bit for bit."""

from __future__ import annotations

import datetime
import uuid
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from streamlake.errors import SchemaMismatchError
from streamlake.formats.arrow.arrow_schema import arrow_type
from streamlake.index.bucketing import Bucketing
from streamlake.index.keys.key_codec import KeyCodec, bucket_of
from streamlake.index.message_key import KeyPart, MessageKey
from streamlake.pipeline.spark.key_routing import (
    _numbers_per_partition,
    _repartition_by_hash,
    bucket_column,
    repartition_by_bucket,
    route_by_key,
)
from streamlake.spec.types.data_types import (
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    IcebergType,
    IntegerType,
    LongType,
    NestedField,
    StringType,
    TimestampNsType,
    TimestamptzType,
    UUIDType,
)
from streamlake.write.rows.conversion import converted
from tests.unit.index.key_samples import VALUES

_ROWS = 400
_BUCKETS = 5


@pytest.fixture(scope="module")
def samples() -> dict[IcebergType, pa.Array]:
    """A column of easily confused values and nulls per type that Spark has."""
    generator = np.random.default_rng(11)
    return {
        type_: pa.array(
            [
                None if pick == len(values) else values[pick]
                for pick in generator.integers(0, len(values) + 1, _ROWS)
            ],
            arrow_type(type_),
        )
        for type_, values in VALUES.items()
        if KeyCodec((NestedField(1, "c", type_),)).is_native
    }


@pytest.fixture(scope="module")
def sample_frame(
    spark: SparkSession, samples: dict[IcebergType, pa.Array], tmp_path_factory: pytest.TempPathFactory
) -> DataFrame:
    return _frame(
        spark, tmp_path_factory.mktemp("samples"), {str(type_): samples[type_] for type_ in samples}
    )


def test_hashes_are_those_of_spark(sample_frame: DataFrame, samples: dict[IcebergType, pa.Array]) -> None:
    types = list(samples)
    keys = [[type_] for type_ in types] + [types[at : at + 3] for at in range(0, len(types) - 2, 2)] + [types]
    hashes = [
        F.xxhash64(*(F.col(f"`{type_}`") for type_ in key)).alias(str(at)) for at, key in enumerate(keys)
    ]
    found = sample_frame.select(*hashes).toArrow()
    for at, key in enumerate(keys):
        codec = KeyCodec(tuple(NestedField(number, str(type_), type_) for number, type_ in enumerate(key, 1)))
        expected = codec.encode([samples[type_] for type_ in key]).hashes.view(np.int64)
        assert found.column(str(at)).to_pylist() == expected.tolist(), key


def test_partition_i_holds_bucket_i(sample_frame: DataFrame, samples: dict[IcebergType, pa.Array]) -> None:
    types = [LongType(), StringType(), DoubleType(), DecimalType(19, 3), UUIDType(), TimestamptzType()]
    for key in ([LongType()], types):
        names = [str(type_) for type_ in key]
        codec = KeyCodec(
            tuple(
                NestedField(at, name, type_)
                for at, (name, type_) in enumerate(zip(names, key, strict=True), 1)
            )
        )
        routed = route_by_key(sample_frame, names, codec, Bucketing(_BUCKETS), "t")
        assert routed.columns == sample_frame.columns
        assert routed.rdd.getNumPartitions() == _BUCKETS
        rows = _with_partitions(routed)
        assert rows.num_rows == _ROWS
        columns = [
            converted(rows.column(name).combine_chunks(), type_, name)
            for name, type_ in zip(names, key, strict=True)
        ]
        buckets = bucket_of(codec.encode(columns).hashes, _BUCKETS)
        assert rows.column("partition").to_pylist() == buckets.tolist()
        assert len(set(buckets.tolist())) > 2


_UUIDS = [str(uuid.UUID(int=number)) for number in range(20)]
STORED_OTHERWISE: dict[str, tuple[IcebergType, pa.Array]] = {
    "text as uuid": (UUIDType(), pa.array([*_UUIDS, _UUIDS[0].replace("-", ""), _UUIDS[15].upper(), None])),
    "bytes as uuid": (UUIDType(), pa.array([bytes([number] * 16) for number in range(20)])),
    "bytes as fixed": (FixedType(3), pa.array([b"abc", b"\xff\x00\x01", None])),
    "int as long": (LongType(), pa.array([*range(-20, 20), None], pa.int32())),
    "byte as int": (IntegerType(), pa.array([*range(-20, 20), None], pa.int8())),
    "long as int": (IntegerType(), pa.array([*range(-20, 20), None], pa.int64())),
    "float as double": (DoubleType(), pa.array([0.1, -0.0, 0.0, float("nan"), None], pa.float32())),
    "int as decimal": (DecimalType(9, 2), pa.array([*range(-20, 20), None], pa.int32())),
    "decimal as wider": (
        DecimalType(25, 4),
        pa.array([Decimal("1.50"), Decimal("-2.00"), None], pa.decimal128(9, 2)),
    ),
    "decimal as narrower": (DecimalType(9, 2), pa.array([Decimal("1.50"), None], pa.decimal128(38, 10))),
    "nothing as long": (LongType(), pa.array([None, None], pa.int64())),
    "timestamp as nanoseconds": (
        TimestampNsType(),
        pa.array([datetime.datetime(2024, 1, day) for day in range(1, 29)] + [None], pa.timestamp("us")),
    ),
}


def test_the_bucket_is_that_of_the_stored_value(spark: SparkSession, tmp_path: Path) -> None:
    for at, (case, (type_, column)) in enumerate(STORED_OTHERWISE.items()):
        frame = _frame(spark, tmp_path / str(at), {"k": column})
        codec = KeyCodec((NestedField(1, "k", type_),))
        computed = bucket_column(frame, ["k"], codec, _BUCKETS, "t")
        assert (computed is None) == (case == "timestamp as nanoseconds"), case
        rows = _with_partitions(route_by_key(frame, ["k"], codec, Bucketing(_BUCKETS), "t"))
        assert rows.column_names == ["k", "partition"]
        assert rows.num_rows == len(column), case
        stored = converted(rows.column("k").combine_chunks(), type_, "k")
        expected = bucket_of(codec.encode([stored]).hashes, _BUCKETS)
        assert rows.column("partition").to_pylist() == expected.tolist(), case


def test_values_that_will_be_refused_end_in_some_bucket(spark: SparkSession, tmp_path: Path) -> None:
    """The row check of the task that gets them names the row; the routing neither fails nor loses them."""
    cases: list[tuple[IcebergType, pa.Array]] = [
        (IntegerType(), pa.array([2**40, 1])),
        (UUIDType(), pa.array(["no uuid", "zz", _UUIDS[0]])),
        (DecimalType(4, 2), pa.array([Decimal("1000.00"), Decimal("1.00")], pa.decimal128(9, 2))),
        (TimestampNsType(), pa.array([datetime.datetime(9999, 1, 1)], pa.timestamp("us"))),
    ]
    for at, (type_, column) in enumerate(cases):
        frame = _frame(spark, tmp_path / str(at), {"k": column})
        routed = route_by_key(frame, ["k"], KeyCodec((NestedField(1, "k", type_),)), Bucketing(_BUCKETS), "t")
        assert sorted(map(str, routed.toArrow().column("k").to_pylist())) == sorted(
            map(str, column.to_pylist())
        )


def test_keys_inside_structs(spark: SparkSession, tmp_path: Path) -> None:
    inner = pa.array([{"id": number % 7 or None, "at": None} for number in range(50)] + [None])
    inner = inner.cast(pa.struct([("id", pa.int64()), ("at", pa.timestamp("us"))]))
    frame = _frame(spark, tmp_path, {"a": inner, "b": pa.array([f"n{number % 3}" for number in range(51)])})
    ids = NestedField(1, "id", LongType())
    codec = KeyCodec((ids, NestedField(2, "b", StringType())))
    rows = _with_partitions(route_by_key(frame, ["a.id", "b"], codec, Bucketing(_BUCKETS), "t"))
    columns = [_inner_ids(rows), rows.column("b")]
    assert rows.column("partition").to_pylist() == bucket_of(codec.encode(columns).hashes, _BUCKETS).tolist()

    codec = KeyCodec((ids, NestedField(3, "at", TimestampNsType())))
    rows = _with_partitions(route_by_key(frame, ["a.id", "a.at"], codec, Bucketing(_BUCKETS), "t"))
    assert rows.column_names == ["a", "b", "partition"]
    columns = [_inner_ids(rows), pa.nulls(51, pa.timestamp("ns"))]
    assert rows.column("partition").to_pylist() == bucket_of(codec.encode(columns).hashes, _BUCKETS).tolist()


def test_both_ways_to_repartition(spark: SparkSession) -> None:
    """By number where Spark can, and by the hashes of chosen numbers, as Spark 4.0 needs it."""
    for buckets in (1, 2, 37):
        frame = spark.range(0, 500, numPartitions=3)
        bucket = (F.col("id") % buckets).cast("int")
        for repartition in (repartition_by_bucket, _repartition_by_hash):
            routed = repartition(frame, bucket, buckets)
            rows = _with_partitions(routed)
            assert rows.column("partition").to_pylist() == [
                value % buckets for value in rows.column("id").to_pylist()
            ]
            assert sorted(rows.column("id").to_pylist()) == list(range(500))
            assert routed.rdd.getNumPartitions() == buckets


def test_numbers_exist_for_many_partitions() -> None:
    numbers = _numbers_per_partition(1_000)
    assert len(set(numbers)) == 1_000
    assert min(numbers) >= 0


@pytest.mark.parametrize(
    ("name", "type_", "message"),
    [
        ("Id", LongType(), r"^lake/t: the rows lack the key column 'Id'\. Did you mean 'id'\?"),
        ("zzz", LongType(), r"lack the key column 'zzz'\. The columns of the rows are id, s\. .*whole key"),
        ("s.part", LongType(), r"lack the key column 's\.part'"),
        ("s", LongType(), r"^lake/t: the key column 's' has the type string, the table's is long: cast"),
        ("id", DateType(), r"the key column 'id' has the type int64, the table's is date"),
    ],
)
def test_a_key_that_does_not_fit_is_refused(
    name: str, type_: IcebergType, message: str, spark: SparkSession
) -> None:
    frame = spark.range(1).select("id", F.lit("text").alias("s"))
    with pytest.raises(SchemaMismatchError, match=message):
        route_by_key(frame, [name], KeyCodec((NestedField(1, name, type_),)), Bucketing(2), "lake/t")


def test_intervals_are_refused(spark: SparkSession) -> None:
    frame = spark.sql("SELECT make_interval(1) AS k")
    with pytest.raises(
        SchemaMismatchError, match=r"the key column 'k' has the type interval, the table's is long"
    ):
        route_by_key(frame, ["k"], KeyCodec((NestedField(1, "k", LongType()),)), Bucketing(2), "lake/t")


def test_collated_text_goes_by_its_bytes(spark: SparkSession) -> None:
    frame = spark.sql(
        "SELECT CAST(c AS STRING COLLATE UTF8_LCASE) AS k FROM VALUES ('a'), ('A'), ('b'), ('B') AS t(c)"
    )
    codec = KeyCodec((NestedField(1, "k", StringType()),))
    rows = _with_partitions(route_by_key(frame, ["k"], codec, Bucketing(64), "t"))
    assert (
        rows.column("partition").to_pylist()
        == bucket_of(codec.encode([rows.column("k")]).hashes, 64).tolist()
    )


def _frame(spark: SparkSession, directory: Path, columns: dict[str, pa.Array]) -> DataFrame:
    directory.mkdir(exist_ok=True)
    pq.write_table(pa.table(columns), directory / "rows.parquet", store_schema=False)
    return spark.read.parquet(str(directory))


def _with_partitions(frame: DataFrame) -> Any:
    return frame.withColumn("partition", F.spark_partition_id()).toArrow()


def _inner_ids(rows: Any) -> pa.Array:
    column = rows.column("a").combine_chunks()
    return column.flatten()[0]


def test_buckets_of_a_messages_key(spark: SparkSession, tmp_path: Path) -> None:
    """The table of a Kafka stream, written by another source meanwhile."""
    frame = _frame(spark, tmp_path, {"k": pa.array([*range(200), None]), "v": pa.array(["x"] * 201)})
    codec = KeyCodec((NestedField(1, "k", LongType()),))
    bucketing = Bucketing(5, MessageKey("murmur2", (KeyPart(column=0),)))
    rows = _with_partitions(route_by_key(frame, ["k"], codec, bucketing, "t"))
    assert rows.column_names == ["k", "v", "partition"]
    expected = bucketing.of_columns([rows.column("k")], codec).tolist()
    assert rows.column("partition").to_pylist() == expected
    assert set(expected) == set(range(5))
