"""How the records of an Avro file become Arrow columns, derived from the schema of the file.

Accepts what Iceberg writes and what migrated tables hold: other units of time, decimals in bytes, UUIDs in
text, enums, files without field ids. Each Avro type becomes a `_Column`: the Arrow type that fastavro's plain
values fit, the type they represent, and the conversion from one to the other.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from streamlake.errors import FeatureUnsupportedError
from streamlake.formats.arrow.arrow_ids import with_field_id
from streamlake.formats.arrow.nested_arrays import with_children
from streamlake.formats.avro.avro_container import ParsedSchema, damaged, parse_schema
from streamlake.spec.types.values import scaled

Json = Any
Convert = Callable[[pa.Array], pa.Array]

_PLAIN: dict[str, pa.DataType] = {
    "null": pa.null(),
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "bytes": pa.binary(),
}
_UNITS = {"millis": "ms", "micros": "us", "nanos": "ns"}
_DECIMAL128_BYTES = 16


@dataclass(frozen=True)
class _Column:
    """Arrow types of an Avro type: as decoded, and as represented; `convert` None: they are the same."""

    stored: pa.DataType
    meant: pa.DataType
    convert: Convert | None
    nullable: bool = False


@dataclass(frozen=True)
class AvroFileSchema:
    """Decodes the records of a file and makes Arrow batches of them."""

    decoder: ParsedSchema
    _stored: pa.DataType
    _schema: pa.Schema
    _steps: tuple[Convert | None, ...]

    @staticmethod
    def parse(text: str, path: str) -> AvroFileSchema:
        """Parse the writer's schema.

        Raises DataInvalidError, or FeatureUnsupportedError for unions of several types.
        """
        try:
            schema = json.loads(text)
            parts = _SchemaReader(path).fields(schema)
            decoder = parse_schema(schema)
        except (ValueError, KeyError, TypeError, AttributeError) as cause:
            raise damaged(path, f"its schema is no Avro record schema ({cause!r})") from cause
        return AvroFileSchema(
            decoder,
            pa.struct(
                [
                    pa.field(item["name"], column.stored)
                    for item, (_, column) in zip(schema["fields"], parts, strict=True)
                ]
            ),
            pa.schema([field for field, _ in parts]),
            tuple(column.convert for _, column in parts),
        )

    @property
    def column_types(self) -> list[pa.DataType]:
        """The Arrow types of the columns that `batch` returns."""
        return list(self._schema.types)

    def batch(self, records: list[dict[str, Any]]) -> pa.RecordBatch:
        """Decoded records as an Arrow batch, with field ids where the file has them."""
        rows = pa.array(records, type=self._stored)
        columns = [
            values if step is None else step(values)
            for values, step in zip(rows.flatten(), self._steps, strict=True)
        ]
        if not columns:
            return pa.RecordBatch.from_struct_array(rows)
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)


class _SchemaReader:
    """State while one schema is read: Avro defines a named type once and refers to it by name after that."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._named: dict[str, _Column] = {}

    def fields(self, record: Json) -> list[tuple[pa.Field, _Column]]:
        found = []
        for item in record["fields"]:
            column = self.column(item["type"])
            field = pa.field(item.get("iceberg-field-name", item["name"]), column.meant, column.nullable)
            found.append((_identified(field, item.get("field-id")), column))
        return found

    def column(self, schema: Json) -> _Column:
        if isinstance(schema, list):
            return self._union(schema)
        if isinstance(schema, str):
            known = self._named.get(schema)
            if known is not None:
                return known
            return _same(_PLAIN[schema])
        kind = schema["type"]
        if kind in ("record", "fixed", "enum", "error"):
            column = self._definition(schema, kind)
            self._named[schema["name"]] = column
            if schema.get("namespace"):
                self._named[f"{schema['namespace']}.{schema['name']}"] = column
            return column
        if kind == "array":
            return self._array(schema)
        if kind == "map":
            value = self.column(schema["values"])
            key = _identified(pa.field("key", pa.string(), False), schema.get("key-id"))
            return _map_column(_same(pa.string()), value, key, _value_field(value, schema.get("value-id")))
        if isinstance(kind, (dict, list)):
            return self.column(kind)
        return _logical(schema, self.column(kind))

    def _union(self, branches: list[Json]) -> _Column:
        others = [branch for branch in branches if branch != "null"]
        if len(others) > 1:
            raise FeatureUnsupportedError(
                f"{self._path}: a column is an Avro union of several types, which no Iceberg type is; "
                "rewrite the file with one type per column"
            )
        column = self.column(others[0]) if others else _same(pa.null())
        return _Column(column.stored, column.meant, column.convert, nullable=True)

    def _definition(self, schema: Json, kind: str) -> _Column:
        if kind == "enum":
            return _same(pa.string())
        if kind == "fixed":
            return _logical(schema, _same(pa.binary(schema["size"])))
        parts = self.fields(schema)
        stored = pa.struct(
            [
                pa.field(item["name"], part.stored)
                for item, (_, part) in zip(schema["fields"], parts, strict=True)
            ]
        )
        fields = [field for field, _ in parts]
        steps = [part.convert for _, part in parts]

        def convert(array: pa.Array) -> pa.Array:
            values = [
                array.field(at) if step is None else step(array.field(at)) for at, step in enumerate(steps)
            ]
            return pa.StructArray.from_arrays(
                values, fields=fields, mask=array.is_null() if array.null_count else None
            )

        return _Column(stored, pa.struct(fields), convert)

    def _array(self, schema: Json) -> _Column:
        if schema.get("logicalType") == "map":
            pair = self.fields(schema["items"])
            (key_field, key), (value_field, value) = pair
            return _pairs_column(key, value, key_field.with_nullable(False), value_field)
        element = self.column(schema["items"])
        field = _identified(pa.field("element", element.meant, element.nullable), schema.get("element-id"))
        meant = pa.list_(field)

        def convert(array: pa.Array) -> pa.Array:
            values = array.values if element.convert is None else element.convert(array.values)
            return with_children(array, meant, values)

        return _Column(pa.list_(element.stored), meant, convert)


