"""Plans of the oracle: a table, a stream of changes into it, and what goes wrong meanwhile, all in small numbers.

A plan's `repr` is the code that makes it, so a failing one is kept as an `@example`. What the numbers mean as keys,
sequence values and rows is said by `PlannedRows`. Strategies make only plans that the product accepts.
"""

from __future__ import annotations

import datetime
import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from streamlake.formats.arrow.arrow_schema import arrow_type
from streamlake.pipeline.runs.upsert_options import UNSET_VALUES
from streamlake.records import ROW_SEQUENCE, RowKind
from streamlake.spec.types.schema import Schema
from tests.helpers.oracle import Change, Row, Values, key_of
from tests.unit.index.key_samples import VALUES

KEY_TYPES = {str(kind): list(values) for kind, values in VALUES.items()}
NANOS = ("timestamp_ns", "timestamptz_ns")
BUCKETED = ("int", "long", "decimal", "date", "time", "timestamp", "string", "uuid", "fixed", "binary")
TRUNCATED = ("int", "long", "decimal", "string", "binary")
DAYS = ("date", "timestamp")
GUARD_TYPES = ("long", "timestamp", "string", "decimal(20,1)", "double", "date")
# Timestamps in nanoseconds since 1970 reach from 1677 to 2262, and pyarrow reads ORC's as such.
_ORC_MICROS = 9 * 10**15
_DOUBLE_GUARDS = (-math.inf, -1.5, -0.0, 5e-324, 2.5, 1e300, math.inf, math.nan)
GUARDS = 8
PLACES = (ROW_SEQUENCE,)
"""The sequence values of a plan whose table does not have them: the index alone knows them."""
EXTRAS: dict[str, list[Any]] = {
    "tags list<string>": [None, [], ["a", None], ["b", "cc", "日本"]],
    "spot struct<x: int, y: double>": [{"x": 1, "y": None}, {"x": None, "y": -0.0}],
    "counts map<string, int>": [None, [("a", 1)], []],
    "amount decimal(18,4)": [None, Decimal("1.2500"), Decimal("-99999999999999.9999")],
    "pad string": [letter * 3000 for letter in "abc"],
    "token uuid": [None, bytes(16), b"\xff" * 16],
    "moment timestamptz": [None, 0, -1],
}


@dataclass(frozen=True)
class Foreign:
    """What another writer does: append, compact, convert deletes, delete, rollback, upsert (a stream of another pipeline)."""

    kind: str
    seed: int = 0


@dataclass(frozen=True)
class Damage:
    """To the files of the index: all, states, run, truncate, flip, older. During a checkpoint those that it has staged
    are spared; between two, the driver lives on unless `restart`."""

    kind: str
    seed: int = 0
    restart: bool = True


@dataclass(frozen=True)
class Checkpoint:
    """Changes as (key, kind, sequence value, place); `bulk` more, made from that number. `during`: what others do when it is
    staged. `truncates`: as (sequence value, number of batches before it). `crash`: the driver dies then, and the next one recovers."""

    changes: tuple[tuple[int, int, int, int], ...] = ()
    bulk: int = 0
    during: tuple[Foreign | Damage, ...] = ()
    crash: bool = False
    truncates: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True)
class Restart:
    """A new driver, with that many tasks where it can choose."""

    tasks: int


@dataclass(frozen=True)
class Evolve:
    """The table gets another partition spec."""

    partition_by: tuple[str, ...]


@dataclass(frozen=True)
class Upgrade:
    """The table goes to format version 3."""


Step = Foreign | Checkpoint | Restart | Damage | Evolve | Upgrade


