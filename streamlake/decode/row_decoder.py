"""Row decoder: raw record batches -> rows with the decoded values and metadata columns.

Runs on the executors between `source` and `write`, once per raw batch. Invariant: rows keep the records'
order. A record without a value (a tombstone) gives no row and is counted. In a partial update, a field that a
record does not have is missing, and one that is null is null. Records that cannot be decoded cost a few
passes over their neighbours, not over the batch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamlake.decode.value_formats import value_decoder
from streamlake.decode.values.decoded import Decoded
from streamlake.decode.values.envelope import Array, Reject
from streamlake.decode.values.new_fields import Watch
from streamlake.decode.values.record_limits import RecordLimits, without_limits
from streamlake.errors import DecodeError
from streamlake.formats.arrow.arrow_schema import schema_to_arrow
from streamlake.formats.arrow.missing_fields import missing_fields_column
from streamlake.formats.arrow.sifting import SpanError, sifted
from streamlake.records import MISSING_FIELDS, PLACE, record_place, record_places
from streamlake.spec.types.schema import Schema

_SHOWN = 200
_NO_VALUE = (
    "it has no value (a tombstone), and the source's option null-value is 'reject'; with 'ignore' such "
    "records are left out and counted, with 'delete' they delete the row of their key"
)
_Part = tuple[pa.RecordBatch, Mapping[str, Array]]
"""Rows, and for each column with missing fields the rows where they are missing."""


class RowDecoder:
    """Decodes the records of one source.

    `schema` is that of the rows. The columns of `metadata` ({column: part of the record}) are taken from the
    record, the others from its value in `format`. `partial_update`: fields that a value does not have are
    missing, also required ones. `rejects_nulls`: a record without a value cannot be decoded.
    """

    def __init__(
        self,
        schema: Schema,
        metadata: Mapping[str, str],
        format: str,
        options: Mapping[str, str],
        watch: Watch | None = None,
        *,
        partial_update: bool = False,
        rejects_nulls: bool = False,
    ) -> None:
        self._rejects_nulls = rejects_nulls
        self._partial_update = partial_update
        self._required = [part.name for part in schema.fields if part.required and part.name not in metadata]
        if partial_update:
            schema = replace(schema, fields=tuple(replace(part, required=False) for part in schema.fields))
        self.schema: pa.Schema = schema_to_arrow(schema)
        self._metadata = dict(metadata)
        self._value_fields = tuple(part for part in schema.fields if part.name not in metadata)
        self._limits = RecordLimits.of(options)
        self._decoder = value_decoder(format, Schema(self._value_fields), without_limits(options), watch)

    def decode(self, raw: pa.RecordBatch, *, keep_rejects: bool = False) -> Decoded:
        """See Decoder."""
        with self._limits.applied():
            return self._decoded(raw, keep_rejects)

    def _decoded(self, raw: pa.RecordBatch, keep_rejects: bool) -> Decoded:
        values = raw.column("value")
        places: Array = np.arange(raw.num_rows, dtype=np.int64)
        chosen = raw
        if self._decoder is not None and values.null_count:
            places = places[values.is_valid().to_numpy(zero_copy_only=False)]
            chosen = raw.take(pa.array(places))
        tombstones = raw.num_rows - len(places)
        rejects: list[Reject] = []
        if tombstones and self._rejects_nulls:
            without = np.setdiff1d(np.arange(raw.num_rows), places).tolist()
            if not keep_rejects:
                raise DecodeError(f"{record_place(raw, without[0])}: {_NO_VALUE}")
            rejects += [Reject(at, _NO_VALUE) for at in without]
        rejected = len(rejects)
        if not keep_rejects:
            rows = _with_missing_fields(raw, places, [self._rows(chosen, _Failure(chosen))])
            return Decoded(raw, rows, places, tombstones=tombstones, nulls=tombstones)
        parts = sifted(
            len(places),
            lambda low, high: self._span(chosen.slice(low, high - low)),
            lambda at, reason: rejects.append(Reject(int(places[at]), reason)),
        )
        kept = np.concatenate([places[low:high] for low, high, _ in parts] or [places[:0]])
        rows = _with_missing_fields(raw, kept, [part for _, _, part in parts] or [_no_rows(self.schema)])
        rejects.sort(key=lambda reject: reject.record)
        return Decoded(
            raw, rows, kept, rejects=tuple(rejects), tombstones=tombstones, nulls=tombstones - rejected
        )

    def _span(self, raw: pa.RecordBatch) -> _Part:
        """The rows of records with a value. Raises SpanError for a record that cannot be decoded."""
        failure = _Failure(raw)
        try:
            return self._rows(raw, failure)
        except DecodeError as error:
            if failure.reason is None:
                raise
            raise SpanError(failure.at, failure.reason) from error

    def _rows(self, raw: pa.RecordBatch, failure: _Failure) -> _Part:
        values = raw.column("value")
        large = self._limits.too_large(raw)
        if large:
            first = min(large)
            raise failure(first, large[first])
        decoded = [values] if self._decoder is None else self._decoder.decode(values, failure)
        missing: dict[str, Array] = {}
        if self._partial_update and self._decoder is not None:
            missing = self._decoder.absent(values, decoded)
        columns = {part.name: array for part, array in zip(self._value_fields, decoded, strict=True)}
        for column, part in self._metadata.items():
            columns[column] = raw.column(part)
        if self._partial_update:
            self._require(columns, missing, failure)
            columns.update({name: _without(columns[name], mask) for name, mask in missing.items()})
        rows = pa.RecordBatch.from_arrays(
            [_typed(columns[field.name], field.type) for field in self.schema], schema=self.schema
        )
        return rows, missing

    def _require(
        self, columns: Mapping[str, pa.Array], missing: Mapping[str, Array], failure: _Failure
    ) -> None:
        """Raises what `failure` makes of a record with a null in a required column."""
        for name in self._required:
            nulls = columns[name].is_null().to_numpy(zero_copy_only=False)
            if name in missing:
                nulls = nulls & ~missing[name]
            if nulls.any():
                raise failure(int(np.argmax(nulls)), f"'{name}' is required, but it is null")


class _Failure:
    """Makes the error for one record of a raw batch, and remembers the record and the reason."""

    def __init__(self, raw: pa.RecordBatch) -> None:
        self._raw = raw
        self.at = 0
        self.reason: str | None = None

    def __call__(self, at: int, reason: str) -> DecodeError:
        self.at, self.reason = at, reason
        value = self._raw.column("value")[at].as_py() or b""
        shown = _shown(value[:_SHOWN]) + ("..." if len(value) > _SHOWN else "")
        return DecodeError(
            f"{record_place(self._raw, at)}: {reason}. Correct the schema or the producer; the record is "
            f"{shown}"
        )


def _shown(value: bytes) -> str:
    """Text as it is, anything else as hexadecimal digits."""
    text = value.decode("utf-8", "replace")
    return f"0x{value.hex()}" if any(letter < " " and not letter.isspace() for letter in text) else repr(text)


def _no_rows(schema: pa.Schema) -> _Part:
    return pa.RecordBatch.from_arrays([pa.nulls(0, field.type) for field in schema], schema=schema), {}


def _with_missing_fields(raw: pa.RecordBatch, places: Array, parts: Sequence[_Part]) -> pa.RecordBatch:
    """The parts as one, with MISSING_FIELDS and PLACE where a record has missing fields.

    `places` are the indexes of the records in `raw`.
    """
    batches = [rows for rows, _ in parts]
    rows = batches[0] if len(batches) == 1 else pa.concat_batches(batches)
    names = dict.fromkeys(name for _, masks in parts for name in masks)
    if not names:
        return rows
    masks = {
        name: np.concatenate([masks.get(name, np.zeros(part.num_rows, dtype=bool)) for part, masks in parts])
        for name in names
    }
    missing = missing_fields_column(masks, rows.num_rows)
    return rows.append_column(MISSING_FIELDS, missing).append_column(
        PLACE, record_places(raw, places, missing.is_null())
    )


def _without(array: pa.Array, mask: Array) -> pa.Array:
    """Nulls where the mask is true: a default of the reader's schema is not a value of the record."""
    if (array.is_valid().to_numpy(zero_copy_only=False) & mask).any():
        return pc.if_else(pa.array(mask), pa.scalar(None, array.type), array)
    return array


def _typed(array: pa.Array, type_: pa.DataType) -> pa.Array:
    return array if array.type.equals(type_) else array.cast(type_)
