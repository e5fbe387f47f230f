"""Nulls at any depth of nested values come back where they were, in every file format."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from streamlake import load_table
from streamlake.catalog.open import create
from streamlake.formats.arrow.arrow_schema import schema_to_arrow
from streamlake.spec.types.data_types import IcebergType, ListType, MapType, PrimitiveType, StructType
from streamlake.spec.types.ddl import parse_ddl
from tests.helpers.batch_write import append

SHAPES = (
    "struct<b: struct<d: int not null>>",
    "struct<x: struct<b: struct<d: int, e: string>>>",
    "array<struct<b: struct<d: int>>>",
    "map<string, struct<b: struct<d: int>>>",
    "struct<q: struct<l: array<int>, m: map<string, int>>>",
    "struct<l: array<struct<d: int>>>",
)


def _value(type_: IcebergType, chance: random.Random, nulls: float) -> Any:
    if isinstance(type_, PrimitiveType):
        return chance.randrange(1, 100) if str(type_) == "int" else f"text {chance.randrange(100)}"
    if chance.random() < nulls:
        return None
    if isinstance(type_, StructType):
        return {part.name: _value(part.type, chance, 0.4) for part in type_.fields}
    if isinstance(type_, ListType):
        return [_value(type_.element_type, chance, nulls) for _ in range(chance.randrange(3))]
    assert isinstance(type_, MapType)
    return [(f"k{at}", _value(type_.value_type, chance, nulls)) for at in range(chance.randrange(3))]


@pytest.mark.parametrize("file_format", ["parquet", "avro", "orc"])
def test_nulls_of_nested_values_stay_where_they_are(tmp_path: Path, file_format: str) -> None:
    ddl = ", ".join(f"c{at} {shape}" for at, shape in enumerate(SHAPES))
    properties = {"write.format.default": file_format}
    chance = random.Random(5)
    for number in range(8):
        table = create(str(tmp_path / f"t{number}"), parse_ddl(ddl), properties=properties)
        nulls = (0.0, 0.4)[
            number % 2
        ]  # at the top: files with none there are another case to pyarrow's ORC writer
        rows = [
            {part.name: _value(part.type, chance, nulls) for part in table.schema.fields}
            for _ in range(2 + number)
        ]
        append(table, pa.Table.from_pylist(rows, schema=schema_to_arrow(table.schema, field_ids=False)))
        assert load_table(table.location).scan().to_arrow().to_pylist() == rows
