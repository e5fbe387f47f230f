"""The schema registry's wire format: a magic byte, the schema's id in four bytes, and then the value.

Stands between the raw batch and the value's decoder, for all records at once. A message index, which Protobuf
has after the id, is not read: Protobuf is refused when its schema is fetched.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from streamlake.decode.avro.avro_decoder import Failure, Payloads
from streamlake.decode.avro.avro_wire import byte_ranges

HEADER_BYTES = 5
_MAGIC = 0


def schema_ids(values: pa.Array, failure: Failure) -> Any:
    """The schema id of every value, (n,) int64, of a binary array without nulls.

    For the first value that is not in the wire format, raises what `failure` makes of its index and reason.
    """
    whole = Payloads.of(values)
    short = whole.stops - whole.starts < HEADER_BYTES
    at = np.where(short, 0, whole.starts)
    wrong = short if not len(whole.data) else short | (whole.data[at] != _MAGIC)
    if wrong.any():
        row = int(np.flatnonzero(wrong)[0])
        size = int(whole.stops[row] - whole.starts[row])
        found = (
            f"has {size} bytes"
            if short[row]
            else f"begins with the byte {int(whole.data[whole.starts[row]])}"
        )
        raise failure(
            row,
            f"it {found}, and not with the byte 0 and a schema id of 4 bytes, as everything that was "
            "serialized with a schema registry does",
        )
    ids: Any = np.zeros(len(whole), dtype=np.int64)
    for number in range(1, HEADER_BYTES):
        ids = ids << 8 | whole.data[whole.starts + number]
    return ids


def unframed(at: int, reason: str) -> Exception:
    """The failure for values that were decoded before, so that it cannot happen."""
    return AssertionError(f"value {at}: {reason}")


def without_header(values: pa.Array) -> pa.Array:
    """The values without their headers, as a binary array."""
    if not len(values):
        return values
    # Arrow's own binary_slice fails on small arrays (26.0: "Negative buffer resize").
    _, offset_buffer, data = values.buffers()
    offsets = np.frombuffer(offset_buffer, dtype=np.int32)[values.offset : values.offset + len(values) + 1]
    return byte_ranges(data, offsets[:-1] + HEADER_BYTES, offsets[1:], pa.binary())
