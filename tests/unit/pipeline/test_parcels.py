"""Parcels: rows by bucket, there and back."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamlake.errors import DecodeError
from streamlake.pipeline.parcels import MAX_BYTES, PARCELS, by_bucket, packed, packed_error, unpacked


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
        parcels = list(unpacked(iter(packed(bucket, 5, part))))
        assert [parcel.slot for parcel in parcels] == [bucket] * len(parcels)
        back = pa.Table.from_batches([each for parcel in parcels for each in parcel.batches()])
        assert back.equals(pa.Table.from_batches([part]))


def test_many_rows_become_parcels_of_bounded_size_in_order() -> None:
    rows = pa.RecordBatch.from_pydict({"v": ["x" * 1_000] * 5_000})
    parcels = list(packed(2, 100, rows.slice(500)))
    assert all(parcel.schema.equals(PARCELS) for parcel in parcels)
    assert len(parcels) > 1
    assert max(parcel.nbytes for parcel in parcels) < 2 * MAX_BYTES
    places = [parcel.column("place")[0].as_py() for parcel in parcels]
    assert places[0] == 100
    assert places == sorted(set(places))
    assert sum(b.num_rows for each in unpacked(iter(parcels)) for b in each.batches()) == 4_500


def test_no_rows_make_no_parcel() -> None:
    assert not list(by_bucket(batch(0), np.zeros(0, dtype=np.int32)))
    assert not list(packed(0, 0, batch(0)))


def test_an_error_takes_the_place_of_rows() -> None:
    (parcel,) = unpacked(iter([packed_error(3, 0, DecodeError("t-0 offset 5: no"))]))
    assert parcel.slot == 3
    with pytest.raises(DecodeError, match="offset 5"):
        list(parcel.batches())
