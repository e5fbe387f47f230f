"""Values of JSON records with known templates, cut out of a block and read as columns.

`TemplateColumns` makes its columns with it. Invariant: gives what `json_values` would give, or raises
NotBulkError. Scalars that are not requested are checked too, because a record with a wrong one is not valid
JSON.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamlake.decode.json.json_options import JsonOptions
from streamlake.decode.json.json_values import RESOLUTION_NANOS
from streamlake.decode.json.record_template import Block, Matches, Path, RecordTemplate
from streamlake.decode.values import text_columns, text_values
from streamlake.decode.values.quotes_and_escapes import unescaped
from streamlake.decode.values.text_columns import NotBulkError, bytes_and_offsets, letter_table
from streamlake.decode.values.whole_numbers import whole_numbers
from streamlake.formats.arrow.arrow_schema import arrow_type
from streamlake.formats.arrow.byte_slices import slices
from streamlake.spec.types.data_types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IcebergType,
    IntegerType,
    LongType,
    NestedField,
    StringType,
    StructType,
    TimeType,
    UUIDType,
)

_Array = np.ndarray[Any, Any]

_LONGEST = 300
"""The most digits of a number that is read together with others; Python refuses some thousands."""


_NUMBER = letter_table(b"0123456789+-.eE")
_DIGIT = letter_table(b"0123456789")
_TEXTS: dict[type[IcebergType], Callable[[pa.Array], pa.Array]] = {
    StringType: lambda text: text,
    DateType: text_columns.dates,
    TimeType: text_columns.times,
    UUIDType: text_columns.uuids,
    BinaryType: lambda text: text_columns.base64_values(text, None),
}


@dataclass(frozen=True)
class _Cells:
    """Where the (n,) values of one field begin and end; `absent` (n,): records without it, or None."""

    begin: _Array
    end: _Array
    absent: _Array | None
    is_text: bool

    def present(self) -> tuple[_Array, _Array]:
        if self.absent is None:
            return self.begin, self.end
        here = ~self.absent
        return self.begin[here], self.end[here]


@dataclass(frozen=True)
class _Group:
    """Records of one template; `at` are their indexes among the records of all groups.

    `unread`: numbers of the scalars that no column has read yet.
    """

    template: RecordTemplate
    matches: Matches
    at: _Array
    unread: set[int]


class TemplateValues:
    """Reads the values of a block's groups; `rows` are the numbers of the records of all groups, in order."""

    def __init__(
        self, block: Block, groups: Sequence[tuple[RecordTemplate, Matches]], options: JsonOptions
    ) -> None:
        is_in: _Array = np.zeros(len(block), dtype=bool)
        for _, matches in groups:
            is_in[matches.rows] = True
        self.rows: _Array = np.flatnonzero(is_in)
        places = np.cumsum(is_in) - 1
        self._groups = [
            _Group(
                template,
                matches,
                places[matches.rows],
                {number for number, is_text in template.values.values() if not is_text},
            )
            for template, matches in groups
        ]
        self._data = block.data
        self._buffer = pa.py_buffer(block.data)
        self._starts = block.offsets[:-1][self.rows]
        self._options = options

    def columns(self, fields: Sequence[NestedField]) -> list[pa.Array]:
        """One array per field. Raises NotBulkError."""
        found = [self._field(part, (), None) for part in fields]
        for group in self._groups:
            self._check_unread(group)
        return found

    def _field(self, part: NestedField, where: Path, absent: _Array | None) -> pa.Array:
        array = self._value((*where, part.name), part.type)
        if part.required and array.null_count > (0 if absent is None else np.count_nonzero(absent)):
            raise NotBulkError
        return array

    def _value(self, path: Path, type_: IcebergType) -> pa.Array:
        holders = [group for group in self._groups if path in group.template.objects]
        if holders:
            return self._struct(path, type_, holders)
        cells = self._cells(path)
        if cells is None:
            return pa.nulls(len(self.rows), arrow_type(type_))
        try:
            return self._text(cells, type_) if cells.is_text else self._scalar(cells, type_)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise NotBulkError from error

    def _struct(self, path: Path, type_: IcebergType, holders: Sequence[_Group]) -> pa.Array:
        if not isinstance(type_, StructType):
            raise NotBulkError
        for group in self._groups:
            if path in group.template.values:
                self._require_nulls(group, path)
        absent = self._absent(holders)
        parts = [self._field(part, path, absent) for part in type_.fields]
        if absent is None and not parts:
            # Only a mask gives the number of rows.
            absent = np.zeros(len(self.rows), dtype=bool)
        mask = None if absent is None else pa.array(absent)
        return pa.StructArray.from_arrays(parts, fields=list(arrow_type(type_)), mask=mask)

    def _cells(self, path: Path) -> _Cells | None:
        holders = [group for group in self._groups if path in group.template.values]
        is_text = any(group.template.values[path][1] for group in holders)
        if is_text:
            for group in holders:
                if not group.template.values[path][1]:
                    self._require_nulls(group, path)
            holders = [group for group in holders if group.template.values[path][1]]
        if not holders:
            return None
        for group in holders:
            group.unread.discard(group.template.values[path][0])
        if len(self._groups) == 1:
            begin, end = _bounds(holders[0], path)
            return _Cells(begin, end, None, is_text)
        begin = self._starts.copy()
        end = self._starts.copy()
        for group in holders:
            begin[group.at], end[group.at] = _bounds(group, path)
        return _Cells(begin, end, self._absent(holders), is_text)

    def _absent(self, holders: Sequence[_Group]) -> _Array | None:
        if len(holders) == len(self._groups):
            return None
        absent: _Array = np.ones(len(self.rows), dtype=bool)
        for group in holders:
            absent[group.at] = False
        return absent

    def _require_nulls(self, group: _Group, path: Path) -> None:
        number, is_text = group.template.values[path]
        if is_text or not self._are(*_bounds(group, path), b"null").all():
            raise NotBulkError
        group.unread.discard(number)

    def _text(self, cells: _Cells, type_: IcebergType) -> pa.Array:
        text = unescaped(slices(self._buffer, cells.begin, cells.end, cells.absent, pa.string()))
        if isinstance(type_, FixedType):
            return text_columns.base64_values(text, type_.length)
        if type(type_) in RESOLUTION_NANOS:
            return _timestamps(text, arrow_type(type_))
        convert = _TEXTS.get(type(type_))
        if convert is None:
            raise NotBulkError
        return convert(text)

    def _scalar(self, cells: _Cells, type_: IcebergType) -> pa.Array:
        if isinstance(type_, (IntegerType, LongType)):
            return self._whole(cells).cast(arrow_type(type_))
        if isinstance(type_, (FloatType, DoubleType)):
            array = self._numbers(cells).cast(arrow_type(type_))
            if pc.any(pc.is_inf(array), min_count=0).as_py():
                raise NotBulkError
            return array
        if isinstance(type_, DecimalType):
            return text_columns.decimals(self._numbers(cells), arrow_type(type_))
        if isinstance(type_, BooleanType):
            return self._booleans(cells)
        if type(type_) in RESOLUTION_NANOS and self._options.epoch_nanos is not None:
            return text_columns.epoch_timestamps(
                self._whole(cells), self._options.epoch_nanos, arrow_type(type_)
            )
        if not self._are(*cells.present(), b"null").all():
            raise NotBulkError
        return pa.nulls(len(self.rows), arrow_type(type_))

    def _whole(self, cells: _Cells) -> pa.Array:
        """Whole numbers, without fraction or exponent, as int64; null for null."""
        begin, end, null = self._not_null(cells)
        try:
            numbers = whole_numbers(self._data, begin, end)
        except NotBulkError:
            return self._numbers(cells, whole=True).cast(pa.int64())
        if null is None:
            return pa.array(numbers)
        spread: _Array = np.zeros(len(null), dtype=np.int64)
        spread[~null] = numbers
        return pa.array(spread, mask=null)

    def _numbers(self, cells: _Cells, *, whole: bool = False) -> pa.Array:
        """The text of numbers as JSON writes them; null for null.

        `whole`: only those without fraction and exponent.
        """
        begin, end, null = self._not_null(cells)
        lead = begin + (self._data[begin] == ord("-"))
        zero_first = (self._data[lead] == ord("0")) & (end - lead > 1)
        if not whole:
            # Every value is followed by at least a brace, but it may consist of a sign only.
            zero_first &= _DIGIT[self._data[np.minimum(lead + 1, len(self._data) - 1)]]
        if (zero_first | ~_DIGIT[self._data[lead]] | ~_DIGIT[self._data[end - 1]]).any():
            raise NotBulkError
        texts = slices(self._buffer, cells.begin, cells.end, null, pa.string())
        if not whole:
            letters, _ = bytes_and_offsets(texts)
            points = np.flatnonzero(letters == ord("."))
            if not _NUMBER[letters].all() or not _DIGIT[letters[points + 1]].all():
                raise NotBulkError
        return texts

    def _not_null(self, cells: _Cells) -> tuple[_Array, _Array, _Array | None]:
        """Where the values that are present and not null begin and end, and which are null (n,), or None."""
        null = cells.absent
        begin, end = cells.present()
        word = self._data[begin] == ord("n")
        if word.any():
            begins, ends = begin[word], end[word]
            if not self._are(begins, ends, b"null").all():
                raise NotBulkError
            begin, end = begin[~word], end[~word]
            if null is None:
                null = word
            else:
                null = null.copy()
                null[~null] = word
        return begin, end, null

    def _booleans(self, cells: _Cells) -> pa.Array:
        yes, no, null = (self._are(cells.begin, cells.end, word) for word in (b"true", b"false", b"null"))
        if cells.absent is not None:
            null |= cells.absent
        if not (yes | no | null).all():
            raise NotBulkError
        return pa.array(yes, mask=null if null.any() else None)

    def _check_unread(self, group: _Group) -> None:
        """Raises NotBulkError when a value without a column is not a number, true, false or null."""
        if not len(group.at):
            return
        bounds = [
            (group.matches.begins[number], group.matches.ends[number]) for number in sorted(group.unread)
        ]
        # Most of them are whole numbers in all records; those are checked together.
        whole = [self._is_whole(int(begin[0]), int(end[0])) for begin, end in bounds]
        together = [bound for bound, is_whole in zip(bounds, whole, strict=True) if is_whole]
        if together and self._are_whole(
            *(np.stack(parts, axis=1).ravel() for parts in zip(*together, strict=True))
        ):
            bounds = [bound for bound, is_whole in zip(bounds, whole, strict=True) if not is_whole]
        for begin, end in bounds:
            self._check_scalars(begin, end)

    def _is_whole(self, begin: int, end: int) -> bool:
        return bool(_DIGIT[self._data[begin:end]].all())

    def _are_whole(self, begin: _Array, end: _Array) -> bool:
        """Whether all values are whole numbers without a sign."""
        sizes = end - begin
        if sizes.max() > _LONGEST or ((self._data[begin] == ord("0")) & (sizes > 1)).any():
            return False
        letters, _ = bytes_and_offsets(slices(self._buffer, begin, end, None, pa.binary()))
        return bool(_DIGIT[letters].all())

    def _check_scalars(self, begin: _Array, end: _Array) -> None:
        words = self._are(begin, end, b"null")
        if not words.all():
            words |= self._are(begin, end, b"true") | self._are(begin, end, b"false")
        if words.all():
            return
        if words.any():
            begin, end = begin[~words], end[~words]
        if (end - begin).max() > _LONGEST:
            raise NotBulkError
        try:
            self._numbers(_Cells(begin, end, None, is_text=False)).cast(pa.float64())
        except pa.ArrowInvalid as error:
            raise NotBulkError from error

    def _are(self, begin: _Array, end: _Array, word: bytes) -> _Array:
        """Which of the values are exactly `word`."""
        same: _Array = end - begin == len(word)
        if not same.any():
            return same
        at = begin[same]
        fits: _Array = np.ones(len(at), dtype=bool)
        for place, letter in enumerate(word):
            fits &= self._data[at + place] == letter
        same[same] = fits
        return same


def _bounds(group: _Group, path: Path) -> tuple[_Array, _Array]:
    number, _ = group.template.values[path]
    return group.matches.begins[number], group.matches.ends[number]


def _timestamps(text: pa.Array, type_: pa.TimestampType) -> pa.Array:
    """ISO timestamps, all with a time zone or all without, as the first one."""
    first = text[text.is_valid().index(True).as_py()].as_py()
    zone = "UTC" if text_values.has_zone(first) else None
    found = text.cast(pa.timestamp(type_.unit, zone))
    return found if found.type.equals(type_) else found.cast(pa.int64()).cast(type_)
