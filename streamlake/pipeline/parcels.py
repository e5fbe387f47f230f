"""Parcels: rows of one table and bucket on their way from the tasks that read to those that write, as one binary value.

Between the two tasks of the direct path's job Spark moves a few thousand parcels instead of millions of rows, and none of
them is ever a row of Spark's: that spares turning columns into rows and back. Invariant: a parcel holds rows of one slot
only, in the order of the source, and `place` orders the parcels of a slot in the same way, but for what is AHEAD; whatever columns its batch has arrive as they are.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from streamlake.errors import StreamlakeError

Array = Any  # numpy array

PARCELS = pa.schema(
    [
        pa.field("slot", pa.int32(), nullable=False),
        pa.field("place", pa.int64(), nullable=False),
        pa.field("rows", pa.binary()),
        pa.field("error", pa.binary()),
        pa.field("newest", pa.binary()),
    ]
)
PARCELS_DDL = "slot int not null, place long not null, rows binary, error binary, newest binary"
MAX_BYTES = 1 << 20
AHEAD = -1
"""The place of what a slot gets before all rows."""


@dataclass(frozen=True)
class Parcel:
    """One parcel for a slot: rows as the bytes of an Arrow stream, or the error that took their place. `newest`: see
    NewestTimes; it is of the records that were read with these, whichever slot they went to."""

    slot: int
    rows: bytes | None
    error: StreamlakeError | None = None
    newest: bytes | None = None

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The rows. Raises the error."""
        if self.error is not None:
            raise self.error
        if self.rows is not None:
            yield from pa.ipc.open_stream(pa.py_buffer(self.rows))


def packed(slot: int, place: int, rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Rows of one slot as batches of the schema PARCELS, in parcels of about MAX_BYTES; `place` is that of the first row,
    and each of the others is at least one further."""
    parts = max(1, -(-rows.nbytes // MAX_BYTES))
    step = max(1, -(-rows.num_rows // parts))
    for low in range(0, rows.num_rows, step):
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, rows.schema) as writer:
            writer.write_batch(rows.slice(low, step))
        yield _parcel(slot, place + low, sink.getvalue().to_pybytes(), None)


def packed_error(slot: int, place: int, error: StreamlakeError) -> pa.RecordBatch:
    """An error in place of a slot's rows."""
    return _parcel(slot, place, None, pickle.dumps(error))


def packed_note(slot: int, place: int, newest: bytes | None, error: StreamlakeError | None) -> pa.RecordBatch:
    """What is to be told beside rows, at a slot of its own."""
    parcel = _parcel(slot, place, None, None if error is None else pickle.dumps(error))
    return parcel.set_column(4, PARCELS.field("newest"), pa.array([newest], pa.binary()))


def noted(parcels: Iterator[pa.RecordBatch], newest: bytes | None) -> Iterator[pa.RecordBatch]:
    """The parcels, the first of them with a note of the newest times that were read with them."""
    for parcel in parcels:
        if newest is not None:
            parcel = parcel.set_column(4, PARCELS.field("newest"), pa.array([newest], pa.binary()))
            newest = None
        yield parcel


def by_bucket(rows: pa.RecordBatch, buckets: Array) -> Iterator[tuple[int, pa.RecordBatch]]:
    """The rows of each bucket that has any, (n,) `buckets` telling whose each row is; their order stays."""
    if not len(buckets):
        return
    if (buckets == buckets[0]).all():
        yield int(buckets[0]), rows
        return
    order = np.argsort(buckets, kind="stable")
    sorted_rows = rows.take(pa.array(order))
    found, starts = np.unique(buckets[order], return_index=True)
    for bucket, low, high in zip(found, starts, [*starts[1:], len(buckets)], strict=True):
        yield int(bucket), sorted_rows.slice(int(low), int(high - low))


def unpacked(batches: Iterator[pa.RecordBatch]) -> Iterator[Parcel]:
    """The parcels of batches of the schema PARCELS, one after the other."""
    for batch in batches:
        slots, _, rows, errors, newest = batch.columns
        for at in range(batch.num_rows):
            error = errors[at].as_py()
            yield Parcel(
                slots[at].as_py(),
                rows[at].as_py(),
                None if error is None else pickle.loads(bytes(error)),
                newest[at].as_py(),
            )


def _parcel(slot: int, place: int, rows: bytes | None, error: bytes | None) -> pa.RecordBatch:
    arrays = [pa.array([slot], pa.int32()), pa.array([place], pa.int64())]
    arrays += [pa.array([rows], pa.binary()), pa.array([error], pa.binary()), pa.nulls(1, pa.binary())]
    return pa.RecordBatch.from_arrays(arrays, schema=PARCELS)
