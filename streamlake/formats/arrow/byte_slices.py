"""Builds an Arrow array of texts or bytes from ranges of one buffer, without a Python object per range."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

_Array = np.ndarray[Any, Any]


def slices(
    buffer: pa.Buffer, start: _Array, end: _Array, null: _Array | None, type_: pa.DataType
) -> pa.Array:
    """Ranges of `buffer` as an array of `type_` (string or binary).

    Item i is the bytes from `start`[i] up to `end`[i], or null where `null`[i]. The ranges (integers, below 2
    GiB) are in the order of the buffer and do not overlap. Text is not validated.
    """
    rows = len(start)
    if rows == 0:
        return pa.array([], type_)
    bounds: _Array = np.empty(2 * rows, dtype=np.int32)
    bounds[0::2] = start
    bounds[1::2] = end
    # The buffer is cut into pieces and every other one is kept: Arrow's filter copies them all at once.
    pieces = pa.Array.from_buffers(type_, 2 * rows - 1, [None, pa.py_buffer(bounds), buffer])
    chosen: _Array = np.zeros(2 * rows - 1, dtype=bool)
    chosen[0::2] = True
    if null is None or not null.any():
        return pc.filter(pieces, pa.array(chosen))
    unknown: _Array = np.zeros(2 * rows - 1, dtype=bool)
    unknown[0::2] = null
    return pc.filter(pieces, pa.array(chosen, mask=unknown), null_selection_behavior="emit_null")


def without_nulls(values: pa.Array) -> pa.Array:
    """The texts or bytes that are not null; not copied where nulls take no space in their buffer."""
    _, offset_buffer, data = values.buffers()
    offsets = np.frombuffer(offset_buffer, dtype=np.int32)[values.offset : values.offset + len(values) + 1]
    valid = values.is_valid().to_numpy(zero_copy_only=False)
    if np.diff(offsets)[~valid].any():
        return values.drop_null()
    bounds: _Array = np.append(offsets[:-1][valid], offsets[-1])
    return pa.Array.from_buffers(values.type, len(bounds) - 1, [None, pa.py_buffer(bounds), data])
