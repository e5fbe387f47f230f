"""Tables that Flink's Iceberg sink has filled from change streams, with the content that they must have.

Every checkpoint is one bounded job that ends in one snapshot per table. The changes hit few keys, so that most keys
change in several checkpoints (equality deletes) and several times inside one (position deletes, deletion vectors in v3).
"""

from __future__ import annotations

import datetime
import json
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa

from streamlake.formats.arrow.arrow_schema import schema_to_arrow
from streamlake.records import ROW_KIND, RowKind
from streamlake.spec.partitioning.partition_spec import parse_partition_by, spec_to_json
from streamlake.spec.types.data_types import (
    DateType,
    DecimalType,
    DoubleType,
    IntegerType,
    LongType,
    StringType,
    TimestampType,
)
from streamlake.spec.types.ddl import parse_ddl
from streamlake.spec.types.schema import Schema
from streamlake.spec.types.type_json import schema_to_json
from tests.helpers.flink import FlinkEngine, Upsert
from tests.helpers.forks import fork_table

Values = dict[str, Any]
Model = dict[tuple[Any, ...], Values]
"""Key -> row: what a table must hold."""
Event = tuple[Values | None, Values | None]
"""The row before and after a change; an insert has no row before, a delete none after."""

_FLINK_TYPES = {
    LongType: "BIGINT",
    IntegerType: "INT",
    DoubleType: "DOUBLE",
    StringType: "STRING",
    DateType: "DATE",
    TimestampType: "TIMESTAMP(6)",
}


@dataclass(frozen=True)
class FlinkCase:
    """How one table is made and fed.

    With `upsert` the sink deletes by key whatever it writes (`write.upsert.enabled`); without, it does what the row kinds
    say. With `null_keys` the table has no identifier fields, the job names the key, and its columns may be null.
    """

    name: str
    columns: str
    key: tuple[str, ...]
    partition_by: tuple[str, ...] = ()
    format_version: int = 2
    upsert: bool = True
    null_keys: bool = False
    keys: int = 150
    properties: Mapping[str, str] = field(default_factory=dict)

    @property
    def shape(self) -> str:
        """The name without the format version."""
        return self.name.removesuffix(f"_v{self.format_version}")

    @property
    def schema(self) -> Schema:
        parsed = parse_ddl(self.columns)
        if self.null_keys:
            return parsed
        fields = tuple(replace(part, required=part.name in self.key) for part in parsed.fields)
        ids = tuple(part.field_id for part in fields if part.name in self.key)
        return replace(parsed, fields=fields, identifier_field_ids=ids)


@dataclass(frozen=True)
class FlinkTable:
    """A table that Flink has filled: where it is, and what it must hold."""

    case: FlinkCase
    location: Path
    model: Model

    @property
    def schema(self) -> Schema:
        return self.case.schema

    @property
    def key(self) -> tuple[str, ...]:
        return self.case.key

    def expected(self) -> pa.Table:
        """The model as a table, in no particular order."""
        return values_table(self.schema, self.model.values())

    def fork(self, location: Path) -> FlinkTable:
        """The same table at another place, for a test that writes to it: new metadata over the same files."""
        fork_table(self.location, location)
        return replace(self, location=location, model={key: dict(row) for key, row in self.model.items()})


_PLAIN = "id long, name string, amount double, at timestamp_ntz"
_TWO_KEYS = "region string, number int, price decimal(9,2), day date, name string"
_CATEGORY = "category string, id long, name string, amount double"
_SHAPES = (
    FlinkCase("plain", _PLAIN, ("id",)),
    FlinkCase("changelog", _PLAIN, ("id",), upsert=False),
    FlinkCase("composite", _TWO_KEYS, ("region", "number"), keys=180),
    FlinkCase("text_key", "name string, id long, day date", ("name",)),
    FlinkCase("by_category", _CATEGORY, ("category", "id"), ("category",)),
    FlinkCase("by_bucket", _PLAIN, ("id",), ("bucket(4, id)",)),
    FlinkCase("moving", _CATEGORY, ("id",), ("category",), upsert=False),
    FlinkCase("null_keys", _TWO_KEYS, ("region", "number"), null_keys=True, keys=60),
)
CASES = tuple(
    replace(case, name=f"{case.name}_v{version}", format_version=version)
    for case in _SHAPES
    for version in (2, 3)
)


def fill_tables(
    engine: FlinkEngine, cases: Sequence[FlinkCase] = CASES, checkpoints: int = 3, changes: int = 300
) -> dict[str, FlinkTable]:
    """Create the tables of `cases` and feed each the same number of checkpoints; by name."""
    tables = {case.name: FlinkTable(case, engine.warehouse / "db" / case.name, {}) for case in cases}
    for case in cases:
        schema = case.schema
        engine.create_table(
            case.name,
            schema_to_json(schema),
            spec_to_json(parse_partition_by(case.partition_by, schema)),
            {
                "format-version": str(case.format_version),
                "write.upsert.enabled": str(case.upsert).lower(),
                **case.properties,
            },
        )
    source = random.Random(7)
    for number in range(checkpoints):
        writes = []
        for table in tables.values():
            events = list(change_events(table.case, table.model, source, changes))
            writes.append(_write(engine, table.case, events, f"{table.case.name}_{number}"))
        engine.upsert_all(writes)
    return tables


