"""Decoder of any envelope: raw record batches -> changes, in bulk, and record by record where bulk fails.

Runs on the executors between `source` and `write`, once per raw batch. A block that fails is split at the
record that Arrow's reader names, or halved, until the records that cannot be read in bulk stand alone. Only
those records cost Python time. Invariant: as in `envelope`: no record is dropped without a trace.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamlake.decode.cdc.change_parts import changes_schema, joined, part_of_outcomes
from streamlake.decode.cdc.source_tables import OTHER_TABLE, TableCheck
from streamlake.decode.json.json_columns import blocks
from streamlake.decode.values.envelope import Array, Changes, Envelope, KeyMove, Outcome, Records, Reject
from streamlake.decode.values.record_limits import RecordLimits
from streamlake.decode.values.text_columns import NotBulkError
from streamlake.errors import DecodeError
from streamlake.records import record_place
from streamlake.spec.types.schema import Schema

_BLOCK_BYTES = 64 << 20
_ALONE = 8
_NEAR = 64
_SHOWN = 200
NEW_KEY_HEADER = "__debezium.newkey"
OLD_KEY_HEADER = "__debezium.oldkey"


class EnvelopeDecoder:
    """Decodes what `envelope` reads to the columns of `schema`."""

    def __init__(
        self,
        schema: Schema,
        envelope: Envelope,
        limits: RecordLimits | None = None,
        check: TableCheck | None = None,
    ) -> None:
        self.schema: pa.Schema = changes_schema(schema)
        self._envelope = envelope
        self._limits = limits or RecordLimits()
        self._check = check or TableCheck()

    def decode(self, raw: pa.RecordBatch, *, keep_rejects: bool = False) -> Changes:
        """The changes of a batch of schema RAW_RECORDS.

        With `keep_rejects`, records that cannot be decoded are listed in `rejects`. Otherwise the first of
        them is raised as a DecodeError that names topic, partition and offset.
        """
        with self._limits.applied():
            return self._decoded(raw, keep_rejects)

    def _decoded(self, raw: pa.RecordBatch, keep_rejects: bool) -> Changes:
        records = Records.of(raw)
        parts: list[Changes] = []
        large = self._limits.too_large(raw)
        if large:
            beyond = [Reject(place, large[place]) for place in sorted(large)]
            parts.append(part_of_outcomes([], beyond, self.schema))
            records = records.take(np.flatnonzero(~np.isin(records.places, list(large))))
        records, others, named = self._wanted(records)
        for low, high in blocks(records.values, _BLOCK_BYTES):
            self._block(records, low, high, parts)
        tombstones = np.flatnonzero(raw.column("value").is_null().to_numpy(zero_copy_only=False))
        if large:
            tombstones = np.setdiff1d(tombstones, list(large))
        if len(tombstones):
            parts.append(self._tombstones(raw, tombstones))
        changes = joined(parts, self.schema)
        if changes.rejects and not keep_rejects:
            first = changes.rejects[0]
            raise record_error(raw, first.record, first.reason)
        return replace(
            changes,
            tombstones=len(tombstones),
            moves=_moves(raw, changes),
            ignored=Counter(changes.ignored) + Counter({OTHER_TABLE: others}),
            named=named,
            table=self._check.said,
        )

    def _wanted(self, records: Records) -> tuple[Records, int, dict[str, int]]:
        """The records to decode, the number of records skipped, and {table: number of records}.

        Records of tables that are skipped may look like anything.
        """
        if not self._check.is_filter or not len(records):
            return records, 0, {}
        names = self._names(records)
        passed = self._check.unwanted(names)
        return records.take(np.flatnonzero(~passed)), int(passed.sum()), self._check.counted(names)

    def _names(self, records: Records) -> pa.StringArray:
        """The names of the records' tables; null where a record cannot be read."""
        try:
            with self._limits.unbounded().applied():
                return self._envelope.tables(records).cast(pa.string())
        except (NotBulkError, ValueError):
            middle = len(records) // 2
            if not middle:
                return pa.nulls(1, pa.string())
            halves = (records.slice(0, middle), records.slice(middle, len(records)))
            return pa.concat_arrays([self._names(half) for half in halves])

    def _tombstones(self, raw: pa.RecordBatch, places: Array) -> Changes:
        outcomes: list[tuple[int, Outcome]] = []
        rejects = []
        keys = raw.column("key")
        for place in places:
            try:
                outcome = self._envelope.tombstone(keys[int(place)].as_py())
            except ValueError as error:
                rejects.append(Reject(int(place), str(error)))
            else:
                if outcome is not None:
                    outcomes.append((int(place), outcome))
        return part_of_outcomes(outcomes, rejects, self.schema)

    def _block(self, records: Records, low: int, high: int, parts: list[Changes]) -> None:
        waiting = [(low, high)]
        size = high - low
        while waiting:
            low, high = waiting.pop()
            if high - low > size:
                waiting.append((low + size, high))
                high = low + size
            if high - low > _ALONE:
                try:
                    parts.append(self._envelope.bulk(records.slice(low, high)))
                except (NotBulkError, ValueError) as error:
                    waiting += reversed(_split(low, high, error))
                    # Where one record fails, others may be near: the records after it are tried in pieces
                    # that grow again.
                    size = max(_NEAR, (high - low) // 2)
                else:
                    size *= 2
            elif high > low:
                parts.append(one_by_one(self._envelope, records.slice(low, high), self.schema))


def one_by_one(envelope: Envelope, records: Records, schema: pa.Schema) -> Changes:
    """The changes of records decoded one by one, with the rejects among them."""
    outcomes: list[tuple[int, Outcome]] = []
    rejects = []
    for at in range(len(records)):
        place = int(records.places[at])
        try:
            outcomes.append((place, envelope.one(records.values[at].as_py(), records.key(at))))
        except ValueError as error:
            rejects.append(Reject(place, str(error)))
    return part_of_outcomes(outcomes, rejects, schema)


def record_error(raw: pa.RecordBatch, at: int, reason: str) -> DecodeError:
    """The error for the record at index `at` of a batch of schema RAW_RECORDS."""
    value = raw.column("value")[at].as_py() or b""
    shown = value[:_SHOWN].decode("utf-8", "replace") + ("..." if len(value) > _SHOWN else "")
    return DecodeError(
        f"{record_place(raw, at)}: {reason}. Correct the schema or the producer; the record is {shown!r}"
    )


def _split(low: int, high: int, error: Exception) -> Sequence[tuple[int, int]]:
    """The parts to try after a failure. The record that the reader names is tried with few neighbours."""
    named = error.row if isinstance(error, NotBulkError) else None
    alone: list[tuple[int, int]] = []
    if named is not None and low + named < high:
        # The records after it are halved: the reader may have meant another record, which is then still
        # found.
        at = low + named
        alone = [(low, at), (at, at + 1)]
        low = at + 1
    middle = (low + high) // 2
    return [*alone, (low, middle), (middle, high)]


def _moves(raw: pa.RecordBatch, changes: Changes) -> tuple[KeyMove, ...]:
    """The key changes that headers report. They are few, so each is read on its own."""
    headers = raw.column("headers")
    entries = headers.flatten()
    if not len(entries) or not changes.rows.num_rows:
        return ()
    named = pc.is_in(entries.field("key"), pa.array([NEW_KEY_HEADER, OLD_KEY_HEADER]))
    chosen = np.flatnonzero(named.to_numpy(zero_copy_only=False))
    if not len(chosen):
        return ()
    parents = np.unique(pc.list_parent_indices(headers).to_numpy()[chosen])
    moves = []
    for row in np.flatnonzero(np.isin(changes.records, parents)):
        found = {one["key"]: one["value"] for one in headers[int(changes.records[row])].as_py()}
        moves.append(KeyMove(int(row), found.get(OLD_KEY_HEADER), found.get(NEW_KEY_HEADER)))
    return tuple(moves)