@dataclass(frozen=True)
class Plan:
    """A table and what happens to it. `chunk_rows` is what a task works on at once, `spread` the number of different
    hashes of keys that have bytes (0: all). `unset`: changes leave values out, every so many one in so many columns (0: none)."""

    key: tuple[str, ...] = ("long",)
    steps: tuple[Step, ...] = ()
    mode: str = "upsert"
    delete_mode: str = "position"
    sequence_values: tuple[str, ...] = ()
    format_version: int = 3
    file_format: str = "parquet"
    partition_by: tuple[str, ...] = ()
    sort_by: tuple[str, ...] = ()
    extras: tuple[str, ...] = ()
    nullable_key: bool = True
    tasks: int = 2
    chunk_rows: int = 1000
    roll_bytes: int = 1 << 20
    spread: int = 0
    unset: int = 0
    properties: tuple[tuple[str, str], ...] = ()

    @property
    def truncates(self) -> bool:
        """Whether any checkpoint has a truncate."""
        return any(isinstance(step, Checkpoint) and step.truncates for step in self.steps)

    @property
    def policy(self) -> str:
        """What becomes of changes without a value. Where a checkpoint comes in parts, these must not matter."""
        refuses = dict(self.properties).get(UNSET_VALUES) == "reject" and self.comes_at_once
        return "reject" if refuses else "null"

    @property
    def comes_at_once(self) -> bool:
        """Whether a task works on all changes of a checkpoint together."""
        return self.chunk_rows >= 1000 and not any("memory" in name for name, _ in self.properties)

    @property
    def key_columns(self) -> tuple[str, ...]:
        return tuple(f"k{at}" for at in range(len(self.key)))

    @property
    def guard_columns(self) -> tuple[str, ...]:
        return (
            PLACES
            if self.sequence_values == PLACES
            else tuple(f"s{at}" for at in range(len(self.sequence_values)))
        )

    @property
    def ddl(self) -> str:
        required = "" if self.nullable_key else " not null"
        parts = [f"{name} {kind}{required}" for name, kind in zip(self.key_columns, self.key, strict=True)]
        parts += ["number long not null", "part string", "at timestamp"]
        if self.sequence_values != PLACES:
            parts += [
                f"{name} {kind}" for name, kind in zip(self.guard_columns, self.sequence_values, strict=True)
            ]
        return ", ".join([*parts, *self.extras])


