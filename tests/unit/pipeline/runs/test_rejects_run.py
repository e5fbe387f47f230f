"""Two tables that cannot be committed at once: each record in one of them, once, wherever the driver dies."""

from __future__ import annotations

import itertools
import json
import re
import shutil

import pytest

from streamlake import failpoints, load_table
from streamlake.catalog.open import open_table
from streamlake.checkpoint.spark_directory import SparkDirectory
from streamlake.cli.main import main
from streamlake.commit import recovery_commits as marks
from streamlake.errors import (
    InvalidOptionError,
    OutdatedValuesError,
    SchemaMismatchError,
    StreamlakeError,
    TooManyRejectsError,
)
from streamlake.failpoints import REGISTERED, FailpointError
from streamlake.operate.recover.recovery import Recovery, without_table
from streamlake.pipeline.runs.rejected.rejects_table import open_rejects, rejects_name
from streamlake.pipeline.runs.rejects import require_policy, require_records
from tests.helpers.invariants import check_table
from tests.helpers.local_appends import LateQueue
from tests.helpers.local_rejects import RejectingStream, rejected_rows_of
from tests.helpers.tables import make_table

DDL = "id long, v string"
BATCHES = (
    [{"id": 0, "v": "a"}, "{", {"id": 2, "v": "a"}],
    [{"id": 3, "v": "a"}],
    ["[", '{"id": "x"}'],
    [{"id": 6, "v": "a"}, {"id": True}],
)
GOOD, BAD = [0, 2, 3, 6], [1, 4, 5, 7]
NOT_PASSED = {
    "offsets-planned", "offsets-logged", "splits-planned",
    "table-created", "checkpoint-noted", "before-tasks", "before-result", "result-returned", "results-collected",
    "before-return", "before-indexing", "after-indexing", "before-resolution", "after-resolution", "index-files-pruned",
    "index-run-written", "index-state-stored", "file-rewritten", "files-rewritten", "delete-file-closed", "before-clean-up",
}  # fmt: skip


def drive(location, armed=(), batches=BATCHES):
    """The whole stream; each death is followed by a driver that replays from the checkpoint that was not finished."""
    deaths, done = 0, 0
    while True:
        failpoints.arm(armed[deaths] if deaths < len(armed) else "")
        try:
            stream = RejectingStream(location, batches, DDL)
            while done < len(batches):
                stream.checkpoint(done)
                done += 1
            return deaths
        except (FailpointError, StreamlakeError):
            deaths += 1
            assert deaths < 6
        finally:
            failpoints.arm("")


def check(location):
    ids = load_table(str(location)).scan().to_arrow()["id"].to_pylist()
    assert sorted(ids) == GOOD
    rows = rejected_rows_of(location)
    assert [row["offset"] for row in rows] == BAD
    assert [row["checkpoint_id"] for row in rows] == [0, 2, 2, 3]
    for table in (open_table(str(location)), open_rejects(str(location))):
        check_table(table, files_exist=True)
    told = [
        snapshot.summary.get("streamlake.rejected-records")
        for snapshot in open_table(str(location)).snapshots
    ]
    assert told == ["1", None, "2", "1"]
    assert len(open_rejects(str(location)).snapshots) == 3


def test_every_record_is_in_one_of_the_tables(tmp_path):
    make_table(tmp_path / "t", DDL)
    assert drive(tmp_path / "t") == 0
    check(tmp_path / "t")


PLACES = sorted(set(REGISTERED) - NOT_PASSED)


def test_wherever_the_driver_dies(tmp_path):
    met = set()
    for name, nth in itertools.product(PLACES, (1, 2, 3)):
        location = tmp_path / f"{name}-{nth}"
        make_table(location, DDL)
        if drive(location, [f"{name}=raise,nth={nth}"]):
            met.add(name)
        check(location)
    assert {"committable-recorded", "before-swap", "data-file-closed", "manifest-list-written"} <= met


def test_a_driver_that_dies_while_it_recovers(tmp_path):
    deaths = ["committable-recorded=raise,nth=2", "before-commit-note=raise,nth=1"]
    for first, second in itertools.product(
        deaths, ("before-recommit", "after-recommit", "manifest-list-written")
    ):
        location = tmp_path / f"{deaths.index(first)}-{second}"
        make_table(location, DDL)
        assert drive(location, [first, f"{second}=raise,nth=1"]) >= 1
        check(location)


def test_checkpoints_that_are_written_ahead_of_their_commits(tmp_path):
    for nth in range(1, 8):
        location = tmp_path / str(nth)
        make_table(location, DDL)
        failpoints.arm(f"before-swap=raise,nth={nth}")
        receipts, deaths = [], 0
        while deaths < 3:
            queue = LateQueue(3, receipts.append)
            try:
                stream = RejectingStream(location, BATCHES, DDL, queue=queue)
                for number in range(len(BATCHES)):
                    stream.checkpoint(number)
                if queue.drain() is None:
                    break
            except (FailpointError, StreamlakeError):
                pass
            failpoints.arm("")
            deaths += 1
        failpoints.arm("")
        check(location)


