"""Ways out while checkpoints are staged that Spark was told to be done: none of them leaves their rows out in silence."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from streamlake.catalog.open import open_table
from streamlake.checkpoint.store import CommittableStore
from streamlake.checkpoint.table_note import Calls
from streamlake.cli.main import main
from streamlake.errors import InvalidOptionError, LineageError, StorageError
from streamlake.operate.check.check_points import Points
from streamlake.operate.check.directory_check import check_lineage
from streamlake.operate.check.sink_check import SinkPlan
from streamlake.operate.recover.recovery import Recovery
from streamlake.pipeline.runs import micro_batch
from streamlake.pipeline.runs.commit_queue import CommitQueue
from streamlake.pipeline.runs.lineage.lineage_check import KnownDirectory, uncovered
from streamlake.pipeline.sinks.bound_directory import require_own_table
from streamlake.table.updates.manage_refs import ManageRefs
from tests.helpers.local_stream import LocalStream, Record

RECORDS: list[Record] = [(number, f"v{number}") for number in range(10)]


def _dying(*_: object) -> None:
    raise StorageError("the driver dies")


def stage_ahead(
    home: Path, monkeypatch: pytest.MonkeyPatch, pipeline: str = "p", *, last: int = 2
) -> LocalStream:
    """Checkpoints 0 and 1 are committed; those from 2 on are staged, Spark takes them for done, and the driver dies."""
    LocalStream(home, RECORDS, pipeline=pipeline).start(2)
    stage(LocalStream(home, RECORDS, pipeline=pipeline, ahead=3), last - 1, monkeypatch)
    return LocalStream(home, RECORDS, pipeline=pipeline)


def stage(ahead: LocalStream, checkpoints: int, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(micro_batch, "_commit", _dying)
        patched.setattr(CommitQueue, "_check", lambda queue: None)
        ahead.start(checkpoints)
        assert isinstance(ahead.finish(), StorageError)
    assert ahead.directory.completed == list(range(2 + checkpoints))


def delete_staged(stream: LocalStream, checkpoint_id: int) -> None:
    """As somebody does it by hand."""
    table = open_table(stream.location)
    Path(CommittableStore(table.io, table.locations, stream.directory.job_id).path(checkpoint_id)).unlink()


def refused(stream: LocalStream, told: str) -> None:
    """By the start of a query that has nothing to do, by `check`, and by the first micro-batch."""
    plan = SinkPlan.of(stream.location, {}, stream.pipeline)
    with pytest.raises(LineageError, match=told):
        require_own_table(stream.directory, plan, lambda: open_table(stream.location))
    points = Points()
    check_lineage(plan, open_table(stream.location), stream.directory, str(stream.path), points)
    [point] = points.found
    assert re.search(told, point.message)
    assert "streamlake recover" in point.message
    with pytest.raises(LineageError, match=told):
        stream.start()


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


def no_fork_but_a_rewind_brings_all(stream: LocalStream) -> None:
    with pytest.raises(InvalidOptionError, match=r"a fork leaves their rows out"):
        recovery(stream).fork()
    recovery(stream).rewind(1).carry_out()
    stream.start()
    assert stream.rows() == RECORDS


@pytest.mark.parametrize(("last", "gone"), [(2, 2), (3, 2), (3, 3)])
def test_what_was_staged_and_is_gone_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, last: int, gone: int
) -> None:
    stream = stage_ahead(tmp_path, monkeypatch, last=last)
    delete_staged(stream, gone)
    refused(stream, rf"checkpoint {gone} was staged .* what was staged is gone")
    no_fork_but_a_rewind_brings_all(stream)


def test_what_a_copy_of_the_directory_staged_is_not_the_directorys_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody has deleted what was staged, and a copy of the directory has staged another checkpoint under its id."""
    LocalStream(tmp_path, RECORDS).start(2)
    copy = LocalStream(tmp_path, RECORDS).copied("copy")
    copy.step, copy.ahead = 3, 3
    stage(LocalStream(tmp_path, RECORDS, ahead=3), 1, monkeypatch)
    stream = LocalStream(tmp_path, RECORDS)
    delete_staged(stream, 2)
    stage(copy, 1, monkeypatch)
    refused(stream, r"checkpoint 2 was staged .* what was staged is gone")
    no_fork_but_a_rewind_brings_all(stream)


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


