"""Decoder of Avro records to the columns of a schema: whole blocks at once, single records where that fails.

Called for every raw batch: by the row decoder (raw Avro), or by the registry's decoder for the records of one
schema id. A block that fails is halved until each record that cannot be read stands alone; the reason is then
that record's own. So one bad record among millions costs a few extra passes over its block, and is named.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from io import BytesIO
from typing import Any

import fastavro
import numpy as np
import pyarrow as pa

from streamlake.decode.avro.avro_leaves import UnevenError
from streamlake.decode.avro.avro_plan import lacking_columns, record_plan
from streamlake.decode.avro.avro_schema import (
    AvroArray,
    AvroEnum,
    AvroFixed,
    AvroMap,
    AvroRecord,
    AvroType,
    AvroUnion,
)
from streamlake.decode.avro.avro_wire import Block, DamagedError
from streamlake.decode.values.text_columns import NotBulkError
from streamlake.formats.arrow.arrow_schema import arrow_type
from streamlake.formats.arrow.arrow_transforms import byte_strings
from streamlake.spec.types.schema import Schema

_BLOCK_BYTES = 4 << 20
_BLOCK_ROWS = 16_384

Failure = Callable[[int, str], Exception]
"""(record's index in the batch, reason) -> the error to raise."""


@dataclass(frozen=True)
class Payloads:
    """Encoded values: n byte ranges of `data` (uint8), ascending, and each one's index in the batch."""

    data: Any
    starts: Any
    stops: Any
    indexes: Any

    @staticmethod
    def of(values: pa.Array, header: int = 0) -> Payloads:
        """The values of a binary array without nulls, without the first `header` bytes of each."""
        data, starts, lengths = byte_strings(values)
        starts = starts.astype(np.int64)
        return Payloads(data, starts + header, starts + lengths, np.arange(len(values)))

    def __len__(self) -> int:
        return len(self.starts)

    def take(self, chosen: Any) -> Payloads:
        """The values at `chosen`: ascending numbers, a mask, or a slice."""
        return Payloads(self.data, self.starts[chosen], self.stops[chosen], self.indexes[chosen])

    def first_bytes(self) -> bytes:
        """The bytes of the first value."""
        return bytes(self.data[self.starts[0] : self.stops[0]])

    def block(self, *, patient: bool) -> tuple[Block, Any, Any]:
        """The block of bytes that holds all values, and where each begins and ends in it."""
        low, high = int(self.starts[0]), int(self.stops[-1])
        return Block(self.data[low:high], patient=patient), self.starts - low, self.stops - low


class AvroDecoder:
    """Decodes records that were written with `writer` to the columns of `schema`.

    `reader` (the reader's own schema) adds aliases, defaults and symbols; `where` names the writer's schema
    in errors. `lacking` are the columns that the writer's schema does not have. Raises SchemaMismatchError
    when a column cannot hold what is written.
    """

    def __init__(
        self,
        schema: Schema,
        writer: AvroType,
        reader: AvroType | None = None,
        *,
        where: str = "the Avro schema",
    ) -> None:
        self._types = [arrow_type(part.type) for part in schema.fields]
        self._plan = record_plan(writer, schema.fields, reader, where)
        self.lacking = lacking_columns(writer, schema.fields, reader)
        self._writer = writer
        self._parsed: Any = None

    def decode(self, values: pa.Array, failure: Failure) -> list[pa.Array]:
        """One array per field of the schema, for a binary array without nulls.

        For a record that cannot be decoded, raises what `failure` makes of its index and reason.
        """
        return self.decode_payloads(Payloads.of(values), failure)

    def absent(self, values: pa.Array, columns: Sequence[pa.Array]) -> dict[str, Any]:
        """See ValueDecoder: the columns that the writer's schema does not have."""
        return {name: np.ones(len(values), dtype=bool) for name in self.lacking if len(values)}

    def decode_payloads(self, payloads: Payloads, failure: Failure) -> list[pa.Array]:
        """Like `decode`, for ranges of bytes; the index passed to `failure` is that of the payloads."""
        return self._joined([self._block(block, failure) for block in _blocks(payloads)])

    def whole(self, payloads: Payloads) -> list[pa.Array]:
        """Like `decode_payloads`, all or nothing: raises NotBulkError, and the caller finds the record."""
        return self._joined([self._read(block) for block in _blocks(payloads)])

    def _joined(self, runs: list[list[pa.Array]]) -> list[pa.Array]:
        if len(runs) == 1:
            return runs[0]
        return [
            pa.concat_arrays([run[at] for run in runs]) if runs else pa.nulls(0, type_)
            for at, type_ in enumerate(self._types)
        ]

    def _block(self, payloads: Payloads, failure: Failure) -> list[pa.Array]:
        try:
            return self._read(payloads)
        except NotBulkError as error:
            if len(payloads) == 1:
                return self._alone(payloads, error, failure)
        middle = len(payloads) // 2
        left = self._block(payloads.take(slice(0, middle)), failure)
        right = self._block(payloads.take(slice(middle, None)), failure)
        return [pa.concat_arrays([first, second]) for first, second in zip(left, right, strict=True)]

    def _read(self, payloads: Payloads, *, patient: bool = False) -> list[pa.Array]:
        block, at, stops = payloads.block(patient=patient)
        columns, after = self._plan.columns(block, at)
        if not np.array_equal(after, stops):
            raise DamagedError(_wrong_end(after, stops))
        return columns

    def _alone(self, payloads: Payloads, error: NotBulkError, failure: Failure) -> list[pa.Array]:
        """One record that could not be read in bulk: either damaged, or with a great many items."""
        index = int(payloads.indexes[0])
        if not isinstance(error, UnevenError):
            raise failure(index, str(error)) from error
        try:
            return self._by_library(payloads.first_bytes())
        except Exception:  # noqa: BLE001  whatever the error is, the patient read decides
            try:
                return self._read(payloads, patient=True)
            except NotBulkError as reason:
                raise failure(index, str(reason)) from reason

    def _by_library(self, value: bytes) -> list[pa.Array]:
        """One record, decoded value by value with fastavro."""
        if self._plan.stored is None:
            raise UnevenError
        if self._parsed is None:
            self._parsed = fastavro.parse_schema(_plain_json(self._writer, set()))
        source = BytesIO(value)
        record = fastavro.schemaless_reader(source, self._parsed, None)
        if source.tell() != len(value):
            raise UnevenError
        return self._plan.converted_columns(pa.array([record], type=self._plan.stored))


def _blocks(payloads: Payloads) -> Iterator[Payloads]:
    low = 0
    while low < len(payloads):
        limit = int(payloads.starts[low]) + _BLOCK_BYTES
        high = int(np.searchsorted(payloads.stops, limit, side="right"))
        high = min(max(high, low + 1), low + _BLOCK_ROWS, len(payloads))
        yield payloads.take(slice(low, high))
        low = high


def _wrong_end(after: Any, stops: Any) -> str:
    row = int(np.flatnonzero(after != stops)[0])
    if after[row] > stops[row]:
        return "it ends before its last field"
    return (
        f"{int(stops[row] - after[row])} bytes are left after its last field, so it was written with another "
        "schema"
    )


def _plain_json(type_: AvroType, defined: set[str]) -> Any:
    """The schema without logical types, so that a library gives the values as they are encoded."""
    if isinstance(type_, AvroUnion):
        return [_plain_json(branch, defined) for branch in type_.branches]
    if isinstance(type_, AvroArray):
        return {"type": "array", "items": _plain_json(type_.items, defined)}
    if isinstance(type_, AvroMap):
        return {"type": "map", "values": _plain_json(type_.values, defined)}
    if not isinstance(type_, (AvroRecord, AvroEnum, AvroFixed)):
        return type_.kind
    if type_.name in defined:
        return type_.name
    defined.add(type_.name)
    if isinstance(type_, AvroEnum):
        return {"type": "enum", "name": type_.name, "symbols": list(type_.symbols)}
    if isinstance(type_, AvroFixed):
        return {"type": "fixed", "name": type_.name, "size": type_.size}
    fields = [{"name": part.name, "type": _plain_json(part.type, defined)} for part in type_.fields]
    return {"type": "record", "name": type_.name, "fields": fields}
