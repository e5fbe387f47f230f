"""Others commit to the table between the staging of a checkpoint and its commit: what is newer wins, whoever wrote it."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from streamlake import create_table, load_table
from streamlake.catalog.open import open_table
from streamlake.checkpoint.committable import Committable
from streamlake.checkpoint.identity import CheckpointIdentity
from streamlake.commit.receipt import CommitReceipt, Outcome
from streamlake.errors import DecodeError, OutdatedValuesError
from streamlake.formats.arrow.missing_fields import missing_fields_column
from streamlake.pipeline.runs import micro_batch
from streamlake.records import KEY_CHANGE, MISSING_FIELDS, ROW_KIND, ROW_SEQUENCE, RowKind
from tests.helpers import foreign_writers
from tests.helpers.invariants import check_table
from tests.helpers.local_upserts import LocalUpserts, Truncate

DELETE = RowKind.DELETE
Row = tuple[Any, ...]
MODES = [(version, mode) for version in (2, 3) for mode in ("position", "copy-on-write")]


def changes(*rows: Row) -> pa.Table:
    """Changes (id, ver, v[, kind])."""
    return pa.table(
        {
            "id": pa.array([row[0] for row in rows], pa.int64()),
            "ver": pa.array([row[1] for row in rows], pa.int64()),
            "v": pa.array([row[2] for row in rows], pa.string()),
            ROW_KIND: pa.array([int(row[3]) if len(row) > 3 else 2 for row in rows], pa.int8()),
        }
    )


def live(stream: LocalUpserts) -> list[Row]:
    check_table(open_table(stream.location), files_exist=True)
    found = load_table(stream.location).scan().to_arrow().to_pylist()
    return sorted(tuple(row.values()) for row in found)


class Streams:
    """Two pipelines, A and B, that upsert one table."""

    def __init__(self, home: Path, version: int, delete_mode: str, columns: str, **options: Any) -> None:
        location = str(home / "table")
        create_table(location, columns, format_version=version, properties=options.pop("properties", {}))
        self.location = location
        self.delete_mode = delete_mode
        made = functools.partial(LocalUpserts, location, key=["id"], delete_mode=delete_mode, **options)
        self.a = made(pipeline="A", job_id="A")
        self.b = made(pipeline="B", job_id="B", tasks=1)

    def meanwhile(
        self,
        staged: pa.Table,
        between: Callable[[], object],
        *,
        dies: bool = False,
        truncates: tuple[Truncate, ...] = (),
    ) -> None:
        """A stages a checkpoint, something else happens, and A commits it, or its next driver does."""
        if not dies:
            self.a.checkpoint(staged, lambda _: between(), truncates)
            return
        assert self.a.stage(staged, truncates) is not None
        between()
        checkpoint_id = self.a.checkpoint_id
        self.a.restart()
        self.a.checkpoint_id = checkpoint_id
        self.a.recover()


@pytest.fixture(params=MODES, ids=str)
def ordered(request: pytest.FixtureRequest, tmp_path: Path) -> Streams:
    streams = Streams(tmp_path, *request.param, "id long, ver long, v string", sequence_by=["ver"])
    streams.a.checkpoint(changes((1, 1, "first"), (2, 1, "other")))
    return streams


@pytest.mark.parametrize("dies", [False, True], ids=["lives", "dies"])
def test_a_newer_row_of_another_pipeline_stays(ordered: Streams, dies: bool) -> None:
    newer = changes((1, 10, "newer"), (3, 2, "B"))
    older = changes((1, 5, "older"), (2, 5, "A"), (3, 4, "A"), (4, 5, "A"))
    ordered.meanwhile(older, lambda: ordered.b.checkpoint(newer), dies=dies)
    assert live(ordered.a) == [(1, 10, "newer"), (2, 5, "A"), (3, 4, "A"), (4, 5, "A")]
    # The index knows it too: what is older is late, what is newer replaces the one row that there is.
    ordered.a.checkpoint(changes((1, 7, "older"), (4, 6, "A")))
    assert live(ordered.a)[0] == (1, 10, "newer")
    ordered.a.restart()
    ordered.a.checkpoint_id = 9
    ordered.a.checkpoint(changes((1, 11, "newest"), (3, 3, "older")))
    assert live(ordered.a) == [(1, 11, "newest"), (2, 5, "A"), (3, 4, "A"), (4, 6, "A")]


@pytest.mark.parametrize("dies", [False, True], ids=["lives", "dies"])
def test_a_newer_delete_of_another_pipeline_stays(ordered: Streams, dies: bool) -> None:
    ordered.meanwhile(
        changes((1, 5, "older"), (2, 5, "A")),
        lambda: ordered.b.checkpoint(changes((1, 10, None, DELETE))),
        dies=dies,
    )
    assert live(ordered.a) == [(2, 5, "A")]
    ordered.b.checkpoint(changes((1, 8, "older")))
    assert live(ordered.a) == [(2, 5, "A")]
    ordered.b.checkpoint(changes((1, 12, "newer")))
    assert live(ordered.a) == [(1, 12, "newer"), (2, 5, "A")]


def test_an_older_delete_leaves_the_newer_row(ordered: Streams) -> None:
    ordered.meanwhile(
        changes((1, 5, None, DELETE), (2, 5, None, DELETE)),
        lambda: ordered.b.checkpoint(changes((1, 10, "newer"))),
    )
    assert live(ordered.a) == [(1, 10, "newer")]
    ordered.a.checkpoint(changes((1, 9, "older"), (2, 4, "older")))
    assert live(ordered.a) == [(1, 10, "newer")]


def test_a_newer_row_that_others_append_stays(ordered: Streams) -> None:
    def append() -> None:
        foreign_writers.append_rows(ordered.location, changes((7, 10, "newer")).drop_columns([ROW_KIND]))

    ordered.meanwhile(changes((7, 5, "older"), (8, 5, "A")), append)
    assert live(ordered.a) == [(1, 1, "first"), (2, 1, "other"), (7, 10, "newer"), (8, 5, "A")]


def test_the_head_moves_twice(ordered: Streams, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that came too late against the first head are still out when the second is resolved against."""
    tied = ordered.a.run._tied
    done: list[object] = []

    def moved_again(*given: Any) -> Committable:
        recorded = tied(*given)
        if len(done) == 1:
            done.append(ordered.b.checkpoint(changes((2, 10, "newer"))))
        return recorded

    def between() -> None:
        monkeypatch.setattr(ordered.a.run, "_tied", moved_again)
        done.append(ordered.b.checkpoint(changes((1, 10, "newer"))))

    older = changes((1, 5, "older"), (2, 5, "older"), (3, 5, "A"))
    staged = ordered.a.stage(older)
    assert staged is not None
    between()
    receipt = ordered.a.run.commit(*staged)
    assert len(done) == 2
    assert receipt.counters["late"] == 2
    assert live(ordered.a) == [(1, 10, "newer"), (2, 10, "newer"), (3, 5, "A")]


