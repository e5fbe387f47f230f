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

from streamlake.decode.registry.confluent_framing import HEADER_BYTES
from streamlake.decode.registry.framed_keys import FramedKeys
from streamlake.decode.row_decoder import RowDecoder
from streamlake.decode.values.decoded import Decoded, Decoder
from streamlake.decode.values.envelope import Array, Reject
from streamlake.decode.values.record_limits import without_limits
from streamlake.errors import DecodeError
from streamlake.formats.arrow.arrow_schema import schema_to_arrow
from streamlake.records import ROW_KIND, RowKind, record_place
from streamlake.spec.types.data_types import IntegerType, LongType, NestedField
from streamlake.spec.types.schema import Schema

_NUMBER = re.compile(r"[-+]?\d+")
_JSON = "json."
_CONNECT = {"schema", "payload"}
_NO_ROWS_KEY = "it has no value, and its key is none of a row"


class DeletingDecoder:
    """The rows of `decoder` as upserts, and a delete for each record without a value.

    `schema` is that of the rows, with the column ROW_KIND, `key` the columns that a delete needs. `metadata`
    are the columns from the record itself, `options` those of the value's decoder, for `format`. Where that
    is one of a schema registry, so may be the message keys.
    """

    def __init__(
        self,
        decoder: Decoder,
        schema: Schema,
        metadata: Mapping[str, str],
        key: Sequence[str],
        options: Mapping[str, str],
        format: str = "json",
    ) -> None:
        fields = tuple(replace(part, required=False) for part in schema.fields)
        self.schema: pa.Schema = schema_to_arrow(replace(schema, fields=fields))
        self._decoder = decoder
        self._metadata = dict(metadata)
        self._key = tuple(part for part in fields if part.name in key)
        own = {name: value for name, value in options.items() if name.startswith(_JSON)}
        self._keys = RowDecoder(Schema(self._key), {}, "json", own)
        self._is_framed_json = format == "confluent-json"
        self._framed = (
            FramedKeys(Schema(self._key), without_limits(options))
            if format == "confluent-avro" and self._key
            else None
        )

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
        contents = raw.column("key").take(pa.array(places)).to_pylist()
        if self._is_framed_json:
            contents = [_without_frame(content) for content in contents]
        framed = [self._framed is not None and self._framed.takes(content) for content in contents]
        if not any(framed):
            return self._deletes_of_texts(raw, places, contents)
        mask: Array = np.array(framed, dtype=bool)
        of_avro = self._deletes_of_avro(raw, places[mask])
        texts = [content for content, is_framed in zip(contents, framed, strict=True) if not is_framed]
        of_texts = self._deletes_of_texts(raw, places[~mask], texts)
        [rows] = pa.Table.from_batches([of_avro[0], of_texts[0]]).combine_chunks().to_batches() or [
            of_texts[0]
        ]
        rejects = sorted([*of_avro[2], *of_texts[2]], key=lambda one: one.record)
        return rows, np.concatenate([of_avro[1], of_texts[1]]), rejects

    def _deletes_of_avro(
        self, raw: pa.RecordBatch, places: Array
    ) -> tuple[pa.RecordBatch, Array, list[Reject]]:
        assert self._framed is not None
        columns, kept, failed = self._framed.read(raw.column("key").take(pa.array(places)))
        rejects = [Reject(int(places[at]), f"{_NO_ROWS_KEY}: {reason}") for at, reason in failed]
        deleted = places[kept]
        named = {part.name: column for part, column in zip(self._key, columns, strict=True)}
        of = raw.take(pa.array(deleted))
        named |= {name: of.column(part) for name, part in self._metadata.items() if name not in named}
        return self._typed(named, True, len(deleted)), deleted, rejects

    def _deletes_of_texts(
        self, raw: pa.RecordBatch, places: Array, contents: Sequence[bytes | None]
    ) -> tuple[pa.RecordBatch, Array, list[Reject]]:
        keys, kept, rejects = [], [], []
        for place, content in zip(places.tolist(), contents, strict=True):
            found = key_object(content, self._key)
            if isinstance(found, bytes):
                keys.append(found)
                kept.append(place)
            else:
                rejects.append(Reject(place, found.reason))
        chosen = raw.take(pa.array(kept, pa.int64()))
        at = chosen.schema.get_field_index("value")
        given = chosen.set_column(at, chosen.schema.field(at), pa.array(keys, chosen.schema.field(at).type))
        decoded = self._keys.decode(given, keep_rejects=True)
        rejects += [Reject(kept[each.record], f"{_NO_ROWS_KEY}: {each.reason}") for each in decoded.rejects]
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


def _without_frame(key: bytes | None) -> bytes | None:
    """A key without the header of a schema registry, where JSON follows it."""
    is_framed = key is not None and key[:1] == b"\0" and any(key[1:HEADER_BYTES])
    if key is None or not is_framed or _parsed(key[HEADER_BYTES:]) is None:
        return key
    return key[HEADER_BYTES:]


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
