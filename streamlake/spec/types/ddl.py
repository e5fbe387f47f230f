"""Parses schemas from DDL text such as "id long not null, tags array<string>, at timestamp".

Types may have their names in the specification or in Spark SQL.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from streamlake.errors import InvalidOptionError
from streamlake.options import suggestion
from streamlake.spec.types.data_types import (
    DecimalType,
    IcebergType,
    ListType,
    MapType,
    NestedField,
    StructType,
)
from streamlake.spec.types.schema import Schema, fresh_schema
from streamlake.spec.types.type_json import parse_primitive

_TOKEN = re.compile(r"\s*(?:(`(?:[^`]|``)+`)|('(?:[^']|'')*')|([\w.@$-]+)|(.))")
_SPARK_NAMES = {
    "bigint": "long",
    "integer": "int",
    "smallint": "int",
    "short": "int",
    "tinyint": "int",
    "byte": "int",
    "real": "float",
    "timestamp": "timestamptz",
    "timestamp_ltz": "timestamptz",
    "timestamp_ntz": "timestamp",
    "varchar": "string",
    "char": "string",
    "bytes": "binary",
}
_NAMES = (
    *("boolean", "int", "long", "float", "double", "decimal", "string", "date", "time", "timestamp"),
    *("timestamp_ntz", "timestamp_ns", "uuid", "binary", "fixed", "array", "map", "struct", "bigint"),
)
"""Names of types, for messages."""


def parse_ddl(text: str) -> Schema:
    """The schema of a DDL text, with fresh ids.

    As in Spark SQL, `timestamp` has a time zone and `timestamp_ntz` has none.

    Raises InvalidOptionError, which quotes the text from the place of the problem on.
    """
    return fresh_schema(Schema(_Parser(text).schema()))


class _Parser:
    """A recursive descent parser over the tokens. Its ids are provisional; the caller assigns new ones."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = list(_TOKEN.finditer(text.strip()))
        self._at = 0
        self._ids: Iterator[int] = iter(range(1, 1_000_000))

    def schema(self) -> tuple[NestedField, ...]:
        if self._peek().lower() == "struct" and self._peek(1) == "<":
            parsed = self._type()
            assert isinstance(parsed, StructType)
            fields = parsed.fields
        else:
            fields = self._fields(end="")
        if self._peek():
            raise self._error("nothing more was expected")
        if not fields:
            raise InvalidOptionError("the schema is empty; write e.g. 'id long not null, name string'")
        return fields

    def _fields(self, end: str) -> tuple[NestedField, ...]:
        fields: list[NestedField] = []
        while self._peek() != end:
            name = self._next().strip("`").replace("``", "`")
            if not re.match(r"\w", name):
                raise self._error("a column name was expected", back=1)
            if self._peek() == ":":
                self._next()
            type_ = self._type()
            required = self._accept("not", "null")
            doc = self._next()[1:-1].replace("''", "'") if self._accept("comment") else None
            if any(name == other.name for other in fields):
                raise InvalidOptionError(f"the schema names the column '{name}' twice: {self._text!r}")
            fields.append(NestedField(next(self._ids), name, type_, required, doc))
            if self._peek() == ",":
                self._next()
            elif self._peek() != end:
                raise self._error("',' was expected")
        return tuple(fields)

    def _type(self) -> IcebergType:
        name = self._next().lower()
        if name == "struct":
            self._expect("<")
            fields = self._fields(end=">")
            self._expect(">")
            return StructType(fields)
        if name in ("array", "list"):
            self._expect("<")
            element = self._type()
            self._expect(">")
            return ListType(next(self._ids), element)
        if name == "map":
            self._expect("<")
            key = self._type()
            self._expect(",")
            value = self._type()
            self._expect(">")
            return MapType(next(self._ids), key, next(self._ids), value)
        if name in ("decimal", "numeric", "dec"):
            numbers = self._numbers() or [10, 0]
            return DecimalType(numbers[0], numbers[1] if len(numbers) > 1 else 0)
        if name == "fixed":
            return parse_primitive(f"fixed[{self._numbers()[0]}]")
        plain = _SPARK_NAMES.get(name, name)
        if plain == "string":
            self._numbers()
        try:
            return parse_primitive(plain)
        except Exception as error:
            near = suggestion(name, _NAMES)
            hint = f" (did you mean '{near}'?)" if near else f"; types are {', '.join(_NAMES)}"
            raise self._error(f"'{name}' is not a type{hint}", back=1) from error

    def _numbers(self) -> list[int]:
        if self._peek() not in ("(", "["):
            return []
        close = ")" if self._next() == "(" else "]"
        numbers = []
        while self._peek() != close:
            token = self._next()
            if token.isdigit():
                numbers.append(int(token))
            elif token != ",":
                raise self._error("a number was expected", back=1)
        self._next()
        return numbers

    def _accept(self, *words: str) -> bool:
        if all(self._peek(ahead).lower() == word for ahead, word in enumerate(words)):
            self._at += len(words)
            return True
        return False

    def _expect(self, token: str) -> None:
        if self._next() != token:
            raise self._error(f"'{token}' was expected", back=1)

    def _peek(self, ahead: int = 0) -> str:
        at = self._at + ahead
        return self._tokens[at].group().strip() if at < len(self._tokens) else ""

    def _next(self) -> str:
        token = self._peek()
        if not token:
            raise self._error("the text ends too early")
        self._at += 1
        return token

    def _error(self, problem: str, back: int = 0) -> InvalidOptionError:
        at = self._at - back
        place = self._tokens[at].start() if at < len(self._tokens) else len(self._text)
        return InvalidOptionError(
            f"the schema text is not understood at '{self._text.strip()[place:][:30]}': {problem}"
        )
