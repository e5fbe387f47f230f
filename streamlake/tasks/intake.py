"""The intake of the direct path's tasks: turns offset ranges into rows of a table, with their buckets.

It runs on the executors and fetches, decodes and screens records. Errors in the records of one table take the
place of that table's rows, so that the other tables go on. Invariant: rows carry their place in the source
(ROW_ORDER), so that no shuffle loses the order of a partition.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from streamlake.decode.cdc.row_kinds import row_kinds
from streamlake.errors import MisplacedKeyError
from streamlake.index.bucketing import Bucketing
from streamlake.index.keys.key_codec import KeyCodec
from streamlake.index.message_key import MessageKey
from streamlake.records import ROW_KIND, ROW_ORDER, TRUNCATE_BELOW
from streamlake.source.offsets import OffsetRange
from streamlake.tasks.direct_reader import RangeReader
from streamlake.tasks.key_buckets import key_buckets
from streamlake.tasks.record_screen import RejectRules
from streamlake.tasks.shuffle_blocks import AHEAD, by_bucket, packed
from streamlake.tasks.watermarks import Watermarks

Array = Any  # numpy array
Batches = Iterator[pa.RecordBatch]

ANY_TOPIC = ""
"""In a mapping of topics: the key for all topics that it does not name."""


@dataclass(frozen=True)
class KeyRoute:
    """Where changes of a table go: bucket i goes to slot `first_slot` + i.

    `columns` are those of the key, in the codec's order; `message_key`: see Bucketing. `row_kind` is the
    column with row kinds (None: there is none), which is removed from the rows unless `keeps_kind`. `where`
    names that column in errors.
    """

    first_slot: int
    buckets: int
    columns: tuple[str, ...]
    codec: KeyCodec
    row_kind: str | None
    keeps_kind: bool
    where: str
    message_key: MessageKey | None = None

    def shuffle_blocks(self, rows: pa.RecordBatch, order: int) -> Batches:
        """Shuffle blocks of rows; the first row has the place `order` in the source.

        Truncates go to all buckets, ahead of all rows. Raises DecodeError for an unknown row kind.
        """
        if TRUNCATE_BELOW in rows.schema.names:
            for bucket in range(self.buckets):
                yield from packed(self.first_slot + bucket, AHEAD, _at(rows, order))
            return
        for bucket, part in by_bucket(self._placed(rows, order), self._buckets(rows)):
            yield from packed(self.first_slot + bucket, order, part)

    def owned(self, rows: pa.RecordBatch, order: int, bucket: int) -> pa.RecordBatch:
        """Rows for the writer of `bucket`, from a partition whose keys are all in it.

        They have the form of `shuffle_blocks`. Raises MisplacedKeyError where a row is of another bucket,
        DecodeError for an unknown row kind.
        """
        if TRUNCATE_BELOW in rows.schema.names:
            if self.buckets > 1:
                raise MisplacedKeyError("a truncate concerns all partitions")
            return _at(rows, order)
        if self.buckets > 1:
            astray = np.flatnonzero(self._buckets(rows) != bucket)
            if len(astray):
                shown = {name: rows.column(name)[int(astray[0])].as_py() for name in self.columns}
                raise MisplacedKeyError(
                    f"the row with the key {shown} did not come through the partition that its key leads to"
                )
        return self._placed(rows, order)

    def _buckets(self, rows: pa.RecordBatch) -> Array:
        """(n,) int32: the bucket of each row."""
        columns = [rows.column(name) for name in self.columns]
        return key_buckets(columns, self.codec, Bucketing(self.buckets, self.message_key))

    def _placed(self, rows: pa.RecordBatch, order: int) -> pa.RecordBatch:
        columns = dict(zip(rows.schema.names, rows.columns, strict=True))
        if self.row_kind is not None:
            kinds = row_kinds(columns[self.row_kind], self.where)
            if not self.keeps_kind:
                del columns[self.row_kind]
            columns[ROW_KIND] = kinds
        columns[ROW_ORDER] = pa.array(np.arange(order, order + rows.num_rows, dtype=np.int64))
        return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))


@dataclass(frozen=True)
class Intake:
    """How the records of a topic become rows of table number `table`.

    `route` is None where rows are only appended. `rules` says how records that cannot become rows are
    quarantined (None: they are errors). With a `route`, rows of the rejects table go to the slot
    `rejects_slot`.
    """

    table: int
    reader: RangeReader
    route: KeyRoute | None = None
    rules: RejectRules | None = None
    rejects_slot: int | None = None

    def rows(
        self, piece: OffsetRange, reject: Callable[[pa.RecordBatch], None], times: Watermarks
    ) -> Iterator[pa.RecordBatch]:
        """The rows of a range.

        `reject` gets rows of the rejects table right before the rows that they came with. `times` sees all
        records.
        """
        see = partial(times.see, piece)
        if self.rules is None:
            yield from self.reader.rows(piece, see)
            return
        for rows, rejected in self.reader.screened(piece, self.rules, see):
            if rejected is not None:
                reject(rejected)
            if rows.num_rows or rejected is not None:
                yield rows


def _at(truncates: pa.RecordBatch, order: int) -> pa.RecordBatch:
    """Truncates with their place in the source."""
    return truncates.append_column(ROW_ORDER, pa.array([order] * truncates.num_rows, pa.int64()))


T = TypeVar("T")


def intake_of(intakes: Mapping[str, T], topic: str) -> T | None:
    """The intake of a topic; None for a topic that is not read."""
    return intakes.get(topic, intakes.get(ANY_TOPIC))
