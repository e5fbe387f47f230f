"""Changes of a stream as an upsert task needs them: rows, row kinds, order, keys and sequence values.

A change that removes a row (-U, -D) needs only a valid key and a valid sequence value, because the other
columns of such records are often null. A change that brings a row in must fit the table. Invariant: the only
changes dropped here are those that the mode says to drop (-U in upsert mode).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa

from streamlake.errors import SchemaMismatchError
from streamlake.formats.arrow.missing_fields import missing_field_masks
from streamlake.index.keys.keys import Keys, concat_keys
from streamlake.index.keys.sequence_values import SequenceValues, concat_sequence_values
from streamlake.records import KEY_CHANGE, MISSING_FIELDS, PLACE, ROW_KIND, ROW_ORDER, ROW_SEQUENCE, RowKind
from streamlake.write.rows.row_check import RowCheck
from streamlake.write.upsert.source_positions import PLACED, split_places
from streamlake.write.upsert.upsert_target import UPSERT, UpsertTarget

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, eq=False)
class Changes:
    """n changes of one task.

    - `keys` are the encoded keys. `keyed` has the key and sequence columns of all n changes, or all columns
      where equality deletes hold whole rows.
    - `rows` holds the table rows of the changes that bring one in. `row_of` (n,) int64 is each change's row
      number in `rows`; it means nothing for the other changes.
    - `removes` (n,) bool is true for -U and -D. `order` (n,) int64 is the order in the source.
    - `sequence_values` are the sequence values; None: changes have none.
    - `missing` has a mask (n,) bool for each column that some changes leave out (unavailable values or
      missing fields). The rows hold nulls there.
    - `places` (n,) are record positions, structs as PLACE_TYPE, or None.
    - `key_changes` (n,) is as the column KEY_CHANGE, or None. `sequence` (n,) is as ROW_SEQUENCE, or None.
    - `arrival` (n,) int64 marks the changes that still inherit their sequence values, see `source_positions`.
      None: there are none.
    """

    keys: Keys
    keyed: pa.Table
    rows: pa.Table
    row_of: Array
    removes: Array
    order: Array
    sequence_values: SequenceValues | None
    missing: Mapping[str, Array] = field(default_factory=dict)
    places: pa.ChunkedArray | None = None
    key_changes: pa.ChunkedArray | None = None
    sequence: pa.ChunkedArray | None = None
    arrival: Array | None = None

    def take(self, chosen: Array) -> Changes:
        """The changes at (m,) ascending row numbers."""
        at = pa.array(chosen)
        brings = chosen[~self.removes[chosen]]
        removes = self.removes[chosen]
        masks = {name: mask[chosen] for name, mask in self.missing.items()}
        return Changes(
            keys=self.keys.take(chosen),
            keyed=self.keyed.take(at),
            rows=self.rows.take(pa.array(self.row_of[brings])),
            row_of=np.cumsum(~removes) - 1,
            removes=removes,
            order=self.order[chosen],
            sequence_values=None if self.sequence_values is None else self.sequence_values.take(chosen),
            missing={name: mask for name, mask in masks.items() if mask.any()},
            places=None if self.places is None else self.places.take(at),
            key_changes=None if self.key_changes is None else self.key_changes.take(at),
            sequence=None if self.sequence is None else self.sequence.take(at),
            arrival=None if self.arrival is None else self.arrival[chosen],
        )

    @property
    def is_key_change(self) -> Array:
        """(n,) bool: the changes that belong to a key change."""
        if self.key_changes is None:
            return np.zeros(len(self.keys), dtype=bool)
        result: Array = self.key_changes.is_valid().to_numpy(zero_copy_only=False)
        return result


def joined_changes(parts: Sequence[Changes]) -> Changes:
    """Several tables of changes of one task as one, in their order. `parts` is not empty."""
    if len(parts) == 1:
        return parts[0]
    removes = np.concatenate([part.removes for part in parts])
    sequence_values = [part.sequence_values for part in parts if part.sequence_values is not None]
    names = dict.fromkeys(name for part in parts for name in part.missing)
    none: list[Array] = [np.zeros(len(part.keys), dtype=bool) for part in parts]
    return Changes(
        keys=concat_keys([part.keys for part in parts]),
        keyed=pa.concat_tables([part.keyed for part in parts]),
        rows=pa.concat_tables([part.rows for part in parts]),
        row_of=np.cumsum(~removes) - 1,
        removes=removes,
        order=np.concatenate([part.order for part in parts]),
        sequence_values=concat_sequence_values(sequence_values) if sequence_values else None,
        missing={
            name: np.concatenate([part.missing.get(name, no) for part, no in zip(parts, none, strict=True)])
            for name in names
        },
        places=_columns([part.places for part in parts], none),
        key_changes=_columns([part.key_changes for part in parts], none),
        sequence=_columns([part.sequence for part in parts], none),
        arrival=_arrivals(parts),
    )


def _arrivals(parts: Sequence[Changes]) -> Array | None:
    if all(part.arrival is None for part in parts):
        return None
    return np.concatenate(
        [np.full(len(part.keys), PLACED) if part.arrival is None else part.arrival for part in parts]
    )


def _columns(columns: Sequence[pa.ChunkedArray | None], none: Sequence[Array]) -> pa.ChunkedArray | None:
    """Optional columns one after the other, with nulls for missing ones; None when all are missing."""
    types = [column.type for column in columns if column is not None]
    if not types:
        return None
    chunks = [
        [pa.nulls(len(no), types[0])] if column is None else column.chunks
        for column, no in zip(columns, none, strict=True)
    ]
    return pa.chunked_array([chunk for each in chunks for chunk in each], types[0])


class ChangeReader:
    """Reads the tables of one task into Changes, in the order in which they arrive."""

    def __init__(self, target: UpsertTarget) -> None:
        schema = target.table.schema
        self._target = target
        self._needed = tuple(schema.column_names) if target.whole_row else target.key.all_columns
        fields = tuple(part for part in schema.fields if part.name in self._needed)
        if not target.key.keeps_sequence_values and target.key.sequence_codec is not None:
            fields += target.key.sequence_codec.fields
            self._needed = tuple(dict.fromkeys((*self._needed, *target.key.sequence_by)))
        optional = tuple(
            part if part.name in target.key.columns else replace(part, required=False) for part in fields
        )
        self._check = RowCheck(schema, target.table.location)
        self._key_check = RowCheck(replace(schema, fields=optional), target.table.location)
        self._seen = 0

    def read(self, changes: pa.Table) -> Changes:
        """One table of changes as Changes.

        Raises SchemaMismatchError for a change that does not fit the table; the
        message names the column and row.
        """
        kinds, changes = self._kinds(changes)
        order, changes = self._order(changes)
        if self._target.mode == UPSERT and (kinds == RowKind.UPDATE_BEFORE).any():
            kept = kinds != RowKind.UPDATE_BEFORE
            kinds, order, changes = kinds[kept], order[kept], changes.filter(pa.array(kept))
        removes = (kinds == RowKind.UPDATE_BEFORE) | (kinds == RowKind.DELETE)
        places, changes = _without(changes, PLACE)
        key_changes, changes = _without(changes, KEY_CHANGE)
        missing, changes = self._missing(changes, removes, places)
        keyed = self._key_check.align(changes.select([n for n in self._needed if n in changes.column_names]))
        sequence, changes = _without(changes, ROW_SEQUENCE)
        brought = changes.filter(pa.array(~removes)) if removes.any() else changes
        key = self._target.key
        sequence_values = arrival = None
        if key.sequence_codec is not None:
            columns = [keyed.column(name) for name in key.sequence_by]
            if not key.keeps_sequence_values:
                columns[0], arrival = split_places(columns[0])
            sequence_values = key.sequence_codec.encode(columns, self._target.table.location)
        return Changes(
            keys=key.codec.encode([keyed.column(name) for name in key.columns]),
            keyed=keyed,
            rows=self._check.align(brought, {name: mask[~removes] for name, mask in missing.items()}),
            row_of=np.cumsum(~removes) - 1,
            removes=removes,
            order=order,
            sequence_values=sequence_values,
            missing=missing,
            places=places,
            key_changes=key_changes,
            sequence=sequence,
            arrival=arrival,
        )

    def _missing(
        self, changes: pa.Table, removes: Array, places: pa.ChunkedArray | None
    ) -> tuple[dict[str, Array], pa.Table]:
        """The masks of left-out values in rows that come in, by column, and the changes without
        MISSING_FIELDS.

        Raises SchemaMismatchError when a key or sequence column is left out.
        """
        column, rest = _without(changes, MISSING_FIELDS)
        if column is None:
            return {}, rest
        known = self._target.table.schema.column_names
        masks = {name: mask for name, mask in missing_field_masks(column).items() if name in known}
        for name, mask in masks.items():
            if name in self._target.key.all_columns and mask.any():
                place = None if places is None else places[int(np.argmax(mask))].as_py()
                where = "" if place is None else "{topic}-{partition} offset {offset}: ".format(**place)
                raise SchemaMismatchError(
                    f"{where}{self._target.table.location}: column '{name}' has no value, because the record "
                    "leaves it out, and without it the change cannot be identified: it is in the key or in "
                    "`sequence_by`"
                )
        brought = {name: mask & ~removes for name, mask in masks.items()}
        return {name: mask for name, mask in brought.items() if mask.any()}, rest

    def _kinds(self, changes: pa.Table) -> tuple[Array, pa.Table]:
        if ROW_KIND not in changes.column_names:
            return np.full(changes.num_rows, RowKind.UPDATE_AFTER, dtype=np.int8), changes
        column = changes.column(ROW_KIND)
        if column.null_count:
            raise self._unknown_kind(column.is_null().index(True).as_py(), None)
        kinds = column.to_numpy().astype(np.int8)
        unknown = (kinds < RowKind.INSERT) | (kinds > RowKind.DELETE)
        if unknown.any():
            row = int(np.argmax(unknown))
            raise self._unknown_kind(row, int(kinds[row]))
        return kinds, changes.drop_columns([ROW_KIND])

    def _unknown_kind(self, row: int, code: int | None) -> SchemaMismatchError:
        known = ", ".join(f"{kind.value} ({kind.symbol})" for kind in RowKind)
        return SchemaMismatchError(
            f"{self._target.table.location}: column '{ROW_KIND}', row {row}: {code} is not a row kind; the "
            f"codes are {known}"
        )

    def _order(self, changes: pa.Table) -> tuple[Array, pa.Table]:
        start, self._seen = self._seen, self._seen + changes.num_rows
        if ROW_ORDER not in changes.column_names:
            return np.arange(start, start + changes.num_rows), changes
        return changes.column(ROW_ORDER).to_numpy(), changes.drop_columns([ROW_ORDER])


def _without(changes: pa.Table, name: str) -> tuple[pa.ChunkedArray | None, pa.Table]:
    """A column that only some tables of changes have (None: not this one), and the table without it."""
    if name not in changes.column_names:
        return None, changes
    return changes.column(name), changes.drop_columns([name])
