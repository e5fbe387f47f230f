"""The world of the protocol's model where checkpoints are row deltas: real data files, deletes and a key index in memory.

Row n of the stream changes the key n % 5: it deletes it where n leaves 3 when divided by 4, else it gives it the value n.
So the table holds one value per key, and says by it how far it is.
"""

from __future__ import annotations

import random
from collections import Counter
from typing import Any, cast
from unittest.mock import patch

import pyarrow as pa

from streamlake.catalog.new_tables import TableDefinition
from streamlake.checkpoint.identity import CheckpointIdentity
from streamlake.pipeline.runs.commit_queue import CommitQueue
from streamlake.pipeline.runs.lineage.checkpoint_table import CheckpointTable
from streamlake.pipeline.runs.run_settings import RunSettings
from streamlake.pipeline.runs.sink_run import SinkRun
from streamlake.pipeline.runs.upsert_options import UpsertOptions
from streamlake.pipeline.runs.upsert_run import UpsertRun
from streamlake.records import ROW_KIND, RowKind
from streamlake.spec.types.ddl import parse_ddl
from streamlake.table.table import Table
from streamlake.tables import LoadedTable
from streamlake.write.files.result import WriteResult
from tests.helpers import batch_write, foreign_writers
from tests.helpers.local_appends import LOCATION, Directory, Note
from tests.helpers.local_upserts import bucketed_results
from tests.helpers.memory_files import MemoryFileIO
from tests.helpers.protocol_world import World

_KEYS = 5


class LocalUpsertRun(UpsertRun):
    """An UpsertRun that is given a checkpoint's changes as an Arrow table."""

    def write(self, frame: Any, identity: CheckpointIdentity) -> list[WriteResult]:
        return self.resolve(
            identity, lambda target: bucketed_results(target, frame, self.table.schema, self._options)
        )


class UpsertWorld(World):
    """A World whose streams upsert, `delete_mode` as the sink has it."""

    definition = TableDefinition(parse_ddl("id long not null, v long"), format_version=3)
    delete_mode = "position"

    def due(self, end: int) -> set[int]:
        held = {row % _KEYS: row for row in range(end)}
        return {row for row in held.values() if row % 4 != 3}

    def rows(self, start: int, end: int, files: int) -> Any:
        rows = range(start, end)
        kinds = [RowKind.DELETE if row % 4 == 3 else RowKind.UPDATE_AFTER for row in rows]
        return pa.table(
            {
                "id": pa.array([row % _KEYS for row in rows], pa.int64()),
                "v": pa.array(rows, pa.int64()),
                ROW_KIND: pa.array(kinds, pa.int8()),
            }
        )

    def run_on(
        self, table: Table, directory: Directory, io: MemoryFileIO, queue: CommitQueue | None
    ) -> SinkRun:
        options = UpsertOptions.of(
            table, key=["id"], sequence_by=(), row_kind=None, delete_mode=self.delete_mode, parallelism=1
        )
        return LocalUpsertRun(
            table,
            cast(CheckpointTable, Note(directory, io)),
            None,
            options,
            RunSettings(
                job_id=directory.job_id,
                run_id="run",
                branch="main",
                mode="upsert",
                max_continuous_empty_commits=3,
                queue=queue,
            ),
        )

    def check(self) -> None:
        """The table is as of what Spark was told to be done, or one checkpoint further, exactly."""
        planned = [each.ends[each.committed] for each in self.directories if len(each.ends) > each.committed]
        live = {value for value in self.live() if value >= 0}
        if self.taken or self.blind:
            return
        ends = [self.done, *(end for end in (*planned, *self.once_planned) if end >= self.done)]
        assert any(live == self.due(end) for end in ends), f"{sorted(live)} is the state at none of {ends}"

    def _note_what_is_taken(self) -> None:
        """Rows that a checkpoint had deleted come back, so they count as well."""
        self.taken = self.due(self.done) ^ {value for value in self.live() if value >= 0}

    def lose_power(self, chance: random.Random, *, offsets: int = 0, commits: int = 0) -> None:
        super().lose_power(chance, offsets=offsets, commits=commits)
        self._scanned.clear()

    def append_foreign(self) -> None:
        self._foreign += 1
        row = pa.table({"id": [-self._foreign], "v": [-self._foreign]})
        batch_write.append(self._table(), row)

    def compact(self, first: int) -> None:
        with patch.object(foreign_writers, "open_table", lambda location: self._table()):
            foreign_writers.compact(LOCATION, lambda at: at in (first, first + 1))

    def live(self) -> Counter[int]:
        """How often each value is live. Raises AssertionError when a key has two."""
        head = self._reader.refresh().metadata.current_snapshot_id
        known = self._scanned.get(head)
        if known is None:
            found = LoadedTable(self._reader).scan().to_arrow()
            ids = Counter(found["id"].to_pylist())
            twice = sorted(key for key, times in ids.items() if times > 1)
            assert not twice, f"the keys {twice} are live more than once"
            known = self._scanned[head] = Counter(found["v"].to_pylist())
        return known

    @property
    def _scanned(self) -> dict[int | None, Counter[int]]:
        return self.__dict__.setdefault(f"scanned-{self._tables}", {})
