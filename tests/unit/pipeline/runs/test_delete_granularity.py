"""`write.delete.granularity`: what a stream of changes writes for the rows that go, in tables of version 2."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest

from streamlake import load_table
from streamlake.catalog.open import open_table
from streamlake.table.updates.update_properties import UpdateProperties
from streamlake.write.upsert import upsert_task
from tests.helpers import foreign_writers
from tests.helpers.invariants import check_table, live_entries
from tests.helpers.local_upserts import LocalUpserts
from tests.helpers.tables import make_table

GRANULARITY = "write.delete.granularity"


def delete_files(location):
    return [entry.data_file for entry in live_entries(open_table(location)) if not entry.data_file.is_data]


def content(location):
    found = load_table(location).scan().to_arrow()
    return sorted(zip(found["id"].to_pylist(), found["v"].to_pylist(), strict=True))


@pytest.mark.parametrize("granularity", ["file", "partition"])
def test_a_delete_file_serves_a_data_file_or_a_partition(tmp_path, granularity):
    location = str(tmp_path / "t")
    make_table(tmp_path / "t", "id long, v string", (), 2, {GRANULARITY: granularity})
    stream = LocalUpserts(location, key=["id"], tasks=1)
    for start in range(0, 40, 10):
        stream.checkpoint(pa.table({"id": range(start, start + 10), "v": ["a"] * 10}))
    stream.checkpoint(pa.table({"id": [1, 11, 21, 31], "v": ["b"] * 4}))
    assert len(delete_files(location)) == (1 if granularity == "partition" else 4)
    stream.checkpoint(pa.table({"id": [2, 12, 22, 32], "v": ["b"] * 4}))
    files = delete_files(location)
    assert len(files) == (2 if granularity == "partition" else 4)
    assert sum(file.record_count for file in files) == 8
    assert {file.deletes_from is None for file in files} == {granularity == "partition"}
    changed = {1, 11, 21, 31, 2, 12, 22, 32}
    assert content(location) == [(n, "b" if n in changed else "a") for n in range(40)]
    check_table(open_table(location), files_exist=True)


@pytest.mark.parametrize("delete_mode", ["position", "copy-on-write", "equality"])
@pytest.mark.parametrize("seed", range(3))
def test_it_changes_while_the_stream_runs(tmp_path, monkeypatch, seed, delete_mode):
    """To and fro, by restarts, beside other writers, and at last to deletion vectors."""
    monkeypatch.setattr(upsert_task, "_CHUNK_ROWS", 2)
    chance = random.Random(seed)
    location = str(tmp_path / "t")
    partition_by = ["part"] if delete_mode != "equality" else []
    make_table(tmp_path / "t", "id long, part double, v string", partition_by, 2)
    stream = LocalUpserts(location, key=["id"], delete_mode=delete_mode, batch_rows=3)
    wanted: dict[int, str] = {}
    for step in range(14):
        value = chance.choice(["file", "partition"])
        UpdateProperties(open_table(location)).set(GRANULARITY, value).commit()
        if step == 11:
            foreign_writers.upgrade(location)
        if chance.random() < 0.2:
            stream.restart()
        ids = [chance.randrange(40) for _ in range(12)]
        parts = pa.array([[-0.0, 0.0, float("nan"), 1.0][n % 4] for n in ids], pa.float64())
        changes = pa.table({"id": ids, "part": parts, "v": [f"{step}-{at}" for at in range(len(ids))]})
        moves = chance.random() < 0.3

        def other(_, moves=moves, step=step):
            if moves:
                row = {"id": [1000 + step], "part": [1.0], "v": ["other"]}
                foreign_writers.append_rows(location, pa.table(row))
            if step == 10:
                foreign_writers.upgrade(location)

        stream.checkpoint(changes, between=other)
        wanted.update(zip(ids, changes["v"].to_pylist(), strict=True))
        if moves:
            wanted[1000 + step] = "other"
        assert content(location) == sorted(wanted.items())
    check_table(open_table(location), files_exist=True)
    stream.restart()
    assert content(location) == sorted(wanted.items())
