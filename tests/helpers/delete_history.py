"""Random histories of a table: rows, and every kind of delete, with a model that looks at one row at a time.

A history writes files of its own, of any partition, with any keys, and remembers them; the model says which rows are
live. Schemas evolve on the way.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any
from uuid import UUID

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

from streamlake.formats.arrow.arrow_schema import schema_to_arrow
from streamlake.formats.data_files import open_data_writer
from streamlake.formats.deletes.deletion_vectors import encode_deletion_vector
from streamlake.formats.deletes.position_deletes import POSITION_DELETES
from streamlake.formats.deletes.puffin import PuffinWriter
from streamlake.spec.metadata.data_file import DataFile, FileContent
from streamlake.spec.partitioning.partition_spec import PartitionField, PartitionSpec
from streamlake.spec.partitioning.transforms import Identity
from streamlake.spec.types.data_types import IntegerType, NestedField, StringType, StructType
from streamlake.spec.types.schema import Schema
from streamlake.spec.types.type_json import parse_primitive
from streamlake.table.producers.row_delta import RowDelta
from streamlake.tables import create_table

NUMBER, CATEGORY, STRUCT, INNER, FIRST_KEY = 1, 2, 3, 4, 5
PARTITIONED = PartitionSpec(1, (PartitionField(CATEGORY, 1000, "category", Identity()),))
VALUES: dict[str, list[Any]] = {
    "int": [0, 1, -1, 2**31 - 1],
    "long": [0, 1, -(2**63), 2**63 - 1],
    "string": ["", "a", "b", "long enough to be cut short", "long enough to be cut shorn"],
    "double": [0.0, -0.0, math.nan, 1.5, -math.inf],
    "float": [0.0, -0.0, math.nan, 1.5, math.inf],
    "decimal(5,2)": [Decimal("1.25"), Decimal("-1.25"), Decimal("0.00")],
    "decimal(30,2)": [Decimal("1.25"), Decimal("-1.25"), Decimal(10**27)],
    "boolean": [True, False],
    "date": [0, 1, -1],
    "timestamp": [0, 1, -1],
    "timestamptz": [0, 1, -1],
    "uuid": [UUID(int=0), UUID(int=2**127 + 1)],
    "fixed[3]": [b"abc", b"abd"],
    "binary": [b"", b"\x00", b"\xff", b"\xff\xff"],
}
PROMOTED = {"int": "long", "float": "double", "decimal(5,2)": "decimal(12,2)"}
TYPES = sorted(VALUES)
# Types that all three formats hold without further ado.
EVERYWHERE = ["int", "long", "string", "double", "decimal(5,2)", "boolean", "date"]


@dataclass
class File:
    """A file of the model: data rows (field id -> value), or keys, or (path, position) pairs."""

    path: str
    sequence: int
    scope: tuple[Any, ...]
    rows: list[Any]
    ids: tuple[int, ...] = ()


@dataclass
class Model:
    data: list[File] = field(default_factory=list)
    equality: list[File] = field(default_factory=list)
    positions: list[File] = field(default_factory=list)

    def live(self) -> list[dict[int, Any]]:
        return [
            row
            for file in self.data
            for at, row in enumerate(file.rows)
            if not self._is_deleted(file, at, row)
        ]

    def _is_deleted(self, file: File, at: int, row: dict[int, Any]) -> bool:
        for deletes in self.positions:
            if (
                deletes.sequence >= file.sequence
                and deletes.scope == file.scope
                and (file.path, at) in deletes.rows
            ):
                return True
        return any(
            deletes.sequence > file.sequence
            and deletes.scope in (file.scope, ())
            and any(all(_same(key[part], row.get(part)) for part in deletes.ids) for key in deletes.rows)
            for deletes in self.equality
        )


def _same(left: Any, right: Any) -> bool:
    if isinstance(left, float) and isinstance(right, float):
        return left == right or (math.isnan(left) and math.isnan(right))
    return left == right and type(left) is type(right)


class History:
    """Writes what the model remembers."""

    def __init__(
        self,
        location: str,
        draw: Callable[[Any], Any],
        version: int,
        types: Sequence[str],
        values: Mapping[str, Sequence[Any]] = VALUES,
        *,
        nested_keys: bool = True,
    ) -> None:
        """`draw` draws from a hypothesis strategy; the key columns have `types`, and `values` beside null."""
        self.nested_keys = nested_keys
        self.draw = draw
        self.choices = values
        self.version = version
        self.table = create_table(location, "n int, category string", format_version=version)
        self.keys = {FIRST_KEY + at: type_ for at, type_ in enumerate(types)}
        # Field ids as the model counts them; the struct's parts are keys too.
        parts = [
            NestedField(NUMBER, "n", IntegerType()),
            NestedField(CATEGORY, "category", StringType()),
            NestedField(STRUCT, "st", StructType((NestedField(INNER, "inner", parse_primitive(types[0])),))),
            *(NestedField(key, f"k{key}", parse_primitive(type_)) for key, type_ in self.keys.items()),
        ]
        self.types = {**self.keys, INNER: types[0]}
        self.dropped: set[int] = set()
        self.vectors: set[str] = set()
        self.numbers = 0
        self.names = 0
        self.model = Model()
        self.formats = ["parquet", "parquet"] + (["avro", "orc"] if set(types) <= set(EVERYWHERE) else [])
        self._set_schema(Schema(tuple(parts), schema_id=1), specs=(PARTITIONED,))

    def _set_schema(self, schema: Schema, specs: tuple[PartitionSpec, ...] = ()) -> None:
        base = self.table.metadata
        new = replace(
            base,
            schemas=(*base.schemas, schema),
            current_schema_id=schema.schema_id,
            last_column_id=100,
            specs=(*base.specs, *specs),
            last_partition_id=1000,
        )
        self.table.table.operations.commit(base, new)
        self.table.refresh()

    @property
    def schema(self) -> Schema:
        return self.table.schema

    def evolve(self) -> None:
        """Rename, promote or drop one key column."""
        fields = list(self.schema.fields)
        at = self.draw(st.integers(0, len(fields) - 1))
        part = fields[at]
        change = self.draw(st.sampled_from(["rename", "promote", "drop"]))
        if part.field_id < FIRST_KEY:
            return
        if change == "rename":
            fields[at] = replace(part, name=part.name + "x")
        elif change == "promote" and str(part.type).replace(" ", "") in PROMOTED:
            fields[at] = replace(part, type=parse_primitive(PROMOTED[str(part.type).replace(" ", "")]))
        elif change == "drop":
            del fields[at]
            self.dropped.add(part.field_id)
        self._set_schema(Schema(tuple(fields), schema_id=self.schema.schema_id + 1))

    def checkpoint(self) -> None:
        """One commit: data, then deletes of what was there and of what it adds."""
        sequence = self.table.metadata.last_sequence_number + 1
        files = [self._data(sequence) for _ in range(self.draw(st.integers(0, 2)))]
        files += [self._equality(sequence) for _ in range(self.draw(st.integers(0, 2)))]
        files += self._positions(sequence)
        if files:
            delta = RowDelta(self.table.table)
            for file in files:
                (delta.add_rows if file.is_data else delta.add_deletes)(file)
            delta.commit()
            self.table.refresh()

    def _value(self, part: int) -> Any:
        return self.draw(st.sampled_from([None, *self.choices[self.types[part]]]))

    def _scope(self) -> tuple[Any, ...]:
        return self.draw(st.sampled_from([(), ("a",), ("b",), (None,)]))

    def _data(self, sequence: int) -> DataFile:
        scope = self._scope()
        rows = []
        for _ in range(self.draw(st.integers(1, 6))):
            self.numbers += 1
            category = scope[0] if scope else self.draw(st.sampled_from(["a", "b", None]))
            row = {NUMBER: self.numbers, CATEGORY: category}
            row |= {part: self._value(part) for part in self.types if part not in self.dropped}
            if self.draw(st.booleans()):
                row[INNER] = None
            rows.append(row)
        file = self._write(self.schema, [record(self.schema.fields, row) for row in rows], scope)
        self.model.data.append(File(file.file_path, sequence, scope, rows))
        return file

    def _equality(self, sequence: int) -> DataFile:
        scope = self._scope()
        known = [
            part for part in self.types if part not in self.dropped and (self.nested_keys or part != INNER)
        ]
        ids = tuple(
            self.draw(st.lists(st.sampled_from([NUMBER, *known]), min_size=1, max_size=3, unique=True))
        )
        schema = self.schema.select([self.schema.name_of(part) for part in ids])
        rows: list[dict[int, Any]] = []
        for _ in range(self.draw(st.integers(0, 4))):
            rows.append({part: self._value(part) for part in known} | {NUMBER: self._number()})
        file = self._write(
            schema,
            [record(schema.fields, row) for row in rows],
            scope,
            content=FileContent.EQUALITY_DELETES,
            equality_ids=ids,
        )
        self.model.equality.append(File(file.file_path, sequence, scope, rows, ids))
        return file

    def _number(self) -> Any:
        return self.draw(st.sampled_from([None, *range(1, self.numbers + 2)]))

    def _positions(self, sequence: int) -> list[DataFile]:
        files = []
        targets = (
            self.draw(st.lists(st.sampled_from(self.model.data), max_size=2, unique_by=id))
            if self.model.data
            else []
        )
        for target in targets:
            places = self.draw(st.sets(st.integers(0, len(target.rows)), min_size=1, max_size=3))
            if self.version == 3:
                if target.path in self.vectors or any(
                    target.path == path for old in self.model.positions for path, _ in old.rows
                ):
                    continue
                # A vector is of rows that there are.
                places = {place for place in places if place < len(target.rows)} or {0}
                self.vectors.add(target.path)
                files.append(self._vector(target, places))
                pairs = {(target.path, place) for place in places}
            else:
                pairs = {(target.path, place) for place in places}
                others = [file for file in self.model.data if file.scope == target.scope]
                if self.draw(st.booleans()):
                    pairs.add((self.draw(st.sampled_from(others)).path, 0))
                rows = [{"file_path": path, "pos": place} for path, place in sorted(pairs)]
                alone = len({path for path, _ in pairs}) == 1 and self.draw(st.booleans())
                files.append(
                    self._write(
                        POSITION_DELETES,
                        rows,
                        target.scope,
                        content=FileContent.POSITION_DELETES,
                        **({"referenced_data_file": target.path} if alone else {}),
                    )
                )
            self.model.positions.append(File("", sequence, target.scope, list(pairs)))
        return files

    def _vector(self, target: File, places: set[int]) -> DataFile:
        self.names += 1
        path = f"{self.table.location}/data/dv{self.names}.puffin"
        writer = PuffinWriter(self.table.table.io, path)
        offset, length = writer.add(
            "deletion-vector-v1",
            encode_deletion_vector(np.array(sorted(places))),
            fields=(2147483645,),
            properties={"referenced-data-file": target.path, "cardinality": str(len(places))},
        )
        return DataFile(
            content=FileContent.POSITION_DELETES,
            file_path=path,
            file_format="puffin",
            spec_id=1 if target.scope else 0,
            partition=target.scope,
            record_count=len(places),
            file_size_in_bytes=writer.close(),
            referenced_data_file=target.path,
            content_offset=offset,
            content_size_in_bytes=length,
        )

    def _write(
        self, schema: Schema, rows: list[dict[str, Any]], scope: tuple[Any, ...], **more: Any
    ) -> DataFile:
        format_ = self.draw(st.sampled_from(self.formats))
        self.names += 1
        path = f"{self.table.location}/data/f{self.names}.{format_}"
        writer = open_data_writer(format_, self.table.table.io, path, schema)
        # Row groups: the rows up to a cut, and the others.
        cut = self.draw(st.integers(0, len(rows)))
        writer.write(arrow_rows(rows[:cut], schema))
        writer.flush()
        writer.write(arrow_rows(rows[cut:], schema))
        metrics = writer.close()
        return DataFile(
            **{"content": FileContent.DATA, **more},
            file_path=path,
            file_format=format_,
            spec_id=1 if scope else 0,
            partition=scope,
            record_count=metrics.record_count,
            file_size_in_bytes=metrics.file_size_in_bytes,
            value_counts=metrics.value_counts,
            null_value_counts=metrics.null_value_counts,
            nan_value_counts=metrics.nan_value_counts,
            lower_bounds=metrics.lower_bounds,
            upper_bounds=metrics.upper_bounds,
        )


def record(fields: tuple[NestedField, ...], row: dict[int, Any]) -> dict[str, Any]:
    """A row by name; a struct whose part is null is null itself half of the time."""
    named: dict[str, Any] = {}
    for part in fields:
        if isinstance(part.type, StructType):
            inner = record(part.type.fields, row)
            named[part.name] = (
                None if row[NUMBER] is not None and row[NUMBER] % 2 and inner["inner"] is None else inner
            )
        else:
            named[part.name] = row[part.field_id]
    return named


def arrow_rows(rows: list[dict[str, Any]], schema: Schema) -> pa.Table:
    target = schema_to_arrow(schema)
    return pa.Table.from_arrays(
        [_column([row[part.name] for row in rows], part.type) for part in target], schema=target
    )


def _column(values: list[Any], type_: pa.DataType) -> pa.Array:
    if pa.types.is_struct(type_):
        [part] = [type_.field(at) for at in range(type_.num_fields)]
        inner = _column([None if value is None else value[part.name] for value in values], part.type)
        mask = pa.array([value is None for value in values], pa.bool_())
        return pa.StructArray.from_arrays([inner], fields=[part], mask=mask)
    if isinstance(type_, pa.BaseExtensionType):
        storage = pa.array([None if value is None else value.bytes for value in values], type_.storage_type)
        return pa.ExtensionArray.from_storage(type_, storage)
    if pa.types.is_timestamp(type_):
        return pa.array(values, pa.int64()).cast(type_)
    if pa.types.is_date(type_):
        return pa.array(values, pa.int32()).cast(type_)
    return pa.array(values, type_)
