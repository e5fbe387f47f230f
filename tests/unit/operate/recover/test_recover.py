"""Every disagreement of table and checkpoint directory is refused, and every way out that the message names leads to the
rows that it promises. The commands are taken from the messages, as a person would."""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from streamlake.catalog.open import create, open_table
from streamlake.checkpoint.identity import offsets_digest
from streamlake.cli.main import main
from streamlake.commit.committer import Committer
from streamlake.commit.receipt import Outcome
from streamlake.errors import FencedError, LineageError
from streamlake.pipeline.runs.lineage.lineage_check import lineage_findings
from streamlake.pipeline.runs.sink_run import SinkRun
from streamlake.spec.metadata.table_metadata import TableMetadata
from streamlake.spec.types.ddl import parse_ddl
from streamlake.table.producers.append_files import AppendFiles
from streamlake.table.producers.overwrite_files import OverwriteFiles
from streamlake.table.updates.manage_refs import ManageRefs
from streamlake.table.updates.metadata_update import commit_metadata
from streamlake.table.updates.update_properties import UpdateProperties
from streamlake.tables import load_table
from tests.helpers.batch_write import write_files
from tests.helpers.error_catalogue import documented
from tests.helpers.invariants import check_table, live_data_files
from tests.helpers.local_stream import DDL, LocalStream, Record

MODES = ("append", "upsert")


def records(count: int, first: int = 0) -> list[Record]:
    """Records of which every fifth has the key of one that came before it."""
    return [
        (number if number % 5 else max(number - 5, 0), f"v{number}") for number in range(first, first + count)
    ]


def expected(mode: str, *parts: list[Record]) -> list[Record]:
    """The rows that the records make when they are written in this order."""
    every = [record for part in parts for record in part]
    return sorted(dict(every).items()) if mode == "upsert" else sorted(every)


def refused(stream: LocalStream, error: type[Exception] = LineageError) -> str:
    """The message with which the stream is refused; nothing was committed."""
    before = open_table(stream.location).metadata
    with pytest.raises(error) as caught:
        stream.start()
    assert open_table(stream.location).metadata.current_snapshot_id == before.current_snapshot_id
    return str(caught.value)


def command(message: str, way: str) -> list[str]:
    """The command for `way` that a message names."""
    found = [text for text in re.findall(r"`streamlake (recover [^`]*)`", message) if f" {way}" in text]
    assert found, f"{way} is not offered: {message}"
    return shlex.split(found[0])


