"""The common interface and values of change-stream envelopes (Debezium, Canal, Maxwell).

Raw records go in, `Changes` come out, towards `write`. Invariant: each record of a raw batch is accounted for
exactly once. It gave changes or a truncate, or it is a tombstone, or it is ignored and counted under its
reason, or it is a reject.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from streamlake.errors import DecodeError
from streamlake.formats.arrow.byte_slices import without_nulls
from streamlake.records import RowKind

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Reject:
    """A record that cannot be decoded or converted: its index in the raw batch, and the reason.

    `error` is the name of the error that would be raised for it.
    """

    record: int
    reason: str
    error: str = DecodeError.__name__


@dataclass(frozen=True)
class Truncate:
    """All rows of `table` with a lower sequence are deleted.

    `table` is "database.schema.table" as far as the envelope says. `record` is the truncate's index in the
    raw batch; `sequence` is comparable with `Changes.sequence`, or None.
    """

    record: int
    table: str
    sequence: int | None


@dataclass(frozen=True)
class KeyMove:
    """A key change: a row that moved to another key, as the headers of its record report it.

    `row` is the change's index in `Changes.rows`. The delete of the old key has `to_key`, the insert of the
    new one `from_key`: the header's value as it came.
    """

    row: int
    from_key: bytes | None
    to_key: bytes | None


@dataclass(frozen=True, eq=False)
class Changes:
    """The changes of one raw batch: n rows in the order of the records, a delete before its new row.

    `rows` has the target's columns, all nullable, and ROW_KIND. `sequence` (n,) int64 orders the changes of a
    key (null where the envelope has none, see ROW_SEQUENCE). `records` (n,) int64 is each row's index in the
    raw batch. `missing`: for columns with unavailable values or missing fields, (n,) bool, true where the
    envelope does not have the value. `ignored`: reason -> number of records that change no row.
    """

    rows: pa.RecordBatch
    sequence: pa.Array
    records: Array
    missing: Mapping[str, Array] = field(default_factory=dict)
    truncates: tuple[Truncate, ...] = ()
    moves: tuple[KeyMove, ...] = ()
    rejects: tuple[Reject, ...] = ()
    ignored: Mapping[str, int] = field(default_factory=dict)
    tombstones: int = 0
    named: Mapping[str, int] = field(default_factory=dict)
    """Table -> number of records that name it, decoded or not, with the option `source-tables`."""
    table: str | None = None
    """The topic's table by the records so far, "" where rows name none; None: no record says it.

    See TableCheck.
    """


@dataclass(frozen=True)
class Change:
    """A change of the record-by-record path: `row` maps columns to values that pyarrow makes arrays of."""

    kind: RowKind
    row: dict[str, Any]
    sequence: int | None = None
    missing: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Outcome:
    """What a record gives: changes, a truncate (table and sequence), or the reason why it changes nothing."""

    changes: Sequence[Change] = ()
    truncate: tuple[str, int | None] | None = None
    ignored: str | None = None


@dataclass(frozen=True, eq=False)
class Records:
    """Records with a value: `places` (n,) int64 are their indexes in the raw batch `raw`."""

    raw: pa.RecordBatch
    places: Array
    values: pa.Array

    def __len__(self) -> int:
        return len(self.places)

    def slice(self, low: int, high: int) -> Records:
        """The records from `low` up to, not including, `high`."""
        return Records(self.raw, self.places[low:high], self.values.slice(low, high - low))

    def take(self, chosen: Array) -> Records:
        """The records at (m,) integer indexes of these."""
        return Records(self.raw, self.places[chosen], self.values.take(pa.array(chosen, pa.int64())))

    def key(self, at: int) -> bytes | None:
        """The key of the record at index `at` of these."""
        found: bytes | None = self.raw.column("key")[int(self.places[at])].as_py()
        return found

    @staticmethod
    def of(raw: pa.RecordBatch) -> Records:
        """The records of a batch of RAW_RECORDS that have a value."""
        values = raw.column("value")
        places: Array = np.arange(len(values), dtype=np.int64)
        if values.null_count:
            places = places[values.is_valid().to_numpy(zero_copy_only=False)]
            values = without_nulls(values)
        return Records(raw, places, values)


class Envelope(Protocol):
    """Reads one kind of envelope. `bulk` and `one` give the same for every record that both can read."""

    def bulk(self, records: Records) -> Changes:
        """The changes of all records at once. Called once per block, and for parts of it after a failure.

        Raises NotBulkError or ValueError, which do not identify a single record.
        """

    def one(self, value: bytes, key: bytes | None) -> Outcome:
        """The outcome of one record, exact or not at all. Raises ValueError with the reason."""

    def tables(self, records: Records) -> pa.StringArray:
        """The table names of (n,) records, empty or null where they name none; see `source_tables`.

        Raises NotBulkError or ValueError, which do not identify a single record.
        """

    def tombstone(self, key: bytes | None) -> Outcome | None:
        """What a record without a value means. None: nothing, it is only counted. Raises ValueError."""
