"""Which files of the key index stay and which go, and that an index is found again after restarts and rollbacks."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from streamlake import load_table
from streamlake.catalog.open import open_table
from streamlake.checkpoint.committable import Committable
from streamlake.commit.marker import INDEX_STATE
from streamlake.commit.receipt import Outcome
from streamlake.errors import StorageError
from streamlake.pipeline.key_index import index_files
from streamlake.pipeline.key_index.index_files import KEPT_STATES, UNOWNED_MS, load_state
from streamlake.pipeline.key_index.index_states import named_states
from streamlake.pipeline.key_index.indexed_rows import IndexedRows
from streamlake.records import ROW_KIND, RowKind
from streamlake.storage.local import LocalFileIO
from streamlake.table.updates.manage_refs import ManageRefs
from tests.helpers import foreign_writers
from tests.helpers.batch_write import append
from tests.helpers.invariants import check_table
from tests.helpers.local_upserts import LocalUpserts
from tests.helpers.tables import make_table

COLUMNS = "id long, v long"


@dataclass
class Stream:
    """Upserts of (id, v) and what the table must hold. `step(n)` changes some keys and adds a new one."""

    home: Path
    branch: str = "main"
    job_id: str = "job"
    options: dict[str, Any] = field(default_factory=dict)
    model: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.upserts = LocalUpserts(
            str(self.home),
            key=["id"],
            branch=self.branch,
            job_id=self.job_id,
            pipeline=self.job_id,
            **self.options,
        )

    def step(self, number: int, between: Callable[[Committable], None] | None = None) -> None:
        rows = {number: number, number // 2: number, number % 5: -number}
        self.upserts.checkpoint(changes(rows), between)
        self.model.update(rows)

    def check(self) -> None:
        rows = load_table(str(self.home)).scan(ref=self.branch).to_arrow().to_pylist()
        assert sorted((row["id"], row["v"]) for row in rows) == sorted(self.model.items())


def changes(rows: dict[int, int]) -> pa.Table:
    return pa.table({"id": pa.array(list(rows), pa.int64()), "v": pa.array(list(rows.values()), pa.int64())})


@pytest.fixture
def home(tmp_path: Path) -> Path:
    make_table(tmp_path / "t", COLUMNS, format_version=3)
    return tmp_path / "t"


@pytest.fixture
def no_rows_read(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Numbers of data files that had to be read to index their rows."""
    read: list[int] = []
    index = IndexedRows.index

    def counted(self: IndexedRows, session: Any, tasks: Any) -> Any:
        read.append(len(tasks))
        return index(self, session, tasks)

    monkeypatch.setattr(IndexedRows, "index", counted)
    return read


def files(home: Path, ending: str = "") -> set[str]:
    return {path.name for path in (home / "metadata" / "_index").iterdir() if path.name.endswith(ending)}


def age(home: Path, milliseconds: int = 2 * UNOWNED_MS) -> None:
    """Make all index files old."""
    then = time.time() - milliseconds / 1000
    for path in (home / "metadata" / "_index").iterdir():
        os.utime(path, (then, then))


def check_index(home: Path, branch: str = "main", states: int = KEPT_STATES) -> None:
    """Every file that the newest states of a branch name is there."""
    table = open_table(str(home))
    head = table.metadata.head(branch)
    assert head is not None
    named = [snapshot.summary.get(INDEX_STATE) for snapshot in table.metadata.ancestors(head.snapshot_id)]
    newest = [path for path in named if path is not None][:states]
    assert newest
    for path in newest:
        assert {Path(run.path).name for run in load_state(table, path).runs} <= files(home)


def test_the_files_of_a_long_stream_are_bounded(home: Path) -> None:
    stream = Stream(home)
    counts = []
    for number in range(60):
        stream.step(number)
        counts.append(len(files(home)))
        if number % 9 == 8:
            check_index(home)
    stream.check()
    check_table(open_table(str(home)))
    # A state and a run per bucket, for each checkpoint, and what merges leave.
    assert max(counts) <= 2 * KEPT_STATES * 4
    assert len(files(home, ".json")) <= 2 * KEPT_STATES


def test_a_restarted_stream_cleans_up_after_its_predecessor(home: Path) -> None:
    counts = []
    stream = Stream(home)
    for number in range(30):
        stream.step(number)
        if number % 7 == 0:
            stream.upserts.restart()
        counts.append(len(files(home)))
    stream.check()
    assert max(counts) <= 2 * KEPT_STATES * 4
    check_index(home)


