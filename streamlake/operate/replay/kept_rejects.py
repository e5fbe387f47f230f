"""The rejects of a table for whoever looks after them: listed by cause, shown, dropped, corrected.

`streamlake rejects` uses it. What is changed is committed by the way of the replay's own changes
(`rejects_settling`), onto the snapshot that was read. Invariant: a record is named by its place and the
moment of its rejection, so a change never meets another one; a record that a replay is bringing into the
table is neither dropped nor corrected.
"""

from __future__ import annotations

import re
import uuid
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from streamlake import ids
from streamlake.catalog.open import CatalogOption
from streamlake.checkpoint.identity import CheckpointIdentity
from streamlake.checkpoint.store import staged_by_all_jobs
from streamlake.checkpoint.table_note import NO_CHECKPOINT
from streamlake.decode.rejected_records import REJECTS
from streamlake.errors import CommitConflictError, FencedError, InvalidOptionError, LineageError
from streamlake.formats.arrow.arrow_schema import schema_to_arrow
from streamlake.on_progress import OnProgress, unseen
from streamlake.operate.replay.rejects_settling import Change, rewrite
from streamlake.operate.replay.replay_plan import places, planned_places
from streamlake.pipeline.runs.rejected.rejects_table import open_rejects
from streamlake.read.natural_values import EPOCH_UTC
from streamlake.read.scan import TableScan
from streamlake.records import CUT_HEADER, place_text
from streamlake.table.table import Table

EDITED = "the value was replaced with `streamlake rejects edit`, and is not replayed yet; before that: "
_PLACE = re.compile(r"(?P<topic>.+)-(?P<partition>\d+)(?::| offset )(?P<offset>\d+)")
_VALUES = (
    (re.compile(r'"(?:[^"\\]|\\.)*"'), '"…"'),
    (re.compile(r"(?<![\w(,.'])[-+]?\d[\d.,:]*(?<![.,:])"), "N"),
)
_ORDER = ("rejected_at", "topic", "partition", "offset")
_PIPELINE = "streamlake rejects"


@dataclass(frozen=True)
class Cause:
    """The rejects with one cause: `text` is their message without the records' own values.

    `first` is the place of the oldest one, `example` its whole message. `since` and `until` are when the
    first and the last of them were rejected.
    """

    text: str
    error: str
    records: int
    topics: tuple[str, ...]
    first: str
    example: str
    since: datetime | None
    until: datetime | None


@dataclass(frozen=True)
class KeptRejects:
    """Some rejects of a table. `rows` are rows of its rejects table, the oldest first."""

    table: str
    rejects: Table | None
    rows: pa.Table = field(repr=False)

    @property
    def name(self) -> str | None:
        """The name of the rejects table; None where there is none."""
        return None if self.rejects is None else self.rejects.name

    def causes(self) -> list[Cause]:
        """The causes, the most frequent first."""
        found: dict[tuple[str, str], list[int]] = {}
        errors = self.rows.column("error_class").to_pylist()
        messages = self.rows.column("error_message").to_pylist()
        for number, (error, message) in enumerate(zip(errors, messages, strict=True)):
            found.setdefault((error, cause_of(message)), []).append(number)
        causes = [self._cause(error, text, numbers) for (error, text), numbers in found.items()]
        return sorted(causes, key=lambda cause: -cause.records)

    def records(self) -> list[dict[str, Any]]:
        """The records as mappings, with times in UTC."""
        moments = ("timestamp", "rejected_at")
        numbers = {name: self.rows.column(name).cast(pa.int64()).to_pylist() for name in moments}
        plain = self.rows.drop_columns(list(moments)).to_pylist()
        return [
            {**row, **{name: _moment(values[at]) for name, values in numbers.items()}}
            for at, row in enumerate(plain)
        ]

    def drop(self, on_progress: OnProgress = unseen) -> int:
        """Remove these records; gives their number. Raises CommitConflictError."""
        if self.rejects is None or not self.rows.num_rows:
            return 0
        gone = places(self.rows)
        self._require_not_planned(gone)
        self._commit("drop", partial(_without, gone), on_progress)
        return int(self.rows.num_rows)

    def edit(self, value: bytes, on_progress: OnProgress = unseen) -> None:
        """Replace the value of the one record that there is, so that the next replay decodes the new one.

        Raises InvalidOptionError where there is none, or several; CommitConflictError.
        """
        found = [place_text(*each) for each in self._positions()]
        if not found:
            raise InvalidOptionError(
                f"{self.name or self.table}: there is no such record; `streamlake rejects show` shows all"
            )
        if len(found) > 1:
            raise InvalidOptionError(
                f"{self.name}: {', '.join(found[:3])}: these are {len(found)} records; name one, with "
                "--where too if it was rejected more than once"
            )
        self._require_not_planned(places(self.rows))
        self._commit("edit", partial(_with_value, places(self.rows), value), on_progress)

    def _cause(self, error: str, text: str, numbers: Sequence[int]) -> Cause:
        rows = self.rows.take(pa.array(numbers))
        first = rows.slice(0, 1).select(["topic", "partition", "offset", "error_message"]).to_pylist()[0]
        times = rows.column("rejected_at").cast(pa.int64()).to_pylist()
        return Cause(
            text,
            error,
            len(numbers),
            tuple(name for name, _ in Counter(rows.column("topic").to_pylist()).most_common()),
            place_text(first["topic"], first["partition"], first["offset"]),
            first["error_message"],
            _moment(min(times)),
            _moment(max(times)),
        )

    def _positions(self) -> list[tuple[str, int, int]]:
        names = ("topic", "partition", "offset")
        return list(zip(*(self.rows.column(name).to_pylist() for name in names), strict=True))

    def _require_not_planned(self, wanted: pa.Array) -> None:
        """Raises CommitConflictError where a replay that is at work, or has died, has chosen a record."""
        assert self.rejects is not None
        planned = planned_places(staged_by_all_jobs(self.rejects.io, self.rejects.locations))
        if pc.any(pc.is_in(wanted, pa.array(sorted(planned), pa.string())), min_count=0).as_py():
            raise CommitConflictError(
                f"{self.rejects.name}: a replay is bringing such a record into the table, or has died while "
                "it did: run `streamlake replay-rejects` to its end first. Nothing was changed"
            )

    def _commit(self, what: str, change: Change, on_progress: OnProgress) -> None:
        assert self.rejects is not None
        job_id = f"rejects-{uuid.uuid5(uuid.UUID(self.rejects.uuid), _PIPELINE)}"
        # The digest distinguishes what two commands do at the same time.
        ends = (f"{what} {ids.new_uuid()}",)
        identity = CheckpointIdentity(_PIPELINE, job_id, NO_CHECKPOINT, end_offsets=ends)
        self.rejects.refresh()
        try:
            rewrite(self.rejects, identity, change, "nothing was changed; run the command again", on_progress)
        except (FencedError, LineageError) as error:
            raise CommitConflictError(
                f"{self.rejects.name}: somebody else was changing the rejects at the same time, and was "
                "faster; nothing was changed, run the command again"
            ) from error


