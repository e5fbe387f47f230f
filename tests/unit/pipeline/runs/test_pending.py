"""Checkpoints that are staged and cannot be committed: outages are waited out, nothing is lost, the next start goes first."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from streamlake.catalog.open import create, open_table
from streamlake.checkpoint.committable import Committable
from streamlake.checkpoint.store import CommittableStore, staged_by_all_jobs
from streamlake.commit.receipt import Outcome
from streamlake.errors import CommitError, LineageError, StorageError
from streamlake.failpoints import VARIABLE
from streamlake.spec.types.ddl import parse_ddl
from tests.helpers import ahead_driver
from tests.helpers.faulty_io import LATE, Fault, FaultyIO
from tests.helpers.invariants import check_table
from tests.helpers.local_stream import DDL, LocalStream, Record
from tests.helpers.processes import wait_until
from tests.helpers.rest_catalog import RestServer
from tests.helpers.tables import FAST_CHECKS

SOURCE: list[Record] = [(row % 7, f"v{row}") for row in range(12)]
MODES = {
    "append": ("append", "position"),
    "position": ("upsert", "position"),
    "equality": ("upsert", "equality"),
}


def expected(mode: str, records: list[Record]) -> list[Record]:
    return sorted(records) if mode == "append" else sorted(dict(records).items())


def stream(
    home: Path, mode: str = "append", source: list[Record] = SOURCE, **settings: object
) -> LocalStream:
    kind, delete_mode = MODES[mode]
    return LocalStream(home, source, mode=kind, delete_mode=delete_mode, step=4, **settings)  # type: ignore[arg-type]


def staged(home: Path) -> list[int]:
    table = open_table(str(home / "table"))
    return sorted(each.identity.checkpoint_id for each in staged_by_all_jobs(table.io, table.locations))


def outage(*operations: str, calls: int) -> FaultyIO:
    """Storage on which the first `calls` calls of each operation below `metadata` fail."""
    left = dict.fromkeys(operations, calls)

    def fail(operation: str) -> None:
        left[operation] -= 1
        if left[operation] >= 0:
            raise StorageError(f"{operation}: the storage is away")

    return FaultyIO([Fault(each, "*/metadata/*", 0, LATE, partial(fail, each)) for each in operations])


@pytest.mark.parametrize("mode", MODES)
def test_a_short_outage_is_waited_out(mode: str, tmp_path: Path) -> None:
    stream(tmp_path, mode).start(1)
    io = outage("create_exclusive", "write_bytes", "list_prefix", calls=2)
    query = stream(tmp_path, mode, io=io).start()
    assert [receipt.outcome for receipt in query.receipts] == [Outcome.COMMITTED] * 2
    assert query.rows() == expected(mode, SOURCE)
    check_table(open_table(query.location), files_exist=True)


@pytest.mark.parametrize("mode", MODES)
def test_a_long_outage_stops_the_job_and_the_next_start_commits_first_what_was_staged(
    mode: str, tmp_path: Path
) -> None:
    stream(tmp_path, mode).start(1)
    io = outage("create_exclusive", calls=50)
    with pytest.raises(
        StorageError, match=r"checkpoint 1 .* is staged, nothing of it is lost, and the next start"
    ):
        stream(tmp_path, mode, io=io).start()
    assert sum(call[0] == "create_exclusive" for call in io.calls) == 5, "commit.retry.num-retries is 4"
    assert 1 in staged(tmp_path)
    assert len(open_table(str(tmp_path / "table")).snapshots) == 1
    query = stream(tmp_path, mode).start()
    assert [receipt.outcome for receipt in query.receipts] == [Outcome.RECOVERED, Outcome.COMMITTED]
    assert query.rows() == expected(mode, SOURCE)
    check_table(open_table(query.location), files_exist=True)


@pytest.mark.parametrize("mode", ["append", "position"])
def test_a_catalog_service_that_is_away_stops_the_job_and_loses_nothing(
    mode: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its database is locked by somebody else, as long as it takes."""
    (tmp_path / "lake").mkdir()
    database = tmp_path / "catalog.db"
    catalog = {
        "type": "sql",
        "uri": f"sqlite:///{database}?timeout=0.05",
        "warehouse": f"file://{tmp_path}/lake",
        "name": f"away-{mode}",
    }
    settings = {"location": "db.t", "catalog": catalog}
    stream(tmp_path, mode, **settings).start(1)
    other = sqlite3.connect(database, isolation_level=None)
    record = CommittableStore.record

    def record_and_lock(store: CommittableStore, committable: Committable) -> None:
        record(store, committable)
        other.execute("BEGIN EXCLUSIVE")

    with monkeypatch.context() as patched:
        patched.setattr(CommittableStore, "record", record_and_lock)
        with pytest.raises((StorageError, CommitError), match="is staged, nothing of it is lost"):
            stream(tmp_path, mode, **settings).start()
    other.close()
    table = open_table("db.t", catalog)
    assert len(table.snapshots) == 1
    again = stream(tmp_path, mode, **settings).start()
    assert [receipt.outcome for receipt in again.receipts] == [Outcome.RECOVERED, Outcome.COMMITTED]
    assert again.rows() == expected(mode, SOURCE)


