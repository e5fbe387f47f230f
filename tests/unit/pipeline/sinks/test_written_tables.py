"""A query of many tables loses no rows of one of them: what was written to each is known, whatever becomes of it.

Each table is written only where a checkpoint has rows for it, so one that has lost some looks like one that had none.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from streamlake import IcebergSink, create_table
from streamlake.catalog.open import open_table
from streamlake.checkpoint.store import CommittableStore
from streamlake.checkpoint.table_log import (
    newest_written,
    outlived,
    table_log_path,
    table_log_to_bytes,
)
from streamlake.checkpoint.table_note import Calls
from streamlake.commit.lineage import Kind, lineage_error
from streamlake.commit.receipt import Outcome
from streamlake.errors import LineageError
from streamlake.operate.recover.recovery import Recovery
from streamlake.pipeline.runs.commit_queue import CommitQueue
from streamlake.pipeline.sinks.bound_directory import own_findings
from streamlake.pipeline.sinks.discovered_tables import TABLES_PATH, tables_from_text
from streamlake.pipeline.sinks.quarantine import quarantined
from streamlake.table.updates.manage_refs import ManageRefs
from tests.helpers import local_stream
from tests.helpers.local_routing import RoutedStream
from tests.helpers.local_stream import LocalStream, Record

DDL = "id long not null, c string"


def row(id: int, c: str) -> dict[str, Any]:
    return {"id": id, "c": c}


@pytest.fixture
def stream(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RoutedStream:
    """Rows 0 to 3 have gone into `e_a`, `e_b` and `e_c`, the last ones of `e_b` at checkpoint 2; a copy of `e_b` is of
    checkpoint 1, and one of the directory too."""
    stream = RoutedStream(tmp_path, monkeypatch, DDL)
    for number in range(4):
        stream.take(*(row(number, name) for name in ("ab" if number == 2 else "a" if number else "abc")))
        if number == 1:
            stream.take(row(number, "b"))
            shutil.copytree(tmp_path / "e_b", tmp_path / "copies" / "e_b")
            shutil.copytree(stream.path, tmp_path / "copies" / "checkpoint")
    return stream


ROWS = {"e_a": [0, 1, 2, 3], "e_b": [0, 1, 2], "e_c": [0]}


def started(stream: RoutedStream, *more: dict[str, Any]) -> None:
    """A start of the query with a few more rows."""
    stream.restart()
    stream.take(*more)


def compared(stream: RoutedStream) -> None:
    """What `check` says of the tables that rows have named, and each of them while no record comes."""
    named = stream.directory.text(TABLES_PATH)
    assert named is not None
    for name in tables_from_text(named, ""):
        sink = IcebergSink(name, pipeline="p", create=True)
        found, command = own_findings(stream.directory, sink, lambda name=name: open_table(name), Calls.QUERY)
        if found:
            raise lineage_error(found[0], command)


def refused(stream: RoutedStream, match: str, *more: dict[str, Any]) -> None:
    """By a start with records and by one without."""
    with pytest.raises(LineageError, match=match):
        compared(stream)
    with pytest.raises(LineageError, match=match):
        started(stream, *(more or [row(9, "a")]))


def recovered(stream: RoutedStream, name: str = "e_b") -> Recovery:
    location = str(stream.home / name)
    return Recovery(open_table(location), "main", "p", stream.directory, location)


def restore(stream: RoutedStream, name: str = "e_b") -> None:
    shutil.rmtree(stream.home / name)
    shutil.copytree(stream.home / "copies" / name, stream.home / name)


def test_idle_tables_go_on(stream: RoutedStream) -> None:
    """For long, beyond what the logs keep, through restarts, also those with nothing to do; and tables join."""
    for number in range(4, 14):
        if number % 4 == 0:
            compared(stream)
            stream.restart()
        stream.take(row(number, "a"))
    log = [int(path.name) for path in (stream.path / "streamlake/tables").iterdir()]
    assert len(log) <= 5
    compared(stream)
    started(stream, row(14, "c"), row(14, "new"))
    started(stream, row(15, "b"), row(15, "new"))
    assert {name: stream.ids(name) for name in ("e_b", "e_c", "e_new")} == {
        "e_b": [0, 1, 2, 15],
        "e_c": [0, 14],
        "e_new": [14, 15],
    }


def test_a_table_that_is_restored_from_a_copy(stream: RoutedStream) -> None:
    """Its marks agree with each other, and its note is of the time before."""
    restore(stream)
    refused(stream, r"has written checkpoint 3 to .*e_b, but the table holds nothing newer than checkpoint 2")
    recovery = recovered(stream)
    assert [finding.kind for finding in recovery.findings] == [Kind.TABLE_OLDER]
    again = [*(row(2, name) for name in "ab"), row(3, "a")]
    recovery.rewind(2).carry_out()
    stream.replan()
    with pytest.raises(LineageError, match=r"does not belong to the state of .*e_a"):
        started(stream, *again)
    recovered(stream, "e_a").rewind(2).carry_out()
    stream.replan()
    started(stream, *again)
    assert {name: stream.ids(name) for name in ROWS} == ROWS


def test_a_table_whose_newest_metadata_is_given_up(stream: RoutedStream) -> None:
    """What it was written last is still staged, and what came before that is not."""
    stream.take(row(9, "b"))
    stream.take(row(10, "b"))
    metadata = stream.home / "e_b" / "metadata"
    newest = sorted(metadata.glob("v*.metadata.json"), key=lambda path: int(path.name[1:].partition(".")[0]))
    for path in newest[-3:]:
        path.unlink()
    (metadata / "version-hint.text").unlink()
    refused(stream, r"has written checkpoint 6 to .*e_b, but the table holds nothing newer than checkpoint 2")


def test_what_it_lacks_may_stay_out(stream: RoutedStream) -> None:
    restore(stream)
    refused(stream, "checkpoint 3")
    recovered(stream).adopt().carry_out()
    compared(stream)
    started(stream, row(9, "b"))
    assert stream.ids("e_b") == [0, 1, 9]
    compared(stream)


def test_a_table_that_is_restored_while_the_query_runs(stream: RoutedStream) -> None:
    restore(stream)
    with pytest.raises(LineageError, match="the table was replaced by an older state"):
        stream.take(row(9, "b"))


def test_a_table_that_another_tool_rolls_back(stream: RoutedStream) -> None:
    table = open_table(str(stream.home / "e_b"))
    ManageRefs(table).set_branch("main", table.snapshots[0].snapshot_id).commit()
    refused(stream, "was rolled back")
    recovered(stream).rollback().carry_out()
    compared(stream)
    started(stream, row(9, "b"))
    assert stream.ids("e_b") == [0, 1, 2, 9]


@pytest.mark.parametrize("new", [False, True])
def test_a_table_that_is_dropped(stream: RoutedStream, new: bool) -> None:
    shutil.rmtree(stream.home / "e_b")
    if new:
        create_table(str(stream.home / "e_b"), DDL)
    refused(stream, "another table at .*e_b" if new else "e_b .* that was dropped: there is no table now")
    assert (stream.home / "e_b").exists() == new


@pytest.mark.parametrize("other", ["e_a", "e_c"])
def test_a_table_that_another_one_takes_the_place_of(stream: RoutedStream, other: str) -> None:
    shutil.move(stream.home / "e_b", stream.home / "copies" / "renamed")
    shutil.copytree(stream.home / other, stream.home / "e_b")
    refused(stream, "(?s)another table at .*e_b")


def test_a_note_that_is_lost(stream: RoutedStream) -> None:
    """The log of the query's tables binds them too."""
    restore(stream)
    for note in (stream.path / "streamlake").glob("????????????????.json"):
        note.unlink()
    refused(stream, "has written checkpoint 3 to .*e_b")


