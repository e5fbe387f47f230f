"""Readers of nested Avro values: records, unions, arrays and maps, built from the readers of their parts.

Built by `avro_plan`. Invariant: as for `avro_leaves`: `read` and `skip` move by the same bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from streamlake.decode.avro.avro_leaves import Reader, check_counts
from streamlake.decode.avro.avro_wire import Block, DamagedError, Numbers

_OFFSET_LIMIT = 2**31 - 1


@dataclass(frozen=True)
class Part:
    """One field of a writer's record: its name, its reader, and whether any output needs it."""

    name: str
    reader: Reader
    wanted: bool


@dataclass(frozen=True)
class Output:
    """One field of the column: the part of the writer's record it comes from, or a constant (one value)."""

    field: pa.Field
    part: int | None
    constant: pa.Scalar | None = None


class RecordReader(Reader):
    """A record: its fields one after the other.

    `outputs` say which columns they become; other fields are skipped.
    """

    def __init__(self, parts: Sequence[Part], outputs: Sequence[Output]) -> None:
        self._parts = tuple(parts)
        self._outputs = tuple(outputs)
        self._fields = [output.field for output in outputs]
        widths = [part.reader.width for part in parts]
        self.width = None if None in widths else sum(width for width in widths if width is not None)
        self.least = sum(part.reader.least for part in parts)
        stored = [
            (part.name, part.reader.stored)
            for part in parts
            if part.wanted and part.reader.stored is not None
        ]
        complete = all(part.reader.stored is not None for part in parts if part.wanted)
        self.stored = pa.struct(stored) if complete else None

    def columns(self, block: Block, at: Numbers) -> tuple[list[pa.Array], Numbers]:
        """One array per output, and the positions after the records. Raises NotBulkError."""
        found: dict[int, pa.Array] = {}
        rows = len(at)
        for number, part in enumerate(self._parts):
            if part.wanted:
                found[number], at = part.reader.read(block, at)
            else:
                at = part.reader.skip(block, at)
        return self._output(found, rows), at

    def converted_columns(self, array: pa.Array) -> list[pa.Array]:
        """One array per output, for the records that a library decoded. Raises NotBulkError."""
        found = {}
        for number, part in enumerate(self._parts):
            if part.wanted:
                found[number] = part.reader.converted(array.field(part.name))
        return self._output(found, len(array))

    def read(self, block: Block, at: Numbers) -> tuple[pa.Array, Numbers]:
        """A struct array, and the positions after the records. See Reader.read."""
        columns, after = self.columns(block, at)
        return self._struct(columns, len(at)), after

    def skip(self, block: Block, at: Numbers) -> Numbers:
        """See Reader.skip."""
        if self.width is not None:
            return at + self.width
        for part in self._parts:
            at = part.reader.skip(block, at)
        return at

    def converted(self, array: pa.Array) -> pa.Array:
        """A struct array of the records that a library decoded. See Reader.converted."""
        return self._struct(self.converted_columns(array), len(array))

    def _output(self, found: dict[int, pa.Array], rows: int) -> list[pa.Array]:
        columns = []
        for output in self._outputs:
            if output.part is not None:
                columns.append(found[output.part])
            elif output.constant is not None:
                columns.append(pa.repeat(output.constant, rows))
            elif output.field.nullable or not rows:
                columns.append(pa.nulls(rows, output.field.type))
            else:
                raise DamagedError(
                    f"'{output.field.name}' is required, but the writer's schema does not have it, and there "
                    "is no default"
                )
        return columns

    def _struct(self, columns: list[pa.Array], rows: int) -> pa.Array:
        if not columns:
            return pa.Array.from_buffers(pa.struct([]), rows, [None])
        return pa.StructArray.from_arrays(columns, fields=self._fields)


