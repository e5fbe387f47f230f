"""Records that were rejected, as rows of a rejects table: what came, from where, and why it did not become a row.

Made on the executors beside the rows of the good records; read again, as raw records, where rejects are replayed.
Invariant: what is stored is the whole record, so that it can be decoded as if it had just been fetched; or it says that it is cut,
and is decoded no more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamlake.decode.envelope import Array, Reject
from streamlake.formats.arrow_schema import schema_to_arrow
from streamlake.records import CUT_HEADER, RAW_RECORDS
from streamlake.spec.ddl import parse_ddl

REJECTS = parse_ddl(
    "topic string not null, partition int not null, offset long not null, timestamp timestamptz, key binary, value binary, "
    "headers array<struct<key: string not null, value: binary>>, error_class string not null, error_message string not null, "
    "pipeline string not null, checkpoint_id long not null, rejected_at timestamptz not null"
)
"""The columns of a rejects table. `timestamp` is the record's; `rejected_at` is the same for a whole checkpoint."""

_ARROW = schema_to_arrow(REJECTS, field_ids=False)
LONGEST_MESSAGE = 4_000
"""Characters of an error message that are kept."""


@dataclass(frozen=True)
class RejectStamp:
    """What the rejects of one checkpoint have in common; `rejected_at` in microseconds since 1970."""

    pipeline: str
    checkpoint_id: int
    rejected_at: int


def rejected_rows(raw: pa.RecordBatch, rejects: Sequence[Reject], stamp: RejectStamp) -> pa.RecordBatch:
    """(rejects,) rows with the columns of REJECTS, of records of a batch of schema RAW_RECORDS with all its parts."""
    count = len(rejects)
    records = raw.take(pa.array([reject.record for reject in rejects], pa.int64()))
    columns = {name: records.column(name) for name in RAW_RECORDS.names}
    columns["error_class"] = pa.array([reject.error for reject in rejects], pa.string())
    columns["error_message"] = pa.array([reject.reason[:LONGEST_MESSAGE] for reject in rejects], pa.string())
    columns["pipeline"] = pa.repeat(stamp.pipeline, count)
    columns["checkpoint_id"] = pa.repeat(pa.scalar(stamp.checkpoint_id, pa.int64()), count)
    columns["rejected_at"] = pa.repeat(pa.scalar(stamp.rejected_at, _ARROW.field("rejected_at").type), count)
    arrays = [_typed(columns[field.name], field.type) for field in _ARROW]
    return pa.RecordBatch.from_arrays(arrays, schema=_ARROW)


def raw_records(rows: pa.Table) -> pa.RecordBatch:
    """The records that rows of a rejects table keep, in the rows' order, as a batch of schema RAW_RECORDS."""
    columns = [rows.column(field.name).combine_chunks() for field in RAW_RECORDS]
    arrays = [_typed(column, field.type) for column, field in zip(columns, RAW_RECORDS, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=RAW_RECORDS)


def cut_records(rows: pa.Table) -> Array:
    """(n,) bool: those rows of a rejects table that keep only the beginning of their record."""
    found: Array = np.zeros(rows.num_rows, dtype=bool)
    headers = rows.column("headers").combine_chunks()
    names = headers.flatten().field("key")
    found[pc.list_parent_indices(headers).filter(pc.equal(names, CUT_HEADER)).to_numpy()] = True
    return found


def _typed(array: pa.Array, type_: pa.DataType) -> pa.Array:
    return array if array.type.equals(type_) else array.cast(type_)
