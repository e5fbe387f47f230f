"""What a change-stream envelope (Debezium, Canal, Maxwell) means: the values that every decoder of one gives.

Raw records go in, `Changes` come out, towards `write`. Invariant: each record of a raw batch is accounted for exactly
once: it gave changes, or a truncate, or it is a tombstone, or it is ignored and counted under its reason, or it is a
reject.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from streamlake.errors import DecodeError
from streamlake.formats.byte_slices import without_nulls
from streamlake.records import RowKind

Array = Any  # numpy array


@dataclass(frozen=True)
class Reject:
    """A record that cannot be decoded or converted: its place in the raw batch, and why. `error` is the name of the error
    that would be raised for it."""

    record: int
    reason: str
    error: str = DecodeError.__name__


@dataclass(frozen=True)
class Truncate:
    """All rows of `table` ("database.schema.table" as far as the envelope says) whose sequence is lower are gone.

    `record` is its place in the raw batch; `sequence` is comparable with `Changes.sequence`, or None.
    """

    record: int
    table: str
    sequence: int | None


@dataclass(frozen=True)
class KeyMove:
    """A row that moved to another key, as told by the headers of its record.

    `row` is the change's place in `Changes.rows`. `to_key` is given on the delete of the old key, `from_key` on the
    insert of the new one: the header's value as it came.
    """

    row: int
    from_key: bytes | None
    to_key: bytes | None


@dataclass(frozen=True, eq=False)
class Changes:
    """The changes of one raw batch, n rows in the order of the records; an old row's delete before its new row.

    `rows` has the target's columns, all nullable, and ROW_KIND. `sequence` (n,) int64 orders the changes of a
    key (null where the envelope says nothing, see ROW_SEQUENCE). `records` (n,) int64 is each row's place in the raw batch. `unset`:
    for columns that have any, (n,) bool, true where the envelope does not know the value. `ignored`: reason -> number
    of records that change no row.
    """

    rows: pa.RecordBatch
    sequence: pa.Array
    records: Array
    unset: Mapping[str, Array] = field(default_factory=dict)
    truncates: tuple[Truncate, ...] = ()
    moves: tuple[KeyMove, ...] = ()
    rejects: tuple[Reject, ...] = ()
    ignored: Mapping[str, int] = field(default_factory=dict)
    tombstones: int = 0
    named: Mapping[str, int] = field(default_factory=dict)
    """Table -> how many records name it, whether they are taken or not, where the option `source-tables` says which are."""
    table: str | None = None
    """The table that the records so far say the topic is of, "" where rows name none; None: none says it. See TableCheck."""


@dataclass(frozen=True)
class Change:
    """One change of the slow way: `row` maps columns to values that pyarrow builds the column's array from."""

    kind: RowKind
    row: dict[str, Any]
    sequence: int | None = None
    unset: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Outcome:
    """What one record gives: changes, or a truncate (table and sequence), or the reason why it changes nothing."""

    changes: Sequence[Change] = ()
    truncate: tuple[str, int | None] | None = None
    ignored: str | None = None


@dataclass(frozen=True, eq=False)
class Records:
    """Records with a value: `places` (n,) int64 are their places in the raw batch `raw`."""

    raw: pa.RecordBatch
    places: Array
    values: pa.Array

    def __len__(self) -> int:
        return len(self.places)

    def slice(self, low: int, high: int) -> Records:
        """The records from `low` up to, not including, `high`."""
        return Records(self.raw, self.places[low:high], self.values.slice(low, high - low))

    def take(self, chosen: Array) -> Records:
        """The records at (m,) integer places of these."""
        return Records(self.raw, self.places[chosen], self.values.take(pa.array(chosen, pa.int64())))

    def key(self, at: int) -> bytes | None:
        """The key of the record at place `at` of these."""
        found: bytes | None = self.raw.column("key")[int(self.places[at])].as_py()
        return found

    @staticmethod
    def of(raw: pa.RecordBatch) -> Records:
        """Those records of a batch of RAW_RECORDS that have a value."""
        values = raw.column("value")
        places: Array = np.arange(len(values), dtype=np.int64)
        if values.null_count:
            places = places[values.is_valid().to_numpy(zero_copy_only=False)]
            values = without_nulls(values)
        return Records(raw, places, values)


class Envelope(Protocol):
    """Reads one kind of envelope. Both ways give the same for every record that both can read."""

    def bulk(self, records: Records) -> Changes:
        """All records at once. Called once per block, and for parts of it after a failure.

        Raises NotBulkError or ValueError, which say nothing about any single record.
        """

    def one(self, value: bytes, key: bytes | None) -> Outcome:
        """One record, exactly or not at all. Raises ValueError with the reason."""

    def tables(self, records: Records) -> pa.StringArray:
        """The names of the tables that (n,) records say they are of, empty or null where they name none; see source_tables.

        Raises NotBulkError or ValueError, which say nothing about any single record.
        """

    def tombstone(self, key: bytes | None) -> Outcome | None:
        """What a record without a value means. None: nothing, it is only counted. Raises ValueError."""
