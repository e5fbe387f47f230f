"""Ways out while checkpoints are staged that Spark was told to be done: none of them leaves their rows out in silence."""

from __future__ import annotations

from pathlib import Path

import pytest

from streamlake.catalog.open import open_table
from streamlake.checkpoint.store import CommittableStore
from streamlake.errors import InvalidOptionError, LineageError, StorageError
from streamlake.pipeline import micro_batch
from streamlake.pipeline.recovery import Recovery
from streamlake.table.manage_refs import ManageRefs
from tests.helpers.local_stream import LocalStream, Record

RECORDS: list[Record] = [(number, f"v{number}") for number in range(10)]


def _dying(*_: object) -> None:
    raise StorageError("the driver dies")


def stage_ahead(home: Path, monkeypatch: pytest.MonkeyPatch, pipeline: str = "p") -> LocalStream:
    """Checkpoints 0 and 1 are committed; 2 is staged, Spark takes it for done, and the driver dies."""
    LocalStream(home, RECORDS, pipeline=pipeline).start(2)
    with monkeypatch.context() as patched:
        patched.setattr(micro_batch, "_commit", _dying)
        ahead = LocalStream(home, RECORDS, pipeline=pipeline, ahead=3).start(1)
        assert isinstance(ahead.finish(), StorageError)
    assert ahead.directory.completed == [0, 1, 2]
    return LocalStream(home, RECORDS, pipeline=pipeline)


def roll_back(stream: LocalStream) -> None:
    table = open_table(stream.location)
    first = min(table.snapshots, key=lambda each: each.sequence_number)
    ManageRefs(table).set_branch("main", first.snapshot_id).commit()
    with pytest.raises(LineageError, match="was rolled back"):
        stream.start()


def recovery(stream: LocalStream, pipeline: str = "p") -> Recovery:
    return Recovery(open_table(stream.location), "main", pipeline, stream.directory, stream.location)


def test_a_rollback_keeps_what_is_due(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = stage_ahead(tmp_path, monkeypatch)
    roll_back(stream)
    recovery(stream).rollback().carry_out()
    stream.start()
    assert stream.rows() == RECORDS


def test_a_rollback_does_not_pass_what_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody has deleted what was staged: then its rows are a gap, which the source fills."""
    stream = stage_ahead(tmp_path, monkeypatch)
    roll_back(stream)
    table = open_table(stream.location)
    store = CommittableStore(table.io, table.locations, stream.directory.job_id, "main")
    for staged in store.pending():
        store.remove(staged.identity)
    recovery(stream).rollback().carry_out()
    with pytest.raises(LineageError, match="has done checkpoint 2 without"):
        stream.start()
    recovery(stream).rewind(1).carry_out()
    stream.start()
    assert stream.rows() == RECORDS
