"""JSON records of one shape as columns, many times faster than a parser: their values are cut out, and only these are read.

The first thing that `JsonColumns` tries with a block. Gives what it would give, for the records that have the block's
shape (see `json_shape`), and says which they are; the others take the general way.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamlake.decode import text_columns, text_values
from streamlake.decode.json_options import JsonOptions
from streamlake.decode.json_shape import QUOTE, Matches, Path, Shape, shape_of
from streamlake.decode.text_columns import NotBulkError, bytes_and_offsets
from streamlake.formats.arrow_schema import arrow_type
from streamlake.formats.byte_slices import slices
from streamlake.spec.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    NestedField,
    StringType,
    StructType,
    TimestampNsType,
    TimestampType,
    TimestamptzNsType,
    TimestamptzType,
    TimeType,
    UUIDType,
    children,
)

_Array = Any

LEAST = 64
"""Records of a block below which looking for a shape is not worth it."""
_PATIENCE = 3
_BACKSLASH = ord("\\")
_TIMESTAMPS = (TimestampType, TimestamptzType, TimestampNsType, TimestamptzNsType)
_NUMBER: _Array = np.zeros(256, dtype=bool)
_NUMBER[np.frombuffer(b"0123456789+-.eE", dtype=np.uint8)] = True
_DIGIT: _Array = np.zeros(256, dtype=bool)
_DIGIT[np.frombuffer(b"0123456789", dtype=np.uint8)] = True
_TEXTS: dict[type[IcebergType], Callable[[pa.Array], pa.Array]] = {
    StringType: lambda text: text,
    DateType: text_columns.dates,
    TimeType: text_columns.times,
    UUIDType: text_columns.uuids,
    BinaryType: lambda text: text_columns.base64_values(text, None),
}


def has_list(type_: IcebergType) -> bool:
    """True for types that no shape holds: a list, or anything that holds one."""
    return isinstance(type_, ListType) or any(has_list(part.type) for part in children(type_))


class ShapedColumns:
    """Reads blocks into the columns of `fields` (none holds a map), as far as their records have a shape. Keeps the last
    shape; after a few blocks in a row without one it stops looking. Shapes with fields that nobody asks for are left
    out: anywhere with `strict_names`, in the object `watched` else, where those that are `known` do not count."""

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
        self._shape: Shape | None = None
        self._misses = 0
        self._impossible = any(has_list(part.type) for part in fields)

    def read(self, values: pa.Array) -> tuple[_Array | None, list[pa.Array]]:
        """(numbers of the records that were read, None for all of them; one array per field for these records).

        `values` is a binary array without nulls. Raises NotBulkError where fewer than half of them have one shape, or
        one of them has a value that needs a closer look.
        """
        if self._impossible or self._misses >= _PATIENCE or len(values) < LEAST:
            raise NotBulkError
        try:
            found = self._read(values)
        except NotBulkError:
            self._misses += 1
            raise
        self._misses = 0
        return found

    def _read(self, values: pa.Array) -> tuple[_Array | None, list[pa.Array]]:
        data, offsets = bytes_and_offsets(values)
        if not len(data) or data.min() < 32:
            raise NotBulkError
        try:
            values.cast(pa.string())
        except pa.ArrowInvalid as error:
            raise NotBulkError from error
        excluded: _Array | None = None
        escapes = np.flatnonzero(data == _BACKSLASH)
        if len(escapes):
            excluded = np.zeros(len(values), dtype=bool)
            excluded[np.searchsorted(offsets, escapes, side="right") - 1] = True
        quotes = np.flatnonzero(data == QUOTE)
        for shape in self._candidates(values, excluded):
            matches = shape.match(data, offsets, quotes, excluded)
            if matches.rows is None or 2 * len(matches.rows) >= len(values):
                self._shape = shape
                return matches.rows, _Block(data, matches, shape, self._options).columns(self._fields)
        raise NotBulkError

    def _candidates(self, values: pa.Array, excluded: _Array | None) -> list[Shape]:
        """The shape that the last block had, and that of this block's first record."""
        first = 0 if excluded is None else int(excluded.argmin())
        record = values[first].as_py()
        known = [] if self._shape is None else [self._shape]
        found = shape_of(record)
        if found is None or found in known:
            return known
        if self._checked is not None and not self._knows_all(
            found, self._below(self._checked), self._checked
        ):
            return known
        return [*known, found]

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