def kept_rejects(
    table: str,
    catalog: CatalogOption = None,
    *,
    pipeline: str | None = None,
    where: str | None = None,
    named: Sequence[str] = (),
    limit: int | None = None,
) -> KeptRejects:
    """The rejects of a table: those of `pipeline` (None: of all) for which the filter `where` is true.

    `named` are places such as "orders-0:17"; then only these. The oldest `limit` of them. Raises
    InvalidOptionError for a filter or a place that cannot be read.
    """
    asked = [parsed_place(text) for text in named]
    rejects = open_rejects(table, catalog)
    if rejects is None:
        return KeptRejects(table, None, schema_to_arrow(REJECTS, field_ids=False).empty_table())
    rows = TableScan(rejects, where).to_arrow()
    if pipeline is not None:
        rows = rows.filter(pc.equal(rows.column("pipeline"), pipeline))
    if asked:
        positions = zip(
            *(rows.column(name).to_pylist() for name in ("topic", "partition", "offset")), strict=True
        )
        rows = rows.filter(pa.array([each in asked for each in positions], pa.bool_()))
    rows = rows.sort_by([(name, "ascending") for name in _ORDER])
    return KeptRejects(table, rejects, rows if limit is None else rows.slice(0, limit))


def parsed_place(text: str) -> tuple[str, int, int]:
    """Topic, partition and offset in "orders-0:17", or in "orders-0 offset 17" as messages have it.

    Raises InvalidOptionError.
    """
    match = _PLACE.fullmatch(text.strip())
    if match is None:
        raise InvalidOptionError(
            f"'{text}' names no record: give topic, partition and offset, such as orders-0:17"
        )
    return match["topic"], int(match["partition"]), int(match["offset"])


def cause_of(message: str) -> str:
    """A message without the record's own values: what is the same for all records of the same cause."""
    if message.startswith(EDITED):
        return f"{EDITED}{cause_of(message.removeprefix(EDITED))}"
    for pattern, instead in _VALUES:
        message = pattern.sub(instead, message)
    return message


def _without(gone: pa.Array, rows: pa.Table, at: pa.Array) -> pa.Table | None:
    chosen = pc.is_in(at, gone)
    return rows.filter(pc.invert(chosen)) if pc.any(chosen, min_count=0).as_py() else None


def _with_value(place: pa.Array, value: bytes, rows: pa.Table, at: pa.Array) -> pa.Table | None:
    chosen = pc.is_in(at, place)
    if not pc.any(chosen, min_count=0).as_py():
        return None
    edited = rows.filter(chosen)
    messages = [
        message if message.startswith(EDITED) else f"{EDITED}{message}"
        for message in edited.column("error_message").to_pylist()
    ]
    # The whole value is there now, also of a record that was too large to be kept.
    headers = [
        None if each is None else [header for header in each if header["key"] != CUT_HEADER]
        for each in edited.column("headers").to_pylist()
    ]
    news = {"value": [value] * edited.num_rows, "error_message": messages, "headers": headers}
    for name, column in news.items():
        part = edited.schema.field(name)
        edited = edited.set_column(edited.column_names.index(name), part, pa.array(column, part.type))
    return pa.concat_tables([rows.filter(pc.invert(chosen)), edited])


def _moment(microseconds: int | None) -> datetime | None:
    return None if microseconds is None else EPOCH_UTC + timedelta(microseconds=microseconds)
