"""Parcels: rows by bucket, there and back."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamlake.errors import DecodeError
from streamlake.tasks.shuffle_blocks import (
    MAX_BYTES,
    SHUFFLE_BLOCKS,
    by_bucket,
    packed,
    packed_error,
    unpacked,
)


def batch(rows: int) -> pa.RecordBatch:
    columns = {
        "id": pa.array(range(rows), pa.int64()),
        "text": pa.array([None if at % 7 == 0 else "x" * (at % 50) for at in range(rows)]),
        "list": pa.array([[at] * (at % 3) for at in range(rows)], pa.list_(pa.int32())),
    }
    return pa.RecordBatch.from_pydict(columns)


@settings(deadline=None)
@given(st.lists(st.integers(0, 3), min_size=1, max_size=60))
def test_rows_go_to_their_buckets_in_their_order(buckets: list[int]) -> None:
    rows = batch(len(buckets))
    found = dict(by_bucket(rows, np.array(buckets, dtype=np.int32)))
    assert found.keys() == set(buckets)
    for bucket, part in found.items():
        assert part.column("id").to_pylist() == [at for at, each in enumerate(buckets) if each == bucket]
        shuffle_blocks = list(unpacked(iter(packed(bucket, 5, part))))
        assert [shuffle_block.slot for shuffle_block in shuffle_blocks] == [bucket] * len(shuffle_blocks)
        back = pa.Table.from_batches(
            [each for shuffle_block in shuffle_blocks for each in shuffle_block.batches()]
        )
        assert back.equals(pa.Table.from_batches([part]))


def test_many_rows_become_parcels_of_bounded_size_in_order() -> None:
    rows = pa.RecordBatch.from_pydict({"v": ["x" * 1_000] * 5_000})
    shuffle_blocks = list(packed(2, 100, rows.slice(500)))
    assert all(shuffle_block.schema.equals(SHUFFLE_BLOCKS) for shuffle_block in shuffle_blocks)
    assert len(shuffle_blocks) > 1
    assert max(shuffle_block.nbytes for shuffle_block in shuffle_blocks) < 2 * MAX_BYTES
    places = [shuffle_block.column("place")[0].as_py() for shuffle_block in shuffle_blocks]
    assert places[0] == 100
    assert places == sorted(set(places))
    assert sum(b.num_rows for each in unpacked(iter(shuffle_blocks)) for b in each.batches()) == 4_500


def test_no_rows_make_no_parcel() -> None:
    assert not list(by_bucket(batch(0), np.zeros(0, dtype=np.int32)))
    assert not list(packed(0, 0, batch(0)))


def test_an_error_takes_the_place_of_rows() -> None:
    (shuffle_block,) = unpacked(iter([packed_error(3, 0, DecodeError("t-0 offset 5: no"))]))
    assert shuffle_block.slot == 3
    with pytest.raises(DecodeError, match="offset 5"):
        list(shuffle_block.batches())
