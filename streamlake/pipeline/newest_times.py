"""How far event time has come in each partition of a checkpoint, from the tasks that read to the snapshot's summary.

A task notes the newest time of each partition as batches pass by; the driver takes the largest of a partition and of these
the smallest: up to there every partition that had records has come. It is a function of the checkpoint's offsets alone, so a
replay gives the same. Partitions without records in the checkpoint say nothing, and hold nothing back.
On the same way goes which source tables records name, where only some are wanted.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from streamlake.decode.decoded import Decoded
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


@dataclass(frozen=True)
class Findings:
    """What was found in records. `named`: see Changes."""

    newest: Newest = field(default_factory=dict)
    named: Mapping[str, int] = field(default_factory=dict)

    def packed(self) -> bytes | None:
        """As bytes, for `merged`; None for nothing."""
        return json.dumps([self.newest, self.named]).encode() if self.newest or self.named else None


class NewestTimes:
    """Collects the newest times of the batches that a task reads: of the rows' `column`, or without one of the records."""

    def __init__(self, column: str | None = None) -> None:
        self._column = column
        self._found: dict[str, int] = {}
        self._named: Counter[str] = Counter()

    @property
    def has_named(self) -> bool:
        """Whether records have named tables since `taken` was called last."""
        return bool(self._named)

    def see(self, piece: OffsetRange, decoded: Decoded) -> None:
        """A batch of a range was read."""
        self._named.update(decoded.named)
        if self._column is None:
            times = decoded.raw.column("timestamp")
        elif self._column in decoded.rows.schema.names:
            times = decoded.rows.column(self._column)
        else:
            return
        newest = pc.max(times)
        if newest.is_valid:
            part = f"{piece.topic}-{piece.partition}"
            self._found[part] = max(self._found.get(part, _milliseconds(newest)), _milliseconds(newest))

    def taken(self) -> bytes | None:
        """What has been found since the last call; None for nothing."""
        found = Findings(self._found, self._named)
        self._found, self._named = {}, Counter()
        return found.packed()


def together(parts: Iterable[bytes | None]) -> bytes | None:
    """Several findings as one; None for nothing."""
    return merged(parts).packed()


def merged(parts: Iterable[bytes | None]) -> Findings:
    """What several tasks, or several parts of one, have found."""
    found: dict[str, int] = {}
    named: Counter[str] = Counter()
    for part in filter(None, parts):
        times, counts = json.loads(part)
        named.update(counts)
        for name, newest in times.items():
            found[name] = max(found.get(name, newest), newest)
    return Findings(found, named)


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
