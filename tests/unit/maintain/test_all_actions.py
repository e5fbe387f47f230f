"""All actions of maintenance beside a stream, also in the middle of one another: rows, lineage and changes stay right."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from streamlake.errors import ConflictValidationError
from streamlake.maintain.compact.compaction import rewrite_data_files
from streamlake.maintain.compact.group_rewrite import RewrittenGroup
from streamlake.maintain.deletes.delete_conversion import convert_deletes
from streamlake.table.producers.replace_deletes import ReplaceDeletes
from streamlake.table.producers.rewrite_files import RewriteFiles
from streamlake.tables import load_table
from tests.helpers.invariants import check_table
from tests.unit.maintain.test_compaction_races import MODES, SETTINGS, Race

STEPS = 14
ALL = ("checkpoint", "checkpoint", "staged", "compact", "convert", "manifests", "expire")
MEANWHILE = ("checkpoint", "checkpoint", "compact", "convert", "manifests")


class Busy(Race):
    """A race whose table is maintained in every way, with a reader of its changes."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.read: dict[int, int] = {}
        self.seen: int | None = None
        self.done: dict[str, int] = {}
        self._nested = False

    def step(self, name: str) -> None:
        self.done[name] = self.done.get(name, 0) + 1
        getattr(self, f"_{name}")()

    def follow(self) -> None:
        """Read what has changed, and compare with what the stream wrote."""
        loaded = load_table(self.location)
        if loaded.current_snapshot is None:
            return
        head = loaded.current_snapshot.snapshot_id
        for row in loaded.scan_changes(self.seen, head, keys=["id"]).to_arrow().to_pylist():
            if row["_row_kind"] in ("-D", "-U"):
                assert self.read.pop(row["id"]) == row["v"]
            else:
                assert row["id"] not in self.read
                self.read[row["id"]] = row["v"]
        self.seen = head
        assert self.read == self.rows

    def _checkpoint(self) -> None:
        self.stream.checkpoint(self.changes())

    def _staged(self) -> None:
        """Others act between the writing of a checkpoint and its commit."""
        self._once(
            lambda meanwhile: self.stream.checkpoint(self.changes(), between=lambda _: meanwhile()),
            MEANWHILE[2:],
        )

    def _compact(self) -> None:
        def act(meanwhile: Callable[[], None]) -> None:
            def before_commit(producer: RewriteFiles, groups: Sequence[RewrittenGroup]) -> None:
                meanwhile()

            table = load_table(self.location).table
            try:
                rewrite_data_files(table, self.chance.choice(SETTINGS), before_commit=before_commit)
            except ConflictValidationError:
                self.done["given up"] = self.done.get("given up", 0) + 1

        self._once(act)

    def _convert(self) -> None:
        def act(meanwhile: Callable[[], None]) -> None:
            commit = ReplaceDeletes.commit

            def later(producer: ReplaceDeletes) -> Any:
                meanwhile()
                return commit(producer)

            first: AbstractContextManager[Any] = patch.object(ReplaceDeletes, "commit", later)
            with nullcontext() if self._nested else first:
                options = {"rewrite-all": self.chance.choice(("true", "false")), "min-input-files": "1"}
                convert_deletes(load_table(self.location).table, options)

        self._once(act)

    def _manifests(self) -> None:
        load_table(self.location).rewrite_manifests()

    def _expire(self) -> None:
        load_table(self.location).expire_snapshots(older_than="0s", retain_last=1)

    def _once(self, act: Callable[[Callable[[], None]], object], others: Sequence[str] = MEANWHILE) -> None:
        """Do it with others in the middle of it, but not in the middle of these."""
        left = 0 if self._nested else self.chance.randrange(3)

        def meanwhile() -> None:
            nonlocal left
            steps, left = left, 0
            self._nested = True
            try:
                for _ in range(steps):
                    self.step(self.chance.choice(others))
            finally:
                self._nested = False

        act((lambda: None) if self._nested else meanwhile)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("version", "mode"), MODES)
def test_all_at_once(tmp_path: Path, version: int, mode: str, seed: int) -> None:
    partition_by = ("bucket(3, id)",) if seed % 2 else ()
    busy = Busy(
        tmp_path / "t", version, mode, seed=100 * seed + len(mode) + version, partition_by=partition_by
    )
    for _ in range(STEPS):
        before = busy.lineage(busy.stream.table) if version >= 3 else {}
        known = dict(busy.rows)
        busy.step(busy.chance.choice(ALL))
        busy.check()
        busy.follow()
        if version >= 3:
            after = busy.lineage(busy.stream.table)
            same = [key for key, value in busy.rows.items() if known.get(key) == value]
            assert {key: after[key] for key in same} == {key: before[key] for key in same}
            assert len({row_id for row_id, _ in after.values()}) == len(after)
    check_table(load_table(busy.location).table, files_exist=True)
    assert busy.done.get("given up", 0) <= busy.done.get("compact", 0) // 2 or mode == "copy-on-write"