def streamlake(*arguments: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(list(arguments))
    return int(ended.value.code or 0)


def files_of(stream: LocalStream) -> dict[str, bytes]:
    roots = (Path(stream.location), stream.path)
    return {str(path): path.read_bytes() for root in roots for path in root.rglob("*") if path.is_file()}


def recover(stream: LocalStream, message: str, way: str, capsys: pytest.CaptureFixture[str]) -> str:
    """Take a way out as the message says: first look, then do. Returns what the command prints."""
    words = command(message, way)
    before = files_of(stream)
    code = streamlake(*words)
    looked, told = capsys.readouterr()
    assert code == 0, told
    assert "Nothing was done yet" in looked
    assert files_of(stream) == before
    assert streamlake(*words, "--yes") == 0
    done = capsys.readouterr().out
    assert done.startswith(looked.partition("Nothing was done yet")[0]), "it does what it said"
    return done


def finish(stream: LocalStream, rows: list[Record]) -> None:
    """Run the stream on; it ends with these rows, and goes on after a restart."""
    stream.start()
    assert stream.rows() == rows
    check_table(open_table(stream.location), files_exist=True)
    assert findings(stream) == []
    later = records(3, first=1000)
    stream.source.extend(later)
    stream.start(1)
    stream.start()
    assert stream.rows() == expected(stream.mode, rows, later)
    check_table(open_table(stream.location), files_exist=True)


def findings(stream: LocalStream) -> list[str]:
    directory = stream.directory
    noted = directory.note(stream.location, stream.branch)
    name = stream.pipeline or f"{stream.location}:{directory.job_id}"
    name = name if noted is None else noted.pipelines.get(name, name)
    table = open_table(stream.location)
    return [each.kind.value for each in lineage_findings(table, stream.branch, name, directory, noted)]


def head(stream: LocalStream, checkpoint_id: int) -> int:
    """The newest snapshot of a checkpoint."""
    found = [
        each.snapshot_id
        for each in open_table(stream.location).snapshots
        if each.summary.get("streamlake.max-committed-checkpoint-id") == str(checkpoint_id)
    ]
    return found[-1]


def roll_back(stream: LocalStream, checkpoint_id: int) -> None:
    """As an operator does it who knows nothing of markers."""
    table = open_table(stream.location)
    ManageRefs(table).set_branch(stream.branch, head(stream, checkpoint_id)).commit()


def append_foreign(stream: LocalStream, record: Record) -> None:
    LocalStream(
        Path(stream.location).parent,
        [record],
        pipeline=f"other-{record[0]}",
        directory=f"other-{record[0]}",
        location=stream.location,
    ).start()


@pytest.fixture(params=MODES)
def stream(request: pytest.FixtureRequest, tmp_path: Path) -> LocalStream:
    return LocalStream(tmp_path, records(10), mode=request.param)


# A new job id for a known pipeline


def lose_directory(stream: LocalStream) -> str:
    """The checkpoint directory is lost after three of five checkpoints."""
    stream.start(3)
    shutil.rmtree(stream.path)
    return refused(stream)


def test_a_lost_directory_is_adopted(stream: LocalStream, capsys: pytest.CaptureFixture[str]) -> None:
    message = lose_directory(stream)
    assert "it is new, or another one" in message
    assert findings(stream) == ["other-job"]
    recover(stream, message, "--adopt", capsys)
    finish(stream, expected(stream.mode, records(6), records(10)))


def test_a_lost_directory_is_forked_and_the_old_one_may_come_back(
    stream: LocalStream, capsys: pytest.CaptureFixture[str]
) -> None:
    stream.start(3)
    old = stream.copied("old")
    shutil.rmtree(stream.path)
    recover(stream, refused(stream), "--fork", capsys)
    finish(stream, expected(stream.mode, records(6), records(10)))
    at = stream.rows()
    old.start()
    assert old.rows() == expected(stream.mode, at, old.source[6:])
    assert {name for name in load_table(stream.location).properties if ".pipeline." in name} == {
        "streamlake.pipeline.p",
        "streamlake.pipeline.p-fork-0",
    }


def test_the_pipeline_of_an_adopted_job_is_not_written_by_the_old_one_any_more(
    stream: LocalStream, capsys: pytest.CaptureFixture[str]
) -> None:
    stream.start(3)
    old = stream.copied("old")
    shutil.rmtree(stream.path)
    recover(stream, refused(stream), "--adopt", capsys)
    assert "last wrote" in refused(old)


def test_a_directory_that_has_come_some_way_elsewhere_is_adopted_where_it_is(
    stream: LocalStream, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stream.start(3)
    elsewhere = LocalStream(
        tmp_path, stream.source, mode=stream.mode, directory="new", location=str(tmp_path / "elsewhere")
    )
    elsewhere.start(3)
    elsewhere.location = stream.location
    recover(elsewhere, refused(elsewhere), "--adopt", capsys)
    finish(elsewhere, expected(stream.mode, records(10)))


# A checkpoint directory that is older than the table, and copies of one


def restore_older(stream: LocalStream) -> str:
    """The directory of checkpoint 1 is restored when the table is at 3; it reads in other portions now."""
    stream.start(2)
    old = stream.copied("old")
    stream.start(2)
    shutil.rmtree(stream.path)
    old.path.rename(stream.path)
    stream.step = 3
    return refused(stream)


def test_a_table_is_rolled_back_to_an_older_directory(
    stream: LocalStream, capsys: pytest.CaptureFixture[str]
) -> None:
    message = restore_older(stream)
    assert message.startswith(
        f"the checkpoint directory is older than the table {stream.location}: it is about to write checkpoint 2, and the "
        "table holds checkpoints up to 3 of it. So checkpoint 2 of pipeline 'p' "
    )
    assert findings(stream) == ["checkpoint-older"]
    recover(stream, message, "--rollback-table", capsys)
    finish(stream, expected(stream.mode, records(10)))


def test_an_older_directory_is_adopted_and_writes_again(
    stream: LocalStream, capsys: pytest.CaptureFixture[str]
) -> None:
    recover(stream, restore_older(stream), "--adopt", capsys)
    finish(stream, expected(stream.mode, records(8), stream.source[4:10]))


def test_an_older_directory_is_forked_and_writes_again(
    stream: LocalStream, capsys: pytest.CaptureFixture[str]
) -> None:
    recover(stream, restore_older(stream), "--fork", capsys)
    finish(stream, expected(stream.mode, records(8), stream.source[4:10]))


def test_a_rollback_names_what_other_writers_lose(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    stream = LocalStream(tmp_path, records(10))
    stream.start(2)
    old = stream.copied("old")
    stream.start(1)
    append_foreign(stream, (77, "foreign"))
    stream.start(1)
    shutil.rmtree(stream.path)
    old.path.rename(stream.path)
    stream.step = 3
    told = recover(stream, refused(stream), "--rollback-table", capsys)
    assert "1 snapshot of other writers undone" in told
    finish(stream, expected("append", records(10)))


def test_of_two_copies_the_one_that_starts_last_goes_on(
    stream: LocalStream, capsys: pytest.CaptureFixture[str]
) -> None:
    stream.start(1)
    copy = stream.copied("copy")
    copy.start(1)
    with pytest.raises(FencedError, match="a copy of it"):
        stream.go_on(1)
    copy.step = 3
    copy.go_on(1)
    stream.step = 5
    message = refused(stream)
    assert "older than the table" in message
    recover(stream, message, "--rollback-table", capsys)
    finish(stream, expected(stream.mode, records(10)))


def test_a_copy_whose_table_has_gone_another_way_is_refused(
    stream: LocalStream, capsys: pytest.CaptureFixture[str]
) -> None:
    """The copy has skipped an empty checkpoint that the other directory's was full of rows."""
    stream.start(1)
    copy = stream.copied("copy")
    stream.start(1)
    for log, text in (("offsets", 'v1\n{}\n{"end":2}\n'), ("commits", "v1\n{}\n")):
        (copy.path / log / "1").write_text(text)
    message = refused(copy)
    assert "was copied and both were started" in message
    assert findings(copy) == ["diverged"]
    recover(copy, message, "--rollback-table", capsys)
    finish(copy, expected(stream.mode, records(10)))


# A table that was rolled back


def test_a_rolled_back_table_is_written_again(
    stream: LocalStream, capsys: pytest.CaptureFixture[str]
) -> None:
    stream.start(4)
    roll_back(stream, 1)
    message = refused(stream)
    documented("lineage-error", message)
    assert findings(stream) == ["rolled-back"]
    recover(stream, message, "--rewind-to=1", capsys)
    finish(stream, expected(stream.mode, records(10)))


def test_a_rolled_back_table_stays_as_it_is(stream: LocalStream, capsys: pytest.CaptureFixture[str]) -> None:
    stream.start(4)
    roll_back(stream, 1)
    recover(stream, refused(stream), "--adopt", capsys)
    finish(stream, expected(stream.mode, records(4), stream.source[8:10]))


def test_a_rolled_back_table_is_moved_forward_again(
    stream: LocalStream, capsys: pytest.CaptureFixture[str]
) -> None:
    stream.start(4)
    roll_back(stream, 1)
    recover(stream, refused(stream), "--rollback-table", capsys)
    finish(stream, expected(stream.mode, records(10)))


def test_a_rolled_back_table_cannot_be_moved_to_what_has_expired(
    stream: LocalStream, capsys: pytest.CaptureFixture[str]
) -> None:
    stream.start(4)
    roll_back(stream, 1)
    gone = {head(stream, 2), head(stream, 3)}
    change(stream, lambda base: _without_snapshots(base, gone))
    message = refused(stream)
    assert streamlake(*command(message, "--rollback-table"), "--yes") == 1
    assert "rows in between would be missing" in capsys.readouterr().err
    recover(stream, message, "--rewind-to=1", capsys)
    finish(stream, expected(stream.mode, records(10)))


# One of the two marks is gone


def change(stream: LocalStream, function: Callable[[TableMetadata], TableMetadata]) -> None:
    commit_metadata(open_table(stream.location), function)


def _without_snapshots(base: TableMetadata, gone: set[int]) -> TableMetadata:
    from dataclasses import replace

    kept = tuple(each for each in base.snapshots if each.snapshot_id not in gone)
    return base if len(kept) == len(base.snapshots) else replace(base, snapshots=kept)


def test_a_property_that_is_gone_is_set_again(
    stream: LocalStream, capsys: pytest.CaptureFixture[str]
) -> None:
    stream.start(3)
    UpdateProperties(open_table(stream.location)).remove("streamlake.pipeline.p").commit()
    message = refused(stream)
    assert findings(stream) == ["property-lost"]
    recover(stream, message, "--adopt", capsys)
    finish(stream, expected(stream.mode, records(10)))


def test_a_property_that_was_set_back_is_a_contradiction(
    stream: LocalStream, capsys: pytest.CaptureFixture[str]
) -> None:
    stream.start(2)
    older = open_table(stream.location).properties["streamlake.pipeline.p"]
    stream.start(1)
    UpdateProperties(open_table(stream.location)).set("streamlake.pipeline.p", older).commit()
    message = refused(stream)
    assert findings(stream) == ["property-behind"]
    recover(stream, message, "--rollback-table", capsys)
    finish(stream, expected(stream.mode, records(10)))


def test_marks_that_are_both_gone_are_set_again(
    stream: LocalStream, capsys: pytest.CaptureFixture[str]
) -> None:
    stream.start(3)
    table = open_table(stream.location)
    UpdateProperties(table).remove("streamlake.pipeline.p").commit()
    AppendFiles(table).commit()
    gone = {each.snapshot_id for each in table.snapshots[:-1]}
    change(stream, lambda base: _without_snapshots(base, gone))
    message = refused(stream)
    assert findings(stream) == ["marks-lost"]
    recover(stream, message, "--adopt", capsys)
    finish(stream, expected(stream.mode, records(10)))


@pytest.mark.parametrize("committed", [1, 3])
@pytest.mark.parametrize("since", ["nothing", "merged", "compacted", "expired"])
def test_a_checkpoint_is_in_a_table_without_marks_when_its_files_are(
    stream: LocalStream, committed: int, since: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The driver has died just after the swap, so that Spark runs the checkpoint again."""
    die_after_swap(stream, committed)
    lose_marks(stream, since)
    told = recover(stream, refused(stream), "--adopt", capsys)
    assert ("no longer there" in told) == (since == "expired")
    finish(stream, expected(stream.mode, records(10)))


def test_a_checkpoint_that_was_only_staged_is_committed_after_the_marks_are_set_again(
    stream: LocalStream, capsys: pytest.CaptureFixture[str]
) -> None:
    stream.start(3)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Committer, "commit", _dying)
        with pytest.raises(KeyboardInterrupt):
            stream.start(1)
    lose_marks(stream, "nothing")
    recover(stream, refused(stream), "--adopt", capsys)
    finish(stream, expected(stream.mode, records(10)))
    assert stream.receipts[3].outcome == Outcome.RECOVERED


def test_a_first_checkpoint_that_was_only_staged_is_committed(stream: LocalStream) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Committer, "commit", _dying)
        with pytest.raises(KeyboardInterrupt):
            stream.start(1)
    append_foreign(stream, (77, "foreign"))
    stream.start()
    assert stream.receipts[0].outcome == Outcome.RECOVERED
    assert stream.rows() == expected(stream.mode, records(10), [(77, "foreign")])


def _dying(*_: object) -> None:
    raise KeyboardInterrupt


def die_after_swap(stream: LocalStream, checkpoints: int) -> None:
    """The last of so many checkpoints is in the table, and neither Spark nor the directory's note knows."""
    stream.start(checkpoints - 1)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(SinkRun, "note_commit", _dying)
        with pytest.raises(KeyboardInterrupt):
            stream.start(1)
    assert stream.directory.last_completed == checkpoints - 2


def lose_marks(stream: LocalStream, since: str) -> None:
    """The property and every snapshot of the stream go. Its rows stay, in other files where somebody has compacted them."""
    table = open_table(stream.location)
    UpdateProperties(table).remove("streamlake.pipeline.p").commit()
    kept, files = 1, []
    if since == "merged":
        UpdateProperties(table).set("commit.manifest.min-count-to-merge", "2").commit()
    if since in ("compacted", "expired"):
        files = live_data_files(table)
        compaction = OverwriteFiles(table)
        for file in write_files(table, load_table(stream.location).scan().to_arrow()).data_files:
            compaction.add_file(file)
        for file in files:
            compaction.delete_file(file)
        compaction.commit()
        kept = 2 if since == "compacted" else 1
    AppendFiles(table).commit()
    gone = {each.snapshot_id for each in table.snapshots[:-kept]}
    change(stream, lambda base: _without_snapshots(base, gone))
    if since == "expired":
        for file in files:
            table.io.delete(file.file_path)


# Another table, or an older one, at the same place


def test_a_table_that_was_created_anew_is_filled_again(
    stream: LocalStream, capsys: pytest.CaptureFixture[str]
) -> None:
    message = replace_table(stream)
    assert "created again" in message
    assert findings(stream) == ["table-replaced"]
    recover(stream, message, "--rewind-to=-1", capsys)
    finish(stream, expected(stream.mode, records(10)))


def test_a_table_that_was_created_anew_goes_on_from_here(
    stream: LocalStream, capsys: pytest.CaptureFixture[str]
) -> None:
    recover(stream, replace_table(stream), "--adopt", capsys)
    finish(stream, expected(stream.mode, records(10)[6:]))


def test_a_table_that_was_dropped_is_made_and_filled_again(
    stream: LocalStream, capsys: pytest.CaptureFixture[str]
) -> None:
    message = drop_table(stream)
    assert "was dropped: there is no table now" in message
    recover(stream, message, "--rewind-to=-1", capsys)
    finish(stream, expected(stream.mode, records(10)))


def test_a_table_that_was_dropped_is_created_by_hand_and_goes_on_from_here(
    stream: LocalStream, capsys: pytest.CaptureFixture[str]
) -> None:
    """As the message says: create it, start, and take the way out that the next message names."""
    assert "create the table by hand and start the stream" in drop_table(stream)
    words = ["recover", stream.location, "--pipeline", "p", "--checkpoint-location", str(stream.path)]
    assert streamlake(*words) == 1
    assert "--rewind-to=-1" in capsys.readouterr().out
    assert streamlake(*words, "--adopt", "--yes") == 1
    assert "only --rewind-to=-1" in capsys.readouterr().err
    create_like(stream)
    recover(stream, refused(stream), "--adopt", capsys)
    finish(stream, expected(stream.mode, records(10)[6:]))


def test_a_table_that_never_was_is_not_called_dropped(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stream = LocalStream(tmp_path, records(10)).start(2)
    elsewhere = str(tmp_path / "elsewhere")
    assert streamlake("recover", elsewhere, "--checkpoint-location", str(stream.path)) == 1
    assert "there is no Iceberg table at" in capsys.readouterr().err


def drop_table(stream: LocalStream) -> str:
    stream.start(3)
    shutil.rmtree(stream.location)
    with pytest.raises(LineageError) as caught:
        stream.start()
    assert not Path(stream.location).exists()
    return str(caught.value)


def create_like(stream: LocalStream) -> None:
    """A table as the stream makes it, without a row."""
    LocalStream(stream.path.parent, [], directory="creator", location=stream.location)._opened(
        stream.identity(0)
    )


def replace_table(stream: LocalStream) -> str:
    stream.start(3)
    shutil.rmtree(stream.location)
    create_like(stream)
    return refused(stream)


def test_a_table_that_was_put_back_from_a_copy_lacks_checkpoints(
    stream: LocalStream, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    message = restore_table(stream, tmp_path)
    assert "replaced by an older state" in message
    assert findings(stream) == ["table-older"]
    recover(stream, message, "--rewind-to=1", capsys)
    finish(stream, expected(stream.mode, records(10)))


def test_a_table_that_was_put_back_from_a_copy_may_stay_as_it_is(
    stream: LocalStream, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recover(stream, restore_table(stream, tmp_path), "--adopt", capsys)
    finish(stream, expected(stream.mode, records(4), stream.source[8:10]))


def restore_table(stream: LocalStream, home: Path) -> str:
    stream.start(2)
    shutil.copytree(stream.location, home / "backup")
    stream.start(1)
    stream.start(1)
    shutil.rmtree(stream.location)
    (home / "backup").rename(stream.location)
    return refused(stream)


# What is no disagreement


def test_another_pipeline_in_the_table_is_fine(stream: LocalStream) -> None:
    stream.start(2)
    append_foreign(stream, (77, "foreign"))
    stream.start(1)
    append_foreign(stream, (78, "foreign"))
    stream.start()
    assert stream.rows() == expected(stream.mode, records(10), [(77, "foreign"), (78, "foreign")])
    assert findings(stream) == []


def test_a_stream_without_a_name_of_its_own_is_recovered_as_well(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stream = LocalStream(tmp_path, records(10), pipeline=None)
    stream.start(4)
    roll_back(stream, 1)
    message = refused(stream)
    assert "--pipeline" not in command(message, "--rewind-to=1")
    recover(stream, message, "--rewind-to=1", capsys)
    finish(stream, expected("append", records(10)))


def test_a_branch_is_recovered_on_its_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main_stream = LocalStream(tmp_path, [(500, "main")], directory="main", pipeline="main")
    main_stream.start()
    stream = LocalStream(tmp_path, records(10), branch="audit")
    stream.start(4)
    roll_back(stream, 1)
    recover(stream, refused(stream), "--rewind-to=1", capsys)
    finish(stream, sorted([*records(10), (500, "main")]))
    assert main_stream.rows() == [(500, "main")]


# The command itself


def test_a_healthy_stream_can_be_rewound_on_purpose(
    stream: LocalStream, capsys: pytest.CaptureFixture[str]
) -> None:
    stream.start(4)
    words = ["recover", stream.location, "--pipeline", "p", "--checkpoint-location", str(stream.path)]
    assert streamlake(*words) == 0
    assert "agree" in capsys.readouterr().out
    assert streamlake(*words, "--adopt", "--yes") == 0
    assert "nothing was done" in capsys.readouterr().out
    assert streamlake(*words, "--rewind-to", "1", "--yes") == 0
    assert stream.directory.last_planned == 1
    assert stream.rows() == expected(stream.mode, records(4))
    finish(stream, expected(stream.mode, records(10)))


@pytest.mark.parametrize(
    ("ways", "told"),
    [
        (["--rewind-to", "7"], "it has 0 to 3"),
        (["--rewind-to", "-1"], "would write their rows twice"),
        (["--adopt", "--fork"], "choose one"),
    ],
)
def test_what_cannot_be_done_is_refused(
    ways: list[str], told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stream = LocalStream(tmp_path, records(10)).start(4)
    before = files_of(stream)
    words = ["recover", stream.location, "--pipeline", "p", "--checkpoint-location", str(stream.path)]
    assert streamlake(*words, *ways, "--yes") == 1
    assert told in capsys.readouterr().err
    assert files_of(stream) == before


def test_a_refused_stream_is_explained(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    stream = LocalStream(tmp_path, records(10)).start(4)
    roll_back(stream, 1)
    words = ["recover", stream.location, "--pipeline", "p", "--checkpoint-location", str(stream.path)]
    assert streamlake(*words) == 1
    shown = capsys.readouterr().out
    assert "was rolled back" in shown
    assert "--rewind-to=1" in shown
    assert streamlake("recover", stream.location, "--checkpoint-location", str(tmp_path / "none")) == 1
    assert "not the checkpoint directory of a query" in capsys.readouterr().err


def test_a_driver_that_still_runs_is_fenced_by_the_recovery(
    stream: LocalStream, capsys: pytest.CaptureFixture[str]
) -> None:
    stream.start(2)
    words = ["recover", stream.location, "--pipeline", "p", "--checkpoint-location", str(stream.path)]
    assert streamlake(*words, "--rewind-to=0", "--yes") == 0
    before = stream.rows()
    with pytest.raises(FencedError):
        stream.go_on(1)
    assert stream.rows() == before


@pytest.mark.parametrize("kept", [1, 2])
def test_a_recovery_that_was_cut_short_is_done_again(
    stream: LocalStream, kept: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from streamlake.operate.recover.recovery_plan import Plan

    stream.start(4)
    words = ["recover", stream.location, "--pipeline", "p", "--checkpoint-location", str(stream.path)]
    with monkeypatch.context() as patch:
        patch.setattr(Plan, "carry_out", lambda plan, _: [step.act() for step in plan.steps[:kept]])
        assert streamlake(*words, "--rewind-to=1", "--yes") == 0
    assert streamlake(*words, "--rewind-to=1", "--yes") == 0
    finish(stream, expected(stream.mode, records(10)))


# A directory that was used for another table


def elsewhere(stream: LocalStream, checkpoints: int, capsys: pytest.CaptureFixture[str]) -> LocalStream:
    """The directory is bound to another table, by a person, and goes on there."""
    other = LocalStream(stream.path.parent, stream.source, mode=stream.mode, location=f"{stream.location}-2")
    create(other.location, parse_ddl(DDL))
    streamlake(
        "recover",
        other.location,
        "--pipeline",
        "p",
        "--checkpoint-location",
        str(stream.path),
        "--adopt",
        "--yes",
    )
    capsys.readouterr()
    other.start(checkpoints)
    return other


def test_a_directory_is_not_used_for_another_table(
    stream: LocalStream, capsys: pytest.CaptureFixture[str]
) -> None:
    stream.start(3)
    other = LocalStream(stream.path.parent, stream.source, mode=stream.mode, location=f"{stream.location}-2")
    create(other.location, parse_ddl(DDL))
    message = refused(other)
    assert f"without {other.location}: it has written {stream.location}" in message
    assert findings(other) == ["other-table"]
    assert findings(stream) == []
    recover(other, message, "--rewind-to=-1", capsys)
    finish(other, expected(stream.mode, records(10)))


def test_a_directory_goes_on_into_another_table(
    stream: LocalStream, capsys: pytest.CaptureFixture[str]
) -> None:
    stream.start(3)
    other = elsewhere(stream, 0, capsys)
    finish(other, expected(stream.mode, records(10)[6:]))


def test_what_went_into_another_table_is_written_again(
    stream: LocalStream, capsys: pytest.CaptureFixture[str]
) -> None:
    stream.start(2)
    elsewhere(stream, 2, capsys)
    message = refused(stream)
    assert "has done checkpoints 2 to 3 without" in message
    assert findings(stream) == ["gap"]
    recover(stream, message, "--rewind-to=1", capsys)
    finish(stream, expected(stream.mode, records(10)))


def test_what_went_into_another_table_stays_out(
    stream: LocalStream, capsys: pytest.CaptureFixture[str]
) -> None:
    stream.start(2)
    elsewhere(stream, 2, capsys)
    recover(stream, refused(stream), "--adopt", capsys)
    finish(stream, expected(stream.mode, records(4), records(10)[8:]))


def test_no_other_way_out_approves_of_a_gap(stream: LocalStream, capsys: pytest.CaptureFixture[str]) -> None:
    stream.start(2)
    elsewhere(stream, 2, capsys)
    words = [
        "recover",
        stream.location,
        "--pipeline",
        "p",
        "--checkpoint-location",
        str(stream.path),
        "--yes",
    ]
    for way in ("--rollback-table", "--rewind-to=2"):
        streamlake(*words, way)
        assert findings(stream) == ["gap"]
    capsys.readouterr()
    recover(stream, refused(stream), "--rewind-to=1", capsys)
    finish(stream, expected(stream.mode, records(10)))


def test_a_commit_names_its_first_offsets(stream: LocalStream) -> None:
    """Each begins where the one before ends."""
    stream.start()
    summaries = [snapshot.summary for snapshot in open_table(stream.location).snapshots]
    firsts = [summary["streamlake.first-offsets-digest"] for summary in summaries]
    lasts = [summary["streamlake.offsets-digest"] for summary in summaries]
    assert firsts[1:] == lasts[:-1]
    assert firsts[0] == offsets_digest(())
