"""Attempts of upsert tasks beside each other: slow duplicates, ones that fail half-way. The winner's files are the table's."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from streamlake import load_table
from streamlake.errors import StreamlakeError
from streamlake.pipeline.key_index import rewriting
from streamlake.pipeline.key_index.indexed_rows import EntryCollector
from streamlake.records import ROW_KIND, RowKind
from streamlake.write.files.result import WriteResult
from streamlake.write.upsert import upsert_task
from streamlake.write.upsert.upsert_target import UpsertTarget
from tests.helpers import local_upserts
from tests.helpers.invariants import check_table
from tests.helpers.local_upserts import LocalUpserts
from tests.helpers.tables import make_table

COLUMNS = "id long, part string, v string"
SMALL_FILES = {"write.target-file-size-bytes": "2000", "streamlake.write.memory-budget-bytes": "1048576"}


class WorkerLostError(StreamlakeError):
    """What an attempt fails of."""


def changes(number: int) -> pa.Table:
    """Checkpoint `number`: updates, deletes and new rows, each key several times."""
    ids = [(at % 200 + number * 90) % 500 for at in range(900)]
    kinds = [int(RowKind.DELETE if (key + number) % 6 == 0 else RowKind.UPDATE_AFTER) for key in ids]
    return pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "part": [f"p{(key + number) % 3}" for key in ids],
            "v": [f"{number}-{at}" for at in range(900)],
            ROW_KIND: pa.array(kinds, pa.int8()),
        }
    )


def apply(model: dict[int, tuple[str, str]], batch: pa.Table) -> None:
    for row in batch.to_pylist():
        if row[ROW_KIND] == RowKind.DELETE:
            model.pop(row["id"], None)
        else:
            model[row["id"]] = (row["part"], row["v"])


class Attempts:
    """Three of each task; the one numbered `winner` counts, 0 or 2; the one at the other end is lost half-way."""

    def __init__(self, winner: int) -> None:
        self.winner = winner
        self.lost = 2 - winner
        self.failed = 0
        self._task_ids = itertools.count(1)

    def run(self, work: Callable[[int, int], Any]) -> Any:
        results: list[Any] = []
        for attempt in range(3):
            try:
                results.append(work(next(self._task_ids), attempt))
            except WorkerLostError:
                self.failed += 1
                results.append(None)
        return results[self.winner]


def lost(*_: object) -> None:
    raise WorkerLostError


def failing(batches: Iterator[pa.RecordBatch], after: int) -> Iterator[pa.RecordBatch]:
    yield from itertools.islice(batches, after)
    raise WorkerLostError


@pytest.mark.parametrize("winner", [0, 2])
@pytest.mark.parametrize(
    ("mode", "version"), [("position", 2), ("position", 3), ("copy-on-write", 2), ("equality", 2)]
)
def test_every_task_has_three_attempts(
    winner: int, mode: str, version: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of them fails when it has written some of its files, and one is only slow."""
    location = tmp_path / "table"
    spec = () if mode == "equality" else ("part",)
    make_table(location, COLUMNS, spec, version, SMALL_FILES)
    monkeypatch.setattr(upsert_task, "_CHUNK_ROWS", 200)
    write = upsert_task.write_changes
    attempts = Attempts(winner)

    def of_task(target: UpsertTarget, batches: Sequence[pa.RecordBatch], bucket: int, *_: int) -> WriteResult:
        def work(task_id: int, attempt: int) -> WriteResult:
            some = iter(batches)
            return write(
                target, failing(some, 30) if attempt == attempts.lost else some, bucket, task_id, attempt
            )

        result: WriteResult = attempts.run(work)
        return result

    def of_parts(_: object, work: Callable[[Any], Any], parts: Sequence[Any]) -> list[Any]:
        def rewrite(part: Any, task_id: int, attempt: int) -> Any:
            with monkeypatch.context() as patch:
                patch.setattr(rewriting, "task_ids", lambda: (0, task_id, attempt))
                if attempt == attempts.lost:
                    # All of its files are finished by then.
                    patch.setattr(EntryCollector, "runs", lost)
                return work(part)

        return [attempts.run(functools.partial(rewrite, part)) for part in parts]

    monkeypatch.setattr(local_upserts, "write_changes", of_task)
    monkeypatch.setattr(rewriting, "run_parts", of_parts)
    upserts = LocalUpserts(str(location), key=["id"], delete_mode=mode, batch_rows=10)
    model: dict[int, tuple[str, str]] = {}
    for number in range(4):
        batch = changes(number)
        upserts.checkpoint(batch)
        apply(model, batch)
        check_table(upserts.table, files_exist=True)
        rows = load_table(str(location)).scan().to_arrow().to_pylist()
        assert {row["id"]: (row["part"], row["v"]) for row in rows} == model
        assert len(rows) == len(model)
    assert attempts.failed >= 8
