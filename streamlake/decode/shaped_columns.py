"""JSON records of few shapes as columns, many times faster than a parser: their values are cut out, and only these are read.

The first thing that `JsonColumns` tries with a block. Gives what it would give, for the records that have the block's
shapes (see `json_shape`), and says which they are; the others take the general way.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from streamlake.decode.json_options import JsonOptions
from streamlake.decode.json_shape import Block, Matches, Path, Shape, shape_of
from streamlake.decode.shaped_values import ShapedValues
from streamlake.decode.text_columns import NotBulkError
from streamlake.spec.types import IcebergType, ListType, NestedField, StructType, children

_Array = Any

LEAST = 64
"""Records of a block below which looking for a shape is not worth it."""
_PATIENCE = 3
_KEPT = 32
"""Shapes that are remembered: changes have one with and one without old row, and one for each set of texts that are null."""
_NEW = 8
"""Shapes that are looked for in one block."""
_CACHED_BYTES = 2 << 20
"""What is read at once: little enough to stay in a core's own cache while it is gone through value by value."""
_FEWEST = 256
"""Records that are read at once, at least."""


def has_list(type_: IcebergType) -> bool:
    """True for types that no shape holds: a list, or anything that holds one."""
    return isinstance(type_, ListType) or any(has_list(part.type) for part in children(type_))


class ShapedColumns:
    """Reads blocks into the columns of `fields` (none holds a map), as far as their records have shapes in common. Keeps
    those that the last blocks had; after a few blocks in a row without one it stops looking. Shapes with fields that nobody
    asks for are left out: anywhere with `strict_names`, in the object `watched` else, where those that are `known` do not
    count."""

    def __init__(
        self,
        fields: Sequence[NestedField],
        options: JsonOptions,
        *,
        strict_names: bool,
        watched: Path | None = None,
        known: Callable[[str], bool] = lambda name: False,
    ) -> None:
        self._fields = tuple(fields)
        self._options = options
        self._checked = () if strict_names else watched
        self._known = known
        self._shapes: list[Shape] = []
        self._misses = 0
        self._tries = 0
        self._impossible = any(has_list(part.type) for part in fields)

    def read(self, values: pa.Array) -> tuple[_Array | None, list[pa.Array]]:
        """(numbers of the records that were read, in order, None for all of them; one array per field for these records).

        `values` is a binary array without nulls. Raises NotBulkError where fewer than half of them can be read so.
        """
        if self._impossible or self._misses >= _PATIENCE or len(values) < LEAST:
            raise NotBulkError
        self._tries = _NEW
        pieces = max(1, min(values.nbytes // _CACHED_BYTES, len(values) // _FEWEST))
        bounds = [len(values) * piece // pieces for piece in range(pieces + 1)]
        rows, parts = [], []
        for low, high in pairwise(bounds):
            with suppress(NotBulkError):
                found, columns = self._read(values.slice(low, high - low))
                rows.append(low + found)
                parts.append(columns)
        count = sum(map(len, rows))
        if 2 * count < len(values):
            self._misses += 1
            raise NotBulkError
        self._misses = 0
        joined = [pa.concat_arrays(column) for column in zip(*parts, strict=True)]
        return None if count == len(values) else np.concatenate(rows), joined

    def _read(self, values: pa.Array) -> tuple[_Array, list[pa.Array]]:
        block = Block.of(values)
        if not len(block.data) or block.data.min() < 32:
            raise NotBulkError
        try:
            values.cast(pa.string())
        except pa.ArrowInvalid as error:
            raise NotBulkError from error
        found = ShapedValues(block, self._groups(values, block), self._options)
        return found.rows, found.columns(self._fields)

    def _groups(self, values: pa.Array, block: Block) -> list[tuple[Shape, Matches]]:
        """Records of one shape each: of those that were seen before, and of new ones while it is worth it."""
        is_left: _Array = np.ones(len(block), dtype=bool) if block.excluded is None else ~block.excluded
        left = np.flatnonzero(is_left)
        groups = []
        sizes: list[int] = []
        while len(left):
            number = len(sizes)
            if number == len(self._shapes):
                found = self._new_shape(values, block, left)
                if found is None:
                    break
                self._shapes.append(found)
            matches = self._shapes[number].match(block, left)
            sizes.append(len(matches.rows))
            if len(matches.rows):
                groups.append((self._shapes[number], matches))
                is_left[matches.rows] = False
                left = np.flatnonzero(is_left)
        # Those that most records have come first.
        sizes += [0] * (len(self._shapes) - len(sizes))
        order = sorted(range(len(sizes)), key=lambda number: -sizes[number])
        self._shapes = [self._shapes[number] for number in order[:_KEPT]]
        return groups

    def _new_shape(self, values: pa.Array, block: Block, left: _Array) -> Shape | None:
        """That of the first of the records `left` with as many quotation marks as most of them. None for one that is known or
        not read by its shape, and where these are few, or new ones were looked for often enough."""
        if not self._tries or len(left) < LEAST // 8:
            return None
        self._tries -= 1
        marks = np.diff(block.firsts)[left]
        record = int(left[np.argmax(marks == np.bincount(marks).argmax())])
        found = shape_of(values[record].as_py())
        if found is None or found in self._shapes:
            return None
        if self._checked is None or self._knows_all(found, self._below(self._checked), self._checked):
            return found
        return None

    def _below(self, where: Path) -> Sequence[NestedField]:
        """The fields that are asked for in the object at a path."""
        fields: Sequence[NestedField] = self._fields
        for name in where:
            type_ = next((part.type for part in fields if part.name == name), None)
            fields = type_.fields if isinstance(type_, StructType) else ()
        return fields

    def _knows_all(self, shape: Shape, fields: Sequence[NestedField], where: Path) -> bool:
        names = {(*where, part.name) for part in fields}
        below = {path for path in (*shape.values, *shape.objects) if len(path) == len(where) + 1}
        if where == self._checked:
            below = {path for path in below if not self._known(path[-1])}
        inner = [part for part in fields if isinstance(part.type, StructType)]
        return {path for path in below if path[: len(where)] == where} <= names and all(
            self._knows_all(shape, part.type.fields, (*where, part.name))
            for part in inner
            if isinstance(part.type, StructType)
        )