def change_events(case: FlinkCase, model: Model, source: random.Random, count: int) -> Iterator[Event]:
    """`count` random changes of rows in `model`, which follows: inserts, updates and deletes, bursts of one key."""
    while count > 0:
        key = _random_key(case, source)
        for _ in range(min(count, source.choice((1, 1, 1, 2, 4)))):
            count -= 1
            before = model.get(key)
            if before is not None and source.random() < 0.25:
                yield before, None
                del model[key]
            else:
                after = {
                    part.name: None
                    if part.name not in case.key and source.random() < 0.1
                    else _random_value(part.name, part.type, source)
                    for part in case.schema.fields
                } | dict(zip(case.key, key, strict=True))
                yield before, after
                model[key] = after


def changes_table(schema: Schema, events: Iterable[Event]) -> pa.Table:
    """The events as rows with a row kind, updates as -U and +U."""
    values, kinds = [], []
    for before, after in events:
        if before is not None:
            values.append(before)
            kinds.append(RowKind.DELETE if after is None else RowKind.UPDATE_BEFORE)
        if after is not None:
            values.append(after)
            kinds.append(RowKind.INSERT if before is None else RowKind.UPDATE_AFTER)
    return values_table(schema, values).append_column(
        pa.field(ROW_KIND, pa.int8(), nullable=False), pa.array(map(int, kinds), pa.int8())
    )


def values_table(schema: Schema, values: Iterable[Values]) -> pa.Table:
    """Rows in the table's own Arrow types."""
    return pa.Table.from_pylist(list(values), schema=schema_to_arrow(schema))


def _random_key(case: FlinkCase, source: random.Random) -> tuple[Any, ...]:
    number = source.randrange(case.keys)
    seed = random.Random(number)
    # One number makes one key, and a key's columns are of any type.
    parts: list[Any] = []
    for name in case.key:
        kind = case.schema.find(name).type
        if name == "category" or (isinstance(kind, StringType) and len(case.key) > 1):
            parts.append(f"{name}-{number % 3}")
        elif isinstance(kind, StringType):
            parts.append(f"Zürich {number}" if number % 2 else f"κλειδί-{number}")
        elif isinstance(kind, IntegerType):
            parts.append(number // 3)
        else:
            parts.append(seed.randrange(-(2**60), 2**60))
    if case.null_keys and number % 5 == 0:
        parts[number % len(parts)] = None
    return tuple(parts)


def _random_value(name: str, kind: Any, source: random.Random) -> Any:
    if isinstance(kind, LongType | IntegerType):
        return source.randrange(2**31)
    if isinstance(kind, DoubleType):
        return source.choice((0.0, -1.5, source.gauss(0, 1e6)))
    if isinstance(kind, DecimalType):
        return Decimal(source.randrange(-(10**6), 10**6)).scaleb(-kind.scale)
    if isinstance(kind, DateType):
        return datetime.date(1960, 1, 1) + datetime.timedelta(source.randrange(30_000))
    if isinstance(kind, TimestampType):
        return datetime.datetime(1999, 12, 31) + datetime.timedelta(microseconds=source.randrange(2**50))
    return f"{name}-{source.randrange(4)}"


def _write(engine: FlinkEngine, case: FlinkCase, events: Sequence[Event], name: str) -> Upsert:
    """What feeds `events` to the table, from a file of Debezium envelopes."""
    path = engine.home / "input" / f"{name}.json"
    path.parent.mkdir(exist_ok=True)
    with path.open("w") as file:
        for before, after in events:
            kind = "c" if before is None else "d" if after is None else "u"
            envelope = {"before": _json(before), "after": _json(after), "op": kind}
            file.write(json.dumps(envelope) + "\n")
    columns = ", ".join(f"`{part.name}` {_flink_type(part.type)}" for part in case.schema.fields)
    engine.sql(
        f"CREATE TEMPORARY TABLE default_catalog.default_database.{name} ({columns}) WITH ("
        f"'connector'='filesystem', 'path'='file://{path}', 'format'='debezium-json')"
    )
    return Upsert(
        case.name,
        f"SELECT * FROM default_catalog.default_database.{name}",
        case.key if case.null_keys else (),
    )


def _flink_type(kind: Any) -> str:
    if isinstance(kind, DecimalType):
        return f"DECIMAL({kind.precision}, {kind.scale})"
    return _FLINK_TYPES[type(kind)]


def _json(row: Values | None) -> Values | None:
    return None if row is None else {name: _json_value(value) for name, value in row.items()}


def _json_value(value: Any) -> Any:
    if isinstance(value, datetime.datetime):
        return value.isoformat(" ", "microseconds")
    return str(value) if isinstance(value, Decimal | datetime.date) else value
