"""Raw record batches of a change stream -> rows with their row kinds, and the columns that come from the record itself.

The counterpart of `row_decoder` for envelopes: runs on the executors between `source` and `write`, once per raw batch.
Invariant: nothing of the change stream is passed over in silence: what these rows cannot say is an error.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamlake.decode.debezium_parts import debezium_parts
from streamlake.decode.decoded import Decoded
from streamlake.decode.envelope import Changes, Reject, Truncate
from streamlake.decode.envelope_decoder import record_error
from streamlake.decode.envelopes import open_decoder
from streamlake.decode.moved_keys import MovedKeys
from streamlake.decode.new_fields import Watch
from streamlake.decode.source_tables import SourceTables
from streamlake.formats.arrow_schema import schema_to_arrow
from streamlake.formats.unset_cells import unset_column
from streamlake.records import (
    MOVED,
    PLACE,
    ROW_KIND,
    ROW_SEQUENCE,
    SEQUENCE,
    UNSET,
    RowKind,
    record_places,
)
from streamlake.spec.schema import Schema


class ChangeRows:
    """Decodes for one source.

    `schema` is that of the rows: columns of `metadata` ({column: part of the record}), ROW_KIND, and the others, which
    are the table's. `key` are those of them that tell rows apart (none: the envelope's word is taken), `routes` those that name the
    table of a row. `partial_update`: a field that a row does not have is unset.
    """

    def __init__(
        self,
        schema: Schema,
        metadata: Mapping[str, str],
        format: str,
        key: Sequence[str],
        options: Mapping[str, str],
        *,
        routes: Sequence[str] = (),
        partial_update: bool = False,
        watch: Watch | None = None,
        tables: SourceTables | None = None,
    ) -> None:
        typed = {part.name: part.type for part in schema_to_arrow(schema)}
        self.schema = pa.schema([pa.field(name, type_) for name, type_ in typed.items()])
        self._metadata = dict(metadata)
        fields = tuple(part for part in schema.fields if part.name not in metadata and part.name != ROW_KIND)
        self._moved: MovedKeys | None = None
        if key and format.startswith("debezium"):
            self._moved = MovedKeys(Schema(fields), key, *debezium_parts(format, options))
        self._decoder = open_decoder(
            format,
            Schema(fields),
            key,
            options,
            routes=routes,
            partial_update=partial_update,
            watch=watch,
            tables=tables,
        )
        self._truncates = tables is None or tables.truncates

    def decode(self, raw: pa.RecordBatch, *, keep_rejects: bool = False) -> Decoded:
        """See Decoder; deletes may hold nulls outside of the key.

        Raises DecodeError, too, for a truncate that has no place in the database's log.
        """
        changes = self._decoder.decode(raw, keep_rejects=keep_rejects)
        truncates, rejects = _placed_truncates(raw, changes, self._truncates, keep_rejects=keep_rejects)
        columns = {name: changes.rows.column(name) for name in changes.rows.schema.names}
        of_record = pa.array(changes.records)
        for column, part in self._metadata.items():
            columns[column] = (
                _places(changes.sequence) if part == SEQUENCE else raw.column(part).take(of_record)
            )
        arrays = [_typed(columns[field.name], field.type) for field in self.schema]
        rows = pa.RecordBatch.from_arrays(arrays, schema=self.schema)
        rows = rows.append_column(ROW_SEQUENCE, changes.sequence)
        if changes.moves and self._moved is not None:
            rows = rows.append_column(MOVED, self._moved.column(changes.moves, rows.num_rows))
        return Decoded(
            raw,
            _with_unset(rows, raw, changes),
            changes.records,
            truncates=truncates,
            moves=changes.moves,
            rejects=rejects,
            ignored=changes.ignored,
            tombstones=changes.tombstones,
            named=changes.named,
            table=changes.table,
        )


def _places(sequence: pa.Array) -> pa.Array:
    """The places themselves, also where a snapshot read there."""
    return pc.if_else(pc.less(sequence, 0), pc.bit_wise_not(sequence), sequence)


def _with_unset(rows: pa.RecordBatch, raw: pa.RecordBatch, changes: Changes) -> pa.RecordBatch:
    """The rows with UNSET and PLACE, where a row that comes in has values that the database left out."""
    brought = np.isin(changes.rows.column(ROW_KIND).to_numpy(), (RowKind.INSERT, RowKind.UPDATE_AFTER))
    masks = {name: mask & brought for name, mask in changes.unset.items()}
    masks = {name: mask for name, mask in masks.items() if mask.any()}
    if not masks:
        return rows
    unset = unset_column(masks, rows.num_rows)
    place = record_places(raw, changes.records, unset.is_null())
    return rows.append_column(UNSET, unset).append_column(PLACE, place)


def _placed_truncates(
    raw: pa.RecordBatch, changes: Changes, is_only: bool, *, keep_rejects: bool
) -> tuple[tuple[Truncate, ...], tuple[Reject, ...]]:
    """The truncates whose place in the database's log is known, and the rejects for the others. With `is_only` there are no rows
    of another source, which a truncate would take out by a place that cannot be compared with theirs."""
    placed = tuple(each for each in changes.truncates if is_only and each.sequence is not None)
    why = "the record does not say when: its place in the database's log is missing"
    if not is_only:
        why = (
            "rows of other tables or topics are in the same table, which nothing tells from its own: delete its rows yourself, and "
            "drop the record (on_error='reject'), or give each source a table of its own"
        )
    rejects = [
        Reject(each.record, f"{each.table} was truncated, and {why}")
        for each in changes.truncates
        if each not in placed
    ]
    if rejects and not keep_rejects:
        raise record_error(raw, rejects[0].record, rejects[0].reason)
    return placed, tuple(sorted((*changes.rejects, *rejects), key=lambda each: each.record))


def _typed(array: pa.Array, type_: pa.DataType) -> pa.Array:
    return array if array.type.equals(type_) else array.cast(type_)
