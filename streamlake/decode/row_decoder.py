"""Raw record batches -> rows: the decoded value, and the columns that come from the record itself.

Runs on the executors between `source` and `write`, once per raw batch. Invariant: rows keep the records' order; a
record without a value (a tombstone) gives no row and is counted.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from streamlake.decode.value_formats import value_decoder
from streamlake.errors import DecodeError
from streamlake.formats.arrow_schema import schema_to_arrow
from streamlake.spec.schema import Schema

_SHOWN = 200


class RowDecoder:
    """Decodes for one source.

    `schema` is that of the rows; the columns of `metadata` ({column: part of the record}) are taken from the record,
    the others from its value in `format`. `tombstones` counts the records without a value so far.
    """

    def __init__(
        self, schema: Schema, metadata: Mapping[str, str], format: str, options: Mapping[str, str]
    ) -> None:
        self.schema: pa.Schema = schema_to_arrow(schema)
        self.tombstones = 0
        self._metadata = dict(metadata)
        self._value_fields = tuple(part for part in schema.fields if part.name not in metadata)
        self._decoder = value_decoder(format, Schema(self._value_fields), options)

    def decode(self, raw: pa.RecordBatch) -> pa.RecordBatch:
        """Rows for a batch of schema RAW_RECORDS. Raises DecodeError that names the record."""
        values = raw.column("value")
        if self._decoder is not None and values.null_count:
            self.tombstones += values.null_count
            raw = raw.filter(pc.is_valid(values))
            values = raw.column("value")
        decoded = [values] if self._decoder is None else self._decoder.decode(values, _Failure(raw))
        columns = {part.name: array for part, array in zip(self._value_fields, decoded, strict=True)}
        for column, part in self._metadata.items():
            columns[column] = raw.column(part)
        return pa.RecordBatch.from_arrays(
            [_typed(columns[field.name], field.type) for field in self.schema], schema=self.schema
        )


class _Failure:
    """Makes the error for one record of a raw batch."""

    def __init__(self, raw: pa.RecordBatch) -> None:
        self._raw = raw

    def __call__(self, at: int, reason: str) -> DecodeError:
        record: dict[str, Any] = {
            name: self._raw.column(name)[at].as_py() for name in ("topic", "partition", "offset", "value")
        }
        value = record["value"]
        shown = _shown(value[:_SHOWN]) + ("..." if len(value) > _SHOWN else "")
        return DecodeError(
            f"{record['topic']}-{record['partition']} offset {record['offset']}: {reason}. Correct the schema or the "
            f"producer; the record is {shown}"
        )


def _shown(value: bytes) -> str:
    """Text as text, and anything else in hexadecimal digits."""
    text = value.decode("utf-8", "replace")
    return f"0x{value.hex()}" if any(letter < " " and not letter.isspace() for letter in text) else repr(text)


def _typed(array: pa.Array, type_: pa.DataType) -> pa.Array:
    return array if array.type.equals(type_) else array.cast(type_)
