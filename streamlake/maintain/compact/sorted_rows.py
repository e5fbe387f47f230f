"""External sort: rows of any number in order, with a bounded part of them in memory.

Parts that fit into memory are sorted and written to a temporary directory, then merged block by block.
Invariant: rows that are equal in the order keep theirs.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from itertools import count
from tempfile import TemporaryDirectory

import numpy as np
import pyarrow as pa

from streamlake.errors import StorageError
from streamlake.write.rows.sort import RowSorter

_PART_BYTES = 192 * 1024 * 1024
_BLOCK_BYTES = 4 * 1024 * 1024
_AT_ONCE = 24
"""How many parts are merged at a time: their blocks are in memory twice."""


def sorted_rows(
    batches: Iterable[pa.Table],
    sorter: RowSorter,
    part_bytes: int = _PART_BYTES,
    block_bytes: int = _BLOCK_BYTES,
) -> Iterator[pa.Table]:
    """The rows of all tables in the sorter's order, in tables of about `block_bytes`.

    Raises StorageError where the temporary directory cannot be written.
    """
    with TemporaryDirectory(prefix="streamlake-sort-") as directory:
        parts = _Parts(directory, sorter, block_bytes)
        held: list[pa.Table] = []
        size = 0
        for batch in batches:
            held.append(batch)
            size += batch.nbytes
            if size >= part_bytes:
                parts.store(_in_blocks(sorter.sort(pa.concat_tables(held)), block_bytes))
                held, size = [], 0
        last = sorter.sort(pa.concat_tables(held)) if held else None
        if not parts.paths:
            yield from _in_blocks(last, block_bytes)
            return
        parts.store(_in_blocks(last, block_bytes))
        del held, last
        yield from parts.merged()


class _Parts:
    """The sorted parts in a directory, in the order in which their rows came."""

    def __init__(self, directory: str, sorter: RowSorter, block_bytes: int) -> None:
        self._directory = directory
        self._sorter = sorter
        self._block_bytes = block_bytes
        self._numbers = count()
        self.paths: list[str] = []

    def store(self, blocks: Iterable[pa.Table]) -> None:
        """Write one part."""
        path = self._write(blocks)
        if path is not None:
            self.paths.append(path)

    def merged(self) -> Iterator[pa.Table]:
        """The rows of all parts in order."""
        while len(self.paths) > _AT_ONCE:
            some, self.paths = self.paths[:_AT_ONCE], self.paths[_AT_ONCE:]
            path = self._write(self._merged(some))
            # At the front: the rows of equal keys must stay in the order of the parts.
            self.paths[:0] = [] if path is None else [path]
            for each in some:
                os.remove(each)
        yield from self._merged(self.paths)

    def _write(self, blocks: Iterable[pa.Table]) -> str | None:
        path = os.path.join(self._directory, f"{next(self._numbers)}.arrow")
        writer: pa.RecordBatchFileWriter | None = None
        try:
            for block in blocks:
                if writer is None:
                    options = pa.ipc.IpcWriteOptions(compression="lz4")
                    writer = pa.ipc.new_file(path, block.schema, options=options)
                writer.write_table(block.combine_chunks())
        except OSError as cause:
            raise StorageError(
                f"{path}: sorting needs space for temporary files ({cause}); free some there, set TMPDIR, or "
                "lower max-file-group-size-bytes"
            ) from cause
        finally:
            if writer is not None:
                writer.close()
        return None if writer is None else path

    def _merged(self, paths: Sequence[str]) -> Iterator[pa.Table]:
        """Each round gives all rows up to the smallest of the last rows of the blocks at hand."""
        parts = [_blocks(path) for path in paths]
        blocks = [next(part, None) for part in parts]
        while True:
            open_ = [at for at, block in enumerate(blocks) if block is not None]
            if len(open_) <= 1:
                for at in open_:
                    yield blocks[at]
                    yield from parts[at]
                return
            at_hand = [block for block in blocks if block is not None]
            lasts = pa.concat_tables([block.slice(block.num_rows - 1) for block in at_hand])
            first = int(self._sorter.order(lasts)[0].as_py())
            sizes = [block.num_rows for block in at_hand]
            ends = np.cumsum(sizes)
            together = pa.concat_tables(at_hand)
            order = self._sorter.order(together).to_numpy()
            upto = int(np.flatnonzero(order == ends[first] - 1)[0]) + 1
            yield from _in_blocks(together.take(pa.array(order[:upto])), self._block_bytes)
            taken = np.bincount(np.searchsorted(ends, order[:upto], side="right"), minlength=len(open_))
            for at, block, gone in zip(open_, at_hand, taken.tolist(), strict=True):
                left = block.slice(gone)
                blocks[at] = left if left.num_rows else next(parts[at], None)


def _blocks(path: str) -> Iterator[pa.Table]:
    with pa.memory_map(path) as source:
        reader = pa.ipc.open_file(source)
        for number in range(reader.num_record_batches):
            yield pa.Table.from_batches([reader.get_batch(number)])


def _in_blocks(rows: pa.Table | None, block_bytes: int) -> Iterator[pa.Table]:
    if rows is None or not rows.num_rows:
        return
    step = max(1, rows.num_rows * block_bytes // max(1, rows.nbytes))
    for start in range(0, rows.num_rows, step):
        yield rows.slice(start, step)