def _same(type_: pa.DataType) -> _Column:
    return _Column(type_, type_, None)


def _identified(field: pa.Field, field_id: int | None) -> pa.Field:
    return field if field_id is None else with_field_id(field, int(field_id))


def _value_field(value: _Column, field_id: int | None) -> pa.Field:
    return _identified(pa.field("value", value.meant, value.nullable), field_id)


def _map_column(key: _Column, value: _Column, key_field: pa.Field, value_field: pa.Field) -> _Column:
    """Avro's own map, decoded as dicts."""
    meant = pa.map_(key_field, value_field)

    def convert(array: pa.Array) -> pa.Array:
        values = array.items if value.convert is None else value.convert(array.items)
        entries = pa.StructArray.from_arrays([array.keys, values], fields=[key_field, value_field])
        return with_children(array, meant, entries)

    return _Column(pa.map_(key.stored, value.stored), meant, convert)


def _pairs_column(key: _Column, value: _Column, key_field: pa.Field, value_field: pa.Field) -> _Column:
    """A map stored as an array of key-value records."""
    meant = pa.map_(key_field, value_field)

    def convert(array: pa.Array) -> pa.Array:
        keys, values = array.values.field(0), array.values.field(1)
        entries = pa.StructArray.from_arrays(
            [
                keys if key.convert is None else key.convert(keys),
                values if value.convert is None else value.convert(values),
            ],
            fields=[key_field, value_field],
        )
        return with_children(array, meant, entries)

    pair = pa.struct([pa.field(key_field.name, key.stored), pa.field(value_field.name, value.stored)])
    return _Column(pa.list_(pair), meant, convert)


def _logical(schema: Json, plain: _Column) -> _Column:
    """A primitive type with its logical type, if that is known."""
    name = schema.get("logicalType")
    stored = plain.stored
    if name == "date":
        return _viewed(stored, pa.date32())
    if name == "time-millis":
        return _viewed(stored, pa.time32("ms"))
    if name == "time-micros":
        return _viewed(stored, pa.time64("us"))
    if isinstance(name, str) and name.removeprefix("local-").startswith("timestamp-"):
        unit = _UNITS[name.rpartition("-")[2]]
        zoned = bool(schema.get("adjust-to-utc", False)) and not name.startswith("local-")
        return _viewed(stored, pa.timestamp(unit, "UTC" if zoned else None))
    if name == "decimal":
        meant = pa.decimal128(schema["precision"], schema.get("scale", 0))
        if pa.types.is_fixed_size_binary(stored):
            return _Column(stored, meant, lambda array: _decimals_of_fixed(array, meant))
        return _Column(stored, meant, lambda array: _decimals_of_bytes(array, meant))
    if name == "uuid" and pa.types.is_string(stored):
        return _Column(stored, pa.binary(16), _uuids_of_text)
    return plain


def _viewed(stored: pa.DataType, meant: pa.DataType) -> _Column:
    return _Column(stored, meant, lambda array: array.view(meant))


def _decimals_of_fixed(array: pa.Array, meant: pa.DataType) -> pa.Array:
    """Big-endian two's complement of a fixed size -> decimal128, which is little-endian."""
    size = array.type.byte_width
    raw = np.frombuffer(array.buffers()[1] or b"", dtype=np.uint8)
    big = raw[array.offset * size : (array.offset + len(array)) * size].reshape(len(array), size)
    kept = min(size, _DECIMAL128_BYTES)
    wide: np.ndarray[Any, Any] = np.empty((len(array), _DECIMAL128_BYTES), dtype=np.uint8)
    wide[:] = np.where(big[:, :1] & 0x80, 0xFF, 0)
    wide[:, :kept] = big[:, ::-1][:, :kept]
    validity = array.is_valid().buffers()[1] if array.null_count else None
    return pa.Array.from_buffers(meant, len(array), [validity, pa.py_buffer(wide.tobytes())])


def _decimals_of_bytes(array: pa.Array, meant: pa.DataType) -> pa.Array:
    return pa.array(
        [
            None if raw is None else scaled(int.from_bytes(raw, "big", signed=True), meant.scale)
            for raw in array.to_pylist()
        ],
        type=meant,
    )


def _uuids_of_text(array: pa.Array) -> pa.Array:
    return pa.array(
        [None if text is None else uuid.UUID(text).bytes for text in array.to_pylist()], pa.binary(16)
    )