def test_rejects_that_were_staged_alone_are_dropped(tmp_path):
    """After a fix the records of a checkpoint that was not committed are rows; they are no rejects then."""
    location = tmp_path / "t"
    make_table(location, DDL)
    failpoints.arm("committable-recorded=raise,nth=1")
    with pytest.raises(FailpointError):
        RejectingStream(location, [["{}", '{"id": "7"}']], DDL).checkpoint(0)
    failpoints.arm("")
    fixed = RejectingStream(location, [["{}", '{"id": 7}']], DDL)
    fixed.checkpoint(0)
    assert rejected_rows_of(location) == []
    assert load_table(str(location)).scan().count() == 2


def test_a_limit_is_of_a_checkpoint(tmp_path):
    location = tmp_path / "t"
    make_table(location, DDL)
    stream = RejectingStream(location, [["{"], ["{", "["]], DDL, most=1)
    assert stream.checkpoint(0).counters == {"rejected-records": 1}
    with pytest.raises(TooManyRejectsError, match=r"2 or more records.*max_rejects allows 1"):
        stream.checkpoint(1)
    assert [row["offset"] for row in rejected_rows_of(location)] == [0]


def test_another_table_in_the_place_of_the_rejects_is_refused(tmp_path):
    location = tmp_path / "t"
    make_table(location, DDL)
    make_table(rejects_name(str(location)), "id long")
    with pytest.raises(SchemaMismatchError, match="no rejects table"):
        RejectingStream(location, [["{"]], DDL).checkpoint(0)


def test_the_rejects_table_is_partitioned_by_day(tmp_path):
    location = tmp_path / "t"
    make_table(location, DDL)
    RejectingStream(location, [[json.dumps({"id": []})]], DDL).checkpoint(0)
    rejects = open_rejects(str(location))
    assert [str(part.transform) for part in rejects.spec.fields] == ["day"]
    assert rejects.format_version == 2


def test_policies():
    require_policy("fail", None)
    require_policy("reject", 5)
    require_records("fail")
    for arguments in (("rejects", None), ("fail", 5), ("reject", 0)):
        with pytest.raises(InvalidOptionError):
            require_policy(*arguments)
    with pytest.raises(InvalidOptionError):
        require_records("reject")


def recover(location, directory, to, *more):
    words = ["recover", str(location), "--pipeline", "p", "--checkpoint-location", str(directory)]
    with pytest.raises(SystemExit) as ended:
        main([*words, "--rewind-to", str(to), *more])
    return ended.value.code


def offsets_of(location, pipeline="p"):
    return [row["offset"] for row in rejected_rows_of(location) if row["pipeline"] == pipeline]


@pytest.mark.parametrize("dies", [False, True])
def test_a_stream_that_is_put_back_rejects_again(tmp_path, capsys, monkeypatch, dies):
    """What comes again is cut into other checkpoints; rejects of others and of before stay."""
    location, directory = tmp_path / "t", tmp_path / "checkpoint"
    make_table(location, DDL)
    first = RejectingStream(location, BATCHES, DDL, directory=directory)
    for number in range(3):
        first.checkpoint(number)
    RejectingStream(location, [["{", "{"]], DDL, pipeline="q").checkpoint(0)
    first.checkpoint(3)
    assert offsets_of(location) == BAD
    assert recover(location, directory, 1) == 0
    assert "take 3 records that the stream reads again out of" in capsys.readouterr().out
    assert offsets_of(location) == BAD
    if dies:
        with monkeypatch.context() as patched:
            patched.setattr(marks, "adopt", lambda *_: (_ for _ in ()).throw(FailpointError("dead")))
            assert isinstance(recover_with_error(location, directory, 1), FailpointError)
    assert recover(location, directory, 1, "--yes") == 0
    assert offsets_of(location) == BAD[:1]
    merged = [*BATCHES[:2], [*BATCHES[2], *BATCHES[3], "}"]]
    RejectingStream(location, merged, DDL, directory=directory).checkpoint(2)
    assert offsets_of(location) == [*BAD, 8]
    assert offsets_of(location, "q") == [0, 1]
    found = load_table(str(location)).scan().to_arrow()["id"].to_pylist()
    assert sorted(found) == GOOD
    for table in (open_table(str(location)), open_rejects(str(location))):
        check_table(table, files_exist=True)


def recover_with_error(location, directory, to):
    recovery = Recovery(
        open_table(str(location)),
        "main",
        "p",
        SparkDirectory(str(directory)),
        str(location),
        open_rejects(str(location)),
    )
    with pytest.raises(FailpointError) as error:
        recovery.rewind(to).carry_out()
    return error.value


