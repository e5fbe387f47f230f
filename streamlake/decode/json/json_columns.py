"""Reader of JSON record blocks into Arrow columns: by record templates, else with Arrow's JSON reader.

Gives exactly what `json_values` would give for every record, or raises NotBulkError. Arrow reads a stream of
documents and knows nothing of records, so this module proves that each record is one document. Every value
begins with `{` and ends with `}`, and values are joined by a newline, which no JSON text contains inside a
string. So every joint is a joint between documents, each record holds at least one, and equal counts mean
exactly one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from streamlake.decode.json.json_options import JsonOptions
from streamlake.decode.json.json_values import RESOLUTION_NANOS
from streamlake.decode.json.record_template import Path
from streamlake.decode.json.template_columns import TemplateColumns
from streamlake.decode.values import text_columns
from streamlake.decode.values.new_fields import NewFieldsError, has_new_fields
from streamlake.decode.values.record_limits import current_limits
from streamlake.decode.values.text_columns import NotBulkError
from streamlake.formats.arrow.arrow_schema import arrow_type
from streamlake.formats.arrow.exact_decimals import wide_decimal
from streamlake.spec.types.data_types import (
    BinaryType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IcebergType,
    ListType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimeType,
    UUIDType,
    children,
)

_Array = np.ndarray[Any, Any]
_FEW = 64
_BLANKS = " \t\n\r"
"""The whitespace of JSON."""
_LONGEST_NUMBER = 400
_ROW = re.compile(r"in row (\d+)")
_DIGIT, _OF_NUMBER, _BESIDE_NUMBER = (
    text_columns.letter_table(letters) for letters in (b"0123456789", b"0123456789.-", b'":,[]} \t\r\n')
)
_OPEN, _CLOSE = ord("{"), ord("}")
_AS_TEXT = (DateType, TimeType, StringType, UUIDType, BinaryType, FixedType)


def has_map(type_: IcebergType) -> bool:
    """Whether Arrow's JSON reader cannot read the type: a map, or anything that holds one."""
    return isinstance(type_, MapType) or any(has_map(part.type) for part in children(type_))


def has_decimal(type_: IcebergType) -> bool:
    """Whether the type is a decimal, or holds one."""
    return isinstance(type_, DecimalType) or any(has_decimal(part.type) for part in children(type_))


