"""The input of the crash matrix: numbered checkpoints of changes, where they land, and what a table must hold of them.

Everything follows from a checkpoint's number, so the oracle needs no record of what was sent.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from streamlake import create_table
from streamlake.catalog.open import open_table
from streamlake.spec.metadata.snapshot import Snapshot
from streamlake.table.table import Table
from tests.helpers.batch_write import append
from tests.helpers.file_times import set_turn

if TYPE_CHECKING:
    from tests.helpers.broker import KafkaBroker

DDL = "op string, id bigint, part int, payload string"
ROWS = 200
KEYS = 90
PARTS = 2
FOREIGN = "crash-matrix.foreign"
"""In the summary of another writer's snapshot: the checkpoint during which it was made."""
APPEND = "append"
DAMAGED_AT = 50
"""Where a part's damaged record is among those of a checkpoint."""

Row = tuple[int, int, str]
"""id, part, payload."""


class Change(NamedTuple):
    """One change; `part` is the key's, because equality deletes reach no other partition."""

    op: str
    id: int
    part: int
    payload: str


def changes(checkpoint: int, mode: str) -> list[Change]:
    """The changes of a checkpoint in their order, as many in each part; a key comes several times, unless it is one
    that is appended."""
    return list(_changes(checkpoint, mode))


