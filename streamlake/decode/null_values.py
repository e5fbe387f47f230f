"""Deletes from records without a value: on a compacted topic such a record says that its key is gone.

Used on the executors, around the decoder of a plain format, where the source's option null-value is "delete".
The key columns are read from the message key. Invariant: a record without a value gives exactly one delete,
or is a reject; it never gives a row.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

from streamlake.decode.row_decoder import RowDecoder
from streamlake.decode.values.decoded import Decoded, Decoder
from streamlake.decode.values.envelope import Array, Reject
from streamlake.errors import DecodeError
from streamlake.formats.arrow.arrow_schema import schema_to_arrow
from streamlake.records import ROW_KIND, RowKind, record_place
from streamlake.spec.types.data_types import IntegerType, LongType, NestedField
from streamlake.spec.types.schema import Schema

_NUMBER = re.compile(r"[-+]?\d+")
_JSON = "json."
_CONNECT = {"schema", "payload"}


class DeletingDecoder:
    """The rows of `decoder` as upserts, and a delete for each record without a value.

    `schema` is that of the rows, with the column ROW_KIND, `key` the columns that a delete needs. `metadata`
    are the columns from the record itself, `options` those of the value's decoder.
    """

    def __init__(
        self,
        decoder: Decoder,
        schema: Schema,
        metadata: Mapping[str, str],
        key: Sequence[str],
        options: Mapping[str, str],
    ) -> None:
        fields = tuple(replace(part, required=False) for part in schema.fields)
        self.schema: pa.Schema = schema_to_arrow(replace(schema, fields=fields))
        self._decoder = decoder
        self._metadata = dict(metadata)
        self._key = tuple(part for part in fields if part.name in key)
        own = {name: value for name, value in options.items() if name.startswith(_JSON)}
        self._keys = RowDecoder(Schema(self._key), {}, "json", own)

    def decode(self, raw: pa.RecordBatch, *, keep_rejects: bool = False) -> Decoded:
        """See Decoder."""
        decoded = self._decoder.decode(raw, keep_rejects=keep_rejects)
        rows = self._typed({name: decoded.rows.column(name) for name in decoded.rows.schema.names}, False)
        places: Array = np.flatnonzero(raw.column("value").is_null().to_numpy(zero_copy_only=False))
        if not len(places):
            return replace(decoded, rows=rows, nulls=0)
        deletes, deleted, rejects = self._deletes(raw, places)
        if rejects and not keep_rejects:
            first = rejects[0]
            raise DecodeError(f"{record_place(raw, first.record)}: {first.reason}")
        records = np.concatenate([decoded.records, deleted])
        order = np.argsort(records, kind="stable")
        together = pa.Table.from_batches([rows, deletes]).combine_chunks().take(pa.array(order))
        [rows] = together.combine_chunks().to_batches() or [rows.slice(0, 0)]
        return replace(
            decoded,
            rows=rows,
            records=records[order],
            rejects=tuple(sorted([*decoded.rejects, *rejects], key=lambda reject: reject.record)),
            nulls=0,
        )

    def _deletes(self, raw: pa.RecordBatch, places: Array) -> tuple[pa.RecordBatch, Array, list[Reject]]:
        """The deletes of the records at these places, the places that they come from, and the others."""
        keys, kept, rejects = [], [], []
        for place, content in zip(places.tolist(), raw.column("key").take(pa.array(places)), strict=True):
            found = key_object(content.as_py(), self._key)
            if isinstance(found, bytes):
                keys.append(found)
                kept.append(place)
            else:
                rejects.append(Reject(place, found.reason))
        chosen = raw.take(pa.array(kept, pa.int64()))
        at = chosen.schema.get_field_index("value")
        given = chosen.set_column(at, chosen.schema.field(at), pa.array(keys, chosen.schema.field(at).type))
        decoded = self._keys.decode(given, keep_rejects=True)
        rejects += [
            Reject(kept[each.record], f"it has no value, and its key is none of a row: {each.reason}")
            for each in decoded.rejects
        ]
        columns = {part.name: decoded.rows.column(part.name) for part in self._key}
        of = chosen.take(pa.array(decoded.records))
        columns |= {name: of.column(part) for name, part in self._metadata.items() if name not in columns}
        deleted: Array = np.array(kept, dtype=np.int64)[decoded.records]
        return self._typed(columns, True, len(deleted)), deleted, sorted(rejects, key=lambda one: one.record)

    def _typed(self, columns: dict[str, pa.Array], removes: bool, count: int | None = None) -> pa.RecordBatch:
        count = len(next(iter(columns.values()))) if count is None else count
        kind = RowKind.DELETE if removes else RowKind.UPDATE_AFTER
        columns[ROW_KIND] = pa.repeat(pa.scalar(int(kind), self.schema.field(ROW_KIND).type), count)
        arrays = [
            columns[part.name].cast(part.type) if part.name in columns else pa.nulls(count, part.type)
            for part in self.schema
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)


class NoKey:
    """The reason why a message key is no row's key."""

    def __init__(self, reason: str) -> None:
        self.reason = reason


