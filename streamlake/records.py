"""The Arrow schemas and columns that pass between stages, named in one place.

Raw records go from `source` to `decode`. Offset ranges go from the driver's planner to `source`. Changes,
rows with a row kind, go from `decode` or a DataFrame to `write`.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any

import pyarrow as pa

HEADERS_TYPE = pa.list_(
    pa.struct([pa.field("key", pa.string(), nullable=False), pa.field("value", pa.binary())])
)

RAW_RECORDS = pa.schema(
    [
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("topic", pa.string(), nullable=False),
        pa.field("partition", pa.int32(), nullable=False),
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("timestamp", pa.timestamp("us", tz="UTC")),
        pa.field("headers", HEADERS_TYPE),
    ]
)
"""One row per record, in offset order within a partition. `timestamp` is null where the record has none."""

OFFSET_RANGES = pa.schema(
    [
        pa.field("topic", pa.string(), nullable=False),
        pa.field("partition", pa.int32(), nullable=False),
        pa.field("start", pa.int64(), nullable=False),
        pa.field("until", pa.int64(), nullable=False),
        pa.field("topic_id", pa.string(), nullable=False),
    ]
)
"""One row per range of one topic partition: offsets from `start` up to, not including, `until`. `topic_id` is
empty where it is not known.
"""

MAX_RECORD_BYTES = 100 << 20
"""The default limit, in bytes, of a record's value and of its key: as much as brokers accept at once."""

CUT_HEADER = "__streamlake.cut"
"""The header of a record that was too large to be held: its value, and perhaps its key, are only the
beginning.
"""

ROW_KIND = "_row_kind"
"""The column of a change that holds its RowKind, as an int8."""

ROW_ORDER = "_row_order"
"""The column of a change that holds its place in the order of the source, as an int64."""

MISSING_FIELDS = "_unset"
"""The column of a change that says which of its values the source left out, in the form of
`formats.arrow.missing_fields`. Batches without missing fields have no such column.
"""

PLACE = "_place"
"""The column of a change that names the record it comes from, where messages need it: PLACE_TYPE, or null."""

PLACE_TYPE = pa.struct(
    [pa.field("topic", pa.string()), pa.field("partition", pa.int32()), pa.field("offset", pa.int64())]
)

ROW_SEQUENCE = "_row_sequence"
"""The column of a change that holds its source position in the database's log, an int64: for `sequence_by`
where the table does not keep that position. It is in no table. Rows that a snapshot read at position p have
~p, below 0: changes with a lower position may still follow, of transactions that were running then.
"""

TRUNCATE_BELOW = "_truncate_below"
"""The column of a batch of truncates: the source position of each in the database's log, an int64. All rows
of the table with a lower position are deleted. Every task of the table gets the batch, at any time among its
changes, best ahead of them; ROW_ORDER beside it says where it stood among them.
"""

KEY_CHANGE = "_moved"
"""The column of a key change: a struct of the key's columns, or null. An inserted row has the key before the
change, a removed row the key after it. Batches without key changes have no such column.
"""

SEQUENCE = "sequence"
"""The part of a record of a change stream that holds its source position in the database's log, where the
envelope has it.
"""


def place_text(topic: str, partition: int, offset: int) -> str:
    """The name of a record in errors."""
    return f"{topic}-{partition} offset {offset}"


def record_place(raw: pa.RecordBatch, at: int) -> str:
    """The name in errors of the record at index `at` of a batch of schema RAW_RECORDS."""
    return place_text(*(raw.column(name)[at].as_py() for name in ("topic", "partition", "offset")))


def record_places(raw: pa.RecordBatch, records: Any, unnamed: pa.Array) -> pa.StructArray:
    """The column PLACE of n rows that come from the records at indexes `records` (n,) of a raw batch.

    The batch has the schema RAW_RECORDS. It is null where `unnamed` (n,) bool is true.
    """
    at = pa.array(records, mask=unnamed.to_numpy(zero_copy_only=False))
    parts = [raw.column(part.name).take(at).cast(part.type) for part in PLACE_TYPE]
    return pa.StructArray.from_arrays(parts, fields=list(PLACE_TYPE), mask=unnamed)


class RowKind(IntEnum):
    """What a change does to its key: -U and -D remove a row, +I and +U insert one."""

    INSERT = 0
    UPDATE_BEFORE = 1
    UPDATE_AFTER = 2
    DELETE = 3

    @property
    def symbol(self) -> str:
        """The short name: +I, -U, +U or -D."""
        return ("+I", "-U", "+U", "-D")[self]
