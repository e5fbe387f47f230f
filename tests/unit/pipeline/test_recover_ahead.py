"""Ways out while checkpoints are staged that Spark was told to be done: none of them leaves their rows out in silence."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from streamlake.catalog.open import open_table
from streamlake.checkpoint.store import CommittableStore
from streamlake.checkpoint.table_note import Calls
from streamlake.errors import InvalidOptionError, LineageError, StorageError
from streamlake.pipeline import micro_batch
from streamlake.pipeline.lineage_check import KnownDirectory, uncovered
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


def test_a_fork_leaves_nothing_behind_that_is_due(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = stage_ahead(tmp_path, monkeypatch, pipeline="q")
    with pytest.raises(InvalidOptionError, match=r"checkpoint 2 of job .* Start the stream once as it was"):
        recovery(stream, "q").fork()
    stream.start(1)
    recovery(stream, "q").fork().carry_out()
    stream.start()
    assert stream.rows() == RECORDS


@pytest.mark.parametrize("way", ["adopt", "fork"])
def test_a_note_that_a_command_makes_does_not_overrule_the_sink(tmp_path: Path, way: str) -> None:
    """The stream calls the sink of the other table for some checkpoints only, as it may."""
    stream = LocalStream(tmp_path, RECORDS).start(2)
    other = str(tmp_path / "other")
    LocalStream(tmp_path, RECORDS, location=other, directory="its-own").start(1)
    made = Recovery(open_table(other), "main", "b", stream.directory, other)
    getattr(made, way)().carry_out()
    stream = LocalStream(tmp_path, RECORDS)
    if way == "adopt":
        stream.start(1)
    directory = stream.directory
    noted = directory.note(other, "main")
    known = KnownDirectory(
        noted, directory.next_checkpoint + 1, directory.end_offsets, lambda: [stream.location], Calls.QUERY
    )
    assert uncovered(other, None, known) is None
    strict = uncovered(other, None, replace(known, calls=Calls.FUNCTION))
    assert strict is not None
    assert "may_join=True" in strict.by_hand
