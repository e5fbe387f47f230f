"""The Arrow schemas that cross stages: what one room hands to the next, named in one place.

Raw records go from `source` to `decode`; offset ranges go from the driver's planner to `source`; changes, rows with a
row kind, go from `decode` or a DataFrame to `write`.
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
"""One row per range of one topic partition: offsets from `start` up to, not including, `until`; `topic_id` is empty where
nobody knows it."""

MAX_RECORD_BYTES = 100 << 20
"""What the value and the key of a record may have each, by default: as much as brokers take at once."""

CUT_HEADER = "__streamlake.cut"
"""The header of a record that was too large to be held: its value, and perhaps its key, are the beginning of what the topic has."""

ROW_KIND = "_row_kind"
"""The column of a change that holds its RowKind, as an int8."""

ROW_ORDER = "_row_order"
"""The column of a change that holds its place in the order of the source, as an int64."""

UNSET = "_unset"
"""The column of a change that tells which of its values the source left out, as `formats.unset_cells` makes it. Batches
without any have no such column."""

PLACE = "_place"
"""The column of a change that says which record it comes from, where messages need it: PLACE_TYPE, or null."""

PLACE_TYPE = pa.struct(
    [pa.field("topic", pa.string()), pa.field("partition", pa.int32()), pa.field("offset", pa.int64())]
)

ROW_SEQUENCE = "_row_sequence"
"""The column of a change that holds its place in the database's log, an int64: for `sequence_by` where the table does not keep
that place. Rows that a snapshot read at the place p have ~p, below 0: changes with a lower place may still follow, of
transactions that were running then. It is in no table."""

TRUNCATE_BELOW = "_truncate_below"
"""The column of a batch that tells of truncates: the place of each in the database's log, an int64. All rows of the table whose
place is lower are gone. Every task of the table gets it, at any time among its changes, best ahead of them; ROW_ORDER beside it says
where it stood among them."""

MOVED = "_moved"
"""The column of a change of a row that got another key: a struct of the key's columns, the key before where the row comes in,
the key it has now where it goes; or null. Batches without such changes have no such column."""

SEQUENCE = "sequence"
"""The part of a record of a change stream that says its place in the database's log, as far as the envelope tells it."""


def place_text(topic: str, partition: int, offset: int) -> str:
    """How a record is named in errors."""
    return f"{topic}-{partition} offset {offset}"


def record_place(raw: pa.RecordBatch, at: int) -> str:
    """The same for the record at place `at` of a batch of schema RAW_RECORDS."""
    return place_text(*(raw.column(name)[at].as_py() for name in ("topic", "partition", "offset")))


def record_places(raw: pa.RecordBatch, records: Any, unnamed: pa.Array) -> pa.StructArray:
    """The column PLACE of n rows that come from the records at places (n,) of a batch of schema RAW_RECORDS; null where
    `unnamed` (n,) bool is true."""
    at = pa.array(records, mask=unnamed.to_numpy(zero_copy_only=False))
    parts = [raw.column(part.name).take(at).cast(part.type) for part in PLACE_TYPE]
    return pa.StructArray.from_arrays(parts, fields=list(PLACE_TYPE), mask=unnamed)


class RowKind(IntEnum):
    """What a change does to its key. -U and -D take a row out, +I and +U bring one in."""

    INSERT = 0
    UPDATE_BEFORE = 1
    UPDATE_AFTER = 2
    DELETE = 3

    @property
    def symbol(self) -> str:
        """The short name: +I, -U, +U or -D."""
        return ("+I", "-U", "+U", "-D")[self]