@pytest.fixture
def rest(tmp_path: Path) -> Iterator[RestServer]:
    """A REST catalog whose tables a stream may write to for a good while without an answer."""
    from pyiceberg.catalog import load_catalog

    (tmp_path / "lake").mkdir()
    kept = {"uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": f"file://{tmp_path}/lake"}
    long = {"commit.retry.num-retries": "500", "commit.retry.max-wait-ms": "20", **FAST_CHECKS}
    create("db.t", parse_ddl(DDL), properties=long, catalog={"type": "sql", **kept})
    with RestServer(load_catalog("default", type="sql", **kept)).running() as server:
        yield server


@pytest.mark.parametrize("mode", ["append", "position"])
@pytest.mark.parametrize("arrives", [True, False])
def test_a_catalog_service_that_is_restarted_during_a_commit_has_it_once(
    mode: str, arrives: bool, tmp_path: Path, rest: RestServer
) -> None:
    """It goes down with the answer to a commit that it has made, or has not, and is away for longer than a few attempts."""
    settings = {"location": "db.t", "catalog": {"type": "rest", "uri": rest.uri}}
    stream(tmp_path, mode, **settings).start(1)
    rest.lose_next, rest.away_after_loss = arrives, 0.5
    query = stream(tmp_path, mode, **settings).start()
    assert rest.lost == 1
    outcomes = [receipt.outcome for receipt in query.receipts]
    assert outcomes == [Outcome.SKIPPED if arrives else Outcome.COMMITTED, Outcome.COMMITTED]
    assert query.rows() == expected(mode, SOURCE)
    table = open_table("db.t", settings["catalog"])
    assert len(table.snapshots) == 3
    check_table(table, files_exist=True)


def test_a_catalog_service_that_is_away_at_the_start_is_waited_for(tmp_path: Path, rest: RestServer) -> None:
    settings = {"location": "db.t", "catalog": {"type": "rest", "uri": rest.uri}}
    stream(tmp_path, **settings).start(1)
    rest.go_away(0.3)
    query = stream(tmp_path, **settings).start()
    assert query.rows() == expected("append", SOURCE)
    assert len(open_table("db.t", settings["catalog"]).snapshots) == 3


def test_writing_runs_ahead_and_receipts_come_in_order(tmp_path: Path) -> None:
    source: list[Record] = [(row, "v") for row in range(60)]
    query = LocalStream(tmp_path, source, step=3, ahead=4).start()
    assert query.finish() is None
    assert [receipt.checkpoint_id for receipt in query.receipts] == list(range(20))
    assert {receipt.outcome for receipt in query.receipts} == {Outcome.COMMITTED}
    assert query.rows() == sorted(source)
    table = open_table(query.location)
    check_table(table, files_exist=True)
    assert [s.summary["streamlake.max-committed-checkpoint-id"] for s in table.snapshots] == [
        str(number) for number in range(20)
    ]
    assert staged(tmp_path) == [19], "only the last one may still be asked for by a replay"


def test_equality_deletes_run_ahead_too(tmp_path: Path) -> None:
    query = stream(tmp_path, "equality", ahead=3).start()
    assert query.finish() is None
    assert query.rows() == expected("equality", SOURCE)


@pytest.mark.parametrize("ahead", [4, 1])
def test_a_driver_is_killed_with_three_checkpoints_pending(ahead: int, tmp_path: Path) -> None:
    """Its successor works elsewhere, has nothing of it but the table and Spark's directory, and may commit at once again."""
    source: list[Record] = [(row, f"v{row}") for row in range(20)]
    home, there = tmp_path / "home", tmp_path / "there"
    there.mkdir()
    LocalStream(home, source).start(2)
    root = str(Path(ahead_driver.__file__).parents[2])
    process = subprocess.Popen(
        [sys.executable, ahead_driver.__file__, str(home), "4", str(len(source))],
        cwd=there,
        env={**os.environ, VARIABLE: "before-swap=delay:60", "PYTHONPATH": root},
    )
    try:
        wait_until(lambda: staged(home)[-3:] == [3, 4, 5], 30, "four staged checkpoints")
        time.sleep(0.3)
        assert staged(home) == [1, 2, 3, 4, 5], "no more than four may be pending"
    finally:
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    assert len(open_table(str(home / "table")).snapshots) == 2
    successor = LocalStream(home, source, ahead=ahead).start()
    assert successor.finish() is None
    assert successor.rows() == sorted(source)
    table = open_table(successor.location)
    check_table(table, files_exist=True)
    assert [s.summary["streamlake.max-committed-checkpoint-id"] for s in table.snapshots] == [
        str(number) for number in range(10)
    ]


@pytest.mark.parametrize("lost", [2, 4])
def test_what_was_staged_and_is_gone_is_noticed(lost: int, tmp_path: Path) -> None:
    """Spark was told that it is done, and does not run it again."""
    source: list[Record] = [(row, "v") for row in range(20)]
    LocalStream(tmp_path, source).start(2)
    io = outage("create_exclusive", calls=10_000)
    with pytest.raises(StorageError):
        LocalStream(tmp_path, source, ahead=4, io=io).start()
    pending = [number for number in staged(tmp_path) if number > 1]
    assert pending[0] == 2
    gone = 2 if lost == 2 else pending[-1]
    if gone == pending[-1] and LocalStream(tmp_path, source).directory.last_completed < gone:
        gone = LocalStream(tmp_path, source).directory.last_completed
    for path in (tmp_path / "table" / "metadata" / "streamlake").rglob(f"checkpoint-{gone:010d}.json"):
        path.unlink()
    before = LocalStream(tmp_path, source)
    with pytest.raises(LineageError, match=rf"checkpoint {gone} was staged .* what was staged is gone"):
        before.start()