def test_a_directory_of_another_pipeline_is_named_and_no_way_out_binds_it(tmp_path: Path) -> None:
    """Whether or not the table is there, and has been written by its own pipeline."""
    accounts = LocalStream(tmp_path, RECORDS, pipeline="accounts", location=str(tmp_path / "accounts")).start(
        2
    )
    orders = LocalStream(
        tmp_path, RECORDS, pipeline="orders", location=str(tmp_path / "orders"), directory="own"
    )
    told = (
        f"{accounts.path} is the checkpoint directory of pipeline 'accounts' (table {accounts.location}), not of "
        f"'orders'.\nContinuing would go on in {orders.location} where 'accounts' has stopped in its own source. To go "
        "on, correct the location of the checkpoint directory (`checkpoint:` in a pipeline file): each pipeline has "
        "one of its own, and a new pipeline a new one"
    )
    for create in (True, False):
        plan = SinkPlan.of(orders.location, {"create": create}, orders.pipeline)
        with pytest.raises(LineageError) as refused:
            require_own_table(accounts.directory, plan, lambda: open_table(orders.location))
        assert str(refused.value) == told
        if create:
            orders.start(1)
    points = Points()
    check_lineage(plan, open_table(orders.location), accounts.directory, str(accounts.path), points)
    assert [point.message for point in points.found] == [told]


def test_a_directory_whose_table_was_renamed_is_no_other_pipelines(tmp_path: Path) -> None:
    stream = LocalStream(tmp_path, RECORDS, pipeline="orders", location=str(tmp_path / "orders")).start(2)
    plan = SinkPlan.of(str(tmp_path / "renamed"), {"create": True}, stream.pipeline)
    with pytest.raises(LineageError, match="--adopt"):
        require_own_table(stream.directory, plan, lambda: open_table(plan.table))


def test_recover_of_a_pipeline_that_the_table_does_not_know_is_an_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stream = LocalStream(tmp_path, RECORDS, pipeline="orders").start(2)
    where = f"branch 'main' of {stream.location}"
    own = f"{stream.path} is the directory of pipeline 'orders' in {where}, not of"
    unnamed = f"{stream.location}:{stream.directory.job_id}"

    def told(directory: Path, *options: str) -> tuple[int, str]:
        arguments = ("recover", stream.location, "--checkpoint-location", str(directory), *options)
        with pytest.raises(SystemExit) as ended:
            main(list(arguments))
        return int(ended.value.code or 0), "".join(capsys.readouterr()).strip()

    assert told(stream.path, "--pipeline", "orders")[0] == 0
    code, text = told(stream.path, "--pipeline", "ordres")
    assert code == 1
    assert f"{own} pipeline 'ordres'; give --pipeline orders" in text
    code, text = told(stream.path)
    assert code == 1
    assert f"{own} pipeline '{unnamed}'; give --pipeline orders" in text


def test_recover_of_a_directory_that_the_table_does_not_know_asks_for_its_pipeline(tmp_path: Path) -> None:
    stream = LocalStream(tmp_path, RECORDS, pipeline="orders").start(2)
    other = LocalStream(tmp_path, [], directory="other")
    other.start(1)
    where = f"branch 'main' of {stream.location}"
    for pipeline, told in (
        ("ordres", f"{where} knows no pipeline 'ordres'; did you mean 'orders'?"),
        ("x", f"{where} knows no pipeline 'x'; it knows pipeline 'orders'"),
        (None, f"--pipeline is missing: {where} has rows of pipeline 'orders'"),
    ):
        asked = Recovery(open_table(stream.location), "main", pipeline, other.directory, stream.location)
        with pytest.raises(InvalidOptionError, match=re.escape(told)):
            asked.require_known_pipeline()
