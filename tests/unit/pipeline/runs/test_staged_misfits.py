"""Others change a table while a checkpoint is staged for it: the next start goes on, and every row is there once.

A table is upgraded, a partition spec or a staged file removed. What no longer fits is written again where Spark has its
rows; a checkpoint that Spark was told to be done is a LineageError with a way out.
"""

from __future__ import annotations

import contextlib
import os
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from streamlake import load_table
from streamlake.catalog.open import open_table
from streamlake.checkpoint.committable import committable_from_bytes
from streamlake.errors import LineageError, StagedUnfitError
from streamlake.formats.manifests.manifests import read_manifest
from streamlake.pipeline.runs.rejected.rejects_run import RejectsRun
from streamlake.pipeline.runs.sink_run import SinkRun
from streamlake.pipeline.runs.upgraded_deletes import outdated
from streamlake.pipeline.runs.upsert_run import UpsertRun
from streamlake.spec.metadata.table_metadata import TableMetadata
from streamlake.spec.partitioning.partition_spec import PartitionSpec, parse_partition_by
from streamlake.table.updates.metadata_changes import changed
from streamlake.table.updates.metadata_update import commit_metadata
from streamlake.write.upsert import upsert_task
from tests.helpers import foreign_writers
from tests.helpers.error_catalogue import documented
from tests.helpers.invariants import check_table
from tests.helpers.local_rejects import RejectingStream, rejected_rows_of
from tests.helpers.local_stream import LocalStream
from tests.helpers.local_upserts import LocalUpserts
from tests.helpers.tables import FAST_CHECKS, FAST_RETRIES, make_table

APPENDED = [(number, f"v{number}") for number in range(10)]
UPSERTED = [(number % 3, f"v{number}") for number in range(10)]
MODES = ["append", "position", "copy-on-write", "equality"]


def stream(home: Path, mode: str, **options) -> LocalStream:
    if mode == "append":
        return LocalStream(home, list(APPENDED), **options)
    return LocalStream(home, list(UPSERTED), mode="upsert", delete_mode=mode, **options)


def dies_when_staged(running: LocalStream) -> None:
    with pytest.MonkeyPatch.context() as patch:
        for run in (SinkRun, UpsertRun):
            patch.setattr(run, "commit", died)
        with pytest.raises(KeyboardInterrupt):
            running.start(1)


def died(*_, **__):
    raise KeyboardInterrupt


def finishes(running: LocalStream) -> None:
    running.start()
    assert running.finish() is None
    wanted = APPENDED if running.mode == "append" else [(0, "v9"), (1, "v7"), (2, "v8")]
    assert running.rows() == wanted
    check_table(open_table(running.location), files_exist=True)
    ids = [
        each.summary.get("streamlake.max-committed-checkpoint-id")
        for each in open_table(running.location).snapshots
    ]
    assert ids == sorted(set(ids))


def partitioned(home: Path, version: int = 2) -> None:
    """A table that was partitioned by bucket(2, id), and is so again after it was by id."""
    properties = {**FAST_RETRIES, **FAST_CHECKS}
    make_table(home / "table", "id long, v string", ("bucket(2, id)",), version, properties)


def remove_spec(location: str, *, reuse_id: bool = False) -> None:
    """Others partition by another field, and expire the metadata of the old spec, which no snapshot needs. `reuse_id`:
    the next spec gets its id."""

    def change(base: TableMetadata) -> TableMetadata:
        gone = base.default_spec_id
        [field] = parse_partition_by(["truncate(1, v)"], base.schema).fields
        spec_id = gone if reuse_id else max(each.spec_id for each in base.specs) + 1
        spec = PartitionSpec(spec_id, (replace(field, field_id=base.last_partition_id + 1),))
        kept = tuple(each for each in base.specs if each.spec_id != gone)
        return changed(base, specs=(*kept, spec), default_spec_id=spec_id)

    commit_metadata(open_table(location), change)


def staged_files(running: LocalStream, checkpoint_id: int = 99) -> dict[str, str]:
    """Files of the newest checkpoint that is staged, up to `checkpoint_id`."""
    table = open_table(running.location)
    paths = [info.path for info in table.io.list_prefix(table.locations.committables_directory)]
    staged = [committable_from_bytes(table.io.read_bytes(path), path) for path in paths]
    by_id = {each.identity.checkpoint_id: each for each in staged}
    newest = by_id[max(each for each in by_id if each <= checkpoint_id)]
    found = {"index": newest.runs[-1]} if newest.runs else {}
    for manifest in newest.manifests:
        found["manifest"] = manifest.manifest_path
        for entry in read_manifest(table.io, manifest, table.specs):
            found["data" if entry.data_file.is_data else "delete"] = entry.data_file.file_path
    return found


@pytest.mark.parametrize("mode", MODES)
def test_an_upgrade_of_the_table(tmp_path, mode):
    running = stream(tmp_path, mode)
    if mode != "append":
        make_table(tmp_path / "table", "id long, v string", (), 2, {**FAST_RETRIES, **FAST_CHECKS})
    running.start(2)
    assert open_table(running.location).format_version == 2
    dies_when_staged(running)
    foreign_writers.upgrade(running.location)
    finishes(running)


