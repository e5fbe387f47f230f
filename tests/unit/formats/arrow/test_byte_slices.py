"""Arrays without their nulls, with and without bytes behind them."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from streamlake.formats.arrow.byte_slices import without_nulls


@pytest.mark.parametrize(
    "found", [[b"a", None, b"", None, None, b"bc"], [None], [b"x"], [], [None, b"y"], [b"z", None]]
)
@pytest.mark.parametrize("cut", [0, 1])
def test_nulls_are_left_out_and_nothing_is_copied(found, cut):
    values = pa.array([b"before", *found], pa.binary()).slice(1)[: len(found) - cut]
    there = without_nulls(values)
    there.validate(full=True)
    assert there.to_pylist() == [one for one in values.to_pylist() if one is not None]
    assert there.null_count == 0
    if len(there):
        assert there.buffers()[2].address == values.buffers()[2].address


def test_bytes_behind_a_null_are_left_out_too():
    data, offsets = b"abcdef", np.array([0, 2, 4, 6], dtype=np.int32)
    bits = np.array([0b101], dtype=np.uint8)
    values = pa.Array.from_buffers(
        pa.binary(), 3, [pa.py_buffer(bits), pa.py_buffer(offsets), pa.py_buffer(data)]
    )
    assert without_nulls(values).to_pylist() == [b"ab", b"ef"]
