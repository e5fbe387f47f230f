"""A lost checkpoint directory: a new one begins where the table's last commit ends, and every row is in the table once."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any, cast

import pytest

from streamlake.catalog.open import open_table
from streamlake.checkpoint.identity import CheckpointIdentity
from streamlake.checkpoint.new_directory import write_directory
from streamlake.checkpoint.offset_entries import entry_to_bytes, tick_of, tick_text
from streamlake.checkpoint.spark_directory import SparkDirectory
from streamlake.cli.main import main
from streamlake.decode.rejected_records import RejectStamp, rejected_rows
from streamlake.decode.values.envelope import Reject
from streamlake.errors import FencedError, InvalidOptionError, LineageError
from streamlake.operate.recover import resuming as resuming_module
from streamlake.operate.recover.resuming import last_commit, resuming
from streamlake.pipeline.runs.lineage.checkpoint_table import CheckpointTable
from streamlake.pipeline.runs.rejected.rejects_table import own_identity, rejects_name, require_rejects
from streamlake.pipeline.runs.run_settings import RunSettings
from streamlake.pipeline.runs.sink_run import SinkRun
from streamlake.pipeline.sinks.bound_tables import BoundTables
from streamlake.source.offsets import SourceOffsets
from streamlake.storage.local import LocalFileIO
from streamlake.table.updates.manage_refs import ManageRefs
from streamlake.tables import load_table
from streamlake.write.task import write_rows
from tests.helpers.batch_write import append
from tests.helpers.invariants import check_table
from tests.helpers.local_stream import LocalStream, Record
from tests.unit.decode.raw_records import raw_batch

RECORDS: list[Record] = [(number if number % 5 else max(number - 5, 0), f"v{number}") for number in range(23)]


class Direct(LocalStream):
    """A stream of the direct path: ticks in Spark's log, offsets of Kafka in streamlake's."""

    def plan(self) -> int | None:
        completed, planned = self.directory.last_completed, self.directory.last_planned
        if planned > completed:
            return planned
        begin = self._end(completed)
        if begin >= len(self.source):
            return None
        ends = SourceOffsets({("orders", 0): min(begin + self.step, len(self.source))})
        entry = self.path / "streamlake" / "offsets" / str(completed + 1)
        self._write(entry, entry_to_bytes(ends.to_text()).decode())
        self._log("offsets", completed + 1, f"v1\n{{}}\n{tick_text(completed + 1)}\n")
        return completed + 1

    def _end(self, checkpoint_id: int) -> int:
        if checkpoint_id < 0:
            return 0
        [text] = self.directory.end_offsets(checkpoint_id) or ("",)
        return int(json.loads(text)["offsets"]["orders"]["0"])


def expected(mode: str) -> list[Record]:
    return sorted(dict(RECORDS).items()) if mode == "upsert" else sorted(RECORDS)


def recover(stream: LocalStream, directory: str, *arguments: str) -> int:
    named = [] if stream.pipeline is None else ["--pipeline", stream.pipeline]
    with pytest.raises(SystemExit) as ended:
        main(
            [
                "recover", stream.location, "--checkpoint-location", str(stream.path.with_name(directory)),
                "--resume-from-table", *named, *arguments,
            ]
        )  # fmt: skip
    assert isinstance(ended.value.code, int)
    return ended.value.code


def test_ticks() -> None:
    assert [tick_of(tick_text(number)) for number in (0, 1, 17)] == [0, 1, 17]
    assert tick_text(0) == '{"offset":1,"timestamp":1000}'


@pytest.mark.parametrize("mode", ["append", "upsert"])
@pytest.mark.parametrize("pipeline", ["p", None])
@pytest.mark.parametrize("died", ["done", "before the note", "staged ahead"])
def test_every_row_is_there_once(
    mode: str, pipeline: str | None, died: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    old = Direct(tmp_path, RECORDS, mode=mode, pipeline=pipeline, ahead=3 if died == "staged ahead" else 1)
    old.start(4)
    if died == "before the note":
        # Spark does not know yet that the last checkpoint is in the table.
        (old.path / "commits" / "3").unlink()
    elif died == "staged ahead":
        old.finish()
        assert old.plan() == 4
    lost = old.path.rename(tmp_path / "lost")
    assert recover(old, "new") == 0
    text = capsys.readouterr().out
    assert "write a new checkpoint directory" in text
    assert "goes on at orders-0: 8" in text
    assert "run this again with --yes" in text
    assert not (tmp_path / "new").exists()
    before = load_table(old.location).current_snapshot
    assert recover(old, "new", "--yes") == 0
    after = load_table(old.location)
    assert after.current_snapshot is not None
    assert before is not None
    assert after.current_snapshot.parent_snapshot_id == before.snapshot_id
    new = Direct(tmp_path, RECORDS, mode=mode, pipeline=pipeline, directory="new")
    new.start()
    assert new.rows() == expected(mode)
    check_table(open_table(old.location), files_exist=True)
    # Another start has nothing to do, and the old directory, where somebody finds it, is refused.
    new.start()
    assert new.rows() == expected(mode)
    if pipeline is not None:
        shutil.copytree(lost, tmp_path / "found")
        found = Direct(tmp_path, [*RECORDS, (99, "x")], mode=mode, pipeline=pipeline, directory="found")
        with pytest.raises((LineageError, FencedError)):
            found.start()
        assert new.rows() == expected(mode)


def test_a_driver_of_the_lost_directory_that_still_runs_is_stopped(tmp_path: Path) -> None:
    old = Direct(tmp_path, RECORDS).start(3)
    assert recover(old, "new", "--yes") == 0
    with pytest.raises((LineageError, FencedError)):
        old.go_on(1)
    new = Direct(tmp_path, RECORDS, directory="new").start()
    assert new.rows() == expected("append")


def test_what_others_have_written_since_stays(tmp_path: Path) -> None:
    old = Direct(tmp_path, RECORDS).start(3)
    append(open_table(old.location), load_table(old.location).scan("id = 1").to_arrow())
    shutil.rmtree(old.path)
    assert recover(old, "new", "--yes") == 0
    new = Direct(tmp_path, RECORDS, directory="new").start()
    assert new.rows() == sorted([*RECORDS, (1, "v1")])


def test_a_directory_that_is_there_is_left_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    old = Direct(tmp_path, RECORDS).start(3)
    before = sorted(path.name for path in old.path.rglob("*"))
    assert recover(old, "checkpoint", "--yes") == 1
    assert "is not new: it holds" in capsys.readouterr().err
    assert sorted(path.name for path in old.path.rglob("*")) == before


@pytest.mark.parametrize("dies_at", ["metadata", "commits/0", "adopt"])
def test_a_recovery_that_dies_leaves_a_directory_that_is_refused(
    dies_at: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = Direct(tmp_path, RECORDS).start(3)
    shutil.rmtree(old.path)
    table = open_table(old.location)
    io = LocalFileIO()
    write = LocalFileIO.write_bytes

    def dying(self: LocalFileIO, path: str, data: bytes) -> None:
        if path.endswith(f"new/{dies_at}"):
            raise RuntimeError("died")
        write(self, path, data)

    def died(*_: object) -> None:
        raise RuntimeError("died")

    with monkeypatch.context() as patch:
        patch.setattr(LocalFileIO, "write_bytes", dying)
        if dies_at == "adopt":
            patch.setattr(resuming_module.Recovery, "adopt", died)
        with pytest.raises(RuntimeError):
            resuming(table, "main", "p", str(tmp_path / "new"), io, old.location).carry_out()
    with pytest.raises(LineageError):
        Direct(tmp_path, RECORDS, directory="new").start()
    assert recover(old, "newer", "--yes") == 0
    assert Direct(tmp_path, RECORDS, directory="newer").start().rows() == expected("append")


def test_a_table_without_the_offsets_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    stream = LocalStream(tmp_path, RECORDS)  # its offsets are not Kafka's
    stream.start(3)
    assert recover(stream, "new", "--yes") == 1
    assert "no snapshot of branch 'main'" in capsys.readouterr().err
    assert not (tmp_path / "new").exists()


def test_an_expired_snapshot_and_a_rolled_back_table_are_refused(tmp_path: Path) -> None:
    old = Direct(tmp_path, RECORDS).start(3)
    table = open_table(old.location)
    first = table.snapshots[0].snapshot_id
    ManageRefs(table).set_branch("main", first).commit()
    with pytest.raises(InvalidOptionError, match="So its last commit is in doubt"):
        last_commit(open_table(old.location), "main", "p")


def test_of_several_streams_one_is_named(tmp_path: Path) -> None:
    one = Direct(tmp_path, RECORDS, pipeline="one", directory="one").start(2)
    Direct(tmp_path, RECORDS, pipeline="two", directory="two", location=one.location).start(3)
    table = open_table(one.location)
    with pytest.raises(InvalidOptionError, match=r"several streams have written .*: one, two; name one"):
        last_commit(table, "main", None)
    assert last_commit(table, "main", "one").end == SourceOffsets({("orders", 0): 4})
    assert last_commit(table, "main", "two").end.positions == {("orders", 0): 6}
    with pytest.raises(InvalidOptionError, match="pipeline 'three' has written it"):
        last_commit(table, "main", "three")


@pytest.mark.parametrize("committed", [True, False])
def test_rejects_that_the_lost_job_has_staged_are_committed(committed: bool, tmp_path: Path) -> None:
    """The driver died between the commit of the table and that of its rejects: the records are not read again."""
    old = Direct(tmp_path, RECORDS).start(3)
    job_id = old.directory.job_id
    rejects = require_rejects(old.location)
    for checkpoint_id in (1, 2, 3):
        run = SinkRun(
            rejects,
            cast(CheckpointTable, None),
            RunSettings(
                job_id=job_id, run_id="run", branch="main", mode="append", max_continuous_empty_commits=1
            ),
        )
        identity = own_identity(
            CheckpointIdentity("p", job_id, checkpoint_id, end_offsets=(str(checkpoint_id),))
        )
        raw = raw_batch([{"value": b"{"}], "orders", checkpoint_id)
        rows = rejected_rows(raw, [Reject(0, "bad", "DecodeError")], RejectStamp("p", checkpoint_id, 0))
        target = run.target(identity)
        committable = run.stage(identity, [write_rows(cast(Any, target), [rows], 0, 0, 0)])
        assert committable is not None
        if checkpoint_id == 1 or (committed and checkpoint_id == 2):
            run.commit(committable)  # and died before the staged file was removed
    shutil.rmtree(old.path)
    assert recover(old, "new", "--yes") == 0
    found = load_table(rejects_name(old.location)).scan().to_arrow()
    # What was staged for a checkpoint that the table does not hold is read again.
    assert sorted(found["checkpoint_id"].to_pylist()) == [1, 2]


def test_many_tables_need_their_topics(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    stream = LocalStream(tmp_path, RECORDS, location=str(tmp_path / "{topic}"))
    assert recover(stream, "new") == 1
    assert "stands for many tables: name their topics, --topics=orders,customers" in capsys.readouterr().err
    assert recover(stream, "new", "--topics", "a,b") == 1
    assert "none of the tables of a, b exists" in capsys.readouterr().err


def test_tables_that_rows_name_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    stream = LocalStream(tmp_path, RECORDS, location=str(tmp_path / "{row.country}"))
    assert recover(stream, "new", "--topics", "orders") == 1
    assert "stands for tables that rows name" in capsys.readouterr().err


def test_a_topic_without_a_table_is_read_from_its_first_record(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    old = Direct(tmp_path, RECORDS, location=str(tmp_path / "orders")).start(4)
    old.path.rename(tmp_path / "lost")
    many = LocalStream(tmp_path, RECORDS, location=str(tmp_path / "{topic}"))
    assert recover(many, "new", "--topics", "orders,users", "--yes") == 0
    assert "users has no table yet, and will be read from the first record on" in capsys.readouterr().out
    directory = SparkDirectory(str(tmp_path / "new"), LocalFileIO())
    [text] = directory.end_offsets(0) or ("",)
    assert json.loads(text)["offsets"] == {"orders": {"0": 8}}
    assert BoundTables.of(directory) == BoundTables(str(tmp_path / "{topic}"))
    again = Direct(tmp_path, RECORDS, location=str(tmp_path / "orders"), directory="new").start()
    assert again.rows() == expected("append")


def test_a_new_directory_is_one_that_spark_goes_on_from(tmp_path: Path) -> None:
    text = SourceOffsets({("orders", 0): 8}).to_text()
    directory = write_directory(str(tmp_path / "new"), LocalFileIO(), text)
    assert (directory.last_planned, directory.last_completed, directory.next_checkpoint) == (0, 0, 1)
    assert directory.end_offsets(0) == (json.dumps(json.loads(text), sort_keys=True),)
    assert SparkDirectory(str(tmp_path / "new")).job_id == directory.job_id
    with pytest.raises(InvalidOptionError, match="is not new"):
        write_directory(str(tmp_path / "new"), LocalFileIO(), text)