@pytest.mark.parametrize("delete_mode", MODES[1:])
@pytest.mark.parametrize("moment", ["between", "restart"])
@pytest.mark.parametrize("moves", [False, True], ids=["same-head", "moved-head"])
def test_an_upgrade_with_deletes_of_own_rows(tmp_path, monkeypatch, moves, moment, delete_mode):
    """Changes of one key in several batches: the checkpoint deletes rows of its own files."""
    monkeypatch.setattr(upsert_task, "_CHUNK_ROWS", 1)
    make_table(tmp_path / "t", "id long, v string", (), 2)
    location = str(tmp_path / "t")
    upserts = LocalUpserts(location, key=["id"], delete_mode=delete_mode, batch_rows=1)
    upserts.checkpoint(pa.table({"id": [1, 2, 3, 4], "v": ["a"] * 4}))
    if delete_mode == "position":
        upserts.checkpoint(pa.table({"id": [1], "v": ["b"]}))  # an older delete file is replaced
    changes = pa.table({"id": [1, 2, 1, 5, 2, 5], "v": ["c", "c", "d", "d", "e", "f"]})

    def others(_=None):
        foreign_writers.upgrade(location)
        if moves:
            foreign_writers.append_rows(location, pa.table({"id": [9], "v": ["z"]}))

    if moment == "between":
        upserts.checkpoint(changes, between=others)
    else:
        staged = upserts.stage(changes)
        assert staged is not None
        assert any(outdated(result.delete_files, 3) for result in staged[1])
        others()
        upserts.restart()
        assert len(upserts.recover()) == 1
    upserts.checkpoint(pa.table({"id": [3, 5], "v": ["g", "h"]}))
    found = load_table(location).scan().to_arrow()
    rows = sorted(zip(found["id"].to_pylist(), found["v"].to_pylist(), strict=True))
    assert rows == [(1, "d"), (2, "e"), (3, "g"), (4, "a"), (5, "h")] + ([(9, "z")] if moves else [])
    check_table(open_table(location), files_exist=True)


@pytest.mark.parametrize("reuse_id", [False, True])
@pytest.mark.parametrize("mode", MODES[:3])
def test_a_partition_spec_that_was_removed(tmp_path, mode, reuse_id):
    partitioned(tmp_path)
    running = stream(tmp_path, mode)
    dies_when_staged(running)
    remove_spec(running.location, reuse_id=reuse_id)
    finishes(running)


def test_a_partition_spec_that_is_removed_during_the_commit(tmp_path):
    partitioned(tmp_path)
    running = stream(tmp_path, "append")
    commit = SinkRun.commit

    def late(run, committable, *args, **kwargs):
        remove_spec(running.location)
        return commit(run, committable, *args, **kwargs)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SinkRun, "commit", late)
        with pytest.raises(Exception, match="no longer fits it") as raised:
            running.start(1)
    documented("staged-unfit-error", raised.value)
    finishes(running)


@pytest.mark.parametrize("what", ["manifest", "data", "delete", "index"])
def test_a_staged_file_that_was_taken_for_an_orphan(tmp_path, what):
    running = stream(tmp_path, "position").start(2)
    dies_when_staged(running)
    os.remove(staged_files(running)[what].removeprefix("file:"))
    finishes(running)


@pytest.mark.parametrize("what", ["manifest", "data"])
def test_a_staged_file_of_an_append(tmp_path, what):
    running = stream(tmp_path, "append").start(1)
    dies_when_staged(running)
    os.remove(staged_files(running)[what].removeprefix("file:"))
    finishes(running)


@pytest.mark.parametrize("fault", ["file", "spec"])
def test_what_spark_was_told_to_be_done(tmp_path, fault):
    """Written ahead: Spark does not write it again by itself, so the way back is named, and it works."""
    partitioned(tmp_path)
    running = stream(tmp_path, "append", ahead=3).start(1)
    assert running.finish() is None
    foreign_writers.evolve(running.location, ["bucket(4, id)"])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SinkRun, "commit", died)
        with contextlib.suppress(KeyboardInterrupt):
            running.start(2)
        assert isinstance(running.finish(), KeyboardInterrupt)
    if fault == "file":
        os.remove(staged_files(running, 1)["data"].removeprefix("file:"))
    else:
        remove_spec(running.location)
    with pytest.raises(LineageError, match="can no longer be committed") as told:
        running.start()
    assert "--rewind-to" in str(told.value)
    assert running.rows() == APPENDED[:2]


def test_staged_rejects_that_were_taken_for_orphans(tmp_path):
    """Their records are not read again: the stream says which they are, and how to go on without them."""
    location = tmp_path / "t"
    make_table(location, "id long, v string")
    batches = [["{", '{"id": 1}'], ['{"id": 2}']]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RejectsRun, "commit", died)
        with pytest.raises(KeyboardInterrupt):
            RejectingStream(location, batches, "id long, v string").checkpoint(0)
    [gone] = Path(f"{location}__rejects", "data").rglob("*.parquet")
    gone.unlink()
    with pytest.raises(StagedUnfitError, match=r"rejects of checkpoint 0.*no longer there.*delete") as told:
        RejectingStream(location, batches, "id long, v string").checkpoint(1)
    named = str(told.value).split("delete ")[1].split(",")[0]
    os.remove(named)
    RejectingStream(location, batches, "id long, v string").checkpoint(1)
    assert load_table(str(location)).scan().count() == 2
    assert rejected_rows_of(location) == []
