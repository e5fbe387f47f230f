"""Parts of one raw batch's changes: built from single outcomes, joined, and put in order.

Used by the decoders of envelopes, between the bulk path and the record-by-record path. Invariant: parts of
one decoder have the same columns.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from streamlake.decode.values.envelope import Array, Change, Changes, Outcome, Reject, Truncate
from streamlake.formats.arrow.arrow_schema import schema_to_arrow
from streamlake.records import ROW_KIND, RowKind
from streamlake.spec.types.schema import Schema


def changes_schema(schema: Schema) -> pa.Schema:
    """The target's columns, nullable because deletes may have the key only, and the row kind."""
    columns = [part.with_nullable(True) for part in schema_to_arrow(schema)]
    return pa.schema([*columns, pa.field(ROW_KIND, pa.int8(), nullable=False)])


def kind_codes(types: pa.Array, kinds: Mapping[str, RowKind], other: int) -> Array:
    """(n,) int8, the caller's own copy: the kind of each text, `other` for null and unknown texts."""
    encoded = types.dictionary_encode()
    known = [kinds.get(text, other) for text in encoded.dictionary.to_pylist()]
    codes: Array = np.array([*known, other], dtype=np.int8)
    result: Array = codes[encoded.indices.fill_null(len(known)).to_numpy()]
    return result


def part_of(
    columns: Sequence[pa.Array],
    kinds: Array,
    schema: pa.Schema,
    sequence: pa.Array,
    records: Array,
    missing: dict[str, Array],
) -> Changes:
    """A part with n rows only: one array per column of `schema` but the last, which is for `kinds`."""
    arrays = [*columns, pa.array(np.asarray(kinds, dtype=np.int8))]
    rows = pa.RecordBatch.from_arrays(arrays, schema=schema)
    return Changes(rows, sequence, np.asarray(records, dtype=np.int64), missing)


def part_of_outcomes(
    outcomes: Sequence[tuple[int, Outcome]], rejects: Sequence[Reject], schema: pa.Schema
) -> Changes:
    """A part made of (record's index, outcome) pairs in the order of the records."""
    changes: list[tuple[int, Change]] = [
        (at, change) for at, outcome in outcomes for change in outcome.changes
    ]
    columns = [
        pa.array([change.row.get(part.name) for _, change in changes], part.type)
        for part in list(schema)[:-1]
    ]
    sequences = [change.sequence for _, change in changes]
    names = {name for _, change in changes for name in change.missing}
    part = part_of(
        columns,
        np.array([change.kind for _, change in changes], dtype=np.int8),
        schema,
        pa.array(sequences, pa.int64()),
        np.array([at for at, _ in changes], dtype=np.int64),
        {name: np.array([name in change.missing for _, change in changes]) for name in names},
    )
    return replace(
        part,
        truncates=tuple(
            Truncate(at, *found.truncate) for at, found in outcomes if found.truncate is not None
        ),
        rejects=tuple(rejects),
        ignored=Counter(found.ignored for _, found in outcomes if found.ignored is not None),
    )


def joined(parts: Sequence[Changes], schema: pa.Schema) -> Changes:
    """One value of several parts, which may interleave, with rows in the order of their records."""
    parts = [part for part in parts if _has_any(part)]
    if not parts:
        return part_of_outcomes((), (), schema)
    if len(parts) == 1:
        return parts[0]
    with_rows = [part for part in parts if part.rows.num_rows] or parts[:1]
    rows = pa.Table.from_batches([part.rows for part in with_rows], schema).combine_chunks()
    whole = Changes(
        rows=rows.to_batches()[0] if rows.num_rows else with_rows[0].rows,
        sequence=pa.concat_arrays([part.sequence for part in with_rows]),
        records=np.concatenate([part.records for part in with_rows]),
        missing={
            name: np.concatenate(
                [part.missing.get(name, np.zeros(part.rows.num_rows, dtype=bool)) for part in with_rows]
            )
            for name in {name for part in with_rows for name in part.missing}
        },
        truncates=tuple(
            sorted((one for part in parts for one in part.truncates), key=lambda one: one.record)
        ),
        rejects=tuple(sorted((one for part in parts for one in part.rejects), key=lambda one: one.record)),
        ignored=sum((Counter(part.ignored) for part in parts), Counter()),
    )
    return in_order(whole)


def in_order(changes: Changes) -> Changes:
    """The changes with rows in the order of their records; rows of one record keep their order."""
    if (np.diff(changes.records) >= 0).all():
        return changes
    return taken(changes, np.argsort(changes.records, kind="stable"))


def taken(changes: Changes, order: Array) -> Changes:
    """The changes with only the rows at (n,) indexes, in that order."""
    places = pa.array(order, pa.int64())
    return replace(
        changes,
        rows=changes.rows.take(places),
        sequence=changes.sequence.take(places),
        records=changes.records[order],
        missing={name: mask[order] for name, mask in changes.missing.items() if mask[order].any()},
    )


def _has_any(part: Changes) -> bool:
    return bool(part.rows.num_rows or part.truncates or part.rejects or part.ignored)
