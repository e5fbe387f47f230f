"""A checkpoint that is larger than a task's memory: many tables of changes, entries that are spilled."""

from __future__ import annotations

import random
from pathlib import Path

import pyarrow as pa
import pytest

from streamlake import create_table, load_table
from streamlake.write.upsert import upsert_writer
from tests.helpers.invariants import check_table
from tests.helpers.local_upserts import LocalUpserts


@pytest.mark.parametrize("delete_mode", ["position", "equality", "copy-on-write"])
@pytest.mark.parametrize("format_version", [2, 3])
def test_spilled_entries(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, delete_mode: str, format_version: int
) -> None:
    monkeypatch.setattr(upsert_writer, "MOST_ENTRIES", 500)
    location = str(tmp_path / "t")
    properties = {"streamlake.write.memory-budget-bytes": str(1 << 20)}
    create_table(location, "id long, v string", format_version=format_version, properties=properties)
    upserts = LocalUpserts(location, key=["id"], delete_mode=delete_mode, batch_rows=100)
    random.seed(1)
    model: dict[int, str] = {}
    for _ in range(3):
        ids = [random.randrange(3_000) for _ in range(20_000)]
        values = [f"{random.random()}-{'x' * 80}" for _ in ids]
        model.update(zip(ids, values, strict=True))
        upserts.checkpoint(pa.table({"id": pa.array(ids, pa.int64()), "v": values}))
        check_table(upserts.table)
        rows = load_table(location).scan().to_arrow().to_pylist()
        assert len(rows) == len(model)
        assert {row["id"]: row["v"] for row in rows} == model
    names = {path.name for path in Path(location, "metadata", "_index").glob("*.run")}
    if delete_mode == "equality":
        assert not names
    if delete_mode == "position":
        assert {Path(ref.path).name for ref in upserts.run.index_runs} <= names
        assert len(names) <= 2 * 3 + 2 * 2, "spilled runs are gone"
