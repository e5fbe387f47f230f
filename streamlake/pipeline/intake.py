"""Offset ranges -> rows of the tables that they belong to: the first half of every task of the direct path.

Runs on the executors: fetch, decode, say which table and bucket. What goes wrong with the records of one table is told in
their place, so that the others go on. Invariant: rows carry their place in the source (ROW_ORDER), so that no shuffle
loses the order of a partition.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from streamlake.decode.row_kinds import row_kinds
from streamlake.errors import MisplacedKeyError
from streamlake.index.bucketing import Bucketing
from streamlake.index.key_codec import KeyCodec
from streamlake.index.message_key import MessageKey
from streamlake.pipeline.direct_reader import RangeReader
from streamlake.pipeline.key_buckets import key_buckets
from streamlake.pipeline.newest_times import NewestTimes
from streamlake.pipeline.parcels import AHEAD, by_bucket, packed
from streamlake.pipeline.record_screen import RejectRules
from streamlake.records import ROW_KIND, ROW_ORDER, TRUNCATE_BELOW
from streamlake.source.offsets import OffsetRange

Array = Any  # numpy array
Batches = Iterator[pa.RecordBatch]

ANY_TOPIC = ""
"""In a mapping of topics: those that it does not name."""


@dataclass(frozen=True)
class KeyRoute:
    """Where changes of a table go: bucket i to slot `first_slot` + i. `columns` are the key's, in the codec's order;
    `message_key`: see Bucketing.

    `row_kind` is the column with row kinds (None: there is none), which is taken out of the rows unless `keeps_kind`;
    `where` names it in errors.
    """

    first_slot: int
    buckets: int
    columns: tuple[str, ...]
    codec: KeyCodec
    row_kind: str | None
    keeps_kind: bool
    where: str
    message_key: MessageKey | None = None

    def parcels(self, rows: pa.RecordBatch, order: int) -> Batches:
        """Parcels of rows whose first has the place `order` in the source; truncates go to all buckets, ahead of all rows.

        Raises DecodeError for an unknown row kind."""
        if TRUNCATE_BELOW in rows.schema.names:
            for bucket in range(self.buckets):
                yield from packed(self.first_slot + bucket, AHEAD, _at(rows, order))
            return
        for bucket, part in by_bucket(self._placed(rows, order), self._buckets(rows)):
            yield from packed(self.first_slot + bucket, order, part)

    def owned(self, rows: pa.RecordBatch, order: int, bucket: int) -> pa.RecordBatch:
        """Rows that came through a partition whose keys are all in `bucket`, for whoever writes that bucket; otherwise as `parcels`
        takes them.

        Raises MisplacedKeyError where one is of another bucket, DecodeError for an unknown row kind."""
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
    """How the records of a topic become rows of table number `table`. `route` is None where rows are only added.

    `rules`: how records that cannot become rows are set aside (None: they are errors); their rows go to the slot `rejects_slot`
    where there is a `route`.
    """

    table: int
    reader: RangeReader
    route: KeyRoute | None = None
    rules: RejectRules | None = None
    rejects_slot: int | None = None

    def rows(
        self, piece: OffsetRange, reject: Callable[[pa.RecordBatch], None], times: NewestTimes
    ) -> Iterator[pa.RecordBatch]:
        """The rows of a range; those of the rejects table go to `reject`, right before the rows beside which they came.
        `times` sees all of them."""
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
    """Truncates with the place in the source at which they stand."""
    return truncates.append_column(ROW_ORDER, pa.array([order] * truncates.num_rows, pa.int64()))


T = TypeVar("T")


def intake_of(intakes: Mapping[str, T], topic: str) -> T | None:
    """The intake of a topic; None for one that nothing is read of."""
    return intakes.get(topic, intakes.get(ANY_TOPIC))
