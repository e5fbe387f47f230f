"""The watermark of a checkpoint: of each partition the newest time, of these the oldest."""

from __future__ import annotations

from datetime import date, datetime, timezone
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from streamlake.decode.values.decoded import Decoded
from streamlake.errors import InvalidOptionError
from streamlake.records import RAW_RECORDS
from streamlake.source.offsets import OffsetRange
from streamlake.spec.types.ddl import parse_ddl
from streamlake.tasks.watermarks import (
    Watermarks,
    merged,
    require_watermark_column,
    together,
    watermark_summary,
)

P0, P1 = OffsetRange("t", 0, 0, 9), OffsetRange("t", 1, 0, 9)


def raw(*milliseconds: int | None) -> pa.RecordBatch:
    rows = [
        {
            "topic": "t",
            "partition": 0,
            "offset": at,
            "timestamp": None if ms is None else datetime.fromtimestamp(ms / 1000, timezone.utc),
        }
        for at, ms in enumerate(milliseconds)
    ]
    return pa.RecordBatch.from_pylist(rows, RAW_RECORDS)


def rows(values: list[Any], type_: pa.DataType | None = None) -> pa.RecordBatch:
    return pa.record_batch({"at": pa.array(values, type_)})


def batch(raw: pa.RecordBatch, rows: pa.RecordBatch, **named: int) -> Decoded:
    return Decoded(raw, rows, np.zeros(rows.num_rows, dtype=np.int64), named=named)


def test_the_newest_of_each_partition() -> None:
    times = Watermarks()
    times.see(P0, batch(raw(5_000, 7_250, None), rows([])))
    times.see(P1, batch(raw(6_000), rows([])))
    first = times.taken()
    assert times.taken() is None
    times.see(P0, batch(raw(7_000), rows([])))
    found = merged([first, None, times.taken()])
    assert found.newest == {"t-0": 7_250, "t-1": 6_000}
    assert watermark_summary(found.newest) == {"streamlake.watermark-ms": "6000"}
    assert merged([together([first, None])]) == found


def test_nothing_was_read() -> None:
    times = Watermarks()
    times.see(P0, batch(raw(None), rows([])))
    times.see(P0, batch(raw(), rows([])))
    assert times.taken() is None
    assert together([None]) is None
    assert watermark_summary(merged([None]).newest) == {}


@pytest.mark.parametrize(
    ("values", "type_", "expected"),
    [
        ([date(1970, 1, 2), None], pa.date32(), 86_400_000),
        ([datetime(1970, 1, 1, 0, 0, 1, 999)], pa.timestamp("us"), 1_000),
        ([1_999_999, 5], pa.timestamp("ns", tz="UTC"), 1),
        ([-1], pa.timestamp("us", tz="UTC"), -1),
    ],
)
def test_a_column(values: list[Any], type_: pa.DataType, expected: int) -> None:
    times = Watermarks("at")
    times.see(P0, batch(raw(1), rows(values, type_)))
    times.see(P0, batch(raw(1), rows([None], type_)))
    assert merged([times.taken()]).newest == {"t-0": expected}


def test_rows_without_the_column_say_nothing() -> None:
    times = Watermarks("other")
    times.see(P0, batch(raw(1), rows([1])))
    assert times.taken() is None


def test_only_times_will_do() -> None:
    schema = parse_ddl("id long, at timestamp, s struct<at: timestamp>")
    require_watermark_column(None, schema)
    require_watermark_column("at", schema)
    for name, problem in (("ta", "no column"), ("id", "is long"), ("s.at", "no column")):
        with pytest.raises(InvalidOptionError, match=f"{name}.*{problem}"):
            require_watermark_column(name, schema)


def test_tables_that_records_name_are_counted() -> None:
    times = Watermarks()
    assert not times.has_named
    times.see(P0, batch(raw(5), rows([]), one=2, two=1))
    assert times.has_named
    first = times.taken()
    assert not times.has_named
    times.see(P1, batch(raw(None), rows([]), two=3))
    found = merged([together([first, None]), None, times.taken()])
    assert (found.named, found.newest) == ({"one": 2, "two": 4}, {"t-0": 5})