def test_a_directory_that_is_restored_from_a_copy(stream: RoutedStream) -> None:
    stream.go_back_to(stream.home / "copies" / "checkpoint")
    with pytest.raises(LineageError, match="older than the table"):
        started(stream, row(2, "a"))


def test_tables_that_fit_an_older_directory(stream: RoutedStream) -> None:
    """All is put back to the same time; the log says no more than what was done then."""
    stream.go_back_to(stream.home / "copies" / "checkpoint")
    restore(stream)
    recovered(stream, "e_a").rewind(2).carry_out()
    stream.replan()
    compared(stream)
    started(stream, row(2, "a"), row(2, "b"), row(3, "a"))
    assert {name: stream.ids(name) for name in ROWS} == ROWS


def test_a_table_in_quarantine_comes_back(stream: RoutedStream) -> None:
    """It was set aside at checkpoint 5, and is older than that for as long as it is there."""
    part = ("events", 3)
    begin = {part: stream._ends[-1]}
    name = str(stream.home / "e_b")
    stream.aside.keep({name: quarantined(5, begin, ["events"], ValueError("bad"), 0)})
    stream.take(row(4, "a"), row(4, "b"))
    stream.take(row(5, "a"), row(5, "b"))
    compared(stream)
    kept = stream.aside.entries
    copy = stream.home / "copies" / "e_b"
    shutil.rmtree(copy)
    shutil.copytree(stream.home / "e_b", copy)
    stream.restart()
    stream.aside.entries = kept
    assert stream.take(row(6, "a")) == {
        "e_a": Outcome.COMMITTED,
        "e_b": Outcome.COMMITTED,
    }
    assert stream.ids("e_b") == [0, 1, 2, 4, 5]
    stream.aside.keep({})
    restore(stream)
    refused(stream, "has written checkpoint 7 to .*e_b")


