"""Readers of plain Avro values: positions in a block -> one Arrow array and the positions after it.

A reader reads all values of one field at once. `avro_plan` makes it for one type of the writer and one column
type. Invariant: `read` and `skip` move by the same bytes, and `read` gives what `converted` makes of the
values that a library decodes one by one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamlake.decode.avro.avro_wire import Block, DamagedError, Numbers
from streamlake.decode.values.text_columns import NotBulkError

Convert = Callable[[pa.Array], pa.Array]
Read = Callable[[Block, Numbers], tuple[pa.Array, Numbers]]

_ROUNDS = 64
_FEW = 8
_MAX_EMPTY_ITEMS = 1 << 20


class UnevenError(NotBulkError):
    """A few values have so many items that reading all item by item is slower than one value at a time."""


class Reader:
    """Reads one field of many values.

    `width` is its size in bytes where that is fixed, `least` the smallest size. `stored` is the Arrow type of
    a library's plain values (None: there is no such type). `converted` converts an array of that type,
    without nulls at its own level, to the column type.
    """

    stored: pa.DataType | None
    width: int | None = None
    least: int = 1

    def read(self, block: Block, at: Numbers) -> tuple[pa.Array, Numbers]:
        """An array of the column type, and the positions after the values. Raises NotBulkError."""
        raise NotImplementedError

    def skip(self, block: Block, at: Numbers) -> Numbers:
        """The positions after the values. Raises NotBulkError."""
        raise NotImplementedError

    def converted(self, array: pa.Array) -> pa.Array:
        """An array of type `stored` converted to the column type. Raises NotBulkError."""
        raise NotImplementedError

    def read_items(self, block: Block, at: Numbers, counts: Numbers) -> tuple[pa.Array, Numbers]:
        """`counts` consecutive values from each position: all of the first, all of the second, and so on.

        Gives the array and the positions after the values. Raises NotBulkError.
        """
        if self.width is not None:
            return self.read(block, _strided(at, counts, self.width))[0], at + counts * self.width
        after = at.copy()
        arrays, owners = [], []
        for left in _rounds(self, block, at, counts):
            array, after[left] = self.read(block, after[left])
            arrays.append(array)
            owners.append(left)
        if len(arrays) == 1:
            return arrays[0], after
        if not arrays:
            return self.read(block, at[:0])[0], after
        order = np.argsort(np.concatenate(owners), kind="stable")
        return pa.concat_arrays(arrays).take(pa.array(order)), after

    def skip_items(self, block: Block, at: Numbers, counts: Numbers) -> Numbers:
        """The positions after `counts` values from each position."""
        if self.width is not None:
            result: Numbers = at + counts * self.width
            return result
        after: Numbers = at.copy()
        for left in _rounds(self, block, at, counts):
            after[left] = self.skip(block, after[left])
        return after


def check_counts(reader: Reader, block: Block, at: Numbers, counts: Numbers) -> None:
    """Raises DamagedError for item counts beyond the block's size, before memory is allocated for them."""
    # Not a product: a damaged count would make it overflow.
    room = (block.size - at) // reader.least if reader.least else _MAX_EMPTY_ITEMS
    if (counts > room).any():
        raise DamagedError(
            f"it announces {int(counts.max())} items, more than the rest of the record can hold"
        )


def _rounds(reader: Reader, block: Block, at: Numbers, counts: Numbers) -> Any:
    left = np.flatnonzero(counts > 0)
    most = int(counts.max()) if len(counts) else 0
    number = 0
    while len(left):
        if number == _ROUNDS and len(left) <= _FEW and most > 4 * _ROUNDS and not block.patient:
            raise UnevenError
        yield left
        number += 1
        left = left[counts[left] > number]


def _strided(at: Numbers, counts: Numbers, width: int) -> Numbers:
    """The positions of `counts` values of `width` bytes, from each position on."""
    starts = np.cumsum(counts) - counts
    within = np.arange(int(counts.sum()), dtype=np.int64) - np.repeat(starts, counts)
    result: Numbers = np.repeat(at, counts) + within * width
    return result


class NullReader(Reader):
    """Avro null, which has no bytes."""

    width = least = 0

    def __init__(self, target: pa.DataType) -> None:
        self.stored = pa.null()
        self._target = target

    def read(self, block: Block, at: Numbers) -> tuple[pa.Array, Numbers]:
        """Nulls of the column type; the positions stay."""
        return pa.nulls(len(at), self._target), at

    def skip(self, block: Block, at: Numbers) -> Numbers:
        """The same positions."""
        return at

    def converted(self, array: pa.Array) -> pa.Array:
        """Nulls of the column type."""
        return pa.nulls(len(array), self._target)


class LeafReader(Reader):
    """A plain value; `convert` brings the stored form to the column type (None: nothing to do)."""

    def __init__(self, stored: pa.DataType, convert: Convert | None) -> None:
        self.stored = stored
        self._convert = convert

    def converted(self, array: pa.Array) -> pa.Array:
        """The array converted to the column type. Raises NotBulkError."""
        return array if self._convert is None else self._convert(array)


