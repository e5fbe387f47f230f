"""Reads a few rows of a Parquet row group from only the pages that hold them.

pyarrow reads whole column chunks. Where the file has a page index (spec of Parquet: Page Index), the wanted
pages of one column are put behind a footer of their own, and pyarrow decodes that. Invariant: what does not
look exactly as expected is left to the reader of whole chunks, never guessed.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from streamlake.formats.parquet.thrift_compact import (
    I32,
    I64,
    LIST,
    STRUCT,
    Struct,
    ThriftReader,
    struct_bytes,
)

Array = np.ndarray[Any, Any]

_MAGIC = b"PAR1"
_GAP_BYTES = 1 << 18
_SCHEMA, _ROWS, _ROW_GROUPS, _KEY_VALUES, _COLUMN_ORDERS = 2, 3, 4, 5, 7
_GROUP_COLUMNS, _GROUP_BYTES, _GROUP_ROWS = 1, 2, 3
_CHUNK_START, _CHUNK_META, _INDEX_OFFSET, _INDEX_LENGTH = 2, 3, 4, 5
_VALUES, _UNPACKED, _PACKED, _DATA_PAGE, _INDEX_PAGE, _DICTIONARY_PAGE, _STATISTICS = 5, 6, 7, 9, 10, 11, 12
_CHILDREN = 5


@dataclass(frozen=True, eq=False)
class _Pages:
    """The pages of one column chunk: start, bytes and first row of each, and where the chunk starts."""

    offsets: Array
    sizes: Array
    first_rows: Array
    chunk_start: int


class ParquetPages:
    """Reads rows of flat columns of one open file by their pages."""

    def __init__(self, stream: BinaryIO, file: pq.ParquetFile) -> None:
        self._stream = stream
        self._footer = file.metadata
        self._flat = {
            column.path: index
            for index in range(self._footer.num_columns)
            if (column := file.schema.column(index)).max_repetition_level == 0 and "." not in column.path
        }
        self._metadata: Struct | None = None

    def rows(self, group: int, name: str, live: Array) -> pa.Array | None:
        """The rows of a group for which `live` is true; None when whole chunks have to be read for them.

        `live` is (rows of the group,) bool. Raises OSError and pyarrow's errors.
        """
        index = self._flat.get(name)
        if index is None or not self._footer.row_group(group).column(index).has_offset_index:
            return None
        try:
            chunk = self._chunk(group, index)
            pages = self._pages(chunk, len(live))
        except (KeyError, ValueError, IndexError, TypeError, struct.error):
            return None
        if pages is None:
            return None
        ends: Array = np.append(pages.first_rows[1:], len(live))
        wanted = np.flatnonzero(np.add.reduceat(live, pages.first_rows, dtype=np.int64))
        starts, stops = pages.first_rows[wanted], ends[wanted]
        column = self._decoded(chunk, index, pages, wanted, int((stops - starts).sum()))
        if column is None:
            return None
        keep = np.concatenate([live[start:stop] for start, stop in zip(starts, stops, strict=True)])
        return column.filter(pa.array(keep)).combine_chunks()

    def _chunk(self, group: int, index: int) -> Struct:
        if self._metadata is None:
            end = self._stream.seek(0, 2)
            length = struct.unpack("<I", self._read_at(end - 8, 8)[:4])[0]
            self._metadata = ThriftReader(self._read_at(end - 8 - length, length)).struct()
        groups = self._metadata[_ROW_GROUPS][1][1]
        chunk: Struct = groups[group][_GROUP_COLUMNS][1][1][index]
        return chunk

    def _pages(self, chunk: Struct, rows: int) -> _Pages | None:
        found = ThriftReader(self._read_at(chunk[_INDEX_OFFSET][1], chunk[_INDEX_LENGTH][1])).struct()
        places = [[place[field][1] for field in (1, 2, 3)] for place in found[1][1][1]]
        offsets, sizes, first_rows = np.array(places, dtype=np.int64).reshape(-1, 3).T
        meta = chunk[_CHUNK_META][1]
        start = meta[_DATA_PAGE][1]
        dictionary = meta.get(_DICTIONARY_PAGE, (I64, 0))[1]
        start = min(start, dictionary) if dictionary > 0 else start
        end = start + meta[_PACKED][1]
        fits = (
            len(offsets)
            and first_rows[0] == 0
            and first_rows[-1] < rows
            and (np.diff(first_rows) > 0).all()
            and offsets[0] >= start
            and (offsets[1:] >= offsets[:-1] + sizes[:-1]).all()
            and offsets[-1] + sizes[-1] <= end
            and meta[_VALUES][1] == rows
        )
        return _Pages(offsets, sizes, first_rows, start) if fits else None

    def _decoded(
        self, chunk: Struct, index: int, pages: _Pages, wanted: Array, rows: int
    ) -> pa.ChunkedArray | None:
        """All rows of the wanted pages."""
        dictionary = int(pages.offsets[0]) - pages.chunk_start
        ranges = [(pages.chunk_start, dictionary)] if dictionary else []
        ranges += zip(pages.offsets[wanted].tolist(), pages.sizes[wanted].tolist(), strict=True)
        body = b"".join(self._read(ranges))
        footer = self._footer_of(chunk, index, dictionary, len(body), rows)
        whole = b"".join((_MAGIC, body, footer, struct.pack("<I", len(footer)), _MAGIC))
        read = pq.ParquetFile(pa.BufferReader(whole), coerce_int96_timestamp_unit="us").read(
            use_threads=False
        )
        return read.column(0) if read.num_columns == 1 and read.num_rows == rows else None

    def _read(self, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        """The bytes of ascending (offset, length) ranges; neighbouring ranges are read together."""
        runs: list[list[tuple[int, int]]] = []
        for offset, length in ranges:
            if runs and offset - sum(runs[-1][-1]) <= _GAP_BYTES:
                runs[-1].append((offset, length))
            else:
                runs.append([(offset, length)])
        parts = []
        for run in runs:
            start = run[0][0]
            data = self._read_at(start, sum(run[-1]) - start)
            parts += [data[offset - start : offset - start + length] for offset, length in run]
        return parts

    def _read_at(self, offset: int, length: int) -> bytes:
        # pyarrow may still be reading the same stream itself.
        read_at = getattr(self._stream, "read_at", None)
        if read_at is not None:
            return bytes(read_at(length, offset))
        self._stream.seek(offset)
        return self._stream.read(length)

    def _footer_of(self, chunk: Struct, index: int, dictionary: int, size: int, rows: int) -> bytes:
        """A footer for one column chunk at the beginning of its file."""
        assert self._metadata is not None
        at = len(_MAGIC)
        meta = {key: value for key, value in chunk[_CHUNK_META][1].items() if key <= _DICTIONARY_PAGE}
        meta.pop(_INDEX_PAGE, None)
        meta.pop(_DICTIONARY_PAGE, None)
        if dictionary:
            meta[_DICTIONARY_PAGE] = (I64, at)
        meta |= {
            _VALUES: (I64, rows),
            _UNPACKED: (I64, meta[_UNPACKED][1]),
            _PACKED: (I64, size),
            _DATA_PAGE: (I64, at + dictionary),
        }
        column = {_CHUNK_START: (I64, at), _CHUNK_META: (STRUCT, meta)}
        group = {
            _GROUP_COLUMNS: (LIST, (STRUCT, [column])),
            _GROUP_BYTES: (I64, size),
            _GROUP_ROWS: (I64, rows),
        }
        root, *elements = self._metadata[_SCHEMA][1][1]
        leaves = [element for element in elements if not element.get(_CHILDREN, (I32, 0))[1]]
        footer = {
            key: value for key, value in self._metadata.items() if key not in (_KEY_VALUES, _COLUMN_ORDERS)
        }
        footer |= {
            _SCHEMA: (LIST, (STRUCT, [{**root, _CHILDREN: (I32, 1)}, leaves[index]])),
            _ROWS: (I64, rows),
            _ROW_GROUPS: (LIST, (STRUCT, [group])),
        }
        return struct_bytes(footer)