class PlannedRows:
    """Makes rows and changes of a plan's numbers; each gets a number of its own."""

    def __init__(self, plan: Plan, schema: Schema) -> None:
        self._plan = plan
        self._types = {part.name: arrow_type(part.type) for part in schema.fields}
        self._choices = [_choices(plan, kind) for kind in plan.key]
        self._count = 0

    def change(self, key: int, kind: int, sequence_value: int, place: int) -> Change:
        """Removals know no more than key and sequence value when `place` is odd."""
        row_kind = RowKind(kind)
        bare = row_kind in (RowKind.UPDATE_BEFORE, RowKind.DELETE) and place % 2 == 1
        row = self.row(key, sequence_value if self._plan.sequence_values else None, place, bare=bare)
        return Change(row_kind, row, self._unset(row))

    def _unset(self, row: Row) -> frozenset[str]:
        plan = self._plan
        fixed = {*plan.key_columns, *plan.guard_columns, "number"}
        names = [name for name in self._types if name not in fixed and name in row.values]
        return frozenset(
            name for at, name in enumerate(names) if plan.unset and (row.number + at * 5) % plan.unset == 0
        )

    def row(self, key: int, sequence_value: int | None, place: int, *, bare: bool = False) -> Row:
        """A row; with `sequence_values` in the plan and no `sequence_value`, these columns are null."""
        plan = self._plan
        number, self._count = self._count, self._count + 1
        keys = self._keys(key)
        values: Values = dict(zip(plan.key_columns, keys, strict=True))
        if plan.sequence_values:
            values.update(zip(plan.guard_columns, self._sequence_values(sequence_value), strict=True))
        if not bare:
            values["number"] = number
            values["part"] = (None, "a", "b/=", "", "ab")[place % 5]
            values["at"] = (place % 4) * 86_400_000_000 - 1
            for text in plan.extras:
                choices = EXTRAS[text]
                values[text.split()[0]] = choices[number % len(choices)]
        return Row(number, key_of(keys), sequence_value, values)

    def mark(self, sequence_value: int) -> int | str:
        """A sequence value as the place of a truncate in the database's log."""
        (mark,) = self._sequence_values(sequence_value)
        assert isinstance(mark, (int, str))
        return mark

    def table(self, rows: Sequence[Row]) -> pa.Table:
        """Rows as Arrow, with the table's columns."""
        return pa.table(
            {
                name: pa.array([row.values.get(name) for row in rows], kind)
                for name, kind in self._types.items()
            }
        )

    def _keys(self, key: int) -> list[Any]:
        values = []
        for choices in self._choices:
            values.append(choices[key % len(choices)])
            key = (key // len(choices)) * 5 + key % 7
        return values

    def _sequence_values(self, sequence_value: int | None) -> list[Any]:
        if sequence_value is None:
            return [None] * len(self._plan.sequence_values)
        parts = (
            [sequence_value]
            if len(self._plan.sequence_values) == 1
            else [sequence_value // 3, sequence_value % 3]
        )
        return [
            _guard_value(kind, part) for kind, part in zip(self._plan.sequence_values, parts, strict=True)
        ]


def _choices(plan: Plan, kind: str) -> list[Any]:
    """Values of a key column, the awkward ones first."""
    values = [*([None] if plan.nullable_key else []), *KEY_TYPES[kind]]
    if plan.file_format == "orc" and kind.startswith("timestamp"):
        most = _ORC_MICROS * (1000 if kind in NANOS else 1)
        values = [value for value in values if value is None or abs(value) < most]
    if kind in ("long", "int"):
        values += range(1000, 4000)
    if kind == "string":
        values += [f"key{n}" for n in range(3000)]
    return values


def _guard_value(kind: str, sequence_value: int) -> Any:
    if kind == ROW_SEQUENCE:
        return sequence_value
    if kind == "string":
        return "\x00" * sequence_value
    if kind == "double":
        return _DOUBLE_GUARDS[sequence_value]
    if kind.startswith("decimal"):
        return Decimal((0 if sequence_value > 3 else 1, (abs(sequence_value - 3),), -1))
    if kind == "date":
        return datetime.date(1970, 1, 1) + datetime.timedelta(sequence_value - 3)
    return sequence_value - 3


def bulk(seed: int) -> list[tuple[int, int, int, int]]:
    """Some hundred changes of some hundred keys, as a checkpoint has them."""
    source = random.Random(seed)
    keys = source.choice((5, 60, 600))
    kinds = source.choice(((2,), (0, 1, 2, 3), (2, 2, 2, 3)))
    return [
        (source.randrange(keys), source.choice(kinds), source.randrange(GUARDS), source.randrange(20))
        for _ in range(source.choice((40, 150, 400)))
    ]


def _key_transforms(kind: str, column: str) -> list[str]:
    name = kind.partition("(")[0].partition("[")[0]
    found = [column]
    if name in BUCKETED or name.startswith("timestamp"):
        found.append(f"bucket(3, {column})")
    if name in TRUNCATED:
        found.append(f"truncate(2, {column})")
    if name in DAYS or name.startswith("timestamp"):
        found += [f"day({column})", f"year({column})"]
    return found


def _keys() -> st.SearchStrategy[tuple[str, ...]]:
    kinds = st.sampled_from(sorted(KEY_TYPES))
    return st.one_of(
        st.tuples(st.sampled_from(["long", "string", "int", "double"])),
        st.tuples(kinds),
        st.tuples(kinds, kinds),
        st.tuples(kinds, kinds, kinds),
    )


def _foreign(kinds: Sequence[str]) -> st.SearchStrategy[Foreign]:
    return st.builds(Foreign, st.sampled_from(kinds), st.integers(0, 99))


def _damages() -> st.SearchStrategy[Damage]:
    kinds = st.sampled_from(["all", "states", "run", "truncate", "flip", "older"])
    return st.builds(Damage, kinds, st.integers(0, 99), st.booleans())


def _checkpoints(*, crashes: bool = True, truncates: bool = False) -> st.SearchStrategy[Checkpoint]:
    foreign = _foreign(["append", "compact", "convert", "delete", "rollback", "upsert"])
    damage = _damages()
    change = st.tuples(st.integers(0, 9), st.integers(0, 3), st.integers(0, GUARDS - 1), st.integers(0, 9))
    return st.builds(
        Checkpoint,
        st.lists(change, max_size=8).map(tuple),
        st.one_of(st.just(0), st.integers(0, 999)),
        st.one_of(
            st.just(()),
            st.lists(st.one_of(foreign, foreign, damage), max_size=2).map(tuple),
        ),
        st.booleans() if crashes else st.just(False),
        st.lists(st.tuples(st.integers(0, GUARDS - 1), st.integers(0, 9)), max_size=2).map(tuple)
        if truncates
        else st.just(()),
    )


_GUARD = st.sampled_from(("long", *GUARD_TYPES, "string"))


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    """Any plan."""
    key = draw(_keys())
    version = 3 if set(key) & set(NANOS) else draw(st.sampled_from([2, 3]))
    delete_mode = draw(st.sampled_from(["position", "position", "copy-on-write", "equality"]))
    of_key = [text for at, kind in enumerate(key) for text in _key_transforms(kind, f"k{at}")]
    others = ["part", "truncate(1, part)", "day(at)", "bucket(2, number)"]
    any_spec = st.lists(st.sampled_from(of_key + others), max_size=2, unique_by=_source)
    # An equality delete reaches one partition, or all where a spec has no fields.
    first = st.lists(st.sampled_from(of_key), max_size=2, unique_by=_source)
    partition_by = tuple(draw(first if delete_mode == "equality" else any_spec))
    evolves = any_spec if delete_mode != "equality" or not partition_by else st.just([])
    mode = draw(st.sampled_from(["upsert", "upsert", "changelog"]))
    places = [st.just(PLACES)] if delete_mode == "position" else []
    sequence_values = draw(st.one_of(st.just(()), st.tuples(_GUARD), st.tuples(_GUARD, _GUARD), *places))
    finds_rows = mode == "upsert" and delete_mode != "equality"
    truncates = finds_rows and sequence_values in (("long",), ("string",), PLACES) and draw(st.booleans())
    steps: list[st.SearchStrategy[Any]] = [
        _checkpoints(truncates=truncates),
        _checkpoints(truncates=truncates),
        _checkpoints(),
        _foreign(["append", "compact", "convert", "delete", "rollback", "upsert"]),
        st.builds(Restart, st.integers(1, 4)),
        st.builds(Evolve, evolves.map(tuple)),
        st.just(Upgrade()),
    ]
    if delete_mode != "equality":
        steps.append(_damages())
    return Plan(
        key=key,
        steps=tuple(draw(st.lists(st.one_of(steps), min_size=3, max_size=9))),
        mode=mode,
        unset=draw(st.sampled_from([0, 1, 2, 3, 7])) if finds_rows and not truncates else 0,
        delete_mode=delete_mode,
        sequence_values=sequence_values,
        format_version=version,
        file_format=draw(st.sampled_from(["parquet", "parquet", "avro", "orc"])),
        partition_by=partition_by,
        sort_by=tuple(draw(st.sampled_from([(), (), ("number desc",), ("part", "k0 desc")]))),
        extras=tuple(draw(st.lists(st.sampled_from(sorted(EXTRAS)), max_size=2, unique=True))),
        nullable_key=draw(st.booleans()),
        tasks=draw(st.integers(1, 4)),
        chunk_rows=draw(st.sampled_from([1, 3, 50, 1000])),
        roll_bytes=draw(st.sampled_from([1, 3000, 1 << 20])),
        spread=draw(st.sampled_from([0, 0, 1, 3])),
        properties=draw(
            st.sampled_from(
                [
                    (),
                    (("commit.manifest.min-count-to-merge", "2"),),
                    (("streamlake.upsert.buckets", "3"),),
                    (("streamlake.write.max-open-files", "1"),),
                    (("streamlake.upsert.equality-deletes", "row"),),
                    (("write.delete.granularity", "partition"),),
                    ((UNSET_VALUES, "reject"),),
                ]
            )
        ),
    )


def _source(text: str) -> str:
    return text.rpartition(" ")[2].strip(")")
