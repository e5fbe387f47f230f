"""Decoder of Debezium's change events (before, after, op, source), in any of the forms they are written in.

An `Envelope`. c, r and u insert or update a row, and d deletes one. A u whose before image has another key
also deletes the old row. t is a truncate. Logical messages, heartbeats, transaction metadata and schema
changes change no row: they are ignored and counted.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamlake.decode.cdc.change_parts import joined, kind_codes, part_of
from streamlake.decode.cdc.debezium.debezium_converters import (
    converters_by_options,
    converters_by_schema,
    needs_samples,
)
from streamlake.decode.cdc.debezium.debezium_envelope import DebeziumEnvelope
from streamlake.decode.cdc.debezium.debezium_options import DebeziumOptions
from streamlake.decode.cdc.debezium.debezium_source import (
    DOCUMENTS,
    Position,
    has_position,
    position_of,
    read_at,
    sends_whole_rows,
    with_reads,
)
from streamlake.decode.cdc.envelope_decoder import one_by_one
from streamlake.decode.cdc.payloads import PayloadForm, Payloads
from streamlake.decode.cdc.row_reader import RowReader
from streamlake.decode.cdc.source_tables import (
    EVENT_PARTS,
    OTHER_TABLE,
    TableCheck,
    event_name,
    joined_name,
    joined_names,
)
from streamlake.decode.converters.extended_json import document_converters
from streamlake.decode.json.json_columns import JsonColumns
from streamlake.decode.json.json_options import JsonOptions
from streamlake.decode.json.json_values import FieldError, parse_object
from streamlake.decode.values.connect_schema import ConnectSchema
from streamlake.decode.values.envelope import Array, Change, Changes, Outcome
from streamlake.decode.values.new_fields import Watch, watching
from streamlake.decode.values.text_columns import NotBulkError, spread
from streamlake.formats.arrow.arrow_schema import arrow_type
from streamlake.records import RowKind
from streamlake.spec.types.data_types import NestedField, StringType, StructType
from streamlake.spec.types.schema import Schema

_KINDS = {
    "c": RowKind.INSERT,
    "r": RowKind.INSERT,
    "u": RowKind.UPDATE_AFTER,
    "d": RowKind.DELETE,
}
_OTHER = -1
_GONE = "update of a document that is gone"
_NO_DOCUMENTS = (
    "the connector sends updates without their document. Set its capture.mode to change_streams_update_full, "
    "and debezium.capture-mode as well"
)
_TIMES = {"ts_ms", "ts_us", "ts_ns"}
_NAMES = tuple(NestedField(0, name, StringType()) for name in ("name", *EVENT_PARTS))
"""The fields of "source" that name the table."""


class DebeziumEvents(DebeziumEnvelope):
    """Reads events of one table."""

    def __init__(
        self,
        schema: Schema,
        key: Sequence[str] = (),
        options: DebeziumOptions | None = None,
        form: PayloadForm | None = None,
        *,
        routes: Sequence[str] = (),
        partial_update: bool = False,
        watch: Watch | None = None,
        check: TableCheck | None = None,
    ) -> None:
        super().__init__(
            schema, key, options, form, routes=routes, partial_update=partial_update, watch=watch, check=check
        )
        self._sampled = any(needs_samples(part.type) for part in schema.fields)
        self._by_schema: dict[Hashable, RowReader] = {}
        self._connector: str | None = None
        # The last value seen of each column: shows its form where the samples of a block hold only nulls.
        self._shown: dict[str, Any] = {}

    def _outcome(
        self, payload: Mapping[str, Any], connect: ConnectSchema | None, key: bytes | None
    ) -> Outcome:
        op = payload.get("op")
        if op is None:
            return Outcome(ignored=_without_operation(payload))
        if op == "m":
            return Outcome(ignored="logical message")
        if not isinstance(op, str) or (op != "t" and op not in _KINDS):
            raise FieldError(f"'op' is {op!r}, which is not an operation of Debezium")
        source = payload.get("source")
        if source is None:
            source = {}
        if not isinstance(source, dict):
            raise FieldError("'source' is no object")
        name = event_name(source)
        if not (self._check.empties(name) if op == "t" else self._check.takes(name)):
            return Outcome(ignored=OTHER_TABLE)
        position = self._position(source.get("connector"))
        sequence = position.value(source)
        if op == "t":
            return Outcome(truncate=(table_of(source), sequence))
        if op == "u" and position is DOCUMENTS and payload.get("after") is None:
            if not self._options.looks_documents_up:
                raise FieldError(f"'after' is missing: {_NO_DOCUMENTS}")
            return Outcome(ignored=_GONE)
        if op == "r":
            sequence = read_at(sequence)
        changes = self._changes(_KINDS[op], payload, connect, position, sequence, key)
        (self._check.went_one if op == "d" else self._check.came_one)(name)
        return Outcome(changes=changes)

    def _position(self, connector: Any) -> Position:
        """How a connector's records are ordered. Raises FieldError for another connector than before.

        Positions of different databases cannot be compared, so the first connector with positions decides.
        """
        if not isinstance(connector, str):
            raise FieldError("'source.connector' is needed, but it is missing or not text")
        if self._connector not in (None, connector):
            raise FieldError(
                f"'source.connector' is '{connector}', but records before came from '{self._connector}': "
                "their positions cannot be compared; give each connector topics of its own"
            )
        if has_position(connector):
            self._connector = connector
        return position_of(connector)

    def tombstone(self, key: bytes | None) -> Outcome | None:
        """None, see Envelope.tombstone: the delete event came before the tombstone."""
        return None

    def _changes(
        self,
        kind: RowKind,
        payload: Mapping[str, Any],
        connect: ConnectSchema | None,
        position: Position,
        sequence: int | None,
        key: bytes | None,
    ) -> list[Change]:
        documents = position is DOCUMENTS
        before, after = _image(payload.get("before"), documents), _image(payload.get("after"), documents)
        images = [image for image in (before, after) if isinstance(image, dict)]
        reader = self._reader(connect, images, documents)
        if documents and isinstance(before, dict):
            # A document does not have the field where a row has null.
            before = {**dict.fromkeys(reader.routes), **before}
        if kind == RowKind.DELETE:
            if before is None and key is not None:
                row, missing = reader.row(self._key_image(key, documents), "key", brought=False)
            else:
                is_whole = sends_whole_rows(_connector([payload])) or reader.is_whole(before)
                row, missing = reader.row(
                    before, "before", brought=False, nulls=reader.routes if is_whole else ()
                )
            return [Change(kind, row, sequence, missing)]
        row, missing = reader.row(after, "after", brought=True)
        changes = [Change(kind, row, sequence, missing)]
        is_update = kind == RowKind.UPDATE_AFTER and isinstance(before, dict)
        if is_update and reader.changes_key(before, row, missing, "before"):
            gone, unknown = reader.row(before, "before", brought=False, nulls=reader.placing)
            changes.insert(0, Change(RowKind.DELETE, gone, sequence, unknown))
        return changes

    def _key_image(self, key: bytes, documents: bool) -> Any:
        """The columns in a record's key; for a document its "id" in Extended JSON. Raises ValueError."""
        found = self._form.payload(key)[0]
        if not documents or not isinstance(found, dict) or not isinstance(found.get("id"), str):
            return found
        return parse_object(b'{"_id":' + found["id"].encode() + b"}")

    def _run(self, payloads: Payloads) -> Changes:
        records = payloads.records
        shown = payloads.samples()
        connector = _connector(shown)
        if not connector:
            # Few changes among many other records: look for the first one.
            shown += payloads.first_change()
            connector = _connector(shown)
        position = self._position(connector) if connector else position_of(None)
        reader = self._bulk_reader(payloads, shown, position is DOCUMENTS)
        before, after, op, source = self._read(payloads, reader, position)
        if pc.any(pc.not_equal(source.field("connector"), connector), min_count=0).as_py():
            raise NotBulkError
        kinds = kind_codes(op, _KINDS, _OTHER)
        kinds[source.field("connector").is_null().to_numpy(zero_copy_only=False)] = _OTHER
        sequence = with_reads(position.column(source), op)
        taken = kinds == RowKind.DELETE
        has_before = before.is_valid().to_numpy(zero_copy_only=False)
        has_after = after.is_valid().to_numpy(zero_copy_only=False)
        others = (kinds == _OTHER) | np.where(
            taken, ~has_before | reader.lacks(before, reader.routes), ~has_after
        )
        if not payloads.complete:
            others |= ~taken & reader.unclear(after)
        is_change = kinds != _OTHER
        names = _names_of(source)
        others[is_change] |= self._check.foreign(
            names.filter(pa.array(is_change)), (~taken & ~others)[is_change]
        )
        key_changes = np.flatnonzero(~taken & ~others & has_before & (kinds == RowKind.UPDATE_AFTER))
        if len(key_changes):
            left, entered = reader.key_changes(*(_at(images, key_changes) for images in (before, after)))
            # Where the old row has nulls, it may be incomplete: the record-by-record path decides.
            key_changes = key_changes[left | entered]
            vague = reader.lacks(_at(before, key_changes), reader.placing)
            others[key_changes[vague]] = True
            key_changes = key_changes[~vague]
        brought = ~taken & ~others
        removed = np.union1d(np.flatnonzero(taken & ~others), key_changes)
        chosen = np.flatnonzero(brought)
        parts = []
        if len(removed):
            gone = _at(before, removed)
            if position is not DOCUMENTS:
                (gone,) = payloads.take(removed).read([NestedField(0, "before", reader.physical)])
            parts.append(self._part(reader, gone, None, _at(sequence, removed), records.places[removed]))
        if len(chosen):
            parts.append(
                self._part(
                    reader, _at(after, chosen), kinds[chosen], _at(sequence, chosen), records.places[chosen]
                )
            )
            self._check.came(_at(names, chosen))
        self._check.went(_at(names, np.flatnonzero(taken & ~others)))
        if others.any():
            parts.append(one_by_one(self, records.take(np.flatnonzero(others)), self._arrow))
        return joined(parts, self._arrow)

    def _part(
        self,
        reader: RowReader,
        images: pa.Array,
        kinds: Array | None,
        sequence: pa.Array,
        places: Array,
    ) -> Changes:
        """The changes of the (n,) images of these records: of `kinds`, or deletes where `kinds` is None."""
        columns, missing = reader.columns(images, brought=kinds is not None)
        kinds = np.full(len(places), RowKind.DELETE) if kinds is None else kinds
        return part_of(columns, kinds, self._arrow, sequence, places, missing)

    def _tables(self, payloads: Payloads) -> pa.StringArray:
        (source,) = payloads.read([NestedField(0, "source", StructType(_NAMES))])
        return _names_of(source)

    def _read(
        self, payloads: Payloads, reader: RowReader, position: Position
    ) -> tuple[pa.StructArray, pa.StructArray, pa.Array, pa.StructArray]:
        """The images, "op" and "source" of payloads.

        Of before images only the columns of the key and the table's name are read, which is all that most
        changes need of them.
        """
        documents = position is DOCUMENTS
        image = StringType() if documents else reader.physical
        old = StringType() if documents else reader.physical_place
        source = StructType((NestedField(0, "connector", StringType()), *_NAMES, *position.fields))
        fields = [
            NestedField(0, "before", old),
            NestedField(0, "after", image),
            NestedField(0, "op", StringType()),
            NestedField(0, "source", source),
        ]
        watch = None if documents else reader.watch
        before, after, op, source = payloads.read(fields, watch, ("after",))
        if documents:
            before, after = _documents(before, reader), _documents(after, reader)
        return before, after, op, source

    def _reader(
        self, connect: ConnectSchema | None, images: Sequence[Mapping[str, Any]], documents: bool
    ) -> RowReader:
        image = None if connect is None else _image_schema(connect)
        watch = self._unwatched(None if documents else image)
        if documents or image is None:
            for one in images:
                self._shown.update({name: found for name, found in one.items() if found is not None})
            images = [*images, self._shown]
        if documents:
            converters = document_converters(self._schema, images)
        elif image is None:
            converters = converters_by_options(self._schema, images, self._options)
        else:
            converters = converters_by_schema(self._schema, image, self._options)
        return self._row_reader(converters, watch)

    def _bulk_reader(
        self, payloads: Payloads, shown: Sequence[Mapping[str, Any]], documents: bool
    ) -> RowReader:
        if payloads.connect is not None and not documents:
            known = self._by_schema.get(payloads.identity)
            if known is None:
                if len(self._by_schema) > 64:
                    self._by_schema.clear()
                known = self._by_schema[payloads.identity] = self._reader(payloads.connect, (), documents)
            return known
        images = []
        for found in shown if self._sampled or documents else ():
            with suppress(ValueError):
                images += [_image(found.get(name), documents) for name in ("after", "before")]
        return self._reader(None, [image for image in images if isinstance(image, dict)], documents)


