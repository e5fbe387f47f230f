"""Decoder of JSON values to the columns of a schema: in bulk, and record by record only where bulk fails.

Called by the row decoder for every raw batch. A block that fails is split at the record that Arrow's reader
names, or halved, until the records that cannot be read in bulk stand alone. Those go through `json_values`,
which reads them or says what is wrong. So one bad record among millions costs a few extra passes over its
block, and is named.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from streamlake.decode.json.json_columns import JsonColumns, blocks, has_map
from streamlake.decode.json.json_names import absent_fields
from streamlake.decode.json.json_options import NOTICE, JsonOptions
from streamlake.decode.json.json_values import field_value, parse_object, row
from streamlake.decode.values.text_columns import NotBulkError
from streamlake.errors import FeatureUnsupportedError
from streamlake.formats.arrow.arrow_schema import arrow_type
from streamlake.spec.types.data_types import (
    GeographyType,
    GeometryType,
    NestedField,
    UnknownType,
    VariantType,
)
from streamlake.spec.types.schema import Schema

Array = Any  # numpy array

_BLOCK_BYTES = 64 << 20
_ALONE = 8
_UNREADABLE = (VariantType, GeometryType, GeographyType, UnknownType)

Failure = Callable[[int, str], Exception]
"""(record's index in the batch, reason) -> the error to raise."""


class JsonDecoder:
    """Decodes values to the columns of `schema`; missing fields become null.

    Raises FeatureUnsupportedError for a type that is not read from JSON.
    """

    def __init__(self, schema: Schema, options: JsonOptions) -> None:
        for part in schema.fields_by_id.values():
            if isinstance(part.type, _UNREADABLE):
                raise FeatureUnsupportedError(
                    f"column '{schema.name_of(part.field_id)}' is {part.type}, which is not decoded from "
                    "JSON; leave it out of the schema"
                )
        self._fields = schema.fields
        self._options = options
        self._types = {part.name: arrow_type(part.type) for part in schema.fields}
        plain = [part for part in schema.fields if not has_map(part.type)]
        self._slow = [part for part in schema.fields if has_map(part.type)]
        strict = options.unknown_fields == "fail"
        known = {*options.known, *(part.name for part in self._slow)}
        watched = () if options.unknown_fields == NOTICE else None
        # Maps are read only record by record, so with maps unknown fields can be found only there.
        self._columns = (
            None
            if self._slow and strict
            else JsonColumns(plain, options, strict_names=strict, watched=watched, known=known.__contains__)
        )
        self._plain = plain

    def decode(self, values: pa.Array, failure: Failure) -> list[pa.Array]:
        """One array per field of the schema, for a binary array without nulls.

        For the first record that cannot be decoded, raises what `failure` makes of its index and reason.
        """
        runs = [self._block(values, low, high, failure) for low, high in blocks(values, _BLOCK_BYTES)]
        if len(runs) == 1:
            return runs[0]
        return [
            pa.concat_arrays([run[at] for run in runs]) if runs else pa.nulls(0, self._types[part.name])
            for at, part in enumerate(self._fields)
        ]

    def absent(self, values: pa.Array, columns: Sequence[pa.Array]) -> dict[str, Array]:
        """See ValueDecoder."""
        return absent_fields(
            values, {part.name: array for part, array in zip(self._fields, columns, strict=True)}
        )

    def _block(self, values: pa.Array, low: int, high: int, failure: Failure) -> list[pa.Array]:
        named = None
        if self._columns is not None:
            try:
                bulk = self._columns.read(values.slice(low, high - low))
            except NotBulkError as error:
                named = error.row if error.row is not None and error.row < high - low else None
            else:
                return self._with_slow(bulk, values, low, high, failure)
        if self._columns is None or high - low <= _ALONE:
            return self._one_by_one(values, low, high, failure)
        parts = []
        first = low
        if named is not None:
            at = low + named
            if at > low:
                parts.append(self._block(values, low, at, failure))
            parts.append(self._one_by_one(values, at, at + 1, failure))
            first = at + 1
        middle = (first + high) // 2
        for start, stop in ((first, middle), (middle, high)):
            if stop > start:
                parts.append(self._block(values, start, stop, failure))
        return [pa.concat_arrays(list(columns)) for columns in zip(*parts, strict=True)]

    def _with_slow(
        self, bulk: list[pa.Array], values: pa.Array, low: int, high: int, failure: Failure
    ) -> list[pa.Array]:
        """The bulk columns together with the columns that hold maps, each in its position."""
        if not self._slow:
            return bulk
        found: dict[str, list[object]] = {part.name: [] for part in self._slow}
        for at in range(low, high):
            try:
                record = parse_object(values[at].as_py())
                for part in self._slow:
                    found[part.name].append(field_value(record, part, self._options))
            except ValueError as error:
                raise failure(at, str(error)) from error
        columns = dict(zip((part.name for part in self._plain), bulk, strict=True))
        for part in self._slow:
            columns[part.name] = self._array(part, found[part.name], low, failure)
        return [columns[part.name] for part in self._fields]

    def _one_by_one(self, values: pa.Array, low: int, high: int, failure: Failure) -> list[pa.Array]:
        rows = []
        for at in range(low, high):
            try:
                rows.append(row(parse_object(values[at].as_py()), self._fields, self._options))
            except ValueError as error:
                raise failure(at, str(error)) from error
        return [
            self._array(part, [record[part.name] for record in rows], low, failure) for part in self._fields
        ]

    def _array(self, part: NestedField, found: list[object], low: int, failure: Failure) -> pa.Array:
        """The column of the values of the records from `low` on."""
        type_ = self._types[part.name]
        try:
            return pa.array(found, type_)
        except (pa.ArrowException, ValueError, OverflowError):
            for at, value in enumerate(found):
                try:
                    pa.array([value], type_)
                except (pa.ArrowException, ValueError, OverflowError) as error:
                    raise failure(low + at, f"'{part.name}' is {part.type}: {error}") from error
            raise
