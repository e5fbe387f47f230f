"""Fanout and its parts: the partitioner, the row buffer, bounded memory, bounded open files."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from streamlake.spec.partitioning.partition_spec import parse_partition_by
from streamlake.spec.types.ddl import parse_ddl
from streamlake.write.files.fanout import FanoutWriter
from streamlake.write.files.partition_writer import PartitionWriter
from streamlake.write.rows.partitioner import Partitioner, PartitionRun
from streamlake.write.rows.row_buffer import RowBuffer
from streamlake.write.rows.row_check import RowCheck
from streamlake.write.task import write_rows
from tests.unit.write.files.test_rolling import CountedContent
from tests.unit.write.targets import make_target, read, write

DDL = (
    "id long, name string, amount double, small float, day date, at timestamp_ntz, price decimal(9,2), flag boolean, "
    "raw binary, key uuid, inner struct<code: int, label: string>"
)


def sample(count: int, seed: int = 1, nulls: bool = True) -> pa.Table:
    rng = random.Random(seed)

    def maybe(value: Any) -> Any:
        return None if nulls and rng.random() < 0.05 else value

    rows = [
        {
            "id": maybe(rng.randint(-50, 50)),
            "name": maybe(rng.choice(["", "a", "über", "😀", "long" * 10])),
            "amount": maybe(rng.choice([0.0, -0.0, math.nan, 1.5, -math.inf])),
            "small": maybe(rng.choice([0.0, -0.0, math.nan, 0.1])),
            "day": maybe(rng.randint(-400, 400)),
            "at": maybe(rng.randint(-(10**15), 10**15)),
            "price": None,
            "flag": maybe(rng.random() < 0.5),
            "raw": maybe(rng.randbytes(2)),
            "key": maybe(rng.randbytes(1) * 16),
            "inner": maybe({"code": maybe(rng.randint(0, 3)), "label": "x"}),
        }
        for _ in range(count)
    ]
    arrow = RowCheck(parse_ddl(DDL), "t")._arrow_schema
    columns = {name: [row[name] for row in rows] for name in arrow.names}
    arrays = []
    for field in arrow:
        if pa.types.is_temporal(field.type):
            storage = pa.int32() if field.type.bit_width == 32 else pa.int64()
            arrays.append(pa.array(columns[field.name], storage).cast(field.type))
        else:
            arrays.append(pa.array(columns[field.name], field.type))
    return pa.Table.from_arrays([pa.chunked_array([array]) for array in arrays], schema=arrow)


def value_key(value: Any) -> Any:
    return repr(value) if isinstance(value, float) else value


PARTITION_BYS = [
    ["id"],
    ["bucket(4, id)"],
    ["truncate(10, id)", "name"],
    ["amount"],
    ["small", "flag"],
    ["day"],
    ["month(day)", "year(at)", "hour(at)"],
    ["at"],
    ["day(at)", "bucket(16, name)", "flag"],
    ["raw", "key"],
    ["bucket(3, key)", "truncate(1, raw)"],
    ["inner.code", "truncate(1, inner.label)"],
    ["void(id)", "name"],
]


@pytest.mark.parametrize("partition_by", PARTITION_BYS, ids=str)
def test_every_row_lands_in_the_partition_of_the_scalar_transforms(partition_by: list[str]) -> None:
    schema = parse_ddl(DDL)
    spec = parse_partition_by(partition_by, schema)
    partitioner = Partitioner(schema, spec)
    rows = pa.concat_tables([sample(500, 1), sample(700, 2)])
    number = pa.array(range(rows.num_rows))
    seen: list[int] = []
    for piece, runs in partitioner.split(rows.append_column("number", number)):
        assert [run.start for run in runs] == [0, *(run.stop for run in runs[:-1])]
        assert runs[-1].stop == piece.num_rows
        for run in runs:
            part = piece.slice(run.start, run.stop - run.start)
            seen += part["number"].to_pylist()
            expected = {
                tuple(map(value_key, expected_partition(row, spec, schema))) for row in physical_rows(part)
            }
            assert expected == {tuple(map(value_key, partitioner.partition(run.number)))}
            assert part["number"].to_pylist() == sorted(part["number"].to_pylist()), "order is kept"
    assert sorted(seen) == number.to_pylist()
    assert (
        len({tuple(map(value_key, partitioner.partition(at))) for at in range(partitioner.count)})
        == partitioner.count
    )


def physical_rows(rows: pa.Table) -> Iterator[dict[str, Any]]:
    columns = {}
    for name in rows.column_names:
        column = rows[name]
        if pa.types.is_temporal(column.type):
            column = column.cast(pa.int32() if column.type.bit_width == 32 else pa.int64())
        columns[name] = column.to_pylist()
    for at in range(rows.num_rows):
        yield {name: values[at] for name, values in columns.items()}


def expected_partition(row: dict[str, Any], spec: Any, schema: Any) -> list[Any]:
    import uuid

    from streamlake.spec.types.data_types import UUIDType

    values = []
    for part in spec.fields:
        name, _, inner = schema.name_of(part.source_id).partition(".")
        value = row[name]
        if inner:
            value = None if value is None else value[inner]
        type_ = schema.field(part.source_id).type
        if isinstance(type_, UUIDType) and value is not None:
            value = uuid.UUID(bytes=value)
        values.append(part.transform.apply(value, type_))
    return values


def test_rows_in_long_runs_are_not_moved() -> None:
    schema = parse_ddl("id long, name string")
    partitioner = Partitioner(schema, parse_partition_by(["truncate(5000, id)"], schema))
    rows = pa.table({"id": range(20_000), "name": ["x"] * 20_000})
    ((piece, runs),) = partitioner.split(rows)
    assert piece is rows
    assert runs == [PartitionRun(at, at * 5000, at * 5000 + 5000) for at in range(4)]


def test_many_distinct_values_and_many_fields() -> None:
    schema = parse_ddl("a long, b long, c string, d long")
    partitioner = Partitioner(schema, parse_partition_by(["a", "b", "c", "d"], schema))
    rng = random.Random(1)
    count = 5_000
    rows = pa.table(
        {
            "a": [rng.getrandbits(60) for _ in range(count)],
            "b": [rng.getrandbits(60) for _ in range(count)],
            "c": [str(rng.getrandbits(60)) for _ in range(count)],
            "d": [rng.randint(0, 60_000) for _ in range(count)],
        }
    )
    runs = [run for _, runs in partitioner.split(rows) for run in runs]
    assert partitioner.count == len(runs) == count
    expected = set(zip(*(rows[name].to_pylist() for name in "abcd"), strict=True))
    assert {partitioner.partition(run.number) for run in runs} == expected


def test_the_buffer_frees_what_is_taken() -> None:
    buffer = RowBuffer()
    rows = pa.table({"id": list(range(1000)), "text": ["x" * 50] * 1000})
    buffer.add(rows, [PartitionRun(1, 0, 900), PartitionRun(2, 900, 1000)])
    buffer.add(rows.slice(0, 10), [PartitionRun(2, 0, 10)])
    assert buffer.largest_first()[0][0] == 1
    before = buffer.held_bytes
    assert buffer.take(1)["id"].to_pylist() == list(range(900))
    assert buffer.held_bytes == before, "a hole still costs"
    buffer.compact()
    assert buffer.held_bytes < before / 5
    assert buffer.waiting_bytes == pytest.approx(buffer.held_bytes)
    assert buffer.take(2)["id"].to_pylist() == [*range(900, 1000), *range(10)]
    buffer.compact()
    assert (buffer.held_bytes, buffer.partitions()) == (0, [])


def test_compacting_one_run_copies_it() -> None:
    buffer = RowBuffer()
    pool = pa.default_memory_pool()
    before = pool.bytes_allocated()
    rows = pa.table({"id": pa.array(range(1_000_000))})
    buffer.add(rows, [PartitionRun(1, 0, 999_000), PartitionRun(2, 999_000, 1_000_000)])
    del rows
    buffer.take(1)
    assert pool.bytes_allocated() - before > 7_000_000
    buffer.compact()
    assert pool.bytes_allocated() - before < 100_000
    assert buffer.take(2)["id"].to_pylist() == list(range(999_000, 1_000_000))


def test_thousands_of_partitions_stay_within_the_budget(tmp_path: Path) -> None:
    """Nearly 10,000 partitions, a budget of 4 MB, 27 MB of rows: what waits never exceeds the budget by more than a gather."""
    budget = 4 << 20
    target = make_target(
        tmp_path,
        "id long, payload string",
        partition_by=["bucket(10000, id)"],
        properties={
            "streamlake.write.memory-budget-bytes": str(budget),
            "streamlake.write.max-open-files": "3",
        },
    )
    partitioner = Partitioner(target.schema, target.spec)
    log: list[str] = []
    open_files: set[int] = set()
    most_open = 0

    class Counted(CountedContent):
        def __init__(self) -> None:
            nonlocal most_open
            super().__init__(log)
            open_files.add(id(self))
            most_open = max(most_open, len(open_files))

        def close(self) -> Any:
            open_files.discard(id(self))
            return super().close()

    writer = FanoutWriter(
        partitioner, lambda _: PartitionWriter(Counted, 1 << 30), target.options.buffer_bytes, 3
    )
    pool = pa.default_memory_pool()
    before = pool.bytes_allocated()
    highest = 0
    for batch in range(30):
        rows = pa.table({"id": range(batch * 1000, batch * 1000 + 1000), "payload": ["x" * 900] * 1000})
        writer.write(rows)
        del rows
        highest = max(highest, pool.bytes_allocated() - before)
    files = writer.close()
    assert sum(file.record_count for file in files) == 30_000
    assert partitioner.count > 9_000
    assert highest < 2 * budget
    assert most_open <= 3


def test_small_budget_and_few_open_files_lose_nothing(tmp_path: Path) -> None:
    target = make_target(
        tmp_path,
        "id long, payload string",
        partition_by=["bucket(40, id)"],
        properties={
            "streamlake.write.memory-budget-bytes": "1048576",
            "streamlake.write.max-open-files": "2",
        },
    )
    batches = [
        pa.record_batch({"id": range(at * 1000, at * 1000 + 1000), "payload": [f"{at}-{'y' * 90}"] * 1000})
        for at in range(40)
    ]
    result = write_rows(target, batches, 0, 0, 0)
    assert result.counters["partitions"] == 40
    found = [row for file in result.data_files for row in read(file)["id"].to_pylist()]
    assert sorted(found) == list(range(40_000))


def test_floats_make_one_nan_partition_and_two_zero_partitions(tmp_path: Path) -> None:
    rows = [{"x": value} for value in (0.0, -0.0, math.nan, -math.nan, math.nan, None, 1.0)]
    result = write(make_target(tmp_path, "x double", partition_by=["x"]), rows)
    assert sorted(repr(file.partition) for file in result.data_files) == [
        "(-0.0,)", "(0.0,)", "(1.0,)", "(None,)", "(nan,)",
    ]  # fmt: skip
