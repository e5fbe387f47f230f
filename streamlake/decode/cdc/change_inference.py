"""Schema inference for change streams: the schema of the rows in a sample, and the columns of their key.

Runs on the driver when a table is created for a topic without a configured schema. Where records carry Kafka
Connect's schema, types are those of the database. Otherwise they follow from the values, and text stays text.
Invariant: the key is what the envelope says, in its order; its columns are required.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from streamlake.decode.cdc.debezium.debezium_parts import debezium_parts
from streamlake.decode.cdc.payloads import PayloadForm
from streamlake.decode.cdc.source_tables import (
    SourceTables,
    TableCheck,
    event_name,
    joined_name,
    unwrapped_name,
)
from streamlake.decode.json.json_inference import infer_schema
from streamlake.decode.json.json_values import parse_object
from streamlake.decode.values.connect_schema import ConnectSchema, iceberg_schema_of
from streamlake.decode.values.unavailable import DEFAULT_PLACEHOLDER, Unavailable
from streamlake.errors import DecodeError
from streamlake.spec.types.data_types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    LongType,
    NestedField,
    StringType,
    TimestampType,
)
from streamlake.spec.types.schema import Schema, fresh_schema

PLACEHOLDER = "debezium.unavailable-value-placeholder"

Row = dict[str, Any]


@dataclass(frozen=True)
class ChangedRows:
    """What a sample shows: the rows' `schema`, ids from 1, and the columns of their `key`, if any."""

    schema: Schema
    key: tuple[str, ...]


@dataclass(frozen=True)
class _Sample:
    """What one record shows.

    A row (None: it has none), the row's exact schema where the record carries it, the columns of its key, and
    the name of its table.
    """

    row: Row | None
    schema: Schema | None = None
    key: tuple[str, ...] = ()
    table: str = ""


def infer_changed_rows(
    format: str,
    records: Sequence[tuple[bytes | None, bytes]],
    options: Mapping[str, str],
    tables: SourceTables | None = None,
) -> ChangedRows:
    """The schema and key of the rows in records, given as (key, value), of an envelope's `format`.

    Only records of `tables` count, and among them the last schema and the last key. Raises DecodeError when
    the records show no row.
    """
    rows, schema, key = shown_rows(format, records, options, tables)
    if schema is None:
        if not any(rows):
            raise DecodeError(
                f"no table can be made for this topic, because {len(records)} records in the format "
                f"'{format}' show no row; pass a schema, or create the table first"
            )
        schema = infer_schema((json.dumps(row, default=float).encode() for row in rows), texts_are_text=True)
    key = key if all(name in schema.column_names for name in key) else ()
    fields = tuple(replace(part, required=True) if part.name in key else part for part in schema.fields)
    return ChangedRows(fresh_schema(Schema(fields)), key)


def shown_rows(
    format: str,
    records: Sequence[tuple[bytes | None, bytes]],
    options: Mapping[str, str],
    tables: SourceTables | None = None,
) -> tuple[list[Row], Schema | None, tuple[str, ...]]:
    """The rows in records, given as (key, value), with null for unavailable values.

    Also the last exact schema that a record carries, and the last key.
    """
    unavailable = Unavailable(options.get(PLACEHOLDER, DEFAULT_PLACEHOLDER))
    schema: Schema | None = None
    key: tuple[str, ...] = ()
    rows: list[Row] = []
    debezium = _DEBEZIUM.get(format)
    if debezium is None:
        shown: Callable[[bytes | None, bytes], _Sample] = _SAMPLES[format]
    else:
        form = debezium_parts(format, options)[1]
        records = form.shown_schemas(records)
        shown = partial(debezium, form)
    check = TableCheck(tables)
    for key_bytes, value in records:
        with suppress(ValueError):  # a record that cannot be read shows nothing; the decoder reports it
            sample = shown(key_bytes, value)
            if not check.takes(sample.table):
                continue
            schema, key = sample.schema or schema, sample.key or key
            if sample.row is not None:
                check.came_one(sample.table)
                missing = {name: None for name, part in sample.row.items() if unavailable.is_shown(part)}
                rows.append({**sample.row, **missing})
    return rows, schema, key


