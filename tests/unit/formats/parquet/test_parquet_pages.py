"""Rows of a Parquet file by their pages, against reading the file whole."""

from __future__ import annotations

import io
import struct
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamlake.formats.parquet.parquet_pages import ParquetPages
from streamlake.formats.parquet.thrift_compact import (
    BINARY,
    BYTE,
    DOUBLE,
    FALSE,
    I16,
    I32,
    I64,
    LIST,
    STRUCT,
    TRUE,
    ThriftReader,
    struct_bytes,
)

ROWS = 400


def table_of(seed: int, nulls: float) -> pa.Table:
    random = np.random.default_rng(seed)
    mask = random.random(ROWS) < nulls
    texts = [f"{n:04d}" * int(random.integers(0, 20)) for n in range(ROWS)]
    numbers = random.integers(-(2**62), 2**62, ROWS)
    return pa.table(
        {
            "long": pa.array(numbers, mask=mask),
            "int": pa.array(numbers.astype(np.int32), mask=mask),
            "text": pa.array(texts, mask=mask),
            "few": pa.array([f"category {n % 3}" for n in range(ROWS)], mask=mask),
            "double": pa.array(random.random(ROWS), mask=mask),
            "flag": pa.array(random.random(ROWS) < 0.5, mask=mask),
            "at": pa.array(numbers).cast(pa.timestamp("us", "UTC")),
            "price": pa.array([Decimal(n) / 100 for n in range(ROWS)], pa.decimal128(9, 2)),
            "fixed": pa.array([bytes([n % 256] * 5) for n in range(ROWS)], pa.binary(5)),
            "nested": pa.array([{"a": n, "b": [n] * (n % 3)} for n in range(ROWS)]),
        }
    )


def opened(table: pa.Table, **options: object) -> tuple[pa.NativeFile, pq.ParquetFile]:
    sink = io.BytesIO()
    pq.write_table(table, sink, **options)
    stream = pa.BufferReader(sink.getvalue())
    return stream, pq.ParquetFile(stream)


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 5),
    nulls=st.sampled_from([0.0, 0.3, 1.0]),
    wanted=st.sets(st.integers(0, ROWS - 1), min_size=1, max_size=12),
    page_rows=st.sampled_from([1, 7, 50, 10_000]),
    group_rows=st.sampled_from([150, ROWS]),
    dictionary=st.booleans(),
    version=st.sampled_from(["1.0", "2.0"]),
    codec=st.sampled_from(["none", "zstd", "snappy"]),
    stored=st.booleans(),
)
def test_rows_are_those_of_the_whole_file(
    seed, nulls, wanted, page_rows, group_rows, dictionary, version, codec, stored
):
    table = table_of(seed, nulls)
    stream, file = opened(
        table,
        row_group_size=group_rows,
        use_dictionary=dictionary,
        data_page_version=version,
        compression=codec,
        write_page_index=True,
        max_rows_per_page=page_rows,
        write_batch_size=page_rows,
        store_schema=stored,
    )
    pages = ParquetPages(stream, file)
    live = np.zeros(ROWS, dtype=bool)
    live[list(wanted)] = True
    for group in range(file.num_row_groups):
        part = live[group * group_rows : (group + 1) * group_rows]
        if not part.any():
            continue
        whole = file.read_row_group(group)
        for name in table.column_names:
            found = pages.rows(group, name, part)
            if name == "nested":
                assert found is None
            else:
                assert found is not None, name
                expected = whole.column(name).filter(pa.array(part)).combine_chunks()
                assert found.cast(expected.type).equals(expected), name


def test_only_the_pages_of_the_rows_are_read():
    table = pa.table({"text": [f"{n:0500d}" for n in range(20_000)]})
    sink = io.BytesIO()
    options = {"use_dictionary": False, "compression": "none", "write_page_index": True}
    pq.write_table(table, sink, max_rows_per_page=100, write_batch_size=100, **options)
    read = []

    class Recorded(io.BytesIO):
        def read(self, size=-1):
            read.append(size)
            return super().read(size)

    file = pq.ParquetFile(pa.BufferReader(sink.getvalue()))
    live = np.zeros(20_000, dtype=bool)
    live[[3, 15_000]] = True
    [first, last] = ParquetPages(Recorded(sink.getvalue()), file).rows(0, "text", live).to_pylist()
    assert (int(first), int(last)) == (3, 15_000)
    assert sum(read) < 200_000 < 5_000_000 < len(sink.getvalue())


def test_a_file_without_a_page_index_is_left_to_others():
    stream, file = opened(table_of(0, 0.0), write_page_index=False)
    assert ParquetPages(stream, file).rows(0, "long", np.ones(ROWS, dtype=bool)) is None


@pytest.mark.parametrize("damage", ["offset", "length", "first_row"])
def test_an_index_that_does_not_fit_is_left_alone(damage, monkeypatch):
    stream, file = opened(table_of(0, 0.0), write_page_index=True, max_rows_per_page=50, write_batch_size=50)
    read = ThriftReader.struct

    def damaged(self):
        found = read(self)
        if set(found) <= {1, 2} and found[1][0] == LIST:
            place = found[1][1][1][1]
            field = {"offset": 1, "length": 2, "first_row": 3}[damage]
            place[field] = (place[field][0], place[field][1] + 1_000)
        return found

    monkeypatch.setattr(ThriftReader, "struct", damaged)
    assert ParquetPages(stream, file).rows(0, "long", np.ones(ROWS, dtype=bool)) is None


def test_structs_survive_the_way_there_and_back():
    fields = {
        1: (I32, -1),
        2: (I64, 2**62),
        3: (BINARY, b"bytes"),
        4: (TRUE, True),
        5: (FALSE, False),
        6: (LIST, (I32, list(range(40)))),
        7: (LIST, (STRUCT, [{1: (I16, 5)}, {}])),
        8: (DOUBLE, 1.5),
        9: (BYTE, 7),
        60: (STRUCT, {1: (LIST, (BINARY, []))}),
    }
    assert ThriftReader(struct_bytes(fields)).struct() == fields


@pytest.mark.parametrize("data", [b"", b"\x15", b"\x18\x7fab", b"\x19\xff\xff\xff\xff\x0f", b"\x1d"])
def test_bytes_that_are_no_struct(data):
    with pytest.raises((IndexError, ValueError, struct.error)):
        ThriftReader(data).struct()