class JsonColumns:
    """Reads blocks of records into the columns of `fields`, none of which may hold a map.

    `watched` is the path of the object, or array of objects, in which fields with values raise NewFieldsError
    when they are not requested. Fields at its top level that are `known` are exempt.
    """

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
        self._watched, self._known = watched, known
        self._by_template = TemplateColumns(
            fields, options, strict_names=strict_names, watched=watched, known=known
        )
        self._has_decimals = any(has_decimal(part.type) for part in fields)
        self._parse = pj.ParseOptions(
            explicit_schema=pa.schema([self._read_field(part) for part in fields]),
            newlines_in_values=True,
            unexpected_field_behavior="error" if strict_names else "ignore" if watched is None else "infer",
        )

    def read(self, values: pa.Array) -> list[pa.Array]:
        """One array per field for a binary array without nulls. Raises NotBulkError."""
        if not len(values):
            return [pa.nulls(0, arrow_type(part.type)) for part in self._fields]
        try:
            rows, by_template = self._by_template.read(values)
        except NotBulkError:
            return self._parsed(values)
        if rows is None:
            return by_template
        others: _Array = np.ones(len(values), dtype=bool)
        others[rows] = False
        try:
            rest = self._parsed(values.filter(pa.array(others)))
        except NotBulkError as error:
            # The reader counts within the remaining records; translate to the number in the block.
            numbers = np.flatnonzero(others)
            named = None if error.row is None else int(numbers[min(error.row, len(numbers) - 1)])
            raise NotBulkError(row=named) from error
        return [_interleaved(parts, others) for parts in zip(by_template, rest, strict=True)]

    def _parsed(self, values: pa.Array) -> list[pa.Array]:
        """As `read`, with Arrow's JSON reader only."""
        try:
            # Arrow's reader does not check the UTF-8 of names, nor of fields that are not requested.
            values.cast(pa.string())
        except pa.ArrowInvalid as error:
            raise NotBulkError from error
        # Arrow skips fields that are not requested, however deeply nested. Where it infers their types, it
        # recurses without a limit.
        suspect = current_limits().suspect(values)
        if suspect is not None:
            raise NotBulkError("too deep or too wide", suspect)
        if self._has_decimals:
            _require_no_small_numbers(values)
        joined = _joined(values)
        try:
            table = pj.read_json(
                pa.BufferReader(joined),
                read_options=pj.ReadOptions(use_threads=False, block_size=joined.size + 1),
                parse_options=self._parse,
            )
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise NotBulkError(row=_named_row(error)) from error
        if table.num_rows != len(values):
            raise NotBulkError
        if self._watched is not None:
            self._require_known(table.schema)
        columns = []
        for part in self._fields:
            column = table.column(part.name)
            array = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
            columns.append(self._field(array, part))
        return columns

    def _require_known(self, found: pa.Schema) -> None:
        read, asked = pa.struct(list(found)), pa.struct(list(self._parse.explicit_schema))
        for name in self._watched or ():
            read, asked = read.field(name).type, asked.field(name).type
        if has_new_fields(_of_items(read), _of_items(asked), self._known):
            raise NewFieldsError

    def _read_field(self, part: NestedField) -> pa.Field:
        return pa.field(part.name, self._read_type(part.type))

    def _read_type(self, type_: IcebergType) -> pa.DataType:
        """The type requested of Arrow's reader: the type itself if read losslessly, else text or a number."""
        if isinstance(type_, _AS_TEXT):
            return pa.string()
        if type(type_) in RESOLUTION_NANOS and self._options.epoch_nanos is not None:
            return pa.int64()
        if isinstance(type_, StructType):
            return pa.struct([self._read_field(part) for part in type_.fields])
        if isinstance(type_, ListType):
            return pa.list_(self._read_field(type_.element))
        if isinstance(type_, DecimalType):
            return wide_decimal(arrow_type(type_))
        return arrow_type(type_)

    def _field(self, array: pa.Array, part: NestedField) -> pa.Array:
        if part.required and array.null_count:
            raise NotBulkError
        return self._convert(array, part.type)

    def _convert(self, array: pa.Array, type_: IcebergType) -> pa.Array:
        if isinstance(type_, StructType):
            return self._struct(array, type_)
        if isinstance(type_, ListType):
            return self._list(array, type_)
        if isinstance(type_, StringType):
            return _validated(array)
        if isinstance(type_, DecimalType):
            return text_columns.decimals(array, arrow_type(type_))
        if isinstance(type_, (FloatType, DoubleType)):
            # A number too large for the type becomes infinite without an error.
            if pc.any(pc.is_inf(array), min_count=0).as_py():
                raise NotBulkError
            return array
        if type(type_) in RESOLUTION_NANOS and self._options.epoch_nanos is not None:
            return text_columns.epoch_timestamps(array, self._options.epoch_nanos, arrow_type(type_))
        if isinstance(type_, DateType):
            return text_columns.dates(array)
        if isinstance(type_, TimeType):
            return text_columns.times(array)
        if isinstance(type_, UUIDType):
            return text_columns.uuids(_validated(array))
        if isinstance(type_, (BinaryType, FixedType)):
            length = type_.length if isinstance(type_, FixedType) else None
            return text_columns.base64_values(_validated(array), length)
        return array

    def _struct(self, array: pa.Array, type_: StructType) -> pa.Array:
        present = array.is_valid()
        parts = []
        for at, part in enumerate(type_.fields):
            child = array.field(at)
            if part.required and pc.any(pc.and_(present, child.is_null()), min_count=0).as_py():
                raise NotBulkError
            parts.append(self._convert(child, part.type))
        # For a struct without fields, only a mask gives the length.
        mask = pc.invert(present) if array.null_count or not parts else None
        fields = list(arrow_type(type_))
        return pa.StructArray.from_arrays(parts, fields=fields, mask=mask)

    def _list(self, array: pa.Array, type_: ListType) -> pa.Array:
        lengths = array.value_lengths().fill_null(0).to_numpy(zero_copy_only=False)
        offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
        elements = self._field(array.flatten(), type_.element)
        mask = array.is_null() if array.null_count else None
        return pa.ListArray.from_arrays(pa.array(offsets), elements, type=arrow_type(type_), mask=mask)