class BooleanReader(LeafReader):
    """Avro boolean: one byte, 0 or 1."""

    width = 1

    def read(self, block: Block, at: Numbers) -> tuple[pa.Array, Numbers]:
        """See Reader.read."""
        flags = block.bytes(at)
        if (flags > 1).any():
            raise DamagedError(f"a boolean is the byte {int(flags.max())}")
        return self.converted(pa.array(flags.astype(bool))), at + 1

    def skip(self, block: Block, at: Numbers) -> Numbers:
        """See Reader.skip."""
        return at + 1


class IntegerReader(LeafReader):
    """Avro int (`bits` 32) or long (64): a variable-length integer."""

    def __init__(self, bits: int, convert: Convert | None) -> None:
        super().__init__(pa.int32() if bits == 32 else pa.int64(), convert)
        self._bits = bits

    def read(self, block: Block, at: Numbers) -> tuple[pa.Array, Numbers]:
        """See Reader.read."""
        values, after = block.varints(at)
        return self._array(values), after

    def skip(self, block: Block, at: Numbers) -> Numbers:
        """See Reader.skip."""
        return block.varints(at)[1]

    def read_items(self, block: Block, at: Numbers, counts: Numbers) -> tuple[pa.Array, Numbers]:
        """See Reader.read_items."""
        starts, after = block.runs(at, counts)
        return self._array(block.varints(starts)[0]), after

    def skip_items(self, block: Block, at: Numbers, counts: Numbers) -> Numbers:
        """See Reader.skip_items."""
        return block.runs(at, counts)[1]

    def _array(self, values: Numbers) -> pa.Array:
        if self._bits == 32:
            narrow = values.astype(np.int32)
            if not np.array_equal(narrow, values):
                raise DamagedError("an int does not fit 32 bits")
            values = narrow
        return self.converted(pa.array(values))


class FloatReader(LeafReader):
    """Avro float (`bits` 32) or double (64)."""

    def __init__(self, bits: int, convert: Convert | None) -> None:
        super().__init__(pa.float32() if bits == 32 else pa.float64(), convert)
        self.width = self.least = bits // 8

    def read(self, block: Block, at: Numbers) -> tuple[pa.Array, Numbers]:
        """See Reader.read."""
        assert self.width is not None
        return self.converted(pa.array(block.words(at, f"<f{self.width}"))), at + self.width

    def skip(self, block: Block, at: Numbers) -> Numbers:
        """See Reader.skip."""
        return at + self.width


class BytesReader(LeafReader):
    """Avro string (`text`) or bytes: a length and that many bytes."""

    def __init__(self, text: bool, convert: Convert | None) -> None:
        super().__init__(pa.string() if text else pa.binary(), convert)

    def read(self, block: Block, at: Numbers) -> tuple[pa.Array, Numbers]:
        """See Reader.read. A string that is not UTF-8 raises DamagedError."""
        start, end = block.lengths(at)
        values = block.slices(start, end, pa.binary())
        if self.stored == pa.string():
            try:
                values = values.cast(pa.string())
            except pa.ArrowInvalid as error:
                raise DamagedError("a text is not UTF-8") from error
        return self.converted(values), end

    def skip(self, block: Block, at: Numbers) -> Numbers:
        """See Reader.skip."""
        return block.lengths(at)[1]


class FixedReader(LeafReader):
    """Avro fixed: `size` bytes."""

    def __init__(self, size: int, convert: Convert | None) -> None:
        super().__init__(pa.binary(size), convert)
        self.width = self.least = size

    def read(self, block: Block, at: Numbers) -> tuple[pa.Array, Numbers]:
        """See Reader.read."""
        assert self.width is not None
        data = block.fixed(at, self.width)
        array = pa.Array.from_buffers(pa.binary(self.width), len(at), [None, pa.py_buffer(data)])
        return self.converted(array), at + self.width

    def skip(self, block: Block, at: Numbers) -> Numbers:
        """See Reader.skip."""
        return at + self.width


class EnumReader(LeafReader):
    """Avro enum: the index of a symbol.

    None among `symbols` stands for one that the reader's schema does not know.
    """

    def __init__(self, symbols: tuple[str | None, ...], convert: Convert | None) -> None:
        super().__init__(pa.string(), convert)
        self._symbols = pa.array(symbols, pa.string())

    def read(self, block: Block, at: Numbers) -> tuple[pa.Array, Numbers]:
        """See Reader.read. An index out of range raises DamagedError."""
        values, after = block.varints(at)
        if ((values < 0) | (values >= len(self._symbols))).any():
            raise DamagedError(f"an enum has no symbol number {int(values.max())}")
        return self.converted(pc.take(self._symbols, pa.array(values))), after

    def skip(self, block: Block, at: Numbers) -> Numbers:
        """See Reader.skip."""
        return block.varints(at)[1]

    def converted(self, array: pa.Array) -> pa.Array:
        """The symbols as the column type.

        Raises DamagedError for a symbol that the reader's schema does not know.
        """
        if array.null_count:
            raise DamagedError("an enum's symbol is not in the reader's schema, which has no default for it")
        return super().converted(array)
