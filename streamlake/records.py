"""The Arrow schemas that cross stages: what one room hands to the next, named in one place.

Raw records go from `source` to `decode`; offset ranges go from the driver's planner to `source`.
"""

from __future__ import annotations

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
    ]
)
"""One row per range of one topic partition: offsets from `start` up to, not including, `until`."""