def test_a_stream_without_its_table_rejects_all_again(tmp_path):
    location, directory = tmp_path / "t", tmp_path / "checkpoint"
    make_table(location, DDL)
    first = RejectingStream(location, BATCHES, DDL, directory=directory)
    for number in range(4):
        first.checkpoint(number)
    shutil.rmtree(location)
    plan = without_table(SparkDirectory(str(directory)), "p", open_rejects(str(location)))
    plan.carry_out()
    assert offsets_of(location) == []
    make_table(location, DDL)
    again = RejectingStream(location, BATCHES, DDL, directory=directory)
    for number in range(4):
        again.checkpoint(number)
    assert offsets_of(location) == BAD


@pytest.mark.parametrize("gone", [False, True])
def test_rejects_that_a_new_beginning_does_not_read_again_stay(tmp_path, capsys, gone):
    """The stream had begun behind the first of them, or nobody knows any more where it had."""
    location, directory = tmp_path / "t", tmp_path / "checkpoint"
    make_table(location, DDL)
    first = RejectingStream(location, BATCHES, DDL, directory=directory)
    for number in range(4):
        first.checkpoint(number)
    entry = directory / "offsets" / "0"
    assert '"first": {' in entry.read_text()
    if gone:
        entry.unlink()
    else:
        entry.write_text(re.sub(r'("first": \{[^}]*: )0\}', rf"\g<1>{BAD[1]}}}", entry.read_text()))
        assert f": {BAD[1]}}}" in entry.read_text()
    shutil.rmtree(location)
    plan = without_table(SparkDirectory(str(directory)), "p", open_rejects(str(location)))
    text = plan.steps[-1].text
    assert ("keep all records" if gone else "or starting-offsets passes over by now") in text
    plan.carry_out()
    assert offsets_of(location) == (BAD if gone else BAD[:1])
    assert without_table(SparkDirectory(str(directory)), "p", open_rejects(str(location))).steps[1:] == ()


def test_a_rejects_table_that_is_not_ahead_is_left_alone(tmp_path, capsys):
    location, directory = tmp_path / "t", tmp_path / "checkpoint"
    make_table(location, DDL)
    first = RejectingStream(location, BATCHES[:2], DDL, directory=directory)
    for number in range(2):
        first.checkpoint(number)
    before = open_rejects(str(location)).metadata.current_snapshot_id
    assert recover(location, directory, 0, "--yes") == 0
    assert "reads again" not in capsys.readouterr().out
    assert open_rejects(str(location)).metadata.current_snapshot_id == before
    assert offsets_of(location) == BAD[:1]


@pytest.mark.parametrize("partition_by", [(), ("v",)], ids=["whole", "partitioned"])
@pytest.mark.parametrize("mode", ["overwrite", "dynamic-overwrite"])
@pytest.mark.parametrize("restarts", [False, True])
def test_a_checkpoint_of_rejects_alone_replaces_no_rows(tmp_path, restarts, mode, partition_by):
    location = tmp_path / "t"
    make_table(location, DDL, partition_by)
    batches = [['{"id": 1}', '{"id": 2}'], ["not json"], ["[", '{"id": "x"}'], ['{"id": 3}']]
    seen = []
    stream = RejectingStream(location, batches, DDL, mode=mode)
    for number in range(len(batches)):
        if restarts:
            failpoints.arm(
                "committable-recorded=raise,nth=1" if number in (0, 3) else "before-swap=raise,nth=1"
            )
            with pytest.raises(FailpointError):
                stream.checkpoint(number)
            failpoints.arm("")
            stream = RejectingStream(location, batches, DDL, mode=mode)
        stream.checkpoint(number)
        seen.append(sorted(load_table(str(location)).scan().to_arrow()["id"].to_pylist()))
    assert seen == [[1, 2], [1, 2], [1, 2], [3]]
    assert [row["offset"] for row in rejected_rows_of(location)] == [2, 3, 4]
    told = [
        each.summary["streamlake.max-committed-checkpoint-id"] for each in open_table(str(location)).snapshots
    ]
    assert told == ["0", "1", "2", "3"]
    check_table(open_table(str(location)), files_exist=True)


def test_a_reject_that_is_a_row_when_the_checkpoint_is_written_again_is_none(tmp_path, monkeypatch):
    make_table(tmp_path, DDL)
    batches = [[{"id": 0, "v": "a"}, "{"]]
    stream = RejectingStream(tmp_path, batches, DDL)
    with monkeypatch.context() as patch:
        patch.setattr(stream.run, "commit", _outdated)
        with pytest.raises(OutdatedValuesError):
            stream.checkpoint(0)
    batches[0] = [{"id": 0, "v": "a"}, {"id": 1, "v": "b"}]
    stream.checkpoint(0)
    assert load_table(str(tmp_path)).scan().to_arrow().num_rows == 2
    assert rejected_rows_of(tmp_path) == []
    RejectingStream(tmp_path, batches, DDL).checkpoint(0)
    assert rejected_rows_of(tmp_path) == []


def _outdated(*_arguments, **_named):
    raise OutdatedValuesError("the row has moved")
