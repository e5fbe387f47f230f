"""The registry's wire format: a magic byte, the id of the schema in four bytes, and then the value.

Between the raw batch and the decoder of the value, for all records at once. A message index, as Protobuf has it after
the id, is not read: Protobuf is refused where its schema is met.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from streamlake.decode.avro_decoder import Failure, Payloads
from streamlake.decode.avro_wire import byte_ranges

HEADER_BYTES = 5
_MAGIC = 0


def schema_ids(values: pa.Array, failure: Failure) -> Any:
    """The id of every value, (n,) int64, of a binary array without nulls.

    Raises what `failure` makes of the first value that is not in the wire format.
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
            f"it {found}, and not with the byte 0 and a schema id of 4 bytes, as everything that was serialized with a "
            "schema registry does",
        )
    ids: Any = np.zeros(len(whole), dtype=np.int64)
    for number in range(1, HEADER_BYTES):
        ids = ids << 8 | whole.data[whole.starts + number]
    return ids


def unframed(at: int, reason: str) -> Exception:
    """For values that were decoded before."""
    return AssertionError(f"value {at}: {reason}")


def without_header(values: pa.Array) -> pa.Array:
    """The values less their headers, as a binary array."""
    if not len(values):
        return values
    # Arrow's own binary_slice fails on small arrays (26.0: "Negative buffer resize").
    _, offset_buffer, data = values.buffers()
    offsets = np.frombuffer(offset_buffer, dtype=np.int32)[values.offset : values.offset + len(values) + 1]
    return byte_ranges(data, offsets[:-1] + HEADER_BYTES, offsets[1:], pa.binary())