def _events(form: PayloadForm, key: bytes | None, value: bytes) -> _Sample:
    payload, connect = form.payload(value)
    if not isinstance(payload, dict) or payload.get("op") not in ("c", "r", "u", "d", "t"):
        return _Sample(None)
    after = connect.fields.get("after") if connect is not None else None
    row = payload.get("after")
    if isinstance(row, str):
        row = parse_object(row.encode())  # MongoDB's documents are JSON in a string
    schema = None if after is None or after.type != "struct" else iceberg_schema_of(after)
    source = payload.get("source")
    table = event_name(source) if isinstance(source, dict) else ""
    return _Sample(row if isinstance(row, dict) else None, schema, _key_columns(form, key), table)


def _unwrapped(form: PayloadForm, key: bytes | None, value: bytes) -> _Sample:
    payload, connect = form.payload(value)
    if not isinstance(payload, dict):
        return _Sample(None)
    schema = None
    if connect is not None and connect.type == "struct":
        kept = {name: part for name, part in connect.fields.items() if not name.startswith("__")}
        schema = iceberg_schema_of(ConnectSchema("struct", fields=kept))
    row = {name: part for name, part in payload.items() if not name.startswith("__")}
    return _Sample(row, schema, _key_columns(form, key), unwrapped_name(payload))


def _canal(_: bytes | None, value: bytes) -> _Sample:
    found = parse_object(value)
    rows, types = found.get("data"), found.get("mysqlType")
    if not rows or not isinstance(types, dict):
        return _Sample(None)
    fields = [NestedField(at, name, _mysql_type(text)) for at, (name, text) in enumerate(types.items(), 1)]
    return _Sample(rows[0], Schema(tuple(fields)), tuple(found.get("pkNames") or ()), _name(found))


def _maxwell(key: bytes | None, value: bytes) -> _Sample:
    found = parse_object(value)
    row = found.get("data")
    if not isinstance(row, dict) or not row:
        return _Sample(None)
    columns = found.get("primary_key_columns")
    if not columns and key is not None:
        named = parse_object(key)
        columns = [name.removeprefix("pk.") for name in named if name.startswith("pk.")]
    return _Sample(row, None, tuple(columns or ()), _name(found))


def _name(found: Mapping[str, Any]) -> str:
    return joined_name(None, [found.get("database"), found.get("table")])


_DEBEZIUM: Mapping[str, Callable[[PayloadForm, bytes | None, bytes], _Sample]] = {
    "debezium-json": _events,
    "debezium-avro": _events,
    "debezium-unwrapped-json": _unwrapped,
    "debezium-unwrapped-avro": _unwrapped,
}
_SAMPLES: Mapping[str, Callable[[bytes | None, bytes], _Sample]] = {
    "canal-json": _canal,
    "maxwell-json": _maxwell,
}


def _key_columns(form: PayloadForm, key: bytes | None) -> tuple[str, ...]:
    if key is None:
        return ()
    payload, _ = form.payload(key)
    return tuple(payload) if isinstance(payload, dict) else ()


_MYSQL: tuple[tuple[str, IcebergType], ...] = (
    (r"(tiny|small|medium)int|year", IntegerType()),
    (r"int(eger)?\b.*unsigned", LongType()),
    (r"int(eger)?\b", IntegerType()),
    (r"bigint.*unsigned", DecimalType(20, 0)),
    (r"bigint", LongType()),
    (r"bool", BooleanType()),
    (r"float", FloatType()),
    (r"double|real", DoubleType()),
    (r"datetime|timestamp", TimestampType()),
    (r"date", DateType()),
    (r"(tiny|medium|long)?blob|(var)?binary", BinaryType()),
)
"""MySQL's types by the beginning of their names.

A timestamp is written without its time zone, so it becomes one without time zone here. Types that are not
listed become strings.
"""


def _mysql_type(text: str) -> IcebergType:
    decimal = re.match(r"(?:decimal|numeric)\((\d+)(?:,\s*(\d+))?\)", text, re.IGNORECASE)
    if decimal is not None:
        digits = int(decimal[1])
        return DecimalType(digits, int(decimal[2] or 0)) if digits <= 38 else StringType()
    return next((type_ for start, type_ in _MYSQL if re.match(start, text, re.IGNORECASE)), StringType())