def test_a_killed_stream_finds_its_index_and_its_staged_checkpoint(
    home: Path, no_rows_read: list[int]
) -> None:
    stream = Stream(home)
    for number in range(25):
        stream.step(number)
    stream.upserts.stage(changes({7: 700}))
    age(home)
    stream.upserts.restart()
    assert stream.upserts.recover()[-1].outcome == Outcome.COMMITTED
    stream.model[7] = 700
    for number in range(25, 40):
        stream.step(number)
    stream.check()
    check_index(home)
    assert no_rows_read == []


def test_what_nothing_refers_to_is_swept_when_it_is_old(home: Path) -> None:
    stream = Stream(home)
    for number in range(3):
        stream.step(number)
    needed = files(home)
    directory = home / "metadata" / "_index"
    for name in ("forgotten.run", "forgotten.json"):
        (directory / name).write_bytes(b"?")
    stream.upserts.restart()
    stream.step(3)
    assert {"forgotten.run", "forgotten.json"} <= files(home), "they may be work in progress"
    age(home)
    stream.upserts.restart()
    stream.step(4)
    assert not {"forgotten.run", "forgotten.json"} & files(home)
    assert needed <= files(home)
    stream.check()


def test_a_staged_checkpoint_of_another_job_keeps_its_runs(home: Path, no_rows_read: list[int]) -> None:
    one, two = Stream(home), Stream(home, job_id="other")
    one.step(0)
    staged = two.upserts.stage(changes({100: 1}))
    assert staged is not None
    age(home)
    one.upserts.restart()
    one.step(1)
    assert {Path(path).name for path in staged[0].runs} <= files(home)
    two.upserts.restart()
    assert two.upserts.recover()[-1].outcome == Outcome.COMMITTED
    one.model[100] = 1
    one.step(2)
    one.check()
    assert no_rows_read == []


def test_a_rollback_finds_the_index_of_its_snapshot(home: Path, no_rows_read: list[int]) -> None:
    """A foreign snapshot is taken back."""
    stream = Stream(home)
    for number in range(31):
        stream.step(number)
    stream.upserts.restart()
    table = open_table(str(home))
    before = table.current_snapshot
    append(table, changes({1: 1, 1000: 5}))
    ManageRefs(table).set_branch("main", before.snapshot_id).commit()
    stream.step(31)
    stream.check()
    assert no_rows_read == []


def test_a_branch_at_an_older_checkpoint_keeps_its_index(home: Path, no_rows_read: list[int]) -> None:
    """A branch is made five checkpoints before main's head, and goes on while main does."""
    stream = Stream(home)
    models = []
    for number in range(20):
        stream.step(number)
        models.append(dict(stream.model))
    table = open_table(str(home))
    older = [
        snapshot.snapshot_id for snapshot in table.metadata.ancestors(table.current_snapshot.snapshot_id)
    ][5]
    ManageRefs(table).create_branch("audit", older).commit()
    for number in range(20, 45):
        stream.step(number)
    check_index(home, "audit", 5)
    age(home)
    stream.upserts.restart()
    stream.step(45)
    check_index(home, "audit", 5)
    audit = Stream(home, branch="audit", job_id="audit", model=models[14])
    for number in range(20, 35):
        audit.step(number)
    stream.step(46)
    for each in (stream, audit):
        each.check()
        check_index(home, each.branch)
    assert no_rows_read == []
    check_table(open_table(str(home)))


def test_a_new_branch_begins_with_the_index_of_main(home: Path, no_rows_read: list[int]) -> None:
    stream = Stream(home)
    for number in range(3):
        stream.step(number)
    audit = Stream(home, branch="audit", job_id="audit", model=dict(stream.model))
    audit.step(3)
    stream.check()
    audit.check()
    assert no_rows_read == []


def test_two_jobs_with_the_same_key_share_the_index(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index_files, "SHARED_MS", 0)
    one, two = Stream(home), Stream(home, job_id="other")
    two.model = one.model
    for number in range(36):
        (one if number % 3 else two).step(number)
        if number % 11 == 0:
            age(home)
            two.upserts.restart()
    one.check()
    check_index(home)
    assert len(files(home, ".json")) <= 4 * KEPT_STATES