def _interleaved(parts: tuple[pa.Array, pa.Array], second: _Array) -> pa.Array:
    """The two arrays as one, with the second array's elements where (n,) `second` is true."""
    changes: _Array = np.flatnonzero(np.diff(second)) + 1
    if len(changes) * _FEW > len(second):
        places: _Array = np.empty(len(second), dtype=np.int64)
        places[~second] = np.arange(len(parts[0]))
        places[second] = np.arange(len(parts[0]), len(second))
        return pa.concat_arrays(parts).take(pa.array(places))
    pieces = []
    read = [0, 0]
    for low, high in pairwise([0, *changes.tolist(), len(second)]):
        part = int(second[low])
        pieces.append(parts[part].slice(read[part], high - low))
        read[part] += high - low
    return pa.concat_arrays(pieces)


def _of_items(type_: pa.DataType) -> pa.DataType:
    return type_.value_type if pa.types.is_list(type_) else type_


def _joined(values: pa.Array) -> pa.Buffer:
    """The records with a newline between them. Raises NotBulkError when one does not look like an object."""
    if not _are_objects(values).all():
        try:
            values = pc.ascii_trim(values.cast(pa.string()), _BLANKS).cast(pa.binary())
        except pa.ArrowInvalid as error:
            raise NotBulkError from error
        objects = _are_objects(values)
        if not objects.all():
            raise NotBulkError("no object", int(np.argmin(objects)))
    whole = pa.ListArray.from_arrays(pa.array([0, len(values)], pa.int32()), values)
    return pc.binary_join(whole, b"\n").buffers()[2]


def _require_no_small_numbers(values: pa.Array) -> None:
    """Raises NotBulkError, which names the record, for a number with a negative exponent of two digits.

    As a decimal, Arrow makes 0 of numbers that are far too small.
    """
    data, offsets = text_columns.bytes_and_offsets(values)
    exponents = (data[1:-3] | 32) == ord("e")
    places: _Array = np.flatnonzero(exponents & (data[2:-2] == ord("-"))) + 1
    places = places[_DIGIT[data[places - 1]] & _DIGIT[data[places + 2]] & _DIGIT[data[places + 3]]]
    before, behind = places - 1, places + 3
    steps = 0
    for at, letters, step, end in (
        (before, _OF_NUMBER, -1, 0),
        (behind, _DIGIT, 1, len(data) - 1),
    ):
        while (inside := letters[data[at]] & (at != end)).any():
            at += step * inside
            steps += 1
            if steps > _LONGEST_NUMBER:
                raise NotBulkError
    # Next to other letters it is part of a text, as in a UUID.
    found = before[_BESIDE_NUMBER[data[before]] & _BESIDE_NUMBER[data[behind]]]
    if len(found):
        record = int(np.searchsorted(offsets, found[0], side="right")) - 1
        raise NotBulkError("a number with an exponent", record)


def _named_row(error: pa.ArrowException) -> int | None:
    """The record at which Arrow's reader says that it failed; only its text says so."""
    found = _ROW.search(str(error))
    return None if found is None else int(found[1])


def _are_objects(values: pa.Array) -> Any:
    """(n,) bool: whether each value begins and ends like an object."""
    _, offset_buffer, data_buffer = values.buffers()
    offsets = np.frombuffer(offset_buffer, dtype=np.int32)[values.offset : values.offset + len(values) + 1]
    if data_buffer is None or not data_buffer.size:
        return np.zeros(len(values), dtype=bool)
    data = np.frombuffer(data_buffer, dtype=np.uint8)
    first = np.minimum(offsets[:-1], len(data) - 1)
    return (data[first] == _OPEN) & (data[offsets[1:] - 1] == _CLOSE) & (offsets[1:] > offsets[:-1])


def _validated(array: pa.Array) -> pa.Array:
    """The array, checked: Arrow's reader copies text without validating UTF-8. Raises NotBulkError."""
    try:
        array.validate(full=True)
    except pa.ArrowInvalid as error:
        raise NotBulkError from error
    return array


def blocks(values: pa.Array, limit: int) -> Iterator[tuple[int, int]]:
    """Bounds of runs of records with at most `limit` bytes together; a longer record is a run of its own."""
    _, offset_buffer, _ = values.buffers()
    offsets = np.frombuffer(offset_buffer, dtype=np.int32)[values.offset : values.offset + len(values) + 1]
    low = 0
    while low < len(values):
        high = int(np.searchsorted(offsets, int(offsets[low]) + limit, side="right")) - 1
        high = min(len(values), max(high, low + 1))
        yield low, high
        low = high