def test_rows_deleted_in_their_own_checkpoint_stay_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A row of the checkpoint that is too late lies in a file where the checkpoint itself has deleted others."""
    monkeypatch.setattr("streamlake.write.upsert.upsert_task._CHUNK_ROWS", 1)
    for version, mode in MODES:
        columns = "id long, ver long, v string"
        given = {"sequence_by": ["ver"], "tasks": 1, "batch_rows": 1}
        streams = Streams(tmp_path / f"{version}{mode}", version, mode, columns, **given)
        staged = changes((1, 2, "a"), (2, 2, "b"), (2, 3, "c"), (1, 3, "d"), (3, 2, "e"))
        streams.a.checkpoint(changes((9, 1, "z")))
        newer = changes((1, 10, "newer"))
        streams.meanwhile(staged, functools.partial(streams.b.checkpoint, newer))
        assert live(streams.a) == [(1, 10, "newer"), (2, 3, "c"), (3, 2, "e"), (9, 1, "z")]


# Truncates, by the place in the database's log


def logged(*rows: Row) -> pa.Table:
    """Changes (place, id, v)."""
    return pa.table(
        {
            "id": pa.array([row[1] for row in rows], pa.int64()),
            "v": pa.array([row[2] for row in rows], pa.string()),
            ROW_SEQUENCE: pa.array([row[0] for row in rows], pa.int64()),
        }
    )


@pytest.fixture(params=[2, 3])
def placed(request: pytest.FixtureRequest, tmp_path: Path) -> Streams:
    streams = Streams(tmp_path, request.param, "position", "id long, v string", sequence_by=[ROW_SEQUENCE])
    streams.a.checkpoint(logged((50, 1, "old"), (50, 2, "old")))
    return streams


@pytest.mark.parametrize("dies", [False, True], ids=["lives", "dies"])
def test_a_truncate_leaves_what_is_newer(placed: Streams, dies: bool) -> None:
    """And takes out what others have added below it meanwhile."""
    others = logged((150, 1, "new"), (60, 3, "old"), (160, 4, "new"))
    placed.meanwhile(
        logged((160, 9, "z")), lambda: placed.b.checkpoint(others), dies=dies, truncates=((100, 0),)
    )
    assert live(placed.a) == [(1, "new"), (4, "new"), (9, "z")]
    placed.b.checkpoint(logged((99, 2, "late"), (99, 3, "late"), (101, 5, "new")))
    assert live(placed.a) == [(1, "new"), (4, "new"), (5, "new"), (9, "z")]


def test_a_truncate_of_another_pipeline_takes_out_what_is_staged(placed: Streams) -> None:
    staged = logged((90, 1, "before"), (95, 7, "before"), (120, 2, "after"))
    placed.meanwhile(staged, lambda: placed.b.checkpoint(logged((130, 8, "B")), truncates=[(100, 0)]))
    assert live(placed.a) == [(2, "after"), (8, "B")]


def test_a_row_that_a_snapshot_read_replaces_a_replayed_one(placed: Streams) -> None:
    """It is ordered by its arrival, so it is not late, and keeps the place of the row that it replaces."""
    placed.meanwhile(logged((~500, 3, "read")), lambda: placed.b.checkpoint(logged((91, 3, "replayed"))))
    assert live(placed.a)[2:] == [(3, "read")]
    placed.b.checkpoint(logged((90, 3, "older")))
    assert live(placed.a)[2:] == [(3, "read")]
    placed.b.checkpoint(logged((92, 3, "newer")))
    assert live(placed.a)[2:] == [(3, "newer")]


# Values that a change leaves out


def partial(*rows: Row) -> pa.Table:
    """Changes (id, v) that leave `other` out."""
    table = pa.table({"id": pa.array([row[0] for row in rows], pa.int64()), "v": [row[1] for row in rows]})
    return table.append_column(
        MISSING_FIELDS, missing_fields_column({"other": np.full(len(rows), True)}, len(rows))
    )


def whole(*rows: Row) -> pa.Table:
    columns = {"id": pa.int64(), "v": pa.string(), "other": pa.string()}
    return pa.table(
        {name: pa.array([row[at] for row in rows], kind) for at, (name, kind) in enumerate(columns.items())}
    )


NULLS = {"streamlake.upsert.unset-values": "null"}
REJECTS = {"streamlake.upsert.unset-values": "reject"}


@pytest.fixture(params=MODES, ids=str)
def filled(request: pytest.FixtureRequest, tmp_path: Path) -> Streams:
    streams = Streams(tmp_path, *request.param, "id long, v string, other string", tasks=2, properties=NULLS)
    streams.a.checkpoint(whole(*((n, "a", f"o{n}") for n in range(4))))
    return streams


def delete_by_position(streams: Streams, *keys: int) -> None:
    foreign_writers.delete_rows(streams.location, keys, column="id")


def delete_by_equality(streams: Streams, *keys: int) -> None:
    other = LocalUpserts(
        streams.location, key=["id"], delete_mode="equality", pipeline="E", job_id="E", tasks=1
    )
    gone = whole(*((key, None, None) for key in keys))
    other.checkpoint(gone.append_column(ROW_KIND, pa.array([3] * len(keys), pa.int8())))


@pytest.mark.parametrize("restarts", [False, True], ids=["runs on", "starts again"])
@pytest.mark.parametrize("delete", [delete_by_position, delete_by_equality])
def test_a_row_that_others_deleted_is_no_source(
    filled: Streams, delete: Callable[..., None], restarts: bool
) -> None:
    delete(filled, 1, 2)
    if restarts:
        filled.a.restart()
    filled.a.checkpoint(partial((1, "new"), (3, "new")))
    filled.a.checkpoint(partial((1, "newer"), (2, "new")))
    assert live(filled.a) == [(0, "a", "o0"), (1, "newer", None), (2, "new", None), (3, "new", "o3")]


def test_a_change_without_its_row_is_refused(tmp_path: Path) -> None:
    columns = "id long, v string, other string"
    streams = Streams(tmp_path, 3, "position", columns)
    streams.a.checkpoint(whole((1, "a", "o1"), (2, "a", "o2")))
    delete_by_position(streams, 1)
    with pytest.raises(DecodeError, match="no older row of its key"):
        streams.a.checkpoint(partial((1, "new")))


@pytest.mark.parametrize("dies", [False, True], ids=["lives", "dies"])
def test_an_update_of_another_pipeline_is_not_lost(filled: Streams, dies: bool) -> None:
    """It sets a column that the staged changes leave out, or compacts, or deletes the rows they took values from."""

    def others() -> None:
        filled.b.checkpoint(whole((1, "b", "B"), (8, "b", "B")))
        delete_by_position(filled, 2)

    staged = partial((1, "new"), (2, "new"), (3, "new"), (8, "new"))
    if dies:
        with pytest.raises(OutdatedValuesError, match="written again"):
            filled.meanwhile(staged, others, dies=True)
        filled.a.checkpoint_id -= 1  # Spark runs it again
        filled.a.checkpoint(staged)
    else:
        filled.meanwhile(staged, others)
        assert filled.a.rewrites == 1
    assert live(filled.a) == [
        (0, "a", "o0"),
        (1, "new", "B"),
        (2, "new", None),
        (3, "new", "o3"),
        (8, "new", "B"),
    ]


def test_what_does_not_concern_a_checkpoint_lets_it_stand(filled: Streams) -> None:
    def others() -> None:
        filled.b.checkpoint(whole((0, "b", "B"), (9, "b", "B")))
        delete_by_position(filled, 2)

    filled.meanwhile(partial((1, "new"), (7, "new")), others)
    # Copy-on-write moves the rows that share a file with a changed one.
    assert filled.a.rewrites == (1 if filled.delete_mode == "copy-on-write" else 0)
    assert live(filled.a) == [
        (0, "b", "B"),
        (1, "new", "o1"),
        (3, "a", "o3"),
        (7, "new", None),
        (9, "b", "B"),
    ]


def test_a_compaction_lets_a_checkpoint_be_written_again(filled: Streams) -> None:
    filled.meanwhile(partial((1, "new")), lambda: foreign_writers.compact(filled.location, lambda _: True))
    assert filled.a.rewrites == 1
    assert live(filled.a)[1] == (1, "new", "o1")


def test_values_pass_through_several_changes_of_a_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streamlake.write.upsert.upsert_task._CHUNK_ROWS", 1)
    given = {"tasks": 1, "batch_rows": 1, "properties": NULLS}
    streams = Streams(tmp_path, 3, "position", "id long, v string, other string", **given)
    streams.a.checkpoint(whole((1, "a", "o1")))
    streams.meanwhile(
        partial((1, "b"), (1, "c"), (2, "x"), (2, "y")),
        lambda: streams.b.checkpoint(whole((1, "b", "B"), (2, "b", "B"))),
    )
    assert streams.a.rewrites == 1
    assert live(streams.a) == [(1, "c", "B"), (2, "y", "B")]


def test_a_row_that_got_another_key_takes_what_its_old_key_has_now(filled: Streams) -> None:
    moved = pa.table(
        {
            "id": pa.array([1, 11], pa.int64()),
            "v": [None, "moved"],
            "other": pa.nulls(2, pa.string()),
            ROW_KIND: pa.array([3, 0], pa.int8()),
            KEY_CHANGE: pa.array([{"id": 11}, {"id": 1}]),
        }
    )
    moved = moved.append_column(MISSING_FIELDS, missing_fields_column({"other": np.array([False, True])}, 2))
    filled.meanwhile(moved, lambda: filled.b.checkpoint(whole((1, "b", "B"))))
    assert (11, "moved", "B") in live(filled.a)


def test_a_row_that_got_another_key_takes_nothing_from_a_deleted_one(filled: Streams) -> None:
    delete_by_position(filled, 1)
    moved = pa.table(
        {
            "id": pa.array([1, 11], pa.int64()),
            "v": [None, "moved"],
            "other": pa.nulls(2, pa.string()),
            ROW_KIND: pa.array([3, 0], pa.int8()),
            KEY_CHANGE: pa.array([{"id": 11}, {"id": 1}]),
        }
    )
    filled.a.checkpoint(
        moved.append_column(MISSING_FIELDS, missing_fields_column({"other": np.array([False, True])}, 2))
    )
    assert (11, "moved", None) in live(filled.a)


def test_a_refused_change_is_carried_out_when_its_row_is_there_by_then(tmp_path: Path) -> None:
    streams = Streams(tmp_path, 3, "position", "id long, v string, other string", properties=REJECTS)
    streams.a.checkpoint(whole((1, "a", "o1")))
    streams.meanwhile(partial((1, "x"), (2, "y")), lambda: streams.b.checkpoint(whole((2, "b", "B"))))
    assert live(streams.a) == [(1, "x", "o1"), (2, "y", "B")]


@pytest.mark.parametrize("dies", [False, True], ids=["lives", "dies"])
def test_a_micro_batch_is_written_again(filled: Streams, dies: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The driver has the rows at hand: the same micro-batch, the same checkpoint. One that starts after a crash gets them from
    Spark again."""
    stream = filled.a
    written: list[CheckpointIdentity] = []
    identity = CheckpointIdentity("A", "A", stream.checkpoint_id, end_offsets=(str(stream.checkpoint_id),))
    if dies:
        assert stream.stage(partial((1, "new"))) is not None
        filled.b.checkpoint(whole((1, "b", "B")))
        stream.restart()
    run = stream.run

    def write(_: object, given: CheckpointIdentity) -> Any:
        written.append(given)
        run.table.refresh()
        return run.resolve(given, lambda target: stream.write(target, partial((1, "new"))))

    def stage(*given: Any) -> Any:
        staged = type(run).stage(run, *given)
        if len(written) == 1 and not dies:
            filled.b.checkpoint(whole((1, "b", "B")))
        return staged

    monkeypatch.setattr(run, "write", write)
    monkeypatch.setattr(run, "stage", stage)
    monkeypatch.setattr(run, "note_commit", lambda _: None)
    receipt = micro_batch.run_micro_batch(run, None, identity)  # type: ignore[arg-type]
    assert receipt is not None
    assert written == [identity] * (1 if dies else 2)
    assert live(stream)[1] == (1, "new", "B")


def test_several_tables_are_written_again_one_by_one(
    filled: Streams, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What one table has to do again, the others do not."""
    tried: list[list[str]] = []
    outdated = OutdatedValuesError("others have changed its rows")
    writes = [SimpleNamespace(run=filled.a.run, identity=name, may_idle=False) for name in ("x", "y")]

    def finish(_: object, name: Any, *others: Any, **more: Any) -> Any:
        if name == "y" and len(tried) == 1:
            raise outdated
        return CommitReceipt(name, len(tried), Outcome.COMMITTED, 1)

    def write(some: Any) -> list[Any]:
        tried.append([each.identity for each in some])
        return [[] for _ in some]

    monkeypatch.setattr(micro_batch, "receipt_if_known", lambda run, identity: None)
    monkeypatch.setattr(micro_batch, "finish", finish)
    endings = micro_batch.run_micro_batches(writes, write)  # type: ignore[arg-type]
    assert tried == [["x", "y"], ["y"]]
    assert [(each.job_id, each.checkpoint_id) for each in endings] == [("x", 1), ("y", 2)]  # type: ignore[union-attr]
