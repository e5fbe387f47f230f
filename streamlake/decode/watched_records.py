"""Decoders for tables that follow their stream: what records have that the table lacks, and of which types.

Made in the tasks that read, where `new_fields` says whether to look at all. A schema that comes with the records counts;
else types are what the values look like, as in `json_inference`, and text stays text.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pyarrow as pa

from streamlake.decode.change_inference import shown_rows
from streamlake.decode.decoded import Decoder
from streamlake.decode.json_inference import infer_schema
from streamlake.decode.json_values import parse_object
from streamlake.decode.new_fields import Watch, WatchingDecoder, lacking, unknown_part
from streamlake.spec.types import NestedField

_HEADER_BYTES = {"json": 0, "confluent-json": 5}
_WITHOUT_NAMES = ("raw", "avro", "confluent-avro")
"""Formats whose values are not looked at: they have no fields, or their schemas tell by themselves."""


def watching_decoder(
    decoder: Callable[[Watch | None], Decoder],
    format: str,
    known: Sequence[NestedField],
    watch: Watch,
    options: Mapping[str, str],
) -> Decoder:
    """The decoder that `decoder` makes, with the watch over a table whose columns are `known`."""
    if format in _WITHOUT_NAMES:
        return decoder(watch)

    def wanted(raw: pa.RecordBatch) -> Sequence[NestedField]:
        if format in _HEADER_BYTES:
            return _inferred(_objects(raw, _HEADER_BYTES[format]), known, watch)
        return _of_changes(format, raw, known, watch, options)

    return WatchingDecoder(decoder(watch), lambda: decoder(None), wanted)


def _objects(raw: pa.RecordBatch, start: int) -> Sequence[Mapping[str, Any]]:
    found = []
    for value in raw.column("value").drop_null():
        with suppress(ValueError):  # a record that cannot be read is the decoder's business
            found.append(parse_object(value.as_py()[start:]))
    return found


def _of_changes(
    format: str, raw: pa.RecordBatch, known: Sequence[NestedField], watch: Watch, options: Mapping[str, str]
) -> Sequence[NestedField]:
    values, keys = raw.column("value"), raw.column("key")
    places = [at for at in range(raw.num_rows) if values[at].is_valid]
    records = [(keys[at].as_py(), values[at].as_py()) for at in places]
    rows, schema, _ = shown_rows(format, records, options)
    return _inferred(rows, known, watch) if schema is None else lacking(known, schema.fields, watch)


def _inferred(
    rows: Sequence[Mapping[str, Any]], known: Sequence[NestedField], watch: Watch
) -> Sequence[NestedField]:
    parts = [part for part in (unknown_part(dict(row), known, watch) for row in rows) if part]
    if not parts:
        return ()
    found = infer_schema((json.dumps(part, default=float).encode() for part in parts), texts_are_text=True)
    return lacking(known, found.fields, replace(watch, widen=False))
