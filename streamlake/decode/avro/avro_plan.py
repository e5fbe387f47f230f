"""Schema resolution for Avro, once per schema: how a writer's records become a table's columns.

Columns are found by name. A reader's schema, where one is given, adds what names cannot say: aliases,
defaults, and a default for enum symbols that it does not know (Avro specification, Schema Resolution). Fields
that only the writer has are skipped. A column that the writer does not have takes its default, else null.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from streamlake.decode.avro.avro_conversions import NoConversionError, conversion
from streamlake.decode.avro.avro_leaves import (
    BooleanReader,
    BytesReader,
    Convert,
    EnumReader,
    FixedReader,
    FloatReader,
    IntegerReader,
    NullReader,
    Reader,
)
from streamlake.decode.avro.avro_nested import (
    ListReader,
    NamedReader,
    Output,
    Part,
    RecordReader,
    UnionReader,
)
from streamlake.decode.avro.avro_schema import (
    NO_DEFAULT,
    AvroArray,
    AvroEnum,
    AvroField,
    AvroFixed,
    AvroMap,
    AvroRecord,
    AvroType,
    AvroUnion,
)
from streamlake.decode.avro.avro_types import member_types
from streamlake.decode.avro.avro_wire import DamagedError
from streamlake.errors import SchemaMismatchError
from streamlake.formats.arrow.arrow_schema import arrow_type
from streamlake.spec.types.data_types import (
    IcebergType,
    ListType,
    MapType,
    NestedField,
    StringType,
    StructType,
)


def record_plan(
    writer: AvroType, fields: tuple[NestedField, ...], reader: AvroType | None, where: str
) -> RecordReader:
    """The reader of records of `writer` into the columns of `fields`.

    Raises SchemaMismatchError, which names `where` and the field, when the columns cannot hold what is
    written.
    """
    if not isinstance(writer, AvroRecord):
        raise SchemaMismatchError(f"{where}: the schema is {writer}, not a record, so it has no columns")
    return _Plan(where).record(writer, fields, reader, "")


def lacking_columns(
    writer: AvroType, fields: tuple[NestedField, ...], reader: AvroType | None
) -> tuple[str, ...]:
    """The columns that records of `writer`, a record's schema, have no field for."""
    assert isinstance(writer, AvroRecord)
    known = _only(reader)
    read_as = known if isinstance(known, AvroRecord) else None
    declared = {part.name: None if read_as is None else read_as.field(part.name) for part in fields}
    return tuple(name for name in declared if _written_name(name, declared[name], writer) is None)