def test_a_slow_job_is_not_robbed_of_its_runs(home: Path, no_rows_read: list[int]) -> None:
    """Its tasks read the runs of a state while a fast job commits more than are kept."""
    fast, slow = Stream(home), Stream(home, job_id="slow")
    slow.model = fast.model
    fast.step(0)
    slow.step(1)
    run = slow.upserts.run
    run.table.refresh()
    resolve = run.resolve

    def slowly(identity: Any, tasks: Any) -> Any:
        def later(target: Any) -> Any:
            for number in range(2, 28):
                fast.step(number)
            return tasks(target)

        return resolve(identity, later)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(run, "resolve", slowly)
        slow.step(28)
    slow.step(29)
    fast.check()
    assert no_rows_read == []


def test_two_jobs_with_different_keys_leave_each_other_alone(home: Path) -> None:
    by_id = Stream(home)
    by_v = LocalUpserts(str(home), key=["v"], job_id="other", pipeline="other")
    by_v.checkpoint(changes({1: 10_000}))
    by_id.model[1] = 10_000
    named = open_table(str(home)).current_snapshot.summary[INDEX_STATE]
    runs = {Path(run.path).name for run in load_state(open_table(str(home)), named).runs}
    for number in range(2, 26):
        by_id.step(number)
    age(home)
    by_id.upserts.restart()
    by_id.step(26)
    assert {Path(named).name, *runs} <= files(home)
    by_id.check()


def test_what_a_new_resolution_replaces_goes(home: Path) -> None:
    """Other writers commit in between every time; the replaced states and manifests do not pile up."""
    stream = Stream(home, options={"delete_mode": "copy-on-write"})
    for number in range(22):

        def between(committable: Committable, number: int = number) -> None:
            append(open_table(str(home)), changes({10_000 + number: number}))

        stream.step(number, between)
        stream.model[10_000 + number] = number
    stream.check()
    check_table(open_table(str(home)), files_exist=True)
    check_index(home)
    assert len(files(home, ".json")) <= 4 * KEPT_STATES
    table = open_table(str(home))
    live = {manifest.manifest_path for snapshot in table.snapshots for manifest in table.manifests(snapshot)}
    manifests = {str(path) for path in (home / "metadata").glob("*-m*.avro")}
    assert not manifests - live


def test_files_that_cannot_be_deleted_are_no_error(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: LocalFileIO, path: str) -> None:
        raise StorageError(f"deleting {path}: permission denied")

    def unlistable(self: LocalFileIO, path: str) -> Any:
        raise StorageError(f"listing {path}: permission denied")

    stream = Stream(home)
    with monkeypatch.context() as patched:
        patched.setattr(LocalFileIO, "list_prefix", unlistable)
        stream.step(0)
    monkeypatch.setattr(LocalFileIO, "delete", refuse)
    monkeypatch.setattr(stream.upserts.run, "forget_before", lambda identity: None)
    for number in range(1, 22):
        stream.step(number)
    stream.check()


def test_a_damaged_state_in_the_history_stops_no_stream(home: Path) -> None:
    stream = Stream(home)
    for number in range(5):
        stream.step(number)
    table = open_table(str(home))
    path = Path(table.current_snapshot.summary[INDEX_STATE])
    path.write_bytes(path.read_bytes()[:-7])
    age(home)
    stream.upserts.restart()
    for number in range(5, 30):
        stream.step(number)
    stream.check()
    assert len(files(home, ".json")) <= 3 * KEPT_STATES


def test_runs_of_other_writers_files_go_when_they_are_merged_away(home: Path) -> None:
    stream = Stream(home)
    for number in range(25):
        stream.step(number)
        foreign_writers.compact(str(home), lambda at: True)
    stream.step(25)
    stream.check()
    assert files(home) == _named(home)


def test_a_checkpoint_without_effect_leaves_no_index_file(home: Path) -> None:
    stream = Stream(home)
    stream.step(0)
    before = files(home)
    nothing = changes({1000: 0}).append_column(ROW_KIND, pa.array([int(RowKind.DELETE)], pa.int8()))
    assert stream.upserts.checkpoint(nothing) is None
    assert files(home) == before


def _named(home: Path) -> set[str]:
    """The names of all states that are there and that a snapshot names, and of their runs."""
    table = open_table(str(home))
    found = set()
    for named in named_states(table.metadata, "main"):
        if Path(named.path).name in files(home):
            found |= {
                Path(named.path).name,
                *(Path(run.path).name for run in load_state(table, named.path).runs),
            }
    return found
