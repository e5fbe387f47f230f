"""Raw record batches -> rows: the decoded value, and the columns that come from the record itself.

Runs on the executors between `source` and `write`, once per raw batch. Invariant: rows keep the records' order; a
record without a value (a tombstone) gives no row and is counted. Records that cannot be decoded cost a few passes over
their neighbours, not over the batch.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from streamlake.decode.decoded import Decoded
from streamlake.decode.envelope import Array, Reject
from streamlake.decode.new_fields import Watch
from streamlake.decode.value_formats import value_decoder
from streamlake.errors import DecodeError
from streamlake.formats.arrow_schema import schema_to_arrow
from streamlake.formats.sifting import SpanError, sifted
from streamlake.records import record_place
from streamlake.spec.schema import Schema

_SHOWN = 200


class RowDecoder:
    """Decodes for one source.

    `schema` is that of the rows; the columns of `metadata` ({column: part of the record}) are taken from the record,
    the others from its value in `format`.
    """

    def __init__(
        self,
        schema: Schema,
        metadata: Mapping[str, str],
        format: str,
        options: Mapping[str, str],
        watch: Watch | None = None,
    ) -> None:
        self.schema: pa.Schema = schema_to_arrow(schema)
        self._metadata = dict(metadata)
        self._value_fields = tuple(part for part in schema.fields if part.name not in metadata)
        self._decoder = value_decoder(format, Schema(self._value_fields), options, watch)

    def decode(self, raw: pa.RecordBatch, *, keep_rejects: bool = False) -> Decoded:
        """See Decoder."""
        values = raw.column("value")
        places: Array = np.arange(raw.num_rows, dtype=np.int64)
        chosen = raw
        if self._decoder is not None and values.null_count:
            places = places[values.is_valid().to_numpy(zero_copy_only=False)]
            chosen = raw.take(pa.array(places))
        tombstones = raw.num_rows - len(places)
        if not keep_rejects:
            return Decoded(raw, self._rows(chosen, _Failure(chosen)), places, tombstones=tombstones)
        rejects: list[Reject] = []
        parts = sifted(
            len(places),
            lambda low, high: self._span(chosen.slice(low, high - low)),
            lambda at, reason: rejects.append(Reject(int(places[at]), reason)),
        )
        if len(parts) == 1:
            low, high, rows = parts[0]
            kept = places[low:high]
        else:
            rows = pa.concat_batches([part for _, _, part in parts]) if parts else _no_rows(self.schema)
            kept = np.concatenate([places[low:high] for low, high, _ in parts] or [places[:0]])
        rejects.sort(key=lambda reject: reject.record)
        return Decoded(raw, rows, kept, rejects=tuple(rejects), tombstones=tombstones)

    def _span(self, raw: pa.RecordBatch) -> pa.RecordBatch:
        """The rows of records with a value. Raises SpanError for one of them."""
        failure = _Failure(raw)
        try:
            return self._rows(raw, failure)
        except DecodeError as error:
            if failure.reason is None:
                raise
            raise SpanError(failure.at, failure.reason) from error

    def _rows(self, raw: pa.RecordBatch, failure: _Failure) -> pa.RecordBatch:
        values = raw.column("value")
        decoded = [values] if self._decoder is None else self._decoder.decode(values, failure)
        columns = {part.name: array for part, array in zip(self._value_fields, decoded, strict=True)}
        for column, part in self._metadata.items():
            columns[column] = raw.column(part)
        return pa.RecordBatch.from_arrays(
            [_typed(columns[field.name], field.type) for field in self.schema], schema=self.schema
        )


class _Failure:
    """Makes the error for one record of a raw batch, and remembers which it was and why."""

    def __init__(self, raw: pa.RecordBatch) -> None:
        self._raw = raw
        self.at = 0
        self.reason: str | None = None

    def __call__(self, at: int, reason: str) -> DecodeError:
        self.at, self.reason = at, reason
        value = self._raw.column("value")[at].as_py()
        shown = _shown(value[:_SHOWN]) + ("..." if len(value) > _SHOWN else "")
        return DecodeError(
            f"{record_place(self._raw, at)}: {reason}. Correct the schema or the producer; the record is {shown}"
        )


def _shown(value: bytes) -> str:
    """Text as text, and anything else in hexadecimal digits."""
    text = value.decode("utf-8", "replace")
    return f"0x{value.hex()}" if any(letter < " " and not letter.isspace() for letter in text) else repr(text)


def _no_rows(schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.nulls(0, field.type) for field in schema], schema=schema)


def _typed(array: pa.Array, type_: pa.DataType) -> pa.Array:
    return array if array.type.equals(type_) else array.cast(type_)
