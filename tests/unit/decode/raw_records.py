"""Raw record batches for the tests of decoders."""

from __future__ import annotations

import json

import pyarrow as pa

from streamlake.records import RAW_RECORDS


def as_bytes(value):
    """None and bytes as they are, text in UTF-8, everything else as compact JSON."""
    if value is None or isinstance(value, bytes):
        return value
    return (value if isinstance(value, str) else json.dumps(value, separators=(",", ":"))).encode()


def raw_batch(records, topic="shop.public.orders", first=100):
    """A batch of records: mappings of value, and perhaps key and headers."""
    return pa.RecordBatch.from_pylist(
        [
            {
                "key": as_bytes(record.get("key")),
                "value": as_bytes(record.get("value")),
                "topic": topic,
                "partition": 3,
                "offset": first + at,
                "timestamp": 1_000_000 * at,
                "headers": [
                    {"key": name, "value": as_bytes(value)}
                    for name, value in (record.get("headers") or {}).items()
                ],
            }
            for at, record in enumerate(records)
        ],
        schema=RAW_RECORDS,
    )