class _Plan:
    def __init__(self, where: str) -> None:
        self._where = where

    def record(
        self, writer: AvroRecord, fields: tuple[NestedField, ...], reader: AvroType | None, path: str
    ) -> RecordReader:
        known = _only(reader)
        read_as = known if isinstance(known, AvroRecord) else None
        sources: dict[str, tuple[NestedField, AvroField | None]] = {}
        outputs = []
        numbers = {part.name: at for at, part in enumerate(writer.fields)}
        for target, arrow in zip(fields, arrow_type(StructType(fields)), strict=True):
            declared = None if read_as is None else read_as.field(target.name)
            name = _written_name(target.name, declared, writer)
            if name is None:
                outputs.append(Output(arrow, None, self._default(target, declared, f"{path}{target.name}")))
                continue
            if name in sources:
                raise self._wrong(
                    f"{path}{target.name}", f"'{name}' is already read as '{sources[name][0].name}'"
                )
            sources[name] = target, declared
            outputs.append(Output(arrow, numbers[name]))
        parts = []
        for part in writer.fields:
            wanted = sources.get(part.name)
            if wanted is None:
                parts.append(Part(part.name, self._skipped(part.type), False))
                continue
            target, declared = wanted
            full = f"{path}{target.name}"
            inner = self._column(part.type, target, None if declared is None else declared.type, full)
            parts.append(Part(part.name, NamedReader(inner, full), True))
        return RecordReader(parts, outputs)

    def _column(self, writer: AvroType, target: NestedField, reader: AvroType | None, path: str) -> Reader:
        """The reader of values of `writer` into a column that can be null unless it is required."""
        if isinstance(writer, AvroUnion):
            return self._union(writer, target, reader, path)
        if writer.kind == "null":
            return UnionlessNull(arrow_type(target.type), required=target.required)
        return self._value(writer, target.type, reader, path)

    def _union(self, writer: AvroUnion, target: NestedField, reader: AvroType | None, path: str) -> Reader:
        members = member_types(writer)
        type_ = target.type
        as_struct = (
            members is not None
            and isinstance(type_, StructType)
            and all(part.name.startswith("member") for part in type_.fields)
        )
        if not as_struct:
            branches = [
                None if branch.kind == "null" else self._value(branch, type_, reader, path)
                for branch in writer.branches
            ]
            return UnionReader(branches, arrow_type(type_), required=target.required)
        assert isinstance(type_, StructType)
        numbers = {part.name: at for at, part in enumerate(type_.fields)}
        readers: list[Reader | None] = []
        places: list[int | None] = []
        member = 0
        for branch in writer.branches:
            if branch.kind == "null":
                readers.append(None)
                places.append(None)
                continue
            at = numbers.get(f"member{member}")
            if at is None:
                raise self._wrong(path, f"the column has no member{member} for {branch}")
            part = type_.fields[at]
            readers.append(self._value(branch, part.type, None, f"{path}.{part.name}"))
            places.append(at)
            member += 1
        return UnionReader(readers, arrow_type(type_), required=target.required, members=places)

    def _value(self, writer: AvroType, type_: IcebergType, reader: AvroType | None, path: str) -> Reader:
        """The reader of values of `writer`, which is not a union, without nulls."""
        reader = _only(reader)
        if isinstance(writer, AvroRecord):
            if not isinstance(type_, StructType):
                raise self._mismatch(writer, type_, path)
            return self.record(writer, type_.fields, reader, f"{path}.")
        if isinstance(writer, AvroArray):
            if not isinstance(type_, ListType):
                raise self._mismatch(writer, type_, path)
            declared = reader.items if isinstance(reader, AvroArray) else None
            item = NamedReader(
                self._column(writer.items, type_.element, declared, f"{path}.element"), f"{path}.element"
            )
            stored = None if item.stored is None else pa.list_(item.stored)
            return ListReader(item, arrow_type(type_), stored)
        if isinstance(writer, AvroMap):
            if not isinstance(type_, MapType):
                raise self._mismatch(writer, type_, path)
            return self._map(writer, type_, reader, path)
        try:
            return _leaf(writer, conversion(writer, type_), reader)
        except NoConversionError:
            raise self._mismatch(writer, type_, path) from None

    def _map(self, writer: AvroMap, type_: MapType, reader: AvroType | None, path: str) -> Reader:
        if not isinstance(type_.key_type, StringType):
            raise self._wrong(path, f"Avro's maps have text as keys, and the column is {type_}")
        declared = reader.values if isinstance(reader, AvroMap) else None
        arrow = arrow_type(type_)
        key_field, value_field = arrow.key_field, arrow.item_field
        value = self._column(writer.values, type_.value, declared, f"{path}.value")
        entry = RecordReader(
            [
                Part("key", NamedReader(BytesReader(True, None), f"{path}.key"), True),
                Part("value", NamedReader(value, f"{path}.value"), True),
            ],
            [Output(key_field, 0), Output(value_field, 1)],
        )
        stored = None if value.stored is None else pa.map_(pa.string(), value.stored)
        return ListReader(entry, arrow, stored)

    def _skipped(self, writer: AvroType) -> Reader:
        """A reader that only moves past the value."""
        if isinstance(writer, AvroRecord):
            return RecordReader(
                [Part(part.name, self._skipped(part.type), False) for part in writer.fields], []
            )
        if isinstance(writer, AvroUnion):
            branches = [
                None if branch.kind == "null" else self._skipped(branch) for branch in writer.branches
            ]
            return UnionReader(branches, pa.null(), required=False)
        if isinstance(writer, AvroArray):
            return ListReader(self._skipped(writer.items), pa.list_(pa.null()), None)
        if isinstance(writer, AvroMap):
            parts = [
                Part("key", BytesReader(False, None), False),
                Part("value", self._skipped(writer.values), False),
            ]
            return ListReader(RecordReader(parts, []), pa.list_(pa.null()), None)
        return NullReader(pa.null()) if writer.kind == "null" else _leaf(writer, None, None)

    def _default(self, target: NestedField, declared: AvroField | None, path: str) -> pa.Scalar | None:
        """The value of a column that the writer does not have; None for null, or if rows raise an error."""
        if declared is None or declared.default is NO_DEFAULT or declared.default is None:
            return None
        type_ = declared.type
        if isinstance(type_, AvroUnion):
            type_ = _default_branch(type_, declared.default)
        column = self._value(type_, target.type, None, path)
        try:
            plain = plain_default(type_, declared.default)
            return column.converted(pa.array([plain], column.stored))[0]
        except (DamagedError, pa.ArrowInvalid, pa.ArrowTypeError, ValueError, TypeError, KeyError) as error:
            raise self._wrong(path, f"its default {declared.default!r} is no {type_}: {error}") from error

    def _mismatch(self, writer: AvroType, type_: IcebergType, path: str) -> SchemaMismatchError:
        return self._wrong(
            path,
            f"the column is {type_}, and {writer} is written, which cannot be converted to it without loss",
        )

    def _wrong(self, path: str, problem: str) -> SchemaMismatchError:
        return SchemaMismatchError(
            f"{self._where}: '{path}': {problem}. Correct the table's or the pipeline's schema"
        )