class NamedReader(Reader):
    """Wraps another reader; its errors begin with the field's dotted name."""

    def __init__(self, inner: Reader, path: str) -> None:
        self._inner = inner
        self._path = path
        self.stored, self.width, self.least = inner.stored, inner.width, inner.least

    def read(self, block: Block, at: Numbers) -> tuple[pa.Array, Numbers]:
        """See Reader.read."""
        try:
            return self._inner.read(block, at)
        except DamagedError as error:
            raise self._named(error) from error

    def skip(self, block: Block, at: Numbers) -> Numbers:
        """See Reader.skip."""
        try:
            return self._inner.skip(block, at)
        except DamagedError as error:
            raise self._named(error) from error

    def converted(self, array: pa.Array) -> pa.Array:
        """See Reader.converted."""
        try:
            return self._inner.converted(array)
        except DamagedError as error:
            raise self._named(error) from error

    def read_items(self, block: Block, at: Numbers, counts: Numbers) -> tuple[pa.Array, Numbers]:
        """See Reader.read_items."""
        try:
            return self._inner.read_items(block, at, counts)
        except DamagedError as error:
            raise self._named(error) from error

    def skip_items(self, block: Block, at: Numbers, counts: Numbers) -> Numbers:
        """See Reader.skip_items."""
        try:
            return self._inner.skip_items(block, at, counts)
        except DamagedError as error:
            raise self._named(error) from error

    def _named(self, error: DamagedError) -> DamagedError:
        text = str(error)
        return error if text.startswith("'") else DamagedError(f"'{self._path}': {text}")


class UnionReader(Reader):
    """A union: the index of a branch, and its value. Branches without a reader are null.

    Without `members`, all branches have the column's type `target`. With them, the column is a struct and
    branch b sets its field members[b]. `required` refuses nulls.
    """

    def __init__(
        self,
        branches: Sequence[Reader | None],
        target: pa.DataType,
        *,
        required: bool,
        members: Sequence[int | None] | None = None,
    ) -> None:
        self._branches = tuple(branches)
        self._target = target
        self._required = required
        self._members = members
        others = [branch for branch in branches if branch is not None]
        self._only = others[0] if len(others) == 1 and members is None else None
        self.stored = self._only.stored if self._only is not None else None

    def read(self, block: Block, at: Numbers) -> tuple[pa.Array, Numbers]:
        """See Reader.read.

        Raises DamagedError for a branch that does not exist, and for null where `required`.
        """
        chosen, at = self._choice(block, at)
        arrays: list[tuple[int, Any, pa.Array]] = []
        after = at
        for number, branch in enumerate(self._branches):
            mine = chosen == number
            if mine.all():
                if branch is not None:
                    array, after = branch.read(block, at)
                    return self._single(number, array), after
                continue
            if branch is None or not mine.any():
                continue
            rows = np.flatnonzero(mine)
            if after is at:
                after = at.copy()
            array, after[rows] = branch.read(block, at[rows])
            arrays.append((number, mine, array))
        if self._required and len(at) and not self._covered(chosen):
            raise DamagedError("it is required, but null")
        return self._merged(arrays, chosen, len(at)), after

    def skip(self, block: Block, at: Numbers) -> Numbers:
        """See Reader.skip."""
        chosen, at = self._choice(block, at)
        after: Numbers = at.copy()
        for number, branch in enumerate(self._branches):
            rows = np.flatnonzero(chosen == number)
            if branch is not None and len(rows):
                after[rows] = branch.skip(block, at[rows])
        return after

    def converted(self, array: pa.Array) -> pa.Array:
        """See Reader.converted; only for a union of null and one type."""
        assert self._only is not None
        if not array.null_count:
            return self._only.converted(array)
        if self._required:
            raise DamagedError("it is required, but null")
        valid = array.is_valid().to_numpy(zero_copy_only=False)
        return spread(self._only.converted(array.drop_null()), valid)

    def _choice(self, block: Block, at: Numbers) -> tuple[Numbers, Numbers]:
        chosen, at = block.varints(at)
        if ((chosen < 0) | (chosen >= len(self._branches))).any():
            raise DamagedError(f"a union has no branch number {int(chosen.max())}")
        return chosen, at

    def _covered(self, chosen: Numbers) -> bool:
        null = np.array([branch is None for branch in self._branches])
        return not null[chosen].any()

    def _single(self, number: int, array: pa.Array) -> pa.Array:
        if self._members is None:
            return array
        return self._merged([(number, None, array)], None, len(array))

    def _merged(self, arrays: list[tuple[int, Any, pa.Array]], chosen: Any, rows: int) -> pa.Array:
        if self._members is not None:
            return self._struct(arrays, chosen, rows)
        if not arrays:
            return pa.nulls(rows, self._target)
        if len(arrays) == 1:
            return spread(arrays[0][2], arrays[0][1])
        places: Any = np.full(rows, -1, dtype=np.int64)
        first = 0
        for _, mine, array in arrays:
            places[mine] = np.arange(first, first + len(array))
            first += len(array)
        missing = places < 0
        return pa.concat_arrays([array for _, _, array in arrays]).take(
            pa.array(places, mask=missing if missing.any() else None)
        )

    def _struct(self, arrays: list[tuple[int, Any, pa.Array]], chosen: Any, rows: int) -> pa.Array:
        assert self._members is not None
        fields = [self._target.field(at) for at in range(self._target.num_fields)]
        columns = [pa.nulls(rows, field.type) for field in fields]
        for number, mine, array in arrays:
            member = self._members[number]
            if member is not None:
                columns[member] = array if mine is None else spread(array, mine)
        null = np.array([branch is None for branch in self._branches])
        mask = null[chosen] if chosen is not None and null[chosen].any() else None
        return pa.StructArray.from_arrays(
            columns, fields=fields, mask=None if mask is None else pa.array(mask)
        )


