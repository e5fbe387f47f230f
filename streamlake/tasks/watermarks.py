"""Watermarks: how far event time has come in a checkpoint, recorded in the snapshot's summary.

A task records the newest time of each partition while it reads batches. The driver takes the largest for each
partition, and of these the smallest: up to there every partition that had records has come. The watermark is
a function of the checkpoint's offsets alone, so a replay gives the same. Partitions without records in the
checkpoint do not count, and hold nothing back. Which source tables records name, where only some are wanted,
is reported in the same way.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from streamlake.decode.values.decoded import Decoded
from streamlake.errors import InvalidOptionError
from streamlake.source.offsets import OffsetRange
from streamlake.spec.types.data_types import (
    DateType,
    IcebergType,
    TimestampNsType,
    TimestampType,
    TimestamptzNsType,
    TimestamptzType,
)
from streamlake.spec.types.schema import Schema

WATERMARK = "streamlake.watermark-ms"
"""The watermark's key in a snapshot's summary; its value is in milliseconds since 1970."""
WATERMARK_COLUMN = "watermark-column"
_TIMES = (DateType, TimestampType, TimestamptzType, TimestampNsType, TimestamptzNsType)

Newest = Mapping[str, int]
"""Topic and partition, as in "orders-3" -> the newest time in it, in milliseconds since 1970."""


@dataclass(frozen=True)
class Findings:
    """What a task found in records: watermarks, in `named` the source tables, see Changes, and in `nulls` the
    number of records without a value, see Decoded.
    """

    newest: Newest = field(default_factory=dict)
    named: Mapping[str, int] = field(default_factory=dict)
    nulls: int = 0

    def packed(self) -> bytes | None:
        """The findings as bytes, for `merged`; None for nothing."""
        if not (self.newest or self.named or self.nulls):
            return None
        return json.dumps([self.newest, self.named, self.nulls]).encode()


class Watermarks:
    """Collects the watermarks of the batches that a task reads.

    Times are those of the rows' `column`, or without one the records' timestamps.
    """

    def __init__(self, column: str | None = None) -> None:
        self._column = column
        self._found: dict[str, int] = {}
        self._named: Counter[str] = Counter()
        self._nulls = 0

    @property
    def has_named(self) -> bool:
        """Whether records have named source tables since the last call of `taken`."""
        return bool(self._named)

    def see(self, piece: OffsetRange, decoded: Decoded) -> None:
        """Take in a batch of a range."""
        self._named.update(decoded.named)
        self._nulls += decoded.nulls
        if self._column is None:
            times = decoded.raw.column("timestamp")
        elif self._column in decoded.rows.schema.names:
            times = decoded.rows.column(self._column)
        else:
            return
        self._take(f"{piece.topic}-{piece.partition}", times)

    def see_rows(self, part: str, rows: pa.RecordBatch) -> None:
        """Take in rows of a source that has no partitions, under its name."""
        if self._column is not None:
            self._take(part, rows.column(self._column))

    def _take(self, part: str, times: Any) -> None:
        newest = pc.max(times)
        if newest.is_valid:
            self._found[part] = max(self._found.get(part, _milliseconds(newest)), _milliseconds(newest))

    def taken(self) -> bytes | None:
        """The findings since the last call, as bytes; None for nothing."""
        found = Findings(self._found, self._named, self._nulls)
        self._found, self._named, self._nulls = {}, Counter(), 0
        return found.packed()


def together(parts: Iterable[bytes | None]) -> bytes | None:
    """Several packed findings as one; None for nothing."""
    return merged(parts).packed()


def merged(parts: Iterable[bytes | None]) -> Findings:
    """The findings of several tasks, or of several parts of one, combined."""
    found: dict[str, int] = {}
    named: Counter[str] = Counter()
    nulls = 0
    for part in filter(None, parts):
        times, counts, left_out = json.loads(part)
        nulls += left_out
        named.update(counts)
        for name, newest in times.items():
            found[name] = max(found.get(name, newest), newest)
    return Findings(found, named, nulls)


def watermark_summary(newest: Newest) -> dict[str, str]:
    """The summary's entry for a checkpoint with these watermarks; empty where there are none."""
    return {WATERMARK: str(min(newest.values()))} if newest else {}


def is_time(type_: IcebergType) -> bool:
    """Whether values of a type are times."""
    return isinstance(type_, _TIMES)


def require_watermark_column(column: str | None, schema: Schema) -> None:
    """Raise InvalidOptionError where the rows have no such column, or it holds no time."""
    if column is None:
        return
    found = schema.find(column)
    if found is None or "." in column:
        raise InvalidOptionError(
            f"{WATERMARK_COLUMN} is '{column}', which is no column of the stream; it has "
            f"{', '.join(schema.column_names)}"
        )
    if not is_time(found.type):
        raise InvalidOptionError(
            f"{WATERMARK_COLUMN} is '{column}', which is {found.type}; it takes a column of dates or "
            "timestamps"
        )


def _milliseconds(moment: Any) -> int:
    if pa.types.is_date(moment.type):
        return int(moment.cast(pa.date64()).value)
    return int(pc.floor_temporal(moment, unit="millisecond").cast(pa.timestamp("ms", moment.type.tz)).value)
