"""Avro schemas as values: parsed from JSON once, with every name resolved.

The decoders' plans and inferred table schemas start from them. Invariant: a parsed schema is finite. A type
that contains itself is refused, because no table column can hold it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from streamlake.errors import FeatureUnsupportedError, InvalidOptionError

Json = Any

PRIMITIVES = ("null", "boolean", "int", "long", "float", "double", "string", "bytes")


class _NoDefault:
    def __repr__(self) -> str:
        return "NO_DEFAULT"


NO_DEFAULT = _NoDefault()
"""The default of a field without one. None would mean null."""


@dataclass(frozen=True)
class AvroType:
    """Any Avro type.

    `properties` is what the schema says beside the structure: `logicalType`, `scale`, `connect.name`.
    """

    kind: str
    properties: Mapping[str, Json] = field(default_factory=dict, compare=False, kw_only=True)

    @property
    def logical(self) -> str | None:
        """The logical type's name, or None."""
        name = self.properties.get("logicalType")
        return name if isinstance(name, str) else None

    def __str__(self) -> str:
        return f"{self.kind} ({self.logical})" if self.logical else self.kind


@dataclass(frozen=True)
class AvroField:
    """A field of a record; `default` is NO_DEFAULT or the JSON value that the schema gives."""

    name: str
    type: AvroType
    aliases: tuple[str, ...] = ()
    default: Json = NO_DEFAULT
    doc: str | None = None
    properties: Mapping[str, Json] = field(default_factory=dict, compare=False)


@dataclass(frozen=True)
class AvroRecord(AvroType):
    """An Avro record: named fields in their order."""

    name: str
    fields: tuple[AvroField, ...]
    aliases: tuple[str, ...] = ()

    def field(self, name: str) -> AvroField | None:
        """The field of this name, or None."""
        return next((part for part in self.fields if part.name == name), None)


@dataclass(frozen=True)
class AvroEnum(AvroType):
    """An Avro enum; `default` stands for symbols that the reader does not know."""

    name: str
    symbols: tuple[str, ...]
    default: str | None = None


@dataclass(frozen=True)
class AvroFixed(AvroType):
    """An Avro fixed: `size` bytes."""

    name: str
    size: int


@dataclass(frozen=True)
class AvroArray(AvroType):
    """An Avro array of `items`."""

    items: AvroType


@dataclass(frozen=True)
class AvroMap(AvroType):
    """An Avro map from strings to `values`."""

    values: AvroType


@dataclass(frozen=True)
class AvroUnion(AvroType):
    """An Avro union of several branches."""

    branches: tuple[AvroType, ...]

    @property
    def others(self) -> tuple[AvroType, ...]:
        """The branches that are not null."""
        return tuple(branch for branch in self.branches if branch.kind != "null")

    @property
    def nullable(self) -> bool:
        """Whether null is one of the branches."""
        return len(self.others) < len(self.branches)

    def __str__(self) -> str:
        return f"union of {', '.join(map(str, self.branches))}"


def parse_avro_schema(text: str, where: str, references: Iterable[str] = ()) -> AvroType:
    """The schema that JSON text describes.

    `references` are the texts of the schemas whose names it uses, each after those it needs. `where` names
    the schema in errors. Raises InvalidOptionError for text that is not an Avro schema, and
    FeatureUnsupportedError for a type that contains itself.
    """
    parsing = _Parsing(where)
    for referred in references:
        parsing.parse(referred)
    return parsing.parse(text)