def _changes(checkpoint: int, mode: str) -> Iterator[Change]:
    for at in range(ROWS):
        payload = f"{checkpoint}-{at}-{(checkpoint * ROWS + at) * 2654435761 % 2**32:x}"
        if mode == APPEND:
            yield Change("+I", checkpoint * ROWS + at, at % PARTS, payload)
            continue
        key = (checkpoint * 31 + at * 7) % (KEYS // PARTS) * PARTS + at % PARTS
        kind = "-D" if (key + checkpoint + at) % 7 == 0 else "+U"
        yield Change(kind, key, at % PARTS, payload)


def foreign_rows(checkpoint: int) -> list[Row]:
    """What another writer appends while a checkpoint waits to be committed: a row that nobody else touches, and one of
    a key that the checkpoint changes."""
    changed = changes(checkpoint, "upsert")[0]
    return [(-1 - checkpoint, 0, f"foreign {checkpoint}"), (changed.id, changed.part, f"stale {checkpoint}")]


def committed_ids(table: Table) -> list[int]:
    """The checkpoints in a table's history, oldest snapshot first."""
    name = "streamlake.max-committed-checkpoint-id"
    return [int(each.summary[name]) for each in table.snapshots if name in each.summary]


def inputs_taken(table: Table) -> int:
    """How many of the numbered inputs are in a table."""
    return 1 + max((_last_input(each) for each in table.snapshots if FOREIGN not in each.summary), default=-1)


def _last_input(snapshot: Snapshot) -> int:
    """The newest input of a checkpoint. That of a folder may have two: when a driver dies between the log of the source and
    that of the query, the next one plans more."""
    offsets = json.loads(snapshot.summary.get("streamlake.end-offsets", "[]"))
    offset = json.loads(offsets[0]) if offsets and offsets[0] else {}
    checkpoint = int(snapshot.summary["streamlake.max-committed-checkpoint-id"])
    if "step" in offset:
        return int(offset["step"]) - 1
    return int(offset.get("logOffset", checkpoint))


def expected_rows(table: Table, mode: str, found: Collection[Row] = ()) -> list[Row]:
    """What a table with this history holds, sorted: its snapshots' changes, one after the other.

    Of several files in one checkpoint Spark says which is read first, not their names or times: where both change a key, `found`
    decides which of the two ends is the right one.
    """
    rows: dict[int, list[Row]] = {}
    ends: dict[int, list[list[Row]]] = {}
    taken = 0
    for snapshot in table.snapshots:
        if FOREIGN in snapshot.summary:
            for row in foreign_rows(int(snapshot.summary[FOREIGN])):
                rows.setdefault(row[0], []).append(row)
            continue
        last = _last_input(snapshot)
        choices: dict[int, list[list[Row]]] = {}
        for number in range(taken, last + 1):
            after: dict[int, list[Row]] = {}
            for change in changes(number, mode):
                row = (change.id, change.part, change.payload)
                after[change.id] = [] if change.op == "-D" else [row]
            for key, left in after.items():
                choices.setdefault(key, []).append(left)
                rows[key] = list(left)
        ends.update(choices)
        taken = last + 1
    seen = set(found)
    for key, choices in ends.items():
        own = [row for row in rows[key] if row not in choices[-1]]  # of other writers, after the checkpoint
        present = [left for left in choices if left and seen.issuperset(left)]
        absent = [left for left in choices if not left]
        if len(choices) > 1 and not seen.issuperset(choices[-1] or [(key, -1, "")]):
            rows[key] = [*(present or absent or [choices[-1]])[0], *own]
    return sorted(row for of_key in rows.values() for row in of_key)


@dataclass
class FileInput:
    """A folder of Parquet files, one a checkpoint."""

    folder: Path
    mode: str
    landed: int = 0

    def land(self, until: int) -> None:
        """See to it that the checkpoints before `until` are there."""
        self.folder.mkdir(parents=True, exist_ok=True)
        for number in range(self.landed, until):
            target = self.folder / f"{number:05d}.parquet"
            hidden = target.with_name(f".{target.name}")
            pq.write_table(_table(changes(number, self.mode)), hidden)
            set_turn(hidden, number)
            hidden.rename(target)
        self.landed = max(self.landed, until)

    def rejected(self, checkpoints: int) -> list[tuple[int, int]]:
        """None: files have no damaged records."""
        return []

    def to_json(self) -> dict[str, Any]:
        return {"landing": str(self.folder)}


@dataclass
class KafkaInput:
    """A topic with one partition per part; a checkpoint takes as many records from each, of which one may be `damaged`."""

    broker: KafkaBroker
    topic: str
    mode: str
    landed: int = 0
    damaged: bool = False

    def land(self, until: int) -> None:
        for part in range(PARTS) if until > self.landed else ():
            records = [each for number in range(self.landed, until) for each in self._of_part(number, part)]
            self.broker.produce(self.topic, records, partition=part)
        self.landed = max(self.landed, until)

    def _of_part(self, number: int, part: int) -> list[bytes]:
        every = changes(number, self.mode)
        records = [json.dumps(each._asdict()).encode() for each in every if each.part == part]
        if self.damaged:
            records.insert(DAMAGED_AT, records[DAMAGED_AT][:-1])
        return records

    def rejected(self, checkpoints: int) -> list[tuple[int, int]]:
        """Partition and offset of each damaged record of so many checkpoints."""
        step = ROWS // PARTS + 1
        return [
            (part, number * step + DAMAGED_AT)
            for part in range(PARTS)
            for number in range(checkpoints)
            if self.damaged
        ]

    def to_json(self) -> dict[str, Any]:
        return {
            "servers": self.broker.bootstrap_servers,
            "topic": self.topic,
            "records": ROWS + PARTS * self.damaged,
            "on-error": "reject" if self.damaged else "fail",
        }


@dataclass
class TableInput:
    """An Iceberg table, a snapshot a checkpoint."""

    location: Path
    mode: str
    landed: int = 0

    def land(self, until: int) -> None:
        """See to it that the snapshots before `until` are there."""
        for number in range(self.landed, until):
            rows = _table(changes(number, self.mode))
            if not number:
                create_table(self.location, rows.schema)
            append(open_table(str(self.location)), rows)
        self.landed = max(self.landed, until)

    def rejected(self, checkpoints: int) -> list[tuple[int, int]]:
        """None: the rows of a table are rows already."""
        return []

    def to_json(self) -> dict[str, Any]:
        return {"upstream": str(self.location)}


def _table(rows: Iterable[Change]) -> pa.Table:
    kinds, keys, parts, payloads = zip(*rows, strict=True)
    return pa.table(
        {
            "op": kinds,
            "id": pa.array(keys, pa.int64()),
            "part": pa.array(parts, pa.int32()),
            "payload": payloads,
        }
    )
