"""Random histories of nested schemas against a model that knows columns by tokens of its own: no id is ever given twice,
and whatever was written under whichever schema reads as the model says."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from decimal import Decimal
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from streamlake.catalog.open import create, open_table
from streamlake.formats.arrow.arrow_schema import schema_to_arrow
from streamlake.spec.types.data_types import children
from streamlake.spec.types.ddl import parse_ddl
from streamlake.table.schema.update_schema import UpdateSchema
from streamlake.table.table import Table
from streamlake.tables import LoadedTable
from tests.helpers.batch_write import append

EPOCH = date(1970, 1, 1)
WIDER = {
    "int": "long",
    "float": "double",
    "decimal(9, 2)": "decimal(18, 2)",
    "decimal(18, 2)": "decimal(30, 2)",
    "date": "timestamp_ntz",
}
LEAVES = ("int", "float", "decimal(9, 2)", "string", "date")
NAMES = "abcdefgh"
Row = dict[int, Any]


@dataclass(eq=False)
class Column:
    token: int
    name: str
    kind: str
    required: bool = False
    default: Any = None
    parts: list[Column] = field(default_factory=list)

    def ddl(self) -> str:
        inner = ", ".join(f"{each.name}: {each.ddl()}" for each in self.parts)
        return {
            "struct": f"struct<{inner}>",
            "list": f"array<{self.parts[0].ddl() if self.parts else ''}>",
            "map": f"map<{', '.join(each.ddl() for each in self.parts)}>",
        }.get(self.kind, self.kind)

    def walk(self, path: str = "") -> Iterator[tuple[str, Column]]:
        mine = f"{path}{self.name}"
        yield mine, self
        for each in self.parts:
            yield from each.walk(f"{mine}.")


class History:
    def __init__(self, location: Path, seed: int) -> None:
        self.chance = random.Random(seed)
        self.tokens = count()
        self.version = self.chance.choice((2, 3))
        self.key = Column(next(self.tokens), "id", "int", required=True)
        self.columns = [self.key, self.column("struct", 2), self.column("list", 2), self.column("map", 2)]
        ddl = ", ".join(f"{each.name} {each.ddl()}{' not null' * each.required}" for each in self.columns)
        properties = {"write.format.default": self.chance.choice(("parquet", "parquet", "avro", "orc"))}
        self.table = create(str(location), parse_ddl(ddl), format_version=self.version, properties=properties)
        self.rows: list[Row] = []
        self.ids: dict[int, int] = {}

    def column(self, kind: str, depth: int) -> Column:
        made = Column(next(self.tokens), self.fresh_name(), kind)
        if kind == "struct":
            made.parts = [self.column(self.kind(depth - 1), depth - 1) for _ in range(2)]
        elif kind == "list":
            made.parts = [self.named(self.column(self.kind(depth - 1), depth - 1), "element")]
        elif kind == "map":
            value = self.named(self.column(self.kind(depth - 1), depth - 1), "value")
            made.parts = [Column(next(self.tokens), "key", "string", required=True), value]
        return made

    def named(self, column: Column, name: str) -> Column:
        column.name = name
        return column

    def fresh_name(self) -> str:
        return f"{self.chance.choice(NAMES)}{next(self.tokens)}"

    def kind(self, depth: int) -> str:
        nested = ("struct", "list", "map") if depth > 0 else ()
        return self.chance.choice((*LEAVES, *nested))

    # What may happen to the table

    def step(self) -> None:
        every = [found for column in self.columns for found in column.walk()]
        own = [
            (path, column, siblings)
            for path, column in every
            for siblings in [self.siblings(column)]
            if siblings is not None
        ]
        update = UpdateSchema(self.table)
        act = self.chance.choice(("add", "add", "widen", "relax", "rename", "delete", "move", "write"))
        if act == "add":
            self.add(update, every)
        elif act == "widen":
            fits = [found for found in every if self.wider(found[1]) is not None]
            path, column = self.chance.choice(fits) if fits else ("", None)
            if column is not None:
                column.kind = self.wider(column) or ""
                update.widen(path, column.kind)
        elif act == "relax":
            fits = [
                found
                for found in every
                if found[1].required and found[1].name != "key" and found[1] is not self.key
            ]
            if fits:
                path, column = self.chance.choice(fits)
                column.required = False
                update.make_optional(path)
        elif act == "rename":
            path, column, _ = self.chance.choice(own)
            column.name = self.fresh_name()
            update.rename(path, column.name)
        elif act == "delete":
            fits = [each for each in own if len(each[2]) > 1 and each[1] is not self.key]
            if fits:
                path, column, siblings = self.chance.choice(fits)
                siblings.remove(column)
                update.delete(path)
        elif act == "move":
            path, column, siblings = self.chance.choice(own)
            siblings.remove(column)
            siblings.insert(0, column)
            update.move_first(path)
        update.commit()
        self.check_schema()
        self.write()

    def wider(self, column: Column) -> str | None:
        if column.name == "key" or (column.kind == "date" and self.version < 3):
            return None
        return WIDER.get(column.kind)

    def siblings(self, column: Column) -> list[Column] | None:
        """The fields of the struct that a column is in, or of the table; None for parts of lists and maps."""
        if column in self.columns:
            return self.columns
        for top in self.columns:
            for _, above in top.walk():
                if above.kind == "struct" and column in above.parts:
                    return above.parts
        return None

    def add(self, update: UpdateSchema, every: list[tuple[str, Column]]) -> None:
        structs = [(path, column) for path, column in every if column.kind == "struct"]
        path, above = self.chance.choice([("", None), *structs])
        made = self.column(self.kind(2), 2)
        if self.version == 3 and not made.parts and self.chance.random() < 0.5:
            made.required = self.chance.random() < 0.5
            made.default = self.value(Column(-1, "", made.kind, required=True))
        default = made.default
        if isinstance(default, date):
            default = (default - EPOCH).days
        update.add_column(made.name, made.ddl(), parent=path or None, required=made.required, default=default)
        (self.columns if above is None else above.parts).append(made)

    # What the model knows

    def value(self, column: Column) -> Any:
        if not column.required and self.chance.random() < 0.2:
            return None
        if column.kind == "struct":
            return {part.token: self.value(part) for part in column.parts}
        if column.kind == "list":
            return [self.value(column.parts[0]) for _ in range(self.chance.randrange(3))]
        if column.kind == "map":
            return [(f"k{at}", self.value(column.parts[1])) for at in range(self.chance.randrange(3))]
        number = self.chance.randrange(-1000, 1000)
        kind = column.kind.partition("(")[0]
        return {
            "int": number,
            "long": number << 40,
            "float": number / 4,
            "double": number + 1e-9,
            "decimal": Decimal(number) / 100,
            "string": f"text {number}",
            "date": EPOCH + timedelta(days=number),
            "timestamp_ntz": datetime(1970, 1, 1) + timedelta(seconds=number),
        }[kind]

    def write(self) -> None:
        rows = []
        for _ in range(3):
            row = {column.token: self.value(column) for column in self.columns}
            row[self.key.token] = len(self.rows) + len(rows)
            rows.append(row)
        arrow = pa.Table.from_pylist(
            [self.shown(row) for row in rows], schema=schema_to_arrow(self.table.schema, field_ids=False)
        )
        append(self.table, arrow)
        self.rows += rows

    def shown(self, row: Row) -> dict[str, Any]:
        """A row as the present schema has it."""
        return {column.name: _shown(column, row) for column in self.columns}

    def check_schema(self) -> None:
        _same(self.columns, self.table.schema.fields)
        ids = dict(_ids(self.columns, self.table.schema.fields))
        for token, field_id in ids.items():
            assert self.ids.setdefault(token, field_id) == field_id, "a column has changed its id"
        assert len(set(self.ids.values())) == len(self.ids), "two columns have had the same id"
        assert max(self.ids.values()) <= self.table.metadata.last_column_id

    def check_rows(self) -> None:
        table: Table = open_table(self.table.location)
        found = LoadedTable(table).scan().to_arrow().to_pylist()
        found.sort(key=lambda row: row[self.key.name])
        assert found == [self.shown(row) for row in self.rows]


def _shown(column: Column, around: Row) -> Any:
    return _cast(column, around[column.token]) if column.token in around else _cast(column, column.default)


def _cast(column: Column, value: Any) -> Any:
    if value is None:
        return None
    if column.kind == "struct":
        return {part.name: _shown(part, value) for part in column.parts}
    if column.kind == "list":
        return [_cast(column.parts[0], each) for each in value]
    if column.kind == "map":
        return [(key, _cast(column.parts[1], each)) for key, each in value]
    if column.kind == "timestamp_ntz" and not isinstance(value, datetime):
        return datetime(value.year, value.month, value.day)
    return value


def _same(columns: list[Column], fields: Any) -> None:
    assert [(each.name, each.required) for each in columns] == [(part.name, part.required) for part in fields]
    for column, part in zip(columns, fields, strict=True):
        inner = children(part.type)
        if inner:
            _same(column.parts, inner)
        else:
            assert str(part.type) == column.kind.replace("timestamp_ntz", "timestamp")


def _ids(columns: list[Column], fields: Any) -> Iterator[tuple[int, int]]:
    for column, part in zip(columns, fields, strict=True):
        yield column.token, part.field_id
        yield from _ids(column.parts, children(part.type))


@pytest.mark.parametrize("seed", range(16))
def test_a_history_reads_as_the_model_says(tmp_path: Path, seed: int) -> None:
    history = History(tmp_path / "table", seed)
    history.check_schema()
    history.write()
    for _ in range(12):
        history.step()
    history.check_rows()