class _Parsing:
    """The named types by full name; None while a type is still being parsed."""

    def __init__(self, where: str) -> None:
        self._where = where
        self._named: dict[str, AvroType | None] = {}

    def parse(self, text: str) -> AvroType:
        try:
            content = json.loads(text)
        except ValueError as error:
            stripped = text.strip()
            if stripped not in PRIMITIVES:
                raise self._wrong(f"it is not valid JSON: {error}") from error
            content = stripped
        return self.type(content, "")

    def type(self, schema: Json, namespace: str) -> AvroType:
        if isinstance(schema, str):
            return self._named_type(schema, namespace)
        if isinstance(schema, list):
            branches = tuple(self.type(branch, namespace) for branch in schema)
            if not branches or any(isinstance(branch, AvroUnion) for branch in branches):
                raise self._wrong("a union is empty, or holds a union")
            return AvroUnion("union", branches)
        if not isinstance(schema, dict):
            raise self._wrong(f"{json.dumps(schema)[:60]} is no type")
        kind = schema.get("type")
        if isinstance(kind, (dict, list)):
            return self.type(kind, namespace)
        if kind in PRIMITIVES:
            return AvroType(kind, properties=_rest(schema, "type"))
        if kind == "array":
            items = self.type(self._need(schema, "items"), namespace)
            return AvroArray("array", items, properties=_rest(schema, "type", "items"))
        if kind == "map":
            values = self.type(self._need(schema, "values"), namespace)
            return AvroMap("map", values, properties=_rest(schema, "type", "values"))
        if kind in ("record", "error", "enum", "fixed"):
            return self._definition(schema, "record" if kind == "error" else kind, namespace)
        if isinstance(kind, str):
            return self._named_type(kind, namespace)
        raise self._wrong(f"{json.dumps(schema)[:60]} has no type")

    def _named_type(self, name: str, namespace: str) -> AvroType:
        if name in PRIMITIVES:
            return AvroType(name)
        for full in (_full(name, namespace), name):
            if full in self._named:
                known = self._named[full]
                if known is None:
                    raise FeatureUnsupportedError(
                        f"{self._where}: the type {full} holds itself, and no table column can be of such a "
                        "type; take the field out of what is written to the topic, or send it as bytes or "
                        "text"
                    )
                return known
        raise self._wrong(f"the type '{name}' is not defined")

    def _definition(self, schema: Json, kind: str, namespace: str) -> AvroType:
        short = str(self._need(schema, "name"))
        inner = schema.get("namespace", namespace) or ""
        full = _full(short, inner)
        inner = full.rpartition(".")[0]
        aliases = tuple(_full(str(alias), inner) for alias in schema.get("aliases") or ())
        self._named[full] = None
        made: AvroType
        if kind == "record":
            fields = self._need(schema, "fields")
            if not isinstance(fields, list):
                raise self._wrong(f"the fields of {full} are no list")
            made = AvroRecord(
                kind,
                full,
                tuple(self._field(part, inner, full) for part in fields),
                aliases,
                properties=_rest(schema, "type", "name", "namespace", "fields", "aliases"),
            )
            names = [part.name for part in made.fields]
            if len(set(names)) < len(names):
                raise self._wrong(f"{full} has two fields of the same name")
        elif kind == "enum":
            symbols = self._need(schema, "symbols")
            made = AvroEnum(
                kind,
                full,
                tuple(map(str, symbols)),
                schema.get("default"),
                properties=_rest(schema, "type", "name", "namespace", "symbols"),
            )
        else:
            size = self._need(schema, "size")
            if isinstance(size, bool) or not isinstance(size, int) or size < 0:
                raise self._wrong(f"the size of {full} is {size!r}")
            made = AvroFixed(kind, full, size, properties=_rest(schema, "type", "name", "namespace", "size"))
        self._named[full] = made
        return made

    def _field(self, part: Json, namespace: str, record: str) -> AvroField:
        if not isinstance(part, dict):
            raise self._wrong(f"a field of {record} is no object")
        doc = part.get("doc")
        return AvroField(
            str(self._need(part, "name")),
            self.type(self._need(part, "type"), namespace),
            tuple(map(str, part.get("aliases") or ())),
            part.get("default", NO_DEFAULT),
            doc if isinstance(doc, str) else None,
            _rest(part, "name", "type", "aliases", "default", "doc"),
        )

    def _need(self, schema: Json, key: str) -> Json:
        if key not in schema:
            raise self._wrong(f"{json.dumps(schema)[:80]} lacks '{key}'")
        return schema[key]

    def _wrong(self, problem: str) -> InvalidOptionError:
        return InvalidOptionError(f"{self._where} is not an Avro schema: {problem}")


def _full(name: str, namespace: str) -> str:
    return name if "." in name or not namespace else f"{namespace}.{name}"


def _rest(schema: Json, *known: str) -> dict[str, Json]:
    return {key: value for key, value in schema.items() if key not in known}
