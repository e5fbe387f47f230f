"""Rejected records as rows of a rejects table: the record, its origin, and the reason for the rejection.

Written on the executors beside the rows of the good records. Read again, as raw records, when rejects are
replayed. Invariant: the whole record is stored, so that it can be decoded as if it had just been fetched; or
it is marked as cut, and is not decoded again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamlake.decode.values.envelope import Array, Reject
from streamlake.formats.arrow.arrow_schema import schema_to_arrow
from streamlake.records import CUT_HEADER, RAW_RECORDS
from streamlake.spec.types.ddl import parse_ddl

REJECTS = parse_ddl(
    "topic string not null, partition int not null, offset long not null, timestamp timestamptz, key binary, "
    "value binary, headers array<struct<key: string not null, value: binary>>, error_class string not null, "
    "error_message string not null, pipeline string not null, checkpoint_id long not null, rejected_at "
    "timestamptz not null"
)
"""The columns of a rejects table.

`timestamp` is the record's; `rejected_at` is the same for a whole checkpoint.
"""

_ARROW = schema_to_arrow(REJECTS, field_ids=False)
LONGEST_MESSAGE = 4_000
"""The maximum number of characters stored of an error message."""


@dataclass(frozen=True)
class RejectStamp:
    """What the rejects of one checkpoint have in common; `rejected_at` in microseconds since 1970."""

    pipeline: str
    checkpoint_id: int
    rejected_at: int


def rejected_rows(raw: pa.RecordBatch, rejects: Sequence[Reject], stamp: RejectStamp) -> pa.RecordBatch:
    """(rejects,) rows with the columns of REJECTS, for records of a full batch of schema RAW_RECORDS."""
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
    """The records stored in rows of a rejects table, in the rows' order, as a batch of schema RAW_RECORDS."""
    columns = [rows.column(field.name).combine_chunks() for field in RAW_RECORDS]
    arrays = [_typed(column, field.type) for column, field in zip(columns, RAW_RECORDS, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=RAW_RECORDS)


def cut_records(rows: pa.Table) -> Array:
    """(n,) bool: the rows of a rejects table that hold only the beginning of their record."""
    found: Array = np.zeros(rows.num_rows, dtype=bool)
    headers = rows.column("headers").combine_chunks()
    names = headers.flatten().field("key")
    found[pc.list_parent_indices(headers).filter(pc.equal(names, CUT_HEADER)).to_numpy()] = True
    return found


def _typed(array: pa.Array, type_: pa.DataType) -> pa.Array:
    return array if array.type.equals(type_) else array.cast(type_)
