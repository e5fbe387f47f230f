"""Screens records: each one becomes rows that fit the table, or a row of the rejects table.

It runs in the tasks that read, and where rejects are replayed. Invariant: a record gives all of its rows or
is a reject; none is dropped.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from streamlake.decode.cdc.row_kinds import known_row_kinds
from streamlake.decode.rejected_records import RejectStamp, rejected_rows
from streamlake.decode.values.decoded import Decoded, Decoder
from streamlake.decode.values.envelope import Reject
from streamlake.errors import NoRejectsTableError, SchemaMismatchError, TooManyRejectsError
from streamlake.formats.arrow.missing_fields import missing_field_masks
from streamlake.records import MISSING_FIELDS, RowKind, place_text, record_place
from streamlake.spec.types.schema import Schema
from streamlake.write.rows.row_violations import ViolationCheck
from streamlake.write.target.target import WriteTarget
from streamlake.write.upsert.upsert_target import UpsertTarget

Array = Any  # numpy array

SHOWN = 3


@dataclass(frozen=True)
class RejectRules:
    """What a task needs in order to quarantine records that cannot become rows of a table with `schema`.

    `key`, `sequence_by` and `whole_row`: see ViolationCheck. `row_kind` is the rows' column with row kinds. A
    checkpoint may have `most` rejects (None: any number). `table` names the table in errors.
    """

    table: str
    schema: Schema
    stamp: RejectStamp
    key: tuple[str, ...] = ()
    sequence_by: tuple[str, ...] = ()
    whole_row: bool = False
    row_kind: str | None = None
    most: int | None = None


def reject_rules(
    target: WriteTarget | UpsertTarget, row_kind: str | None, stamp: RejectStamp, most: int | None = None
) -> RejectRules:
    """The rules for tasks that write `target`; `row_kind` is the column with row kinds in their rows."""
    if not isinstance(target, UpsertTarget):
        return RejectRules(target.location, target.schema, stamp, most=most)
    return RejectRules(
        target.table.location,
        target.table.schema,
        stamp,
        key=tuple(target.key.columns),
        sequence_by=tuple(target.key.sequence_by),
        whole_row=target.whole_row,
        row_kind=row_kind,
        most=most,
    )


class RowScreen:
    """Applies the rules to the decoded batches of one task, and counts the rejects."""

    def __init__(self, rules: RejectRules) -> None:
        self._rules = rules
        self._misfits = ViolationCheck(
            rules.schema, key=rules.key, sequence_by=rules.sequence_by, whole_row=rules.whole_row
        )
        self.rejected = 0

    def screened(self, decoded: Decoded) -> Decoded:
        """The batch with every record whose rows do not fit the table moved to its rejects.

        Raises TooManyRejectsError as soon as this task alone has more rejects than a checkpoint may have.
        """
        decoded = self.fitting(decoded)
        self.rejected += len(decoded.rejects)
        if self._rules.most is not None and self.rejected > self._rules.most:
            named = [(record_place(decoded.raw, reject.record), reject.reason) for reject in decoded.rejects]
            raise too_many_rejects(self._rules.table, self.rejected, self._rules.most, named, or_more=True)
        return decoded

    def rejects_of(self, decoded: Decoded) -> pa.RecordBatch | None:
        """The rejects as rows of the rejects table; None where there are none.

        The raw batch must have all its parts.
        """
        if not decoded.rejects:
            return None
        return rejected_rows(decoded.raw, decoded.rejects, self._rules.stamp)

    def fitting(self, decoded: Decoded) -> Decoded:
        """The batch of `screened`, without counting its rejects."""
        rows, removes = decoded.rows, None
        reasons: dict[int, str] = {}
        if self._rules.row_kind is not None:
            column = rows.column(self._rules.row_kind)
            kinds, reasons = known_row_kinds(column, f"column '{self._rules.row_kind}'")
            codes = kinds.to_numpy(zero_copy_only=False)
            removes = (codes == RowKind.UPDATE_BEFORE) | (codes == RowKind.DELETE)
        unset = (
            missing_field_masks(rows.column(MISSING_FIELDS)) if MISSING_FIELDS in rows.schema.names else {}
        )
        for row, reason in self._misfits.find(rows, removes, unset).items():
            reasons.setdefault(row, reason)
        if not reasons:
            return decoded
        wrong: dict[int, str] = {}
        for row in sorted(reasons):
            wrong.setdefault(int(decoded.records[row]), reasons[row])
        kept = ~np.isin(decoded.records, list(wrong))
        rejects = [
            *decoded.rejects,
            *(Reject(record, reason, SchemaMismatchError.__name__) for record, reason in wrong.items()),
        ]
        places = np.cumsum(kept) - 1
        return replace(
            decoded,
            rows=rows.filter(pa.array(kept)),
            records=decoded.records[kept],
            moves=tuple(replace(move, row=int(places[move.row])) for move in decoded.moves if kept[move.row]),
            rejects=tuple(sorted(rejects, key=lambda reject: reject.record)),
        )

    def fitting_rows(self, decoded: Decoded) -> Array:
        """(rows,) bool: the rows of records that fit."""
        found: Array = np.isin(decoded.records, self.fitting(decoded).records)
        return found


class RecordScreen(RowScreen):
    """Applies the rules to raw batches: decodes and screens them."""

    def __init__(self, decoder: Decoder, rules: RejectRules) -> None:
        super().__init__(rules)
        self._decoder = decoder

    def decode(self, raw: pa.RecordBatch) -> Decoded:
        """Decode a batch of schema RAW_RECORDS with `keep_rejects`, see Decoder, and screen it."""
        return self.screened(self._decoder.decode(raw, keep_rejects=True))


def too_many_rejects(
    table: str, count: int, most: int, named: Sequence[tuple[str, str]], *, or_more: bool = False
) -> TooManyRejectsError:
    """The error for a checkpoint with too many rejects; `named` are (place, reason) of some of them."""
    first = "; ".join(f"{place}: {reason}" for place, reason in named[:SHOWN])
    return TooManyRejectsError(
        f"{table}: {count}{' or more' if or_more else ''} records of this checkpoint cannot become rows, and "
        f"max_rejects allows {most}: nothing of the checkpoint was committed. The first are {first}. Correct "
        "the schema or the producer, or raise max_rejects to let them go to the rejects table"
    )


def no_rejects_table(rows: pa.RecordBatch) -> NoRejectsTableError:
    """The error for the first rows of a rejects table that does not exist yet."""
    first = rows.slice(0, 1).to_pylist()[0]
    place = place_text(first["topic"], first["partition"], first["offset"])
    return NoRejectsTableError(f"{place}: {first['error_message']}")