def table_of(source: Mapping[str, Any]) -> str:
    """The dotted name of the table that "source" names."""
    return joined_name(None, [source.get(name) for name in EVENT_PARTS])


def _names_of(source: pa.StructArray) -> pa.StringArray:
    return joined_names(source.field("name"), [source.field(name) for name in EVENT_PARTS])


def _connector(shown: Sequence[Mapping[str, Any]]) -> str:
    """The connector that the first change among some payloads names."""
    for payload in shown:
        source = payload.get("source")
        if isinstance(source, dict) and isinstance(source.get("connector"), str):
            return str(source["connector"])
    return ""


def _image(found: Any, documents: bool) -> Any:
    """An image as an object: MongoDB's images are JSON in a string. Raises ValueError."""
    return parse_object(found.encode()) if documents and isinstance(found, str) else found


def _documents(texts: pa.StringArray, reader: RowReader) -> pa.StructArray:
    """Images that are JSON in strings, as `reader` reads them; null where there is none."""
    fields = reader.physical.fields
    present = texts.drop_null()
    columns = JsonColumns(fields, JsonOptions(), strict_names=False, **watching(reader.watch, ())).read(
        present.cast(pa.binary())
    )
    images = pa.StructArray.from_arrays(columns, fields=list(arrow_type(reader.physical)))
    return spread(images, texts)


def _image_schema(connect: ConnectSchema) -> ConnectSchema | None:
    image = connect.fields.get("after")
    return image if image is not None and image.type == "struct" else None


def _at(array: pa.Array, places: Array) -> pa.Array:
    if len(places) == len(array):
        return array
    return array.take(pa.array(places, pa.int64()))


def _without_operation(payload: Mapping[str, Any]) -> str:
    """What a record without "op" is. Raises ValueError when Debezium does not write such a record."""
    if payload and payload.keys() <= _TIMES:
        return "heartbeat"
    if "status" in payload and "id" in payload:
        return "transaction metadata"
    if "ddl" in payload or "tableChanges" in payload:
        return "schema change"
    raise FieldError("'op' is missing: this is not a change event of Debezium")
