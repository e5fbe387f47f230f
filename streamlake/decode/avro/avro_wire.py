"""Avro's binary encoding, read one field of many records at a time (Avro specification, Binary Encoding).

A `Block` holds the bytes of many values; an array of positions says where each value's next field is. Every
read returns the values and the positions after them, in numpy and for all values at once. No Python code runs
per value. Invariant: nothing outside of the block is read, and a length never leads backwards. At the end,
the caller checks whether each value ends where its record ends.
"""

from __future__ import annotations

import sys
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamlake.decode.values.text_columns import NotBulkError

Numbers = np.ndarray[Any, Any]
"""(n,) int64."""

_PAD = 16
_LOW_BITS = np.uint64(0x7F7F7F7F7F7F7F7F)
_HIGH_BITS = np.uint64(0x8080808080808080)
_MAX_BYTES = 2_000_000_000

assert sys.byteorder == "little", "words of the payload are taken for little-endian"


class DamagedError(NotBulkError):
    """At least one of the values does not match its schema; the message gives the reason, not the value."""


class Block:
    """Bytes to read from; positions count from their start."""

    def __init__(self, data: Any, *, patient: bool = False) -> None:
        """`data` is (n,) uint8.

        `patient` readers go on where reading all values at once takes longer than one by one.
        """
        self.size = len(data)
        self.patient = patient
        self.data: Any = np.empty(self.size + _PAD, dtype=np.uint8)
        self.data[: self.size] = data
        # Every byte of the padding ends a number, so that reading past the end stops at once and is noticed.
        self.data[self.size :] = 0
        self._words: Any = np.ndarray((self.size + _PAD - 7,), "<u8", self.data, strides=(1,))
        self._buffer = pa.py_buffer(self.data)

    def varints(self, at: Numbers) -> tuple[Numbers, Numbers]:
        """The zigzag variable-length integers at `at` as int64, and the positions after them.

        Raises DamagedError.
        """
        self._inside(at)
        first = self.data[at]
        if not len(at) or int(first.max()) < 128:
            raw = first.astype(np.int64)
            return (raw >> 1) ^ -(raw & 1), at + 1
        more = first > 127
        second = self.data[at + 1]
        if not (second[more] > 127).any():
            raw = np.where(more, first & 127 | second.astype(np.uint16) << 7, first).astype(np.int64)
            after = at + 1 + more
            self._not_behind(after)
            return (raw >> 1) ^ -(raw & 1), after
        words = self._words[at]
        stops = ~words & _HIGH_BITS
        lowest = stops & (~stops + np.uint64(1))
        packed = words & (lowest - np.uint64(1)) & _LOW_BITS
        packed = (packed & np.uint64(0x007F007F007F007F)) | (
            packed & np.uint64(0x7F007F007F007F00)
        ) >> np.uint64(1)
        packed = (packed & np.uint64(0x00003FFF00003FFF)) | (
            packed & np.uint64(0x3FFF00003FFF0000)
        ) >> np.uint64(2)
        packed = (packed & np.uint64(0x000000000FFFFFFF)) | (
            packed & np.uint64(0x0FFFFFFF00000000)
        ) >> np.uint64(4)
        # A power of two is exact as a double, whose exponent is then the bit's number: 8 x bytes - 1.
        bit = (lowest.astype(np.float64).view(np.int64) >> 52) - 1023
        size = (bit + 1) >> 3
        long = np.flatnonzero(stops == 0)
        if len(long):
            packed[long], size[long] = self._long(at[long], words[long])
        values = (packed >> np.uint64(1)).view(np.int64) ^ -(packed & np.uint64(1)).view(np.int64)
        after = at + size
        self._not_behind(after)
        return values, after

    def _long(self, at: Numbers, words: Any) -> tuple[Any, Numbers]:
        """Numbers of nine or ten bytes."""
        low = words & _LOW_BITS
        packed: Any = np.zeros(len(at), dtype=np.uint64)
        for number in range(8):
            packed |= ((low >> np.uint64(8 * number)) & np.uint64(0x7F)) << np.uint64(7 * number)
        ninth, tenth = self.data[at + 8], self.data[at + 9]
        packed |= (ninth & 0x7F).astype(np.uint64) << np.uint64(56)
        more = ninth > 127
        if (tenth[more] > 1).any():
            raise DamagedError("a number is longer than 64 bits")
        packed[more] |= tenth[more].astype(np.uint64) << np.uint64(63)
        return packed, np.where(more, 10, 9)

    def runs(self, at: Numbers, counts: Numbers) -> tuple[Numbers, Numbers]:
        """Where each of `counts` integers in a row begins, from each position on, and where they end."""
        self._inside(at[counts > 0])
        firsts = np.searchsorted(self._number_ends, at)
        lasts = firsts + counts
        if len(lasts) and int(lasts.max()) > len(self._number_ends):
            raise DamagedError("it ends before its last item")
        starts = np.cumsum(counts) - counts
        number = np.arange(int(counts.sum()), dtype=np.int64) + np.repeat(firsts - starts, counts)
        begins = self._number_ends[number - 1] + 1
        begins[starts[counts > 0]] = at[counts > 0]
        after = at.copy()
        some = counts > 0
        after[some] = self._number_ends[lasts[some] - 1] + 1
        return begins, after

    @cached_property
    def _number_ends(self) -> Numbers:
        """Every position where a variable-length integer could end."""
        return np.flatnonzero(self.data[: self.size] < 128)

    def lengths(self, at: Numbers) -> tuple[Numbers, Numbers]:
        """Where each string or bytes value begins and where it ends. Raises DamagedError."""
        length, start = self.varints(at)
        if len(length) and int(length.min()) < 0:
            raise DamagedError(f"a length is negative ({int(length.min())})")
        end = start + np.minimum(length, _MAX_BYTES)
        self._not_behind(end)
        return start, end

    def fixed(self, at: Numbers, width: int) -> Any:
        """Values of `width` bytes each, (n, width) uint8. Raises DamagedError past the end."""
        self._not_behind(at + width)
        if not len(at) or not width:
            return np.empty((len(at), width), dtype=np.uint8)
        rows: Any = np.ndarray(
            (self.size + _PAD - width + 1,), np.dtype((np.void, width)), self.data, strides=(1,)
        )
        return rows[at].view(np.uint8).reshape(len(at), width)

    def words(self, at: Numbers, dtype: str) -> Any:
        """Little-endian floats of a fixed width, `dtype` "<f4" or "<f8". Raises DamagedError past the end."""
        width = np.dtype(dtype).itemsize
        self._not_behind(at + width)
        numbers: Any = np.ndarray((self.size + _PAD - width + 1,), dtype, self.data, strides=(1,))
        return numbers[at]

    def bytes(self, at: Numbers) -> Any:
        """One byte at each position, (n,) uint8. Raises DamagedError past the end."""
        self._inside(at)
        return self.data[at]

    def slices(self, start: Numbers, end: Numbers, type_: pa.DataType) -> pa.Array:
        """Byte ranges, in ascending order, as an array of binary `type_`.

        Raises DamagedError where they overlap.
        """
        if (start[1:] < end[:-1]).any():
            raise DamagedError("a value reaches into the next record")
        return byte_ranges(self._buffer, start, end, type_)

    def _inside(self, at: Numbers) -> None:
        # An empty selection has no maximum.
        if len(at) and int(at.max()) >= self.size:
            raise DamagedError("it ends before its last field")

    def _not_behind(self, at: Numbers) -> None:
        if len(at) and int(at.max()) > self.size:
            raise DamagedError("it ends before its last field")


def byte_ranges(buffer: pa.Buffer, start: Numbers, end: Numbers, type_: pa.DataType) -> pa.Array:
    """Ranges of a buffer as an array of binary `type_`, without the bytes between them.

    The ranges are in ascending order and do not overlap.
    """
    rows = len(start)
    if not rows:
        return pa.array([], type_)
    bounds: Any = np.empty(2 * rows, dtype=np.int32)
    bounds[0::2] = start
    bounds[1::2] = end
    pieces = pa.Array.from_buffers(type_, 2 * rows - 1, [None, pa.py_buffer(bounds), buffer])
    return pc.take(pieces, pa.array(np.arange(0, 2 * rows, 2, dtype=np.int32)))