class _Block:
    """The values of the records of one block that have one shape."""

    def __init__(self, data: _Array, matches: Matches, shape: Shape, options: JsonOptions) -> None:
        self._data = data
        self._buffer = pa.py_buffer(data)
        self._matches = matches
        self._shape = shape
        self._options = options
        self._rows = len(matches.begins[0])
        self._left = {number for number, is_text in shape.values.values() if not is_text}

    def columns(self, fields: Sequence[NestedField]) -> list[pa.Array]:
        found = [self._field(part, ()) for part in fields]
        for (
            number
        ) in self._left:  # scalars of fields that nobody wants: a record that has them wrong is no JSON
            self._any_scalar(number)
        return found

    def _field(self, part: NestedField, where: Path) -> pa.Array:
        array = self._value((*where, part.name), part.type)
        if part.required and array.null_count:
            raise NotBulkError
        return array

    def _value(self, path: Path, type_: IcebergType) -> pa.Array:
        if isinstance(type_, StructType) and path in self._shape.objects:
            parts = [self._field(part, path) for part in type_.fields]
            return pa.StructArray.from_arrays(parts, fields=list(arrow_type(type_)))
        if path in self._shape.objects:
            raise NotBulkError
        if path not in self._shape.values:
            return pa.nulls(self._rows, arrow_type(type_))
        number, is_text = self._shape.values[path]
        try:
            return self._text(number, type_) if is_text else self._scalar(number, type_)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise NotBulkError from error

    def _text(self, number: int, type_: IcebergType) -> pa.Array:
        text = slices(
            self._buffer, self._matches.begins[number], self._matches.ends[number], None, pa.string()
        )
        if isinstance(type_, FixedType):
            return text_columns.base64_values(text, type_.length)
        if isinstance(type_, _TIMESTAMPS):
            return _timestamps(text, arrow_type(type_))
        convert = _TEXTS.get(type(type_))
        if convert is None:
            raise NotBulkError
        return convert(text)

    def _scalar(self, number: int, type_: IcebergType) -> pa.Array:
        self._left.discard(number)
        if isinstance(type_, (IntegerType, LongType)):
            return self._numbers(number, whole=True).cast(arrow_type(type_))
        if isinstance(type_, (FloatType, DoubleType)):
            array = self._numbers(number).cast(arrow_type(type_))
            if pc.any(pc.is_inf(array), min_count=0).as_py():
                raise NotBulkError
            return array
        if isinstance(type_, DecimalType):
            array = self._numbers(number).cast(arrow_type(type_))
            array.validate(full=True)
            return array
        if isinstance(type_, BooleanType):
            return self._booleans(number)
        if isinstance(type_, _TIMESTAMPS) and self._options.epoch_nanos is not None:
            whole = self._numbers(number, whole=True).cast(pa.int64())
            return text_columns.epoch_timestamps(whole, self._options.epoch_nanos, arrow_type(type_))
        if not self._are(number, b"null").all():
            raise NotBulkError
        return pa.nulls(self._rows, arrow_type(type_))

    def _numbers(self, number: int, *, whole: bool = False) -> pa.Array:
        """The text of numbers as JSON writes them; null for null. `whole` only of those without fraction and exponent."""
        begin, end = self._matches.begins[number], self._matches.ends[number]
        null = self._data[begin] == ord("n")
        if null.any():
            if not self._are(number, b"null")[null].all():
                raise NotBulkError
        else:
            null = None
        first = self._data[begin]
        lead = begin + (first == ord("-"))
        zero_first = (self._data[lead] == ord("0")) & (end - lead > 1)
        if not whole:
            # Every value is followed by something, at least by a brace, so there is a letter behind each.
            zero_first &= _DIGIT[self._data[lead + 1]]
        wrong = zero_first | ~_DIGIT[self._data[lead]] | ~_DIGIT[self._data[end - 1]]
        if (wrong if null is None else wrong & ~null).any():
            raise NotBulkError
        texts = slices(self._buffer, begin, end, null, pa.string())
        if not whole:
            letters, _ = bytes_and_offsets(texts.drop_null() if null is not None else texts)
            points = np.flatnonzero(letters == ord("."))
            if not _NUMBER[letters].all() or not _DIGIT[letters[points + 1]].all():
                raise NotBulkError
        return texts

    def _booleans(self, number: int) -> pa.Array:
        yes, no, null = (self._are(number, word) for word in (b"true", b"false", b"null"))
        if not (yes | no | null).all():
            raise NotBulkError
        return pa.array(yes, mask=null if null.any() else None)

    def _any_scalar(self, number: int) -> None:
        """Raises NotBulkError when one is neither a number nor true, false or null."""
        words = self._are(number, b"true") | self._are(number, b"false") | self._are(number, b"null")
        if words.all():
            return
        if words.any():
            raise NotBulkError
        try:
            self._numbers(number).cast(pa.float64())
        except pa.ArrowInvalid as error:
            raise NotBulkError from error

    def _are(self, number: int, word: bytes) -> _Array:
        """Which of the values are exactly `word`."""
        begin, end = self._matches.begins[number], self._matches.ends[number]
        same = end - begin == len(word)
        if not same.any():
            return same
        at = begin[same]
        fits: _Array = np.ones(len(at), dtype=bool)
        for place, letter in enumerate(word):
            fits &= self._data[at + place] == letter
        same[same] = fits
        return same


def _timestamps(text: pa.Array, type_: pa.TimestampType) -> pa.Array:
    """ISO timestamps, all of them with a zone or all without, as the first has it."""
    zone = "UTC" if text_values.has_zone(text[0].as_py()) else None
    found = text.cast(pa.timestamp(type_.unit, zone))
    return found if found.type.equals(type_) else found.cast(pa.int64()).cast(type_)