@pytest.fixture
def ahead(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RoutedStream:
    """Checkpoints 1 and 2 are staged for `e_b` and done; 3 has nothing for it, and the driver is gone."""
    stream = RoutedStream(tmp_path, monkeypatch, DDL, max_pending_checkpoints=6)
    stream.take(row(0, "a"), row(0, "b"))
    stream.finish()
    with monkeypatch.context() as patched:
        patched.setattr(CommitQueue, "put", lambda queue, work: None)
        stream.take(row(1, "a"), row(1, "b"))
        stream.take(row(2, "a"), row(2, "b"))
        stream.take(row(3, "a"))
    return stream


def staged(stream: RoutedStream) -> Callable[[int], None]:
    table = open_table(str(stream.home / "e_b"))
    store = CommittableStore(table.io, table.locations, "job")
    found = {each.identity.checkpoint_id: each.identity for each in store.pending()}
    assert [number for number in found if number] == [1, 2]
    return lambda number: store.remove(found[number])


def test_what_is_staged_is_committed(ahead: RoutedStream) -> None:
    compared(ahead)
    started(ahead, row(4, "a"))
    ahead.finish()
    assert (ahead.ids("e_a"), ahead.ids("e_b")) == ([0, 1, 2, 3, 4], [0, 1, 2])


@pytest.mark.parametrize("gone", [(1,), (2,), (1, 2)])
def test_a_staged_checkpoint_of_one_table_is_deleted(ahead: RoutedStream, gone: tuple[int, ...]) -> None:
    remove = staged(ahead)
    for number in gone:
        remove(number)
    with pytest.raises(LineageError, match=r"e_b.*what was staged is gone"):
        started(ahead, row(4, "a"))
    if 2 in gone:
        with pytest.raises(LineageError, match=r"e_b.*what was staged is gone"):
            compared(ahead)


def test_staged_checkpoints_that_are_lost_after_a_rewind_of_the_directory(ahead: RoutedStream) -> None:
    """The note names only the last one, which is planned anew."""
    remove = staged(ahead)
    remove(1)
    remove(2)
    ahead.directory.go_back_to(1)
    ahead.replan()
    lost = r"has written checkpoint 1 to .*e_b.*nothing newer than checkpoint 0"
    refused(ahead, lost, row(2, "a"), row(2, "b"))
    recovered(ahead).adopt().carry_out()
    compared(ahead)


def test_what_is_left_after_a_rewind_of_the_directory(ahead: RoutedStream) -> None:
    """Nothing is expected of what is planned anew."""
    staged(ahead)(2)
    ahead.directory.go_back_to(1)
    ahead.replan()
    compared(ahead)
    started(ahead, row(2, "a"), row(2, "b"))
    ahead.finish()
    assert (ahead.ids("e_a"), ahead.ids("e_b")) == ([0, 1, 2], [0, 1, 2])


# One table: its note says it


RECORDS: list[Record] = [(number, f"v{number}") for number in range(8)]


@pytest.mark.parametrize("calls", list(Calls))
def test_a_single_table_that_is_restored_from_a_copy(tmp_path: Path, calls: Calls) -> None:
    """Also where a function may leave out micro-batches, so that one that is missing may have been left out."""
    LocalStream(tmp_path, RECORDS[:4], calls=calls).start()
    shutil.copytree(tmp_path / "table", tmp_path / "copy")
    LocalStream(tmp_path, RECORDS[:6], calls=calls).start()
    shutil.rmtree(tmp_path / "table")
    shutil.copytree(tmp_path / "copy", tmp_path / "table")
    stream = LocalStream(tmp_path, RECORDS, calls=calls)
    with pytest.raises(LineageError, match="checkpoint 2"):
        stream.start()
    Recovery(open_table(stream.location), "main", "p", stream.directory, stream.location).rewind(
        1
    ).carry_out()
    stream.start()
    assert stream.rows() == RECORDS


def test_a_checkpoint_without_rows_hides_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its note says that what came before it is in the table."""
    rows = local_stream._rows
    monkeypatch.setattr(
        local_stream, "_rows", lambda records: rows([each for each in records if each[1] != "none"])
    )
    source = [*RECORDS[:6], (6, "none"), (7, "none")]
    stream = LocalStream(tmp_path, source).start(2)
    shutil.copytree(tmp_path / "table", tmp_path / "copy")
    stream.go_on()
    shutil.rmtree(tmp_path / "table")
    shutil.copytree(tmp_path / "copy", tmp_path / "table")
    with pytest.raises(LineageError, match="has committed checkpoint 2"):
        LocalStream(tmp_path, [*source, (8, "v8")]).start()


# The log itself


def test_entries_that_do_not_count() -> None:
    entries = {
        1: table_log_to_bytes("job", "d1", {"t@main": 1}).decode(),
        2: table_log_to_bytes("another", "d2", {"t@main": 2}).decode(),
        3: table_log_to_bytes("job", "of a plan that is forgotten", {"t@main": 3}).decode(),
        4: '{"job-id": "job", "offs',
    }

    def found(*checkpoints: int, **digests: str) -> dict[str, int]:
        return newest_written(
            checkpoints, entries.get, "job", lambda number: digests.get(f"d{number}", f"d{number}")
        )

    assert found(1, 2, 3, 4) == {"t@main": 1}
    assert found(2, 3, 4) == {}
    assert newest_written([1, 3], entries.get, "job", lambda number: None) == {"t@main": 3}
    assert found(1, d1="another") == {}


def test_what_is_kept_of_the_log() -> None:
    assert outlived([3, 5, 9], before=2) == []
    assert outlived([3, 5, 9], before=8) == [3]
    assert outlived([3, 5, 9], before=9) == [3, 5]


def test_one_small_file_for_all_tables(stream: RoutedStream) -> None:
    newest = max(int(path.name) for path in (stream.path / "streamlake/tables").iterdir())
    entry = json.loads((stream.path / table_log_path(newest)).read_text())
    assert {name.rpartition("/")[2]: last for name, last in entry["tables"].items()} == {
        "e_a@main": 4,
        "e_b@main": 3,
        "e_c@main": 0,
    }