class UnionlessNull(NullReader):
    """A field that is always null in the writer's schema."""

    def __init__(self, target: pa.DataType, *, required: bool) -> None:
        super().__init__(target)
        self._required = required

    def read(self, block: Any, at: Any) -> tuple[pa.Array, Any]:
        """Nulls; raises DamagedError where the column is required and there are rows."""
        if self._required and len(at):
            raise DamagedError("it is required, but null")
        return super().read(block, at)


def plain_default(type_: AvroType, value: Any) -> Any:
    """The plain value that a library would decode for a default written in the schema's JSON."""
    if isinstance(type_, AvroUnion):
        return None if value is None else plain_default(_default_branch(type_, value), value)
    if isinstance(type_, AvroRecord):
        return {
            part.name: plain_default(part.type, value.get(part.name, part.default)) for part in type_.fields
        }
    if isinstance(type_, AvroArray):
        return [plain_default(type_.items, item) for item in value]
    if isinstance(type_, AvroMap):
        return [(key, plain_default(type_.values, item)) for key, item in value.items()]
    if type_.kind in ("bytes", "fixed"):
        return value.encode("latin-1")
    return value


_JSON_KINDS: Mapping[type, tuple[str, ...]] = {
    bool: ("boolean",),
    int: ("int", "long", "float", "double"),
    float: ("double", "float"),
    str: ("string", "bytes", "enum", "fixed"),
    list: ("array",),
    dict: ("record", "map"),
}


def _default_branch(union: AvroUnion, value: Any) -> AvroType:
    """The branch of a default: the first one that its JSON type can be."""
    fitting = _JSON_KINDS.get(type(value), ())
    return next((branch for branch in union.branches if branch.kind in fitting), union.branches[0])


def _written_name(column: str, declared: AvroField | None, writer: AvroRecord) -> str | None:
    names = (column, *(declared.aliases if declared is not None else ()))
    return next((name for name in names if writer.field(name) is not None), None)


def _only(reader: AvroType | None) -> AvroType | None:
    """The reader's type without the union that makes it optional."""
    if isinstance(reader, AvroUnion):
        return reader.others[0] if len(reader.others) == 1 else None
    return reader


def _leaf(writer: AvroType, convert: Convert | None, reader: AvroType | None) -> Reader:
    if writer.kind == "boolean":
        return BooleanReader(pa.bool_(), convert)
    if writer.kind in ("int", "long"):
        return IntegerReader(32 if writer.kind == "int" else 64, convert)
    if writer.kind in ("float", "double"):
        return FloatReader(32 if writer.kind == "float" else 64, convert)
    if isinstance(writer, AvroFixed):
        return FixedReader(writer.size, convert)
    if isinstance(writer, AvroEnum):
        return EnumReader(_symbols(writer, reader), convert)
    return BytesReader(writer.kind == "string", convert)


def _symbols(writer: AvroEnum, reader: AvroType | None) -> tuple[str | None, ...]:
    if not isinstance(reader, AvroEnum):
        return writer.symbols
    return tuple(symbol if symbol in reader.symbols else reader.default for symbol in writer.symbols)
