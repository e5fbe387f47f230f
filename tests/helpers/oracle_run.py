"""Carries out a plan of the oracle on a real table, step by step, and compares the two after every commit."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Collection
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pyarrow as pa

from streamlake.catalog.open import create, open_table
from streamlake.checkpoint.committable import Committable
from streamlake.errors import OutdatedValuesError
from streamlake.formats.arrow.missing_fields import missing_fields_column
from streamlake.index.keys import key_codec
from streamlake.index.keys.keys import Keys
from streamlake.maintain.compact.compact_options import CompactSettings
from streamlake.maintain.compact.compaction import rewrite_data_files
from streamlake.maintain.deletes.delete_conversion import convert_deletes
from streamlake.pipeline.runs.upsert_options import UNSET_VALUES
from streamlake.records import MISSING_FIELDS, ROW_KIND, ROW_SEQUENCE
from streamlake.spec.metadata.data_file import FileContent
from streamlake.spec.partitioning.partition_spec import UNPARTITIONED, parse_partition_by
from streamlake.spec.partitioning.sort_order import UNSORTED, parse_sort_by
from streamlake.spec.types.ddl import parse_ddl
from streamlake.tables import load_table
from streamlake.write.upsert import upsert_task
from tests.helpers import foreign_writers
from tests.helpers.invariants import check_table, live_entries
from tests.helpers.local_upserts import LocalUpserts
from tests.helpers.oracle import Change, ChangeModel
from tests.helpers.oracle_plans import (
    GUARDS,
    PLACES,
    Checkpoint,
    Damage,
    Evolve,
    Foreign,
    Plan,
    PlannedRows,
    Restart,
    Step,
    Upgrade,
    bulk,
)
from tests.helpers.readers import rows
from tests.helpers.tables import FAST_CHECKS, FAST_RETRIES

_GAP = 1 << 62


class OracleRun:
    """One plan on a new table at `location`. Raises AssertionError where table and model part."""

    def __init__(self, plan: Plan, location: Path) -> None:
        self.plan = plan
        self.location = str(location)
        schema = parse_ddl(plan.ddl)
        create(
            self.location,
            schema,
            parse_partition_by(list(plan.partition_by), schema) if plan.partition_by else UNPARTITIONED,
            parse_sort_by(list(plan.sort_by), schema) if plan.sort_by else UNSORTED,
            plan.format_version,
            {
                **FAST_RETRIES,
                **FAST_CHECKS,
                "write.format.default": plan.file_format,
                "write.target-file-size-bytes": str(plan.roll_bytes),
                **dict(plan.properties),
                UNSET_VALUES: plan.policy,
            },
        )
        self.rows = PlannedRows(plan, schema)
        self.model = ChangeModel(
            plan.mode,
            bool(plan.sequence_values),
            plan.delete_mode != "equality",
            plan.policy == "reject",
            plan.sequence_values == PLACES,
        )
        self.tasks = plan.tasks
        self.others = 0
        self.stream = self._driver()

    def run(self) -> None:
        with patch.object(upsert_task, "_CHUNK_ROWS", self.plan.chunk_rows), few_hashes(self.plan.spread):
            for step in self.plan.steps:
                self.step(step)
                self.verify()

    def step(self, step: Step) -> None:
        if isinstance(step, Checkpoint):
            self._checkpoint(step)
        elif isinstance(step, Foreign):
            self._foreign(step)
        elif isinstance(step, Restart):
            self.tasks = step.tasks
            self._restart()
        elif isinstance(step, Damage):
            self._damage(step)
            if step.restart:
                self._restart()
        elif isinstance(step, Evolve):
            foreign_writers.evolve(self.location, step.partition_by)
        else:
            assert isinstance(step, Upgrade)
            foreign_writers.upgrade(self.location)

    def verify(self) -> None:
        table = load_table(self.location)
        check_table(table.table, files_exist=True)
        found = rows(table.scan().to_arrow(), "number")
        assert found == rows(self.rows.table(self.model.live()), "number")
        assert table.scan().count() == len(self.model)
        if self.plan.delete_mode != "equality" and table.current_snapshot is not None:
            files = [entry.data_file for entry in live_entries(table.table)]
            assert not [file for file in files if file.content == FileContent.EQUALITY_DELETES]

    def _driver(self, name: str = "pipeline") -> LocalUpserts:
        plan = self.plan
        return LocalUpserts(
            self.location,
            key=plan.key_columns,
            mode=plan.mode,
            delete_mode=plan.delete_mode,
            sequence_by=plan.guard_columns,
            tasks=self.tasks,
            batch_rows=max(plan.chunk_rows // 2, 1),
            pipeline=name,
            job_id=name,
        )

    def _restart(self) -> None:
        checkpoint_id = self.stream.checkpoint_id
        self.stream = self._driver()
        self.stream.checkpoint_id = checkpoint_id

    def _checkpoint(self, step: Checkpoint) -> None:
        numbers = [*step.changes, *(bulk(step.bulk) if step.bulk else ())]
        made = [self.rows.change(*each) for each in numbers]
        changes = [each for each in made if self.model.is_told(each)]
        if self.plan.unset and not self.plan.comes_at_once:
            # What an older change says counts only where the newer one has not been written before.
            changes.sort(key=lambda change: change.row.sequence_value or 0)
        # Of a mark that may be lost, it is left open whether an older one counts.
        truncates = [each for each in step.truncates if each[0] > self.model.untold]
        marks = [(self.rows.mark(sequence_value), place) for sequence_value, place in truncates]
        bounds = [sequence_value for sequence_value, _ in truncates]
        kept = self.model.counting(changes, bounds)
        if self.plan.unset and step.during:
            # A checkpoint that is written again may find what was late to be late no more.
            changes = kept
        decisions = self.model.decide(kept, bounds)

        def between(staged: Committable) -> None:
            for each in step.during:
                if isinstance(each, Damage):
                    self._damage(each, spared=(*staged.runs, staged.index_state or ""))
                elif each.kind != "upsert" or not harmed:
                    self._foreign(each)

        # What another pipeline has deleted may be forgotten with the index, or not.
        harmed = any(isinstance(each, Damage) for each in step.during)
        if step.crash:
            staged = self.stream.stage(self._arrow(changes), marks)
            if staged is not None:
                between(staged[0])
            self._restart()
            self._recover(staged is not None, changes, marks)
        else:
            self.stream.checkpoint(self._arrow(changes), between, marks)
        if self.plan.mode == "changelog":
            decisions = self.model.compared(decisions)
        else:
            decisions = self.model.decide(kept, bounds)
        self.model.apply(decisions)
        if harmed:
            # What finds the damage builds the index again, and with it go the tombstones of this checkpoint too.
            self.model.forget()
        self._save()

    def _recover(self, is_staged: bool, changes: list[Change], marks: list[tuple[int | str, int]]) -> None:
        try:
            assert bool(self.stream.recover()) == is_staged
        except OutdatedValuesError:
            self.stream.checkpoint_id -= 1
            assert self.stream.checkpoint(self._arrow(changes), None, marks) is not None

    def _arrow(self, changes: list[Change]) -> pa.Table:
        table = self.rows.table(
            [
                replace(each.row, values={k: v for k, v in each.row.values.items() if k not in each.unset})
                for each in changes
            ]
        )
        names = sorted({name for each in changes for name in each.unset})
        if names:
            masks = {name: np.array([name in each.unset for each in changes]) for name in names}
            table = table.append_column(MISSING_FIELDS, missing_fields_column(masks, len(changes)))
        if self.plan.sequence_values == PLACES:
            places = pa.array([change.row.sequence_value for change in changes], pa.int64())
            table = table.append_column(ROW_SEQUENCE, places)
        return table.append_column(ROW_KIND, pa.array([int(change.kind) for change in changes], pa.int8()))

    def _foreign(self, step: Foreign) -> None:
        source = random.Random(step.seed)
        if step.kind == "append":
            added = [
                self.rows.row(source.randrange(14), self._guard(source), source.randrange(20))
                for _ in range(source.randrange(1, 9))
            ]
            if self.plan.unset or self.plan.truncates:
                # Of several rows of a key, it is left open which one is replaced, and whose sequence value is the key's.
                added = list({row.key: row for row in added if row.key not in self.model.rows}.values())
            foreign_writers.append_rows(self.location, self.rows.table(added))
            self.model.append(added)
        elif step.kind == "compact":
            self._compact(source)
        elif step.kind == "convert":
            options = {"min-input-files": source.choice((1, 2, 5)), "rewrite-all": source.random() < 0.3}
            convert_deletes(open_table(self.location), options)
        elif step.kind == "delete":
            numbers = [row.number for row in self.model.live()]
            gone = source.sample(numbers, min(source.randrange(1, 6), len(numbers)))
            foreign_writers.delete_rows(self.location, gone, shared=source.random() < 0.5)
            self.model.delete(gone)
        elif step.kind == "upsert":
            self._other_pipeline(source)
        else:
            back = foreign_writers.roll_back(self.location)
            if back is not None:
                self.model.restore(back)
        self._save()

    def _compact(self, source: random.Random) -> None:
        """By streamlake, which leaves a position map, or by a writer that leaves none."""
        if source.random() < 0.4:
            mask = source.choice((-1, -1, source.getrandbits(64)))
            foreign_writers.compact(
                self.location, lambda at: bool(mask >> at & 1), by_row_delta=source.random() < 0.5
            )
            return
        options = {"rewrite-all": "true", "max-file-group-input-files": str(source.choice((2, 3, 100)))}
        if self.plan.roll_bytes < 4:
            # There is no size below and above so small a target, which a compaction asks for.
            options["target-file-size-bytes"] = str(512 * 1024**2)
        if source.random() < 0.4:
            options["max-files-to-rewrite"] = str(source.randrange(1, 4))
        sorting = {"strategy": "sort", "sort_by": ("number desc",)} if source.random() < 0.3 else {}
        rewrite_data_files(load_table(self.location).table, CompactSettings(**sorting, options=options))

    def _other_pipeline(self, source: random.Random) -> None:
        """A checkpoint of another stream into the same table, by the same key and order."""
        made = [
            self.rows.change(*map(source.randrange, (10, 4, GUARDS, 20)))
            for _ in range(source.randrange(1, 7))
        ]
        changes = [replace(each, unset=frozenset()) for each in made if self.model.is_told(each)]
        other = self._driver("other")
        other.checkpoint_id, self.others = self.others, self.others + 1
        self.model.apply(self.model.decide(changes))
        other.checkpoint(self._arrow(changes))

    def _guard(self, source: random.Random) -> int | None:
        if self.plan.sequence_values == PLACES:
            return None
        return source.choice((None, *range(8))) if self.plan.sequence_values else None

    def _save(self) -> None:
        head = load_table(self.location).current_snapshot
        if head is not None:
            self.model.save(head.snapshot_id)

    def _damage(self, step: Damage, spared: Collection[str] = ()) -> None:
        home = Path(self.location, "metadata", "_index")
        damage_index(home, step.kind, random.Random(step.seed), {Path(path) for path in spared})
        self.model.forget()


def damage_index(home: Path, kind: str, source: random.Random, spared: Collection[Path]) -> None:
    """Harm files of the index but those in `spared`; where there is none of the sort, do nothing."""
    if not home.exists():
        return
    files = [path for path in home.rglob("*") if path.is_file() and path not in spared]
    files.sort(key=lambda path: path.stat().st_mtime_ns)
    states = [path for path in files if path.suffix == ".json"]
    runs = [path for path in files if path.suffix != ".json"]
    if kind == "all":
        for path in files:
            path.unlink()
    elif kind == "states":
        for path in states:
            path.unlink()
    elif kind == "run" and runs:
        source.choice(runs).unlink()
    elif kind == "truncate" and files:
        path = source.choice(files)
        path.write_bytes(path.read_bytes()[: source.randrange(path.stat().st_size)])
    elif kind == "flip" and files:
        path = source.choice(files[-3:])
        data = bytearray(path.read_bytes())
        at = source.randrange(len(data))
        data[at] ^= 1 << source.randrange(8)
        written = path.stat().st_mtime_ns
        path.write_bytes(data)
        # A file that has been verified is known by its change time, whose tick is longer than a step of this run.
        os.utime(path, ns=(written, written + 1_000_000))
    elif kind == "older":
        for same in (states, runs):
            if len(same) > 1:
                shutil.copyfile(same[-2], same[-1])


def few_hashes(spread: int) -> AbstractContextManager[object]:
    """Keys that have bytes get one of `spread` hashes (0: their own)."""
    encode = key_codec.KeyCodec.encode

    def colliding(codec: key_codec.KeyCodec, columns: list[pa.Array]) -> Keys:
        keys = encode(codec, columns)
        if keys.data is None or not spread:
            return keys
        return Keys((keys.hashes % np.uint64(spread)) * np.uint64(_GAP), data=keys.data)

    return patch.object(key_codec.KeyCodec, "encode", colliding)
