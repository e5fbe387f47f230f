"""How far event time has come in each partition of a checkpoint, from the tasks that read to the snapshot's summary.

A task notes the newest time of each partition as batches pass by; the driver takes the largest of a partition and of these
the smallest: up to there every partition that had records has come. It is a function of the checkpoint's offsets alone, so a
replay gives the same. Partitions without records in the checkpoint say nothing, and hold nothing back.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from streamlake.errors import InvalidOptionError
from streamlake.source.offsets import OffsetRange
from streamlake.spec.schema import Schema
from streamlake.spec.types import (
    DateType,
    TimestampNsType,
    TimestampType,
    TimestamptzNsType,
    TimestamptzType,
)

WATERMARK = "streamlake.watermark-ms"
"""In a snapshot's summary: milliseconds since 1970."""
WATERMARK_COLUMN = "watermark-column"
_TIMES = (DateType, TimestampType, TimestamptzType, TimestampNsType, TimestamptzNsType)

Newest = Mapping[str, int]
"""Topic and partition, as in "orders-3" -> the newest time in it, in milliseconds since 1970."""


class NewestTimes:
    """Collects the newest times of the batches that a task reads: of the rows' `column`, or without one of the records."""

    def __init__(self, column: str | None = None) -> None:
        self._column = column
        self._found: dict[str, int] = {}

    def see(self, piece: OffsetRange, raw: pa.RecordBatch, rows: pa.RecordBatch) -> None:
        """A raw batch of a range has become these rows."""
        if self._column is None:
            times = raw.column("timestamp")
        elif self._column in rows.schema.names:
            times = rows.column(self._column)
        else:
            return
        newest = pc.max(times)
        if newest.is_valid:
            part = f"{piece.topic}-{piece.partition}"
            self._found[part] = max(self._found.get(part, _milliseconds(newest)), _milliseconds(newest))

    def taken(self) -> bytes | None:
        """What has been found since the last call; None for nothing."""
        found, self._found = self._found, {}
        return json.dumps(found).encode() if found else None


def together(parts: Iterable[bytes | None]) -> bytes | None:
    """Several findings as one; None for nothing."""
    found = merged(parts)
    return json.dumps(found).encode() if found else None


def merged(parts: Iterable[bytes | None]) -> dict[str, int]:
    """What several tasks, or several parts of one, have found."""
    found: dict[str, int] = {}
    for part in parts:
        for name, newest in (json.loads(part) if part else {}).items():
            found[name] = max(found.get(name, newest), newest)
    return found


def watermark_summary(newest: Newest) -> dict[str, str]:
    """The summary's entry for a checkpoint with these newest times; none where there was nothing."""
    return {WATERMARK: str(min(newest.values()))} if newest else {}


def require_watermark_column(column: str | None, schema: Schema) -> None:
    """Raise InvalidOptionError where the rows have no such column, or it holds no time."""
    if column is None:
        return
    found = schema.find(column)
    if found is None or "." in column:
        raise InvalidOptionError(
            f"{WATERMARK_COLUMN} is '{column}', which is no column of the stream; it has {', '.join(schema.column_names)}"
        )
    if not isinstance(found.type, _TIMES):
        raise InvalidOptionError(
            f"{WATERMARK_COLUMN} is '{column}', which is {found.type}; it takes a column of dates or timestamps"
        )


def _milliseconds(moment: Any) -> int:
    if pa.types.is_date(moment.type):
        return int(moment.cast(pa.date64()).value)
    return int(pc.floor_temporal(moment, unit="millisecond").cast(pa.timestamp("ms", moment.type.tz)).value)
