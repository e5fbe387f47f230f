"""Which key a moved row had before, or has now: Debezium's headers, as values of the key's columns.

Used where a batch of changes has key moves, which are few. Invariant: what a header does not tell plainly is null, and
the row is then treated as one that did not move.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from streamlake.decode.debezium_options import DebeziumOptions
from streamlake.decode.debezium_readings import readings_by_options, readings_by_schema
from streamlake.decode.envelope import KeyMove
from streamlake.decode.payloads import PayloadForm
from streamlake.decode.row_reader import RowReader
from streamlake.formats.arrow_schema import arrow_type
from streamlake.spec.schema import Schema


class MovedKeys:
    """Reads keys of the columns `key` of `schema`."""

    def __init__(
        self, schema: Schema, key: Sequence[str], options: DebeziumOptions, form: PayloadForm
    ) -> None:
        self._schema = Schema(tuple(part for part in schema.fields if part.name in key))
        self._key = tuple(key)
        self._options = options
        self._form = form
        self._type = pa.struct([pa.field(part.name, arrow_type(part.type)) for part in self._schema.fields])

    def column(self, moves: Sequence[KeyMove], rows: int) -> pa.StructArray:
        """For n rows the other key of those that moved, as structs of the key's columns, null for the others."""
        keys: list[dict[str, Any] | None] = [None] * rows
        for move in moves:
            value = move.from_key if move.to_key is None else move.to_key
            keys[move.row] = None if value is None else self._key_of(value)
        return pa.array(keys, self._type)

    def _key_of(self, value: bytes) -> dict[str, Any] | None:
        try:
            image, connect = self._form.payload(value)
            if not isinstance(image, dict):
                return None
            if connect is None:
                readings = readings_by_options(self._schema, [image], self._options)
            else:
                readings = readings_by_schema(self._schema, connect, self._options)
            row, unset = RowReader(self._schema, readings, self._key, None).row(image, "key", brought=False)
        except ValueError:
            return None
        return None if unset else row
