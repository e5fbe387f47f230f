"""A decoder's result for a raw batch, whatever the format: the rows, and what became no row.

Passed from `decode` to the tasks that write. Invariant: each record of the batch is accounted for. It gave
rows or a truncate, or it is a tombstone, or ignored and counted, or a reject.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

import pyarrow as pa

from streamlake.decode.values.envelope import Array, KeyMove, Reject, Truncate
from streamlake.records import TRUNCATE_BELOW


@dataclass(frozen=True, eq=False)
class Decoded:
    """The rows of a raw batch of n records.

    `rows` has the decoder's schema; for a change stream also ROW_SEQUENCE; MISSING_FIELDS and PLACE where
    values are unavailable or missing; and KEY_CHANGE where rows have a key change. `records` (rows,) int64 is
    the index in `raw` of the record that each row comes from. `moves` are the key changes. `rejects` are the
    records that could not be decoded, where they are kept. `ignored`: reason -> number of records that change
    no row. `nulls`: the records without a value that were left out, of a format whose records are rows. For
    `named` and `table` see Changes.
    """

    raw: pa.RecordBatch
    rows: pa.RecordBatch
    records: Array
    truncates: tuple[Truncate, ...] = ()
    moves: tuple[KeyMove, ...] = ()
    rejects: tuple[Reject, ...] = ()
    ignored: Mapping[str, int] = field(default_factory=dict)
    tombstones: int = 0
    nulls: int = 0
    named: Mapping[str, int] = field(default_factory=dict)
    table: str | None = None

    def truncated(self) -> pa.RecordBatch | None:
        """The truncates as a batch of TRUNCATE_BELOW, for every task that writes the table; None: none."""
        if not self.truncates:
            return None
        positions = pa.array([truncate.sequence for truncate in self.truncates])
        return pa.record_batch([positions], names=[TRUNCATE_BELOW])


class Decoder(Protocol):
    """Decodes the records of one source, batch by batch."""

    schema: pa.Schema

    def decode(self, raw: pa.RecordBatch, *, keep_rejects: bool = False) -> Decoded:
        """The rows of a batch of schema RAW_RECORDS, in the records' order.

        With `keep_rejects`, records that cannot be decoded are listed in `rejects`. Otherwise the first of
        them is raised as a DecodeError that names topic, partition and offset.
        """
        ...
