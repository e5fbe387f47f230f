"""Shuffle blocks: rows of one table and bucket as one binary value, from reading to writing tasks.

Between the two tasks of the direct path's job Spark moves a few thousand shuffle blocks instead of millions
of rows. None of these rows ever becomes a row of Spark's, so that columns are not turned into rows and back.
Invariant: a shuffle block holds rows of one slot only, in the order of the source, and `place` orders the
shuffle blocks of a slot in the same way, except for those that are AHEAD. The columns of its batch arrive
unchanged, whatever they are.
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

SHUFFLE_BLOCKS = pa.schema(
    [
        pa.field("slot", pa.int32(), nullable=False),
        pa.field("place", pa.int64(), nullable=False),
        pa.field("rows", pa.binary()),
        pa.field("error", pa.binary()),
        pa.field("newest", pa.binary()),
    ]
)
SHUFFLE_BLOCKS_DDL = "slot int not null, place long not null, rows binary, error binary, newest binary"
MAX_BYTES = 1 << 20
AHEAD = -1
"""The place of blocks that come before all rows of a slot."""


@dataclass(frozen=True)
class ShuffleBlock:
    """One shuffle block for a slot: rows as the bytes of an Arrow stream, or the error that took their place.

    `newest`: see Watermarks; it is of the records that were read with these, whichever slot they went to.
    """

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
    """Rows of one slot as batches of the schema SHUFFLE_BLOCKS, in shuffle blocks of about MAX_BYTES.

    `place` is that of the first row; that of each further row is at least one higher.
    """
    parts = max(1, -(-rows.nbytes // MAX_BYTES))
    step = max(1, -(-rows.num_rows // parts))
    for low in range(0, rows.num_rows, step):
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, rows.schema) as writer:
            writer.write_batch(rows.slice(low, step))
        yield _shuffle_block(slot, place + low, sink.getvalue().to_pybytes(), None)


def packed_error(slot: int, place: int, error: StreamlakeError) -> pa.RecordBatch:
    """An error in place of a slot's rows."""
    return _shuffle_block(slot, place, None, pickle.dumps(error))


def packed_note(slot: int, place: int, newest: bytes | None, error: StreamlakeError | None) -> pa.RecordBatch:
    """Watermarks or an error that are reported beside rows, at a slot of their own."""
    shuffle_block = _shuffle_block(slot, place, None, None if error is None else pickle.dumps(error))
    return shuffle_block.set_column(4, SHUFFLE_BLOCKS.field("newest"), pa.array([newest], pa.binary()))


def noted(shuffle_blocks: Iterator[pa.RecordBatch], newest: bytes | None) -> Iterator[pa.RecordBatch]:
    """The shuffle blocks, the first of them with the watermarks that were read with them."""
    for shuffle_block in shuffle_blocks:
        if newest is not None:
            shuffle_block = shuffle_block.set_column(
                4, SHUFFLE_BLOCKS.field("newest"), pa.array([newest], pa.binary())
            )
            newest = None
        yield shuffle_block


def by_bucket(rows: pa.RecordBatch, buckets: Array) -> Iterator[tuple[int, pa.RecordBatch]]:
    """The rows of each bucket that has any; `buckets` (n,) is each row's bucket. The order of rows stays."""
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


def unpacked(batches: Iterator[pa.RecordBatch]) -> Iterator[ShuffleBlock]:
    """The shuffle blocks in batches of the schema SHUFFLE_BLOCKS, one after the other."""
    for batch in batches:
        slots, _, rows, errors, newest = batch.columns
        for at in range(batch.num_rows):
            error = errors[at].as_py()
            yield ShuffleBlock(
                slots[at].as_py(),
                rows[at].as_py(),
                None if error is None else pickle.loads(bytes(error)),
                newest[at].as_py(),
            )


def _shuffle_block(slot: int, place: int, rows: bytes | None, error: bytes | None) -> pa.RecordBatch:
    arrays = [pa.array([slot], pa.int32()), pa.array([place], pa.int64())]
    arrays += [pa.array([rows], pa.binary()), pa.array([error], pa.binary()), pa.nulls(1, pa.binary())]
    return pa.RecordBatch.from_arrays(arrays, schema=SHUFFLE_BLOCKS)