class ListReader(Reader):
    """An array (or a map, when `target` is a map type): blocks of items, up to an empty block."""

    def __init__(self, item: Reader, target: pa.DataType, stored: pa.DataType | None) -> None:
        self._item = item
        self._target = target
        self.stored = stored

    def read(self, block: Block, at: Numbers) -> tuple[pa.Array, Numbers]:
        """See Reader.read.

        Raises DamagedError when the lists have more items together than a column can hold.
        """
        rows = len(at)
        total: Numbers = np.zeros(rows, dtype=np.int64)
        arrays: list[pa.Array] = []
        owners: list[Numbers] = []
        after = at.copy()
        left = np.arange(rows)
        while True:
            counts, start = self._counts(block, after[left])
            after[left] = start
            some = counts > 0
            left, counts = left[some], counts[some]
            if not len(left):
                break
            array, after[left] = self._item.read_items(block, after[left], counts)
            arrays.append(array)
            owners.append(np.repeat(left, counts))
            total[left] += counts
        if not arrays:
            items = self._item.read(block, at[:0])[0]
        elif len(arrays) == 1:
            items = arrays[0]
        else:
            order = np.argsort(np.concatenate(owners), kind="stable")
            items = pa.concat_arrays(arrays).take(pa.array(order))
        offsets: Any = np.zeros(rows + 1, dtype=np.int64)
        np.cumsum(total, out=offsets[1:])
        if offsets[-1] > _OFFSET_LIMIT:
            raise DamagedError(
                f"its lists have {int(offsets[-1])} items together, more than a column can hold"
            )
        return self._array(pa.py_buffer(offsets.astype(np.int32)), rows, items), after

    def skip(self, block: Block, at: Numbers) -> Numbers:
        """See Reader.skip."""
        after: Numbers = at.copy()
        left = np.arange(len(at))
        while len(left):
            counts, start = self._counts(block, after[left])
            after[left] = start
            some = counts > 0
            left, counts = left[some], counts[some]
            if len(left):
                after[left] = self._item.skip_items(block, after[left], counts)
        return after

    def converted(self, array: pa.Array) -> pa.Array:
        """See Reader.converted; `array` is a list or a map array."""
        whole = pa.concat_arrays([array]) if array.offset else array
        is_map = pa.types.is_map(array.type)
        values = whole.values
        if is_map:
            values = pa.StructArray.from_arrays([whole.keys, whole.items], names=["key", "value"])
        return self._array(whole.buffers()[1], len(array), self._item.converted(values))

    def _array(self, offsets: pa.Buffer, rows: int, items: pa.Array) -> pa.Array:
        return pa.Array.from_buffers(self._target, rows, [None, offsets], children=[items])

    def _counts(self, block: Block, at: Numbers) -> tuple[Numbers, Numbers]:
        """The number of items in each one's next block, and where they begin.

        A negative count is followed by the block's size.
        """
        counts, at = block.varints(at)
        negative = np.flatnonzero(counts < 0)
        if len(negative):
            at = at.copy()
            counts[negative] = -counts[negative]
            _, at[negative] = block.varints(at[negative])
            if (counts < 0).any():
                raise DamagedError("a number of items is out of range")
        check_counts(self._item, block, at, counts)
        return counts, at


def spread(values: pa.Array, valid: Any) -> pa.Array:
    """`values` where `valid` is true, nulls elsewhere."""
    places = np.cumsum(valid) - 1
    return values.take(pa.array(places, mask=~valid))
