"""The columns of changes: which are read from data files, which identify a row, and which are returned.

Frozen and picklable, so that a task finishes its rows as the driver would. Invariant: the columns that are
returned are the selected ones, whatever else had to be read for the keys.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamlake.errors import InvalidOptionError
from streamlake.formats.columns.lineage_columns import ROW_ID
from streamlake.index.keys.key_codec import KEY_TYPES
from streamlake.read.changes.change_tasks import ChangedSnapshot
from streamlake.read.changes.netting import NO_IDENTITY, Array, Comparison, NetChanges
from streamlake.read.changes.row_codes import equal_rows, row_codes, row_parts
from streamlake.read.column_selection import ColumnSelection, field_path, select_columns
from streamlake.read.file_rows import narrowed
from streamlake.records import ROW_KIND, RowKind
from streamlake.spec.expressions.binding import unknown_column
from streamlake.spec.types.data_types import IcebergType, StructType
from streamlake.spec.types.schema import Schema

SNAPSHOT_ID = "_snapshot_id"
SEQUENCE_NUMBER = "_sequence_number"
ORDINAL = "_ordinal"
_SYMBOLS = pa.array([kind.symbol for kind in RowKind])
_WITHOUT_UPDATES = pa.array(["+I", "-D", "+I", "-D"])


@dataclass(frozen=True)
class ChangeColumns:
    """The columns of one range of changes.

    `selected` are those that were asked for, `read` those and the keys and row ids; `key_ids` are the field
    ids of the key, none when rows are not identified by columns. Without `has_updates` the old and the new
    values of a row are -D and +I.
    """

    selected: ColumnSelection
    read: ColumnSelection
    key_ids: tuple[int, ...]
    has_row_ids: bool
    has_updates: bool = True

    @staticmethod
    def of(
        schema: Schema,
        columns: Iterable[str] | None,
        keys: Iterable[str] | None,
        *,
        has_row_ids: bool,
        has_updates: bool = True,
    ) -> ChangeColumns:
        """The columns `columns` (None: all) of rows that `keys` identify (None: the identifier fields).

        Raises InvalidOptionError for a column that does not exist or cannot be a key.
        """
        key_ids = schema.identifier_field_ids if keys is None else _key_ids(schema, keys)
        names = None if columns is None else columns if isinstance(columns, str) else list(columns)
        selected = select_columns(schema, names)
        if names is not None and has_row_ids:
            # It has a place of its own among the columns of a change.
            selected = select_columns(schema, [name for name in names if name != ROW_ID.name])
        if not key_ids and not any(part.field_id in schema.fields_by_id for part in selected.output.fields):
            raise InvalidOptionError(
                "columns names no column of the table, so no row differs from another; name one, or give keys"
            )
        for name in (ROW_KIND, SNAPSHOT_ID, SEQUENCE_NUMBER, ORDINAL):
            if selected.output.find(name) is not None:
                raise InvalidOptionError(
                    f"the table has a column {name!r}, which the columns of a change have, too; select the "
                    "other columns with columns=[...]"
                )
        wanted = schema.column_names if names is None else names
        read = [
            *(name for name in wanted if name != ROW_ID.name),
            *(schema.names_by_id[part] for part in key_ids),
        ]
        return ChangeColumns(
            selected,
            select_columns(schema, [*read, *([ROW_ID.name] if has_row_ids else [])]),
            tuple(key_ids),
            has_row_ids,
            has_updates,
        )

    @cached_property
    def arrow_schema(self) -> pa.Schema:
        """The schema of the changes that are returned."""
        more = [
            pa.field(ROW_KIND, pa.string(), nullable=False),
            pa.field(SNAPSHOT_ID, pa.int64(), nullable=False),
            pa.field(SEQUENCE_NUMBER, pa.int64(), nullable=False),
            pa.field(ORDINAL, pa.int32(), nullable=False),
        ]
        if self.has_row_ids:
            more.append(pa.field(ROW_ID.name, pa.int64()))
        return pa.schema([*self.selected.arrow_schema, *more])

    @cached_property
    def compared(self) -> tuple[tuple[str, IcebergType], ...]:
        """Name and type of the columns that two rows have the same values in when nothing has changed.

        They are the selected columns of the table; metadata columns such as `_file` are not compared.
        """
        known = self.read.table_schema.fields_by_id
        parts = (part for part in self.selected.output.fields if part.field_id in known)
        return tuple((part.name, part.type) for part in parts)

    @cached_property
    def parted_by(self) -> tuple[int, ...]:
        """Field ids of columns by which rows may be parted without parting those that belong together.

        None where row ids identify rows, because equal rows of different ids cancel out, too.
        """
        if self.key_ids or self.has_row_ids:
            return self.key_ids
        known = self.read.table_schema.fields_by_id
        parts = (part for part in self.selected.output.fields if part.field_id in known)
        return tuple(part.field_id for part in parts if isinstance(part.type, KEY_TYPES))

    def parts(self, rows: pa.RecordBatch, count: int) -> Array:
        """(n,) int64: which of `count` parts each row belongs to; only where there is `parted_by`."""
        output = self.read.output
        table = pa.Table.from_batches([rows])
        columns = [_at(table, field_path(output, part)) for part in self.parted_by]
        return row_parts(columns, [output.fields_by_id[part] for part in self.parted_by], count)

    def identities(self, rows: pa.Table) -> Array | None:
        """(n,) int64 codes of the rows by key, else by row id; None when neither is there."""
        if self.key_ids:
            return row_codes(
                [_at(rows, field_path(self.read.output, part)) for part in self.key_ids],
                [self.read.output.fields_by_id[part].type for part in self.key_ids],
                as_key=True,
            )
        if not self.has_row_ids or rows.column(ROW_ID.name).null_count == rows.num_rows:
            return None
        ids = rows.column(ROW_ID.name).fill_null(NO_IDENTITY)
        found: Array = ids.to_numpy()
        return found

    def comparison(self, rows: pa.Table, identities: Array | None) -> Comparison:
        """How `rows` are compared by their selected columns; keys in addition, where rows have them."""
        types = [type_ for _, type_ in self.compared]
        # A struct may have been read with more fields than were selected.
        selected = self.selected.arrow_schema
        columns = [narrowed(_at(rows, (name,)), selected.field(name).type) for name, _ in self.compared]

        def values(numbers: Array) -> Array:
            codes: Array = np.zeros(len(numbers), dtype=np.int64)
            if types:
                index = pa.array(numbers)
                codes = row_codes([column.take(index) for column in columns], types, as_key=False)
            if not self.key_ids or identities is None:
                return codes
            _, both = np.unique(np.stack([identities[numbers], codes], axis=1), axis=0, return_inverse=True)
            return both.reshape(-1)

        return Comparison(lambda left, right: equal_rows(columns, types, left, right), values)

    def changes(
        self, rows: pa.Table, net: NetChanges, snapshots: tuple[ChangedSnapshot, ...], snapshot_of: Array
    ) -> pa.Table:
        """The changes of rows that were read; `snapshot_of` (n,) is where in `snapshots` each one's is."""
        index = snapshot_of[net.events]
        return self._finished(rows.take(pa.array(net.rows)), pa.array(net.kinds), snapshots, index)

    def one_sided(self, batch: pa.RecordBatch, kind: RowKind, snapshot: ChangedSnapshot) -> pa.RecordBatch:
        """Rows of a snapshot that only adds, or only removes, as changes."""
        index: Array = np.zeros(batch.num_rows, dtype=np.int64)
        kinds = pa.array(np.full(batch.num_rows, kind, dtype=np.int8))
        table = self._finished(pa.Table.from_batches([batch]), kinds, (snapshot,), index)
        [finished] = table.to_batches()
        return finished

    def _finished(
        self, rows: pa.Table, kinds: pa.Array, snapshots: tuple[ChangedSnapshot, ...], index: Array
    ) -> pa.Table:
        selected = self.selected.arrow_schema
        columns = [narrowed(_at(rows, (part.name,)), part.type) for part in selected]
        at = pa.array(index)
        columns += [
            (_SYMBOLS if self.has_updates else _WITHOUT_UPDATES).take(kinds),
            pa.array([each.snapshot_id for each in snapshots], pa.int64()).take(at),
            pa.array([each.sequence_number for each in snapshots], pa.int64()).take(at),
            pa.array([each.ordinal for each in snapshots], pa.int32()).take(at),
        ]
        if self.has_row_ids:
            columns.append(rows.column(ROW_ID.name))
        return pa.Table.from_arrays(columns, schema=self.arrow_schema)


def _key_ids(schema: Schema, keys: Iterable[str]) -> tuple[int, ...]:
    if isinstance(keys, str):
        raise InvalidOptionError(f"keys is a list of names, not a string; write keys=[{keys!r}]")
    found: dict[int, None] = {}
    for name in keys:
        part = schema.find(name) if isinstance(name, str) else None
        if part is None:
            raise unknown_column(f"keys {name!r}", str(name), schema)
        above = part.field_id
        while (parent := schema.parents.get(above)) is not None:
            above = parent
            if not isinstance(schema.fields_by_id[above].type, StructType):
                raise InvalidOptionError(f"keys {name!r} is within a list or map and cannot be a key")
        if not isinstance(part.type, KEY_TYPES):
            raise InvalidOptionError(
                f"keys {name!r} is of type {part.type}, which cannot be compared as a key; name other columns"
            )
        found[part.field_id] = None
    return tuple(found)


def _at(rows: pa.Table, path: tuple[str, ...]) -> pa.Array:
    column = rows.column(path[0])
    array = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
    for name in path[1:]:
        array = pc.struct_field(array, [name])
    return array