def key_object(key: bytes | None, fields: Sequence[NestedField]) -> bytes | NoKey:
    """The key columns in a message key, as a JSON object.

    A key is such an object itself, or one in Kafka Connect's form (schema and payload); of a single column it
    is also the value alone: as text, as a JSON string, or a number of 4 or 8 bytes.
    """
    names = [part.name for part in fields]
    if not fields:
        return NoKey("it has no value, and the table has no key by which a row could be deleted")
    if key is None:
        return NoKey("it has neither a value nor a key, so that nothing says which row is to be deleted")
    parsed = _parsed(key)
    if isinstance(parsed, dict):
        is_wrapped = set(parsed) == _CONNECT and not set(names) & _CONNECT
        if is_wrapped and isinstance(parsed["payload"], dict):
            parsed, key = parsed["payload"], json.dumps(parsed["payload"]).encode()
        elif is_wrapped and parsed["payload"] is None:
            return NoKey(f"it has no value, and its key {_shown(key)} is null")
        elif is_wrapped:
            return key_object(json.dumps(parsed["payload"]).encode(), fields)
        lacking = [name for name in names if parsed.get(name) is None]
        if not lacking:
            return key
        return NoKey(f"it has no value, and its key {_shown(key)} lacks the key column '{lacking[0]}'")
    if len(fields) != 1:
        return NoKey(
            f"it has no value, and its key {_shown(key)} is no JSON object with the key columns "
            f"{', '.join(names)}"
        )
    # A serializer of JSON puts text in quotes, which are not part of the column's value.
    value = parsed if isinstance(parsed, str) else _single(key, fields[0])
    if value is None:
        return NoKey(
            f"it has no value, and its key {_shown(key)} is no {fields[0].type} for the key column "
            f"'{names[0]}'"
        )
    return json.dumps({names[0]: value}).encode()


def _single(key: bytes, part: NestedField) -> Any:
    try:
        text = key.decode()
    except UnicodeDecodeError:
        text = None
    if isinstance(part.type, (IntegerType, LongType)):
        if text is not None and _NUMBER.fullmatch(text.strip()):
            return int(text)
        return int.from_bytes(key, "big", signed=True) if len(key) in (4, 8) else None
    return text


def _parsed(key: bytes) -> Any:
    try:
        return json.loads(key, parse_float=_number)
    except ValueError:
        return None


def _number(text: str) -> float | str:
    """A float where it holds the number exactly as it is written; a longer decimal stays text."""
    number = float(text)
    return number if Decimal(repr(number)) == Decimal(text) else text


def _shown(key: bytes) -> str:
    text = key.decode("utf-8", "replace")
    return repr(text) if text.isprintable() and "\ufffd" not in text else f"0x{key.hex()}"
